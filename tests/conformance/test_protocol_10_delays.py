"""Messages that are not due yet: they are listed, and can be taken back."""

from tests.mail import Json, Mail, payloads
from tests.restarts import Restarting


def delayed(mail: Mail, box: str, **fields: object) -> list[Json]:
    found: list[Json] = mail.done(f"MSG.QUERY.{box}", {"delayed": True} | fields)["messages"]
    return found


def test_delayed_messages_are_listed(mail: Mail, box: str) -> None:
    """With their `delay_id` and when they are due; others are not."""
    mail.deliver(box, b"now")
    mail.deliver(box, b"one", delay=60, key="k", tags="a,b", priority="urgent", ttl=600)
    mail.deliver(box, b"\xff", delay=90)
    first, second = delayed(mail, box)
    assert list(first) == [
        *("delay_id", "payload", "priority", "create_time", "due_time", "key", "tags", "expires_at")
    ]
    assert (first["delay_id"], first["payload"], first["priority"]) == (0, "one", "urgent")
    assert (first["key"], first["tags"]) == ("k", ["a", "b"])
    assert first["due_time"] - first["create_time"] in (60, 61)
    assert (second["delay_id"], second["payload"], second["encoding"]) == (1, "/w==", "base64")
    assert payloads(mail.done(f"MSG.QUERY.{box}")["messages"]) == ["now"]
    assert mail.done(f"MSG.QUERY.{box}", {"delayed": False})["messages"][0]["msg_id"] == 0


def test_the_list_of_delayed_messages_is_filtered_and_paged(mail: Mail, box: str) -> None:
    """By key, tags and time of the send; `after_id` is a `delay_id`."""
    for number in range(5):
        mail.deliver(box, str(number).encode(), delay=60, tags=f"t{number % 2}")
    mail.deliver(box, b"keyed", delay=60, key="k")
    assert payloads(delayed(mail, box, tags=["t1"])) == ["1", "3"]
    assert payloads(delayed(mail, box, key="k")) == ["keyed"]
    assert delayed(mail, box, since=4_000_000_000) == []
    assert payloads(delayed(mail, box, limit=2)) == ["0", "1"]
    assert payloads(delayed(mail, box, limit=2, after_id=1)) == ["2", "3"]


def test_payloads_of_delayed_messages_are_base64_if_asked_for(mail: Mail, box: str) -> None:
    mail.deliver(box, b"plain", delay=60)
    [entry] = delayed(mail, box, encoding="base64")
    assert (entry["payload"], entry["encoding"]) == ("cGxhaW4=", "base64")
    [entry] = delayed(mail, box)
    assert (entry["payload"], "encoding" in entry) == ("plain", False)


def test_a_long_list_of_delayed_messages_is_cut_and_says_so(mail: Mail, box: str) -> None:
    for number in range(5):
        mail.deliver(box, b"%d" % number * 300_000, delay=60)
    answer = mail.done(f"MSG.QUERY.{box}", {"delayed": True})
    assert (len(answer["messages"]), answer["more"]) == (3, True)
    last = answer["messages"][-1]["delay_id"]
    rest = mail.done(f"MSG.QUERY.{box}", {"delayed": True, "after_id": last})
    assert [entry["payload"][0] for entry in rest["messages"]] == ["3", "4"]
    assert "more" not in rest


def test_a_delayed_message_is_cancelled_by_its_delay_id(mail: Mail, box: str) -> None:
    """With a `d` before it in the subject; once, and it never comes."""
    mail.deliver(box, b"taken back", delay=1)
    mail.deliver(box, b"comes", delay=1)
    [entry, _] = delayed(mail, box)
    cancel = f"MSG.DELETE.{box}.d{entry['delay_id']}"
    assert mail.text(cancel) == '{"error":"","deleted":true}'
    assert mail.text(cancel) == '{"error":"message not found","deleted":false}'
    poll = {"deliver": "earliest", "config": {"max_wait_ms": 5000}}
    assert payloads(mail.done(f"MSG.FETCH.{box}", poll)["messages"]) == ["comes"]
    # The other one is a message like others now.
    assert mail.ask(f"MSG.DELETE.{box}.d1")["error"] == "message not found"
    assert mail.done(f"MSG.DELETE.{box}.0")["deleted"]


def test_a_message_that_was_cancelled_stays_away(own: Restarting, fresh_name: str) -> None:
    """Also after a crash."""
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": fresh_name, "ttl": 600})
        for payload in (b"taken back", b"stays"):
            mail.deliver(fresh_name, payload, delay=60)
        mail.done(f"MSG.DELETE.{fresh_name}.d0")
    own.restart(kill=True)
    with own.connect() as mail:
        assert payloads(delayed(mail, fresh_name)) == ["stays"]
