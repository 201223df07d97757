"""Dead letters that others change meanwhile, and what a replay must not lose."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.mail import Mail
from tests.manage.conftest import OPERATORS, Manage
from tests.manage.test_api import bury, letters, shown
from tests.peers import until


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
