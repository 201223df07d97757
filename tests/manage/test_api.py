"""The REST interface against a real broker: what it tells is what the broker holds."""

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.mail import Mail
from tests.manage.conftest import Managed
from tests.peers import until

_numbers = itertools.count()


@pytest.fixture
def name(mail: Mail) -> str:
    """A mailbox of its own, with a mailbox for dead letters."""
    name = f"q{next(_numbers)}.{time.monotonic_ns()}"
    mail.done("MAILBOX.CREATE", {"name": name, "dead_letter": f"{name}.dead", "max_deliver": 3})
    return name


def shown(api: httpx.Client, path: str, **query: object) -> Any:  # noqa: ANN401
    response = api.get(path, params=query)  # type: ignore[arg-type]
    assert response.status_code == 200, response.text
    return response.json()


def queue(api: httpx.Client, name: str, when: Callable[[Any], bool]) -> Any:  # noqa: ANN401
    """A queue as the list shows it, once that has come true: the list follows the broker."""

    def found() -> Any:  # noqa: ANN401
        rows = shown(api, "/v1/queues", search=name)["queues"]
        return next((row for row in rows if row["name"] == name and when(row)), None)

    return until(found, "the list has followed")


def bury(mail: Mail, name: str, *payloads: bytes) -> None:
    """Send messages and give them up."""
    for payload in payloads:
        mail.deliver(name, payload, priority="urgent", key=payload.decode())
    for entry in mail.fetch(name, "workers"):
        mail.ack(name, "workers", entry["msg_id"], kind="term")


def letters(api: httpx.Client, name: str, count: int) -> list[Any]:
    def found() -> Any:  # noqa: ANN401
        listed = shown(api, "/v1/dead-letters", queue=name)
        return listed if listed["total"] == count else None

    found_letters: list[Any] = until(found, f"{count} dead letters are listed")["dead_letters"]
    return found_letters


def test_a_queue_is_listed_with_its_numbers(api: httpx.Client, mail: Mail, name: str) -> None:
    mail.deliver(name, b"1", priority="critical")
    mail.deliver(name, b"2")
    mail.deliver(name, b"3", delay=3600)
    mail.fetch(name, "g", num_msgs=1)
    row = queue(api, name, lambda row: row["in_flight"] == 1 and row["delayed"] == 1)
    assert (row["depth"], row["consumers"], row["kind"]) == (2, 1, "mailbox")
    assert row["levels"] == {"1": 1, "5": 1}
    assert row["oldest_s"] >= 0
    detail = shown(api, f"/v1/queues/{name}")
    assert detail["lanes"] == {"1": 1, "5": 1}
    [group] = detail["groups"]
    assert (group["name"], group["lag"], group["ack_pending"]) == ("g", 1, 1)
    assert detail["policy"]["dead_letter"] == f"{name}.dead"
    [found] = shown(api, "/v1/consumers/g", queue=name)["consumers"]
    assert (found["delivered"], found["acked"]) == (1, 0)
    mail.ack(name, "g", 0)

    def acked() -> int:
        [found] = shown(api, "/v1/consumers/g", queue=name)["consumers"]
        return int(found["acked"])

    until(acked, "the ACK is counted")


def test_looking_takes_nothing(api: httpx.Client, mail: Mail, name: str) -> None:
    mail.deliver(name, b"\xff\x00", key="k")
    for _ in range(2):
        [entry] = shown(api, f"/v1/queues/{name}/messages")["messages"]
        assert (entry["msg_id"], entry["encoding"]) == (0, "base64")
    assert len(mail.fetch(name, "g")) == 1


def test_a_removed_queue_leaves_the_list(api: httpx.Client, mail: Mail, name: str) -> None:
    queue(api, name, lambda _row: True)
    mail.done(f"MAILBOX.REMOVE.{name}")
    until(
        lambda: shown(api, "/v1/queues", search=name)["total"] == 0,
        "the list has followed",
    )
    assert api.get(f"/v1/queues/{name}").status_code == 404


def test_lists_come_in_pages_and_in_order(api: httpx.Client, mail: Mail) -> None:
    mark = f"page{time.monotonic_ns()}"
    for number in range(7):
        address = f"{mark}.{number}"
        mail.done("MAILBOX.CREATE", {"name": address})
        for _ in range(number):
            mail.deliver(address, b"x")
    queue(api, f"{mark}.6", lambda row: row["depth"] == 6)
    seen = []
    for offset in range(0, 7, 3):
        part = shown(api, "/v1/queues", search=mark, sort="depth", limit=3, offset=offset)
        assert part["total"] == 7
        seen += [row["depth"] for row in part["queues"]]
    assert seen == [6, 5, 4, 3, 2, 1, 0]
    by_name = shown(api, "/v1/queues", search=mark, sort="name")["queues"]
    assert [row["name"] for row in by_name] == sorted(row["name"] for row in by_name)
    assert api.get("/v1/queues", params={"sort": "luck"}).status_code == 422


