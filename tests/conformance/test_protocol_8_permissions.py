"""Permissions count for what is done, not for the subject it is said with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.mail import Mail, ids
from tests.peers import MQ9, Serve, Server


def users(**publish: str) -> str:
    """A configuration with `root`, who may do anything, and users with rules for publishing."""
    rules = [
        f"{{ user: {name}, password: p, permissions {{ publish: {rule} }} }}"
        for name, rule in publish.items()
    ]
    listed = "\n  ".join(["{ user: root, password: p }", *rules])
    return f"authorization {{ users = [\n  {listed}\n] }}\n"


class Place:
    """A broker and connections of its users."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self.server = server
        self._stack = stack

    def user(self, name: str) -> Mail:
        return self._stack.enter_context(Mail(f"nats://{name}:p@127.0.0.1:{self.server.port}"))


@pytest.fixture
def place(serve: Serve) -> Iterator[Callable[..., Place]]:
    """Starts a broker with users."""
    with ExitStack() as stack:
        yield lambda **rules: Place(serve(users(**rules), peer=MQ9), stack)


def violation(subject: str) -> str:
    return f'Permissions Violation for Publish to "{subject}"'


def test_an_acknowledgement_by_reply_subject_needs_the_permission_to_acknowledge(
    place: Callable[..., Place],
) -> None:
    """Who may not ACK may not do so with the reply subject of a raw message either."""
    here = place(
        reader='{ deny: "$mq9.AI.MSG.ACK.>" }',
        worker='{ allow: ["$mq9.AI.MSG.FETCH.>", "$mq9.AI.MSG.ACK.box"] }',
    )
    root, reader, worker = here.user("root"), here.user("reader"), here.user("worker")
    root.done("MAILBOX.CREATE", {"name": "box"})
    root.deliver("box")
    raw = {"group_name": "g", "deliver": "earliest", "config": {"format": "raw"}}
    [entry] = reader.raw("MSG.FETCH.box", raw).entries
    reader.publish(entry.reply, b"+ACK")
    reader.ping()
    assert reader.errors == [violation(entry.reply)]
    reader.close()
    [entry] = worker.raw("MSG.FETCH.box", raw).entries
    worker.publish(entry.reply, b"+ACK")
    worker.ping()
    assert worker.errors == []
    assert ids(root.fetch("box", "g")) == []
