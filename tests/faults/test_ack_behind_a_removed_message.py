"""An ACK of the last message of a batch confirms the batch, also if that message is gone by then.

Found by the kill test: a worker acknowledged a batch whose last message had been replaced by its
key in the meantime. The reply was a success, and the whole batch came again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.mail import Mail, payloads
from tests.peers import until
from tests.restarts import Restarting


@pytest.fixture
def mail(tmp_path: Path) -> Iterator[Mail]:
    broker = Restarting(tmp_path)
    try:
        with broker.connect() as connection:
            connection.done("MAILBOX.CREATE", {"name": "box"})
            yield connection
    finally:
        broker.stop()


def replaced(mail: Mail, _last: int) -> None:
    mail.deliver("box", b"newer", key="k")


def deleted(mail: Mail, last: int) -> None:
    mail.done(f"MSG.DELETE.box.{last}")


def expired(mail: Mail, _last: int) -> None:
    until(lambda: len(mail.fetch("box")) == 2, "the last message has expired")


@pytest.mark.parametrize("remove", [replaced, deleted, expired])
def test_an_ack_confirms_what_came_before_a_message_that_is_gone(
    mail: Mail, remove: Callable[[Mail, int], None]
) -> None:
    mail.deliver("box", b"one")
    mail.deliver("box", b"two")
    mail.deliver("box", b"three", **({"ttl": 1} if remove is expired else {"key": "k"}))
    batch = mail.fetch("box", "g", member="m")
    assert payloads(batch) == ["one", "two", "three"]
    remove(mail, batch[-1]["msg_id"])
    mail.ack("box", "g", batch[-1]["msg_id"])
    left = payloads(mail.fetch("box", "g", member="m"))
    assert left == (["newer"] if remove is replaced else [])
