"""What comes twice after a connection broke, and what only looks like it."""

from mq9.client.message import Message
from mq9.client.sources import Everything


async def _look() -> None:
    """Nobody asks here."""


def _subscription() -> Everything:
    return Everything("a", "$mq9.AI.MAILBOX.MSG.a.*", "", _look)


def _message(msg_id: int, second: int, text: str, priority: str = "normal") -> Message:
    return Message("a", msg_id, text.encode(), priority, second)


def _new(source: Everything, *messages: Message) -> list[str]:
    return [message.text for message in messages if not source._is_known(message)]


def test_what_came_before_is_known_and_what_follows_is_new() -> None:
    source = _subscription()
    first = [_message(0, 5, "a"), _message(1, 6, "b"), _message(2, 6, "u", "urgent")]
    assert _new(source, *first) == ["a", "b", "u"]
    source.lost()
    assert _new(source, *first, _message(3, 6, "c")) == ["c"]
    source.lost()
    assert _new(source, *first, _message(3, 6, "c")) == []


def test_a_mailbox_made_anew_within_the_same_second_is_another() -> None:
    source = _subscription()
    assert _new(source, _message(0, 5, "a"), _message(1, 6, "b"), _message(2, 6, "c"))
    source.lost()
    again = [_message(0, 6, "x"), _message(1, 6, "y"), _message(2, 6, "z"), _message(3, 6, "w")]
    assert _new(source, *again) == ["x", "y", "z", "w"]
    source.lost()
    assert _new(source, *again, _message(4, 7, "v")) == ["v"]
