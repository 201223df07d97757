"""Bad input, case by case: each gets its error, changes nothing, and the connection lives on."""

import json
import secrets
from collections.abc import Iterator

import pytest
from tests.conformance.bad_requests import TABLE, Bad
from tests.mail import Json, Mail

# What stands beside `error` in the reply of each command.
SHAPES: dict[str, Json] = {
    "MSG.SEND": {"msg_id": -1},
    "MSG.FETCH": {"messages": []},
    "MSG.ACK": {},
    "MSG.RACK": {},
    "MSG.QUERY": {"messages": []},
    "MSG.DELETE": {"deleted": False},
    "MAILBOX.CREATE": {"mail_address": ""},
}


class Scene:
    """A mailbox with a bit of everything, and who watches it from outside."""

    def __init__(self, mail: Mail, watcher: Mail, box: str, missing: str) -> None:
        self.mail, self.watcher, self.box, self.missing = mail, watcher, box, missing
        mail.deliver(box, b"held", key="k", tags="a")
        mail.deliver(box, b"also held", priority="urgent", ttl=600)
        mail.fetch(box, "held", member="holder", ack_wait_ms=600_000)
        mail.deliver(box, b"waiting")
        mail.deliver(box, b"later", delay=600)
        self.before = self.state()

    def state(self) -> Json:
        """Everything of the mailbox that can be seen without changing it."""
        everything = self.watcher.done(f"MSG.QUERY.{self.box}")
        missing = self.watcher.ask(f"MSG.QUERY.{self.missing}")
        return {"messages": everything["messages"], "missing": missing["error"]}


@pytest.fixture(scope="module")
def scene(url: str) -> Iterator[Scene]:
    name = f"test.{secrets.token_hex(8)}"
    with Mail(url) as mail, Mail(url) as watcher:
        mail.done("MAILBOX.CREATE", {"name": name, "ttl": 600})
        yield Scene(mail, watcher, name, f"{name}.missing")


def test_the_table_is_long_enough() -> None:
    """At least 150 requests, no two the same."""
    assert len(TABLE) >= 150
    assert len({(each.command, each.request, each.headers) for each in TABLE}) == len(TABLE)


@pytest.mark.parametrize("case", TABLE, ids=[each.name for each in TABLE])
def test_a_bad_request_gets_its_error_and_changes_nothing(scene: Scene, case: Bad) -> None:
    """One reply in the shape of success, with words that name the problem; then work goes on."""

    def filled(text: str) -> str:
        return text.replace("{box}", scene.box).replace("{missing}", scene.missing)

    mail = scene.mail
    request = case.request.replace(b"{box}", scene.box.encode())
    request = request.replace(b"{missing}", scene.missing.encode())
    text = mail.text(filled(case.command), request, case.headers or None)
    answer: Json = json.loads(text)
    [shape] = [shape for name, shape in SHAPES.items() if case.command.startswith(name)]
    assert list(answer) == ["error", *shape]
    assert {name: answer[name] for name in shape} == shape
    assert answer["error"] != ""
    assert filled(case.problem) in answer["error"]
    # The same connection goes on, and nothing else was said.
    assert scene.state() == scene.before
    mail.ping()
    assert (mail.arrived, mail.errors) == ({}, [])


def test_nothing_was_changed_by_all_of_them(scene: Scene) -> None:
    """Leases, groups and ids are where they were; what was held is still held."""
    watcher, box = scene.watcher, scene.box
    assert [entry["payload"] for entry in watcher.fetch(box, "held")] == ["waiting"]
    again = watcher.fetch(box, "held", member="holder")
    assert [(entry["payload"], entry["deliveries"]) for entry in again] == [
        ("also held", 2),
        ("held", 2),
    ]
    assert watcher.deliver(box) == 3
