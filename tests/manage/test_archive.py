"""Dead letters are copied to PostgreSQL, each once, whoever is killed meanwhile."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.mail import Mail
from tests.manage.conftest import OPERATORS, Managed, free_port, wait_healthy
from tests.manage.postgres import Postgres, binaries
from tests.peers import Serve, until
from tests.restarts import Restarting

FOLLOWED_S = 120.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    programs = binaries()
    if programs is None:
        assert not os.environ.get("CI"), "PostgreSQL is not installed: make postgres"
        pytest.skip("PostgreSQL is not installed: make postgres")
    server = Postgres(programs)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def database(postgres: Postgres) -> Postgres:
    """Without any tables."""
    postgres.query("DROP TABLE IF EXISTS dead_letters, mq9_dead_letter_positions")
    return postgres


def config(database: Postgres, listen: int, users: str = "") -> str:
    return (
        f'{users}\nmq9 {{ management {{ listen: "127.0.0.1:{listen}" }}\n'
        f'dead_letters {{ postgres: "{database.url}", broker: "one" }} }}'
    )


# So slow that a kill comes in the middle of a transaction.
SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(0.001); RETURN new; END $$;
CREATE TRIGGER slow BEFORE INSERT ON dead_letters FOR EACH ROW EXECUTE FUNCTION slow()
"""


def bury(mail: Mail, name: str, *payloads: bytes) -> None:
    """Send messages and give them up."""
    mail.done("MAILBOX.CREATE", {"name": name, "dead_letter": f"{name}.dead", "exist_ok": True})
    for payload in payloads:
        mail.deliver(name, payload)
    for entry in mail.fetch(name, "workers", num_msgs=len(payloads)):
        mail.ack(name, "workers", entry["msg_id"], kind="term")


def rows(database: Postgres, count: int) -> list[list[str]]:
    """All rows once there are so many; the database may be away meanwhile."""

    def counted() -> bool:
        try:
            [[found]] = database.query("SELECT count(*) FROM dead_letters")
        except AssertionError:
            return False
        return int(found) >= count

    until(counted, f"{count} rows are there", FOLLOWED_S)
    got = database.query(
        "SELECT subject, original_id, payload, error, attempts, resolved FROM dead_letters"
        " ORDER BY original_id::bigint"
    )
    assert len(got) == count
    return got


def test_a_letter_becomes_a_row_and_is_resolved_there_too(serve: Serve, database: Postgres) -> None:
    listen = free_port()
    server = serve(config(database, listen))
    url = f"http://127.0.0.1:{listen}"
    wait_healthy(Managed(server, url, Path()))
    payloads = [b'{"task": 7}', "gr\u00fcn".encode(), b"\xff\x00", b'{"n": 1e400000}', b'"\\u0000"']
    with Mail(server.url) as mail:
        bury(mail, "q", *payloads)
        got = rows(database, len(payloads))
        assert {(row[0], row[3], row[4]) for row in got} == {("q", "terminated", "1")}
        assert [row[1] for row in got] == ["0", "1", "2", "3", "4"]
        documents = [json.loads(row[2]) for row in got]
        assert documents[:2] == [{"task": 7}, "gr\u00fcn"]
        assert documents[2] == {"encoding": "base64", "payload": "/wA="}
        assert [document["encoding"] for document in documents[3:]] == ["base64", "base64"]
        assert httpx.patch(
            f"{url}/v1/dead-letters/q.dead:1", json={"resolved": True}, timeout=20
        ).is_success
        assert httpx.post(f"{url}/v1/dead-letters/q.dead:0/replay", timeout=20).is_success

    def resolved() -> bool:
        marked = database.query("SELECT original_id FROM dead_letters WHERE resolved")
        return sorted(row[0] for row in marked) == ["0", "1"]

    until(resolved, "the rows say that it is resolved", FOLLOWED_S)


def test_a_mailbox_that_is_made_again_is_another(serve: Serve, database: Postgres) -> None:
    listen = free_port()
    server = serve(config(database, listen))
    wait_healthy(Managed(server, f"http://127.0.0.1:{listen}", Path()))
    with Mail(server.url) as mail:
        bury(mail, "q", b"1", b"2")
        rows(database, 2)
        mail.done("MAILBOX.REMOVE.q.dead", {})
        mail.done("MAILBOX.CREATE", {"name": "q.dead"})
        bury(mail, "q", b"3")
        assert [row[2] for row in rows(database, 3)] == ["1", "2", "3"]


def test_a_wrong_url_is_told_and_holds_nothing_up(serve: Serve, database: Postgres) -> None:
    listen = free_port()
    text = config(database, listen).replace("/letters", "/nowhere")
    server = serve(text)
    url = f"http://127.0.0.1:{listen}"
    wait_healthy(Managed(server, url, Path()))

    def told() -> bool:
        entries = httpx.get(f"{url}/v1/overview", timeout=20).json()["attention"]
        return any(entry["kind"] == "archive" and "nowhere" in entry["text"] for entry in entries)

    until(told, "the overview says that letters do not reach the database", FOLLOWED_S)
    assert "mq9_archive_up 0.0" in httpx.get(f"{url}/metrics", timeout=20).text
    assert "nowhere" in server.log
    assert "mq9@" not in server.log


def test_each_once_while_both_are_killed(tmp_path: Path, database: Postgres) -> None:
    """10,000 letters; the database is killed twice, the broker once."""
    count, batch = 10_000, 500
    broker = Restarting(tmp_path, config(database, free_port(), OPERATORS))
    try:
        until(
            lambda: database.query("SELECT to_regclass('dead_letters')") == [["dead_letters"]],
            "the table is there",
            FOLLOWED_S,
        )
        database.query(SLOW)
        done = threading.Event()
        killed = []

        def reached(number: int) -> None:
            until(lambda: buried >= number or done.is_set(), f"{number} are buried", 300)

        def disturb() -> None:
            for at in (2_000, 5_000):
                reached(at)
                database.kill()
                killed.append("database")
                reached(at + 1_000)
                database.start()

        buried = 0
        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        while buried < count:
            url = broker.url.replace("//", "//boss:boss-pw@")
            with Mail(url) as mail:
                for _ in range(4):
                    bury(mail, "q", *(str(buried + each).encode() for each in range(batch)))
                    buried += batch
            if buried == 4_000:
                broker.restart(kill=True)
                killed.append("broker")
        done.set()
        disturbing.join()
        got = rows(database, count)
        assert sorted(int(row[2]) for row in got) == list(range(count))
        assert sorted(killed) == ["broker", "database", "database"]
    finally:
        broker.stop()
