"""Dead letters are copied to PostgreSQL, each once, whoever is killed meanwhile."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest
from tests.mail import Mail
from tests.manage.conftest import OPERATORS, Managed, free_port, wait_healthy
from tests.manage.postgres import Postgres, binaries
from tests.manage.test_stream_letters import QUEUE, give_up, within
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
    tables = "dead_letters, mq9_dead_letter_positions, mq9_dead_letter_brokers"
    postgres.query(f"DROP TABLE IF EXISTS {tables}")
    return postgres


def config(database: Postgres, listen: int, users: str = "") -> str:
    return (
        f'{users}\nmq9 {{ management {{ listen: "127.0.0.1:{listen}" }}\n'
        f'dead_letters {{ postgres: "{database.url}", broker: "one" }} }}'
    )


def unnamed(database: Postgres, name: str = "") -> str:
    """The configuration of a broker that is given no name, or this one."""
    named = f', broker: "{name}"' if name else ""
    listen = f'listen: "127.0.0.1:{free_port()}"'
    return (
        f'mq9 {{ management {{ {listen} }}\ndead_letters {{ postgres: "{database.url}"{named} }} }}'
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


def test_brokers_without_names_share_a_database(tmp_path: Path, database: Postgres) -> None:
    """Equal mailboxes, ids and times: each letter of each broker is a row, and once."""
    count = 40
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    brokers = [Restarting(folder, unnamed(database)) for folder in folders]
    try:
        for round_of in range(1, 3):
            with Mail(brokers[0].url) as one, Mail(brokers[1].url) as other:
                for number in range(count):
                    bury(one, "q", b'"first %d"' % number)
                    bury(other, "q", b'"second %d"' % number)
            got = rows(database, round_of * 2 * count)
            payloads = [json.loads(row[2]) for row in got]
            for name in ("first", "second"):
                mine = sorted(each for each in payloads if each.startswith(name))
                wanted = sorted(f"{name} {number}" for number in range(count))
                assert sorted(set(mine)) == wanted
                assert len(mine) == round_of * count
            for broker in reversed(brokers):
                broker.restart(kill=True)
        query = "SELECT DISTINCT broker FROM mq9_dead_letter_positions ORDER BY broker"
        [[first], [second]] = database.query(query)
        assert first == "mq9"
        assert re.fullmatch("mq9-[0-9a-f]{16}", second)
    finally:
        for broker in brokers:
            broker.stop()


def test_a_table_of_before_goes_on(tmp_path: Path, database: Postgres) -> None:
    """Its broker had no name, and none was noted: what was copied is not copied again."""
    broker = Restarting(tmp_path, unnamed(database))
    try:
        with Mail(broker.url) as mail:
            bury(mail, "q", b"1", b"2")
        rows(database, 2)
        database.query("DROP TABLE mq9_dead_letter_brokers")
        broker.restart(kill=True)
        with Mail(broker.url) as mail:
            bury(mail, "q", b"3")
        assert [row[2] for row in rows(database, 3)] == ["1", "2", "3"]
    finally:
        broker.stop()


def test_a_name_that_was_another_brokers_is_told(serve: Serve, database: Postgres) -> None:
    """A folder may have been replaced, so it is used; the broker without a name gives way."""
    told = "dead letters were copied here as 'mq9' by another broker"
    first = serve(unnamed(database))
    with Mail(first.url) as mail:
        bury(mail, "q", b"1")
    rows(database, 1)
    second = serve(unnamed(database, "mq9"))
    with Mail(second.url) as mail:
        bury(mail, "q", b"2")
    rows(database, 2)
    assert told in second.log
    assert told not in first.log


USERS = """
authorization {
  users = [
    { user: boss, password: boss-pw, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
    { user: copier, password: copier-pw, permissions: { publish: {
        allow: [">", "$mq9.AI.ADMIN.>"], deny: [%s] } } }
  ]
}
mq9 { management: off }
"""


def test_a_broker_that_refuses_is_told_and_asked_again(serve: Serve, database: Postgres) -> None:
    """Rights that were taken away for a moment end the copying for that moment alone."""
    server = serve(USERS % '"$mq9.AI.ADMIN.DEAD.RESOLVED"')
    listen = free_port()
    url = f"http://127.0.0.1:{listen}"
    command = [sys.executable, "-m", "mq9", "manage", "--nats-url", server.url, "--postgres"]
    command += ["--nats-user", "copier", "--listen", f"127.0.0.1:{listen}"]
    secrets = {"MQ9_MANAGE_PASSWORD": "copier-pw", "MQ9_MANAGE_POSTGRES": database.url}
    boss = ("boss", "boss-pw")
    with subprocess.Popen(command, env=os.environ | secrets) as process:
        try:
            wait_healthy(Managed(server, url, Path()))

            def told() -> bool:
                found = httpx.get(f"{url}/v1/overview", auth=boss, timeout=20).json()["attention"]
                return any("the broker refused" in entry["text"] for entry in found)

            until(told, "the overview says that the broker refused", FOLLOWED_S)
            assert "mq9_archive_up 0.0" in httpx.get(f"{url}/metrics", auth=boss, timeout=20).text
            server.reconfigure(USERS % '"nothing"')
            with Mail(server.url.replace("//", "//boss:boss-pw@")) as mail:
                bury(mail, "q", b"1", b"2")
            assert [row[2] for row in rows(database, 2)] == ["1", "2"]
            until(lambda: not told(), "it is well again", FOLLOWED_S)
        finally:
            process.terminate()
            process.wait(10)


def test_letters_of_streams_become_rows(serve: Serve, database: Postgres) -> None:
    """Each once, also when management is killed, and with the words of the worker."""
    listen, port = free_port(), free_port()
    text = f"jetstream {{}}\n{config(database, listen).removesuffix('}')}\n{QUEUE} }}"
    server = serve(text, port=port)
    found = Managed(server, f"http://127.0.0.1:{listen}", Path())
    wait_healthy(found)
    payloads = [b'{"n": %d}' % number for number in range(600)]
    for first in range(0, 600, 300):
        work = partial(give_up, subject="mq.inference.chat", payloads=payloads[first : first + 300])
        within(found, work)
    got = rows(database, 600)
    assert {(row[0], row[3], row[4]) for row in got} == {
        ("mq.inference.chat", "terminated: no such model", "1")
    }
    assert [json.loads(row[2])["n"] for row in got] == list(range(600))
    assert [int(row[1]) for row in got] == list(range(1, 601))
    with httpx.Client(base_url=found.url, timeout=20) as api:
        until(lambda: api.get("/v1/dead-letters").json()["total"] == 600, "all are listed")
        assert api.post("/v1/dead-letters/stream:HANZO_DLQ:1/replay").is_success
        assert api.patch("/v1/dead-letters/stream:HANZO_DLQ:2", json={"resolved": True}).is_success

    def resolved() -> bool:
        marked = database.query("SELECT original_id FROM dead_letters WHERE resolved")
        return sorted(row[0] for row in marked) == ["1", "2"]

    until(resolved, "the rows say that it is resolved", FOLLOWED_S)
    [child] = psutil.Process(server.pid).children()
    child.kill()
    until(lambda: not child.is_running(), "management was killed")
    wait_healthy(found)
    again = [b"again", b"and again"]
    within(found, lambda stream: give_up(stream, "mq.inference.embed", again))
    assert len(rows(database, 602)) == 602


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
