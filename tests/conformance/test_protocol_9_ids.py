"""Sends that are made twice."""

import pytest
from tests.conformance.conftest import Create
from tests.mail import Json, Mail, ids, payloads
from tests.restarts import Restarting


def send(mail: Mail, box: str, name: str = "mq9-id", value: str = "a-1", **more: str) -> str:
    headers = {name: value} | {f"mq9-{key}": text for key, text in more.items()}
    return mail.text(f"MSG.SEND.{box}", b"once", headers)


def of_id(msg_id: int, *, again: bool = False) -> str:
    more = ',"duplicate":true' if again else ""
    return f'{{"error":"","msg_id":{msg_id}{more}}}'


@pytest.mark.parametrize("name", ["mq9-id", "Nats-Msg-Id", "MQ9-ID", "nats-msg-id"])
def test_a_send_with_an_id_is_carried_out_once(mail: Mail, box: str, name: str) -> None:
    """The same reply again, with `duplicate`; another id is another message."""
    assert send(mail, box, name) == of_id(0)
    assert send(mail, box, name) == of_id(0, again=True)
    assert send(mail, box, name, "a-2") == of_id(1)
    assert payloads(mail.fetch(box)) == ["once", "once"]


def test_both_headers_are_one_id(mail: Mail, box: str) -> None:
    """What one made known, the other finds; two different ones are refused."""
    assert send(mail, box, "mq9-id") == of_id(0)
    assert send(mail, box, "Nats-Msg-Id") == of_id(0, again=True)
    both = [("mq9-id", "a-1"), ("Nats-Msg-Id", "a-1")]
    assert mail.text(f"MSG.SEND.{box}", b"", both) == of_id(0, again=True)
    answer = mail.ask(f"MSG.SEND.{box}", b"", [("mq9-id", "a-1"), ("Nats-Msg-Id", "b")])
    assert answer["error"] == "Nats-Msg-Id is another id than the one before: a message has one"


def test_an_id_is_that_of_its_mailbox(mail: Mail, create: Create) -> None:
    """Two mailboxes know nothing of each other."""
    first, second = create(), create()
    assert send(mail, first) == of_id(0)
    assert send(mail, second) == of_id(0)


def test_the_id_travels_with_the_message(mail: Mail, box: str) -> None:
    """Like any other header."""
    send(mail, box)
    [entry] = mail.fetch(box)
    assert entry["headers"] == {"mq9-id": ["a-1"]}


@pytest.mark.parametrize(
    ("value", "problem"), [("", "is empty"), ("x" * 256, "has 256 bytes, at most 255 are allowed")]
)
def test_a_bad_id_is_refused(mail: Mail, box: str, value: str, problem: str) -> None:
    """1 to 255 bytes."""
    for name in ("mq9-id", "Nats-Msg-Id"):
        answer = mail.ask(f"MSG.SEND.{box}", b"", {name: value})
        assert answer == {"error": f"{name} {problem}", "msg_id": -1}
    assert mail.fetch(box) == []


def test_a_send_that_failed_may_be_made_again(mail: Mail, create: Create) -> None:
    """Only what was stored is known."""
    box = create(max_msgs=1, discard="new")
    mail.deliver(box)
    assert "full" in send(mail, box)
    mail.done(f"MSG.DELETE.{box}.0")
    assert send(mail, box) == of_id(1)


@pytest.mark.parametrize("fields", [{}, {"type": "latest"}, {"retention": "work_queue"}])
def test_it_is_known_when_the_message_is_gone(mail: Mail, create: Create, fields: Json) -> None:
    """Consumed, deleted or replaced."""
    box = create(**fields)
    assert send(mail, box, key="k") == of_id(0)
    mail.deliver(box, b"newer", key="k")
    assert send(mail, box, key="k") == of_id(0, again=True)
    assert ids(mail.fetch(box, "g")) == [1]
    mail.ack(box, "g", 1)
    mail.ask(f"MSG.DELETE.{box}.1")
    assert send(mail, box, key="k") == of_id(0, again=True)
    assert mail.deliver(box) == 2


def test_a_delayed_message_is_sent_once(mail: Mail, box: str) -> None:
    """Its reply is -1 again, before it is due and after."""
    assert send(mail, box, delay="1") == of_id(-1)
    assert send(mail, box, delay="1") == of_id(-1, again=True)
    poll = {"deliver": "earliest", "config": {"max_wait_ms": 5000}}
    assert ids(mail.done(f"MSG.FETCH.{box}", poll)["messages"]) == [0]
    assert send(mail, box, delay="1") == of_id(-1, again=True)


def test_the_window_is_that_of_the_mailbox(mail: Mail, create: Create) -> None:
    """When `dedup_window` is over, the same id is a new message."""
    box = create(dedup_window=1)
    assert send(mail, box) == of_id(0)
    while (answer := send(mail, box)) == of_id(0, again=True):
        pass
    assert answer == of_id(1)


@pytest.mark.parametrize("kill", [True, False])
def test_it_is_known_after_a_restart(own: Restarting, fresh_name: str, kill: bool) -> None:
    """Gentle or not."""
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": fresh_name, "ttl": 600})
        assert send(mail, fresh_name) == of_id(0)
        assert send(mail, fresh_name, value="late", delay="60") == of_id(-1)
        mail.done(f"MSG.DELETE.{fresh_name}.0")
    own.restart(kill=kill)
    with own.connect() as mail:
        assert send(mail, fresh_name) == of_id(0, again=True)
        assert send(mail, fresh_name, value="late", delay="60") == of_id(-1, again=True)