def test_send_purge_and_remove(api: httpx.Client, plain: Managed, mail: Mail, name: str) -> None:
    sent = api.post(
        f"/v1/queues/{name}/messages", json={"payload": "hello", "priority": "urgent", "key": "k"}
    )
    assert sent.json() == {"msg_id": 0}
    [entry] = mail.fetch(name)
    assert (entry["payload"], entry["priority"], entry["key"]) == ("hello", "urgent", "k")
    mail.deliver(name, b"2")
    refused = api.post(f"/v1/queues/{name}/purge", json={"expected": 1})
    assert (refused.status_code, refused.json()["found"]) == (409, 2)
    assert refused.headers["content-type"] == "application/problem+json"
    assert api.post(f"/v1/queues/{name}/purge", json={"expected": 2}).json() == {"purged": 2}
    assert api.delete(f"/v1/queues/{name}").json() == {"removed": True}
    assert api.delete(f"/v1/queues/{name}").status_code == 404
    lines = [json.loads(line) for line in plain.audit.read_text().splitlines()]
    noted = [(line["action"], line["result"][:6]) for line in lines if line["target"] == name]
    assert noted == [
        ("send", "done"),
        ("purge", "failed"),
        ("purge", "done"),
        ("remove", "done"),
        ("remove", "failed"),
    ]


def test_a_dead_letter_is_shown_and_goes_back_once(
    api: httpx.Client, mail: Mail, name: str
) -> None:
    bury(mail, name, b"poison")
    [letter] = letters(api, name, 1)
    assert (letter["subject"], letter["original_id"]) == (name, "0")
    assert (letter["error"], letter["attempts"], letter["resolved"]) == ("terminated", 1, False)
    full = shown(api, f"/v1/dead-letters/{letter['id']}")
    assert full["payload"] == "poison"
    path = f"/v1/dead-letters/{letter['id']}/replay"
    assert api.post(path).json()["replayed"] == 1
    assert api.post(path).status_code == 404
    [entry] = mail.fetch(name, "workers")
    assert (entry["payload"], entry["priority"], entry["key"]) == ("poison", "urgent", "poison")
    assert not [header for header in entry.get("headers", {}) if header.startswith("mq9-dead")]
    letters(api, name, 0)
    [resolved] = shown(api, "/v1/dead-letters", resolved="true", queue=name)["dead_letters"]
    assert (resolved["how"], resolved["resolved"]) == ("replayed", True)


def test_all_of_a_reason_go_back_and_others_stay(api: httpx.Client, mail: Mail, name: str) -> None:
    bury(mail, name, *(b"%d" % number for number in range(25)))
    letters(api, name, 25)
    [reason] = [
        each for each in shown(api, "/v1/dead-letters/reasons")["reasons"] if each["queue"] == name
    ]
    assert (reason["reason"], reason["count"]) == ("terminated", 25)
    some = api.post("/v1/dead-letters/replay-all", json={"queue": name, "limit": 5}).json()
    assert (some["replayed"], some["done"], some["failed"]) == (5, True, 0)
    letters(api, name, 20)
    body = {"queue": name, "expected": 19}
    assert api.post("/v1/dead-letters/replay-all", json=body).status_code == 409
    body = {"queue": name, "expected": 20, "wait": False}
    job = api.post("/v1/dead-letters/replay-all", json=body).json()["job"]
    until(lambda: shown(api, f"/v1/dead-letters/jobs/{job}")["done"], "the job has ended")
    assert shown(api, f"/v1/dead-letters/jobs/{job}")["replayed"] == 20
    assert len(mail.fetch(name, "workers", num_msgs=100)) == 25


def test_a_dead_letter_is_resolved_without_sending(
    api: httpx.Client, mail: Mail, name: str
) -> None:
    bury(mail, name, b"enough")
    [letter] = letters(api, name, 1)
    changed = api.patch(f"/v1/dead-letters/{letter['id']}", json={"resolved": True})
    assert changed.json()["resolved"] is True
    letters(api, name, 0)
    assert mail.fetch(name, "workers") == []


def test_metrics_have_the_names_of_the_document(api: httpx.Client, mail: Mail, name: str) -> None:
    bury(mail, name, b"a", b"b")
    mail.deliver(name, b"c")
    labels = f'{{consumer="workers",stream="{name}"}}'

    def lines() -> dict[str, float] | None:
        text = api.get("/metrics").text
        samples = [line.rpartition(" ") for line in text.splitlines() if line[0] != "#"]
        found = {sample[0]: float(sample[2]) for sample in samples}
        # What the broker counts itself is told a moment later.
        has_followed = (
            found.get(f"hanzo_mq_pending_count{labels}") == 1
            and f'hanzo_mq_dead_letter_total{{original_subject="{name}"}}' in found
        )
        return found if has_followed else None

    found = until(lines, "metrics have followed")
    assert found is not None
    assert found[f"hanzo_mq_delivered_total{labels}"] == 2
    assert found[f"hanzo_mq_acked_total{labels}"] == 0
    assert found[f'hanzo_mq_dead_letter_total{{original_subject="{name}"}}'] == 2
    assert found["hanzo_mq_connections_active"] >= 1
    assert "hanzo_mq_reconnections_total" in found
    assert found["mq9_up"] == 1
    assert found[f'mq9_mailbox_messages{{mailbox="{name}"}}'] == 3


