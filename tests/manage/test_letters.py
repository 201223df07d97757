"""Dead letters that others change meanwhile, and what a replay must not lose."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.mail import Mail
from tests.manage.conftest import OPERATORS, Manage, Managed
from tests.manage.test_api import bury, letters, shown
from tests.peers import until

from mq9.commands.request import MAX_ID


@pytest.fixture
def name(mail: Mail) -> str:
    """A mailbox with a mailbox for dead letters."""
    name = f"l{time.monotonic_ns()}"
    mail.done("MAILBOX.CREATE", {"name": name, "dead_letter": f"{name}.dead"})
    return name


def replay(api: httpx.Client, letter: dict[str, Any]) -> None:
    done = api.post(f"/v1/dead-letters/{letter['id']}/replay")
    assert done.json().get("replayed") == 1, done.text


def test_letters_of_a_mailbox_made_again_are_others(
    api: httpx.Client, mail: Mail, name: str
) -> None:
    """Their numbers begin anew, and the broker remembers what was sent under a number."""
    bury(mail, name, b"one")
    [first] = letters(api, name, 1)
    replay(api, first)
    assert mail.fetch(name, "workers")[0]["payload"] == "one"
    mail.ack(name, "workers", 1)
    mail.done(f"MAILBOX.REMOVE.{name}.dead")
    bury(mail, name, b"two")
    [second] = letters(api, name, 1)
    assert second["id"] == first["id"]
    replay(api, second)
    assert [entry["payload"] for entry in mail.fetch(name, "workers")] == ["two"]


HALF = """
authorization {
  users = [
    { user: half, password: half-pw, permissions: {
        publish: { allow: [">", "$mq9.AI.ADMIN.>"], deny: ["$mq9.AI.ADMIN.DEAD.>"] } } }
    { user: other, password: other-pw, permissions: {
        publish: { allow: [">", "$mq9.AI.ADMIN.>"], deny: ["$mq9.AI.MSG.SEND.jobs"] } } }
    { user: boss, password: boss-pw, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
  ]
}
"""


@pytest.mark.parametrize("user", ["half", "other"])
def test_a_replay_that_cannot_be_finished_sends_nothing(manage: Manage, user: str) -> None:
    """To send and to resolve is one step: or it goes out again when somebody tries again later."""
    managed = manage(HALF)
    with managed.mail("boss") as mail, managed.client(auth=(user, f"{user}-pw")) as api:
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead"})
        bury(mail, "jobs", b"x")
        [letter] = letters(api, "jobs", 1)
        refused = api.post(f"/v1/dead-letters/{letter['id']}/replay")
        assert refused.status_code == 403, refused.text
        assert mail.fetch("jobs", "workers") == []
        assert len(mail.done("MSG.QUERY.jobs.dead", {"since": 0})["messages"]) == 1
        if user == "half":
            # Its rights changed nothing of the letter.
            with managed.client(auth=("boss", "boss-pw")) as boss:
                replay(boss, letter)
            assert [entry["payload"] for entry in mail.fetch("jobs", "workers")] == ["x"]


def test_a_refused_replay_leaves_the_letter_and_tells_of_none(
    api: httpx.Client, mail: Mail, name: str
) -> None:
    bury(mail, name, b"x")
    [letter] = letters(api, name, 1)
    mail.done(f"MAILBOX.REMOVE.{name}")
    refused = mail.ask(f"ADMIN.DEAD.REPLAY.{name}.dead.0")
    assert refused["error"] == f"mailbox {name} does not exist"
    told = mail.ask("ADMIN.DEAD.RESOLVED", {"before": MAX_ID, "limit": 1000})["letters"]
    assert [note for note in told if note["subject"] == name] == []
    assert len(mail.done(f"MSG.QUERY.{name}.dead", {"since": 0})["messages"]) == 1
    # It can still go back, once there is a place for it.
    mail.done("MAILBOX.CREATE", {"name": name})
    replay(api, letter)


def test_a_replay_whose_answer_is_lost_is_not_made_again(
    api: httpx.Client, mail: Mail, name: str
) -> None:
    """However much later: nothing has to be remembered, for the letter is gone."""
    mail.done(f"MAILBOX.UPDATE.{name}", {"dedup_window": 1})
    bury(mail, name, b"x")
    [letter] = letters(api, name, 1)
    mail.publish(f"$mq9.AI.ADMIN.DEAD.REPLAY.{name}.dead.0")
    [entry] = until(lambda: mail.fetch(name, "workers"), "it went back")
    assert entry["payload"] == "x"
    mail.ack(name, "workers", entry["msg_id"])
    until(lambda: time.time() > entry["create_time"] + 3, "the window is over")
    again = mail.done(f"ADMIN.DEAD.REPLAY.{name}.dead.0")
    assert (again["resolved"], again.get("msg_id")) == (True, None)
    api.post(f"/v1/dead-letters/{letter['id']}/replay")
    assert mail.fetch(name, "workers") == []


def test_a_letter_of_a_mailbox_made_again_is_not_meant(
    api: httpx.Client, mail: Mail, name: str
) -> None:
    bury(mail, name, b"first")
    letters(api, name, 1)
    before = mail.done("ADMIN.ACTIVITY", {"start": 0, "limit": 1000})["mailboxes"]
    [created_ms] = [row["created_ms"] for row in before if row.get("address") == f"{name}.dead"]
    mail.done(f"MAILBOX.REMOVE.{name}.dead")
    bury(mail, name, b"second")
    for command in ("REPLAY", "RESOLVE"):
        told = mail.ask(f"ADMIN.DEAD.{command}.{name}.dead.0", {"created_ms": created_ms})
        assert told["error"] == "message not found"
    assert mail.fetch(name, "workers") == []


def test_all_values_of_a_header_go_back(api: httpx.Client, mail: Mail, name: str) -> None:
    given = [("x-hop", "a"), ("x-hop", "b"), ("mq9-identity", "kept"), ("mq9-id", "first")]
    mail.done(f"MSG.SEND.{name}", b"x", given)
    for entry in mail.fetch(name, "workers"):
        mail.ack(name, "workers", entry["msg_id"], kind="term")
    [letter] = letters(api, name, 1)
    replay(api, letter)
    [entry] = mail.fetch(name, "workers")
    found = {key.lower(): values for key, values in entry["headers"].items()}
    assert found["x-hop"] == ["a", "b"]
    assert found["mq9-identity"] == ["kept"]
    assert "mq9-dead-reason" not in found


def test_the_counter_of_dead_letters_does_not_fall_when_a_group_goes(
    api: httpx.Client, mail: Mail, name: str
) -> None:
    """Or Prometheus takes it for a restart, and all that is left for new."""
    for number in range(12):
        mail.deliver(name, b"%d" % number)
    for group, count in (("many", 12), ("few", 1)):
        for entry in mail.fetch(name, group, num_msgs=count):
            mail.ack(name, group, entry["msg_id"], kind="term")

    def counted() -> float:
        start = f'hanzo_mq_dead_letter_total{{original_subject="{name}"}} '
        lines = api.get("/metrics").text.splitlines()
        return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))

    until(lambda: counted() == 13, "all are counted")
    mail.done(f"GROUP.REMOVE.{name}", {"group_name": "few"})
    until(lambda: shown(api, "/v1/consumers", search=name)["total"] == 1, "the group is gone")
    assert counted() == 13
    mail.done(f"MAILBOX.REMOVE.{name}")
    until(lambda: shown(api, "/v1/consumers", search=name)["total"] == 0, "the mailbox is gone")
    assert counted() == 13


def test_letters_that_others_remove_leave_the_list(
    api: httpx.Client, mail: Mail, name: str
) -> None:
    bury(mail, name, *(b"%d" % number for number in range(6)))
    letters(api, name, 6)
    mail.done(f"MSG.DELETE.{name}.dead.2")
    left = letters(api, name, 5)
    assert f"{name}.dead:2" not in [letter["id"] for letter in left]


def test_ordinary_messages_are_no_dead_letters(api: httpx.Client, mail: Mail, name: str) -> None:
    bury(mail, name, b"x")
    letters(api, name, 1)
    before = shown(api, "/v1/state")["counts"]["dead_letters"]
    mail.deliver(f"{name}.dead", b"by hand")
    bury(mail, name, b"y")
    letters(api, name, 2)
    assert shown(api, "/v1/state")["counts"]["dead_letters"] == before + 1


def test_all_resolved_letters_are_listed_however_large(manage: Manage) -> None:
    managed = manage()
    with managed.mail() as mail, managed.client() as api:
        mail.done("MAILBOX.CREATE", {"name": "a", "dead_letter": "a.dead"})
        for number in range(70):
            mail.deliver("a", b"%d" % number + b"x" * 20_000)
        while entries := mail.fetch("a", "g", num_msgs=30):
            for entry in entries:
                mail.ack("a", "g", entry["msg_id"], kind="term")
        letters(api, "a", 70)
        for number in range(70):
            mail.done(f"ADMIN.DEAD.RESOLVE.a.dead.{number}")
        listed = shown(api, "/v1/dead-letters", resolved=True, limit=1000)
        assert (listed["total"], len(listed["dead_letters"])) == (70, 70)


def test_the_newest_resolved_letters_are_told_however_many_there_are(manage: Manage) -> None:
    """And a page of them costs no more than the page."""
    managed, count = manage(inside="sync: none"), 10_050
    with managed.mail() as mail, managed.client() as api:
        mail.deadline_s = 60
        mail.done("MAILBOX.CREATE", {"name": "a", "dead_letter": "a.dead"})
        for number in range(count):
            mail.publish("$mq9.AI.MSG.SEND.a", b"%d" % number)
        mail.ping()
        while entries := mail.fetch("a", "g", num_msgs=1000):
            body = {"group_name": "g", "kind": "term"}
            mail.done("MSG.ACK.a", body | {"msg_ids": [entry["msg_id"] for entry in entries]})
        for number in range(count):
            mail.publish(f"$mq9.AI.ADMIN.DEAD.RESOLVE.a.dead.{number}")
            if number % 100 == 99:
                mail.done("ADMIN.DEAD.RESOLVED", {"limit": 1})
        until(
            lambda: mail.done("ADMIN.DEAD.RESOLVED", {"limit": 1})["total"] == count, "all are", 60
        )

        def page(offset: int, **more: object) -> tuple[list[int], int]:
            listed = shown(api, "/v1/dead-letters", resolved=True, limit=50, offset=offset, **more)
            return [int(each["original_id"]) for each in listed["dead_letters"]], listed["total"]

        newest = list(range(count - 1, count - 51, -1))
        assert page(0) == (newest, count)
        assert page(50) == (list(range(count - 51, count - 101, -1)), count)
        assert page(count - 10) == (list(range(9, -1, -1)), count)
        assert page(count) == ([], count)
        assert page(0, queue="a") == (newest, count)
        assert page(0, queue="b") == ([], 0)


def test_purged_letters_are_gone_and_nothing_is_sent(
    api: httpx.Client, plain: Managed, mail: Mail, name: str
) -> None:
    bury(mail, name, *(b"%d" % number for number in range(12)))
    letters(api, name, 12)
    body = {"queue": name, "reason": "terminated", "expected": 11}
    assert api.post("/v1/dead-letters/purge", json=body).status_code == 409
    nothing = api.post("/v1/dead-letters/purge", json=body | {"reason": "max_deliver"}).json()
    assert (nothing["purged"], nothing["total"]) == (0, 0)
    done = api.post("/v1/dead-letters/purge", json=body | {"expected": 12}).json()
    assert (done["purged"], done["replayed"], done["failed"], done["done"]) == (12, 0, 0, True)
    letters(api, name, 0)
    assert mail.fetch(name, "workers") == []
    assert mail.done(f"MSG.QUERY.{name}.dead", {"since": 0})["messages"] == []
    resolved = shown(api, "/v1/dead-letters", resolved="true", queue=name)["dead_letters"]
    assert [each["how"] for each in resolved] == ["purged"] * 12
    lines = [json.loads(line) for line in plain.audit.read_text().splitlines()]
    noted = [(line["action"], line["result"]) for line in lines if name in line["target"]]
    assert noted[-2:] == [("begin purge", "of 12"), ("purge", "12 purged, 0 failed")]


def test_the_audit_file_is_not_for_everybody(plain: Managed) -> None:
    assert plain.audit.stat().st_mode & 0o037 == 0


def test_a_dead_worker_is_missed(manage: Manage) -> None:
    """One that fetched and whose connection closed reads no more: the commonest accident."""
    managed = manage()
    with managed.mail() as mail, managed.client() as api:
        mail.done("MAILBOX.CREATE", {"name": "jobs"})
        mail.deliver("jobs", b"x")

        def members(wanted: int) -> Callable[[], bool]:
            def found() -> bool:
                groups = shown(api, "/v1/consumers", search="jobs")["consumers"]
                return [group["members"] for group in groups] == [wanted]

            return found

        with managed.mail() as worker:
            assert worker.fetch("jobs", "workers")
            until(members(1), "the worker is seen")
        until(members(0), "the worker is missed")


def test_who_signs_in_and_out_is_noted(manage: Manage) -> None:
    managed = manage(OPERATORS)
    given = {"user": "boss", "password": "boss-pw"}
    with managed.client() as client:
        assert client.post("/v1/session", json=given | {"password": "x"}).status_code == 401
        assert client.post("/v1/session", json=given).status_code == 200
        assert client.delete("/v1/session").status_code == 200
    lines = [json.loads(line) for line in managed.audit.read_text().splitlines()]
    found = [(line["action"], line["user"], line["result"][:6]) for line in lines]
    assert found == [
        ("sign in", "boss", "failed"),
        ("sign in", "boss", "done"),
        ("sign out", "boss", "done"),
    ]