def test_the_overview_says_what_needs_attention(api: httpx.Client, mail: Mail, name: str) -> None:
    bury(mail, name, b"x")
    letters(api, name, 1)

    def kinds() -> bool:
        overview = shown(api, "/v1/overview")
        return "dead_letters" in [each["kind"] for each in overview["attention"]]

    until(kinds, "dead letters are told")


def test_agents_and_connections(api: httpx.Client, mail: Mail, name: str) -> None:
    card = {"mailbox": name, "name": "Reader", "description": "reads invoices"}
    mail.done("AGENT.REGISTER", card)
    found = until(lambda: shown(api, "/v1/agents", q="invoices")["agents"], "the agent is found")
    assert "Reader" in json.dumps(found)
    page = shown(api, "/v1/agents", q="invoices", by="meaning")
    [at] = [at for at, agent in enumerate(page["agents"]) if agent["mailbox"] == name]
    assert 0 < page["scores"][at] <= 1
    assert page["scores"] == sorted(page["scores"], reverse=True)
    status = page["statuses"][at]
    assert status["alive"] is True
    assert 0 <= time.time() - status["last_seen"] < 600
    mail.done("AGENT.REPORT", {"mailbox": name, "load": 0.5})
    everybody = shown(api, "/v1/agents", limit=1000)
    assert everybody["scores"] is None
    reports = [each["report"] for each in everybody["statuses"]]
    assert {"mailbox": name, "load": 0.5} in reports
    assert shown(api, "/v1/connections")["total"] >= 2


def test_what_cannot_be_is_refused_with_a_problem(api: httpx.Client, name: str) -> None:
    for method, path, body in (
        ("GET", "/v1/queues?limit=0", None),
        ("GET", "/v1/queues/no%20name", None),
        ("GET", "/v1/queues/not.there", None),
        ("GET", "/v1/dead-letters/none:1", None),
        ("GET", "/v1/dead-letters/jobs/999999", None),
        ("GET", "/v1/nothing", None),
        ("POST", f"/v1/queues/{name}/messages", {"payload": 1}),
        ("POST", f"/v1/queues/{name}/messages", {"payload": "x", "surprise": 1}),
        ("POST", f"/v1/queues/{name}/messages", {"payload": "x", "key": "a\r\nmq9-ttl: 1"}),
        ("POST", f"/v1/queues/{name}/messages", {"payload": "x", "priority": "loud"}),
        ("PATCH", "/v1/dead-letters/none:1", {"resolved": False}),
    ):
        response = api.request(method, path, json=body)
        assert 400 <= response.status_code < 500, (path, response.text)
        assert response.headers["content-type"] == "application/problem+json", path
        assert response.json()["detail"]


def test_a_body_that_is_too_large_or_of_unknown_length_is_not_read(api: httpx.Client) -> None:
    assert api.post("/v1/queues/a/messages", content=b"x" * (3 << 20)).status_code == 413
    assert api.post("/v1/queues/a/messages", content=iter([b"x"])).status_code == 411


@pytest.mark.parametrize("before", range(4))
def test_a_long_text_that_was_resolved_stays_text(
    api: httpx.Client, mail: Mail, name: str, before: int
) -> None:
    """Its beginning is kept, and may end in the middle of a character."""
    payload = "x" * before + "\N{GRINNING FACE}" * 5000
    mail.deliver(name, payload.encode())
    [entry] = mail.fetch(name, "workers")
    mail.ack(name, "workers", entry["msg_id"], kind="term")
    [letter] = letters(api, name, 1)
    assert api.patch(f"/v1/dead-letters/{letter['id']}", json={"resolved": True}).is_success
    listed = shown(api, "/v1/dead-letters", resolved="true", queue=name)["dead_letters"]
    [kept] = [each for each in listed if each["id"] == letter["id"]]
    assert kept.get("encoding") is None
    assert payload.startswith(kept["payload"])
    assert len(kept["payload"].encode()) > (16 << 10) - 4


def test_half_a_character_at_the_end_of_a_payload_is_no_text(
    api: httpx.Client, mail: Mail, name: str
) -> None:
    mail.deliver(name, b"broken \xf0\x9f")
    [entry] = mail.fetch(name, "workers")
    mail.ack(name, "workers", entry["msg_id"], kind="term")
    [letter] = letters(api, name, 1)
    assert api.patch(f"/v1/dead-letters/{letter['id']}", json={"resolved": True}).is_success
    listed = shown(api, "/v1/dead-letters", resolved="true", queue=name)["dead_letters"]
    [kept] = [each for each in listed if each["id"] == letter["id"]]
    assert kept["encoding"] == "base64"
