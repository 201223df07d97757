"""Rules for every command: replies, bad input, times, and who may listen."""

import json
import time
from collections.abc import Callable

import pytest
from tests.conformance.conftest import Create
from tests.mail import Mail, payloads
from tests.peers import MQ9, Serve, until

Connect = Callable[[], Mail]


def commands(box: str) -> list[tuple[str, object]]:
    """One request of each command that succeeds or fails, as it happens."""
    return [
        ("MAILBOX.CREATE", {"name": box}),
        (f"MSG.SEND.{box}", b"hello"),
        (f"MSG.FETCH.{box}", {"group_name": "g", "deliver": "earliest"}),
        (f"MSG.ACK.{box}", {"group_name": "g", "msg_id": 0}),
        (f"MSG.QUERY.{box}", {}),
        (f"MSG.DELETE.{box}.0", b""),
    ]


def test_every_request_gets_exactly_one_reply(mail: Mail, box: str) -> None:
    """Whatever the command and its outcome, one reply comes, and no second one."""
    subjects = [mail.begin(*command) for command in commands(box)]
    for subject in subjects:
        mail.reply(subject)
    # Whatever else was coming would be before this.
    mail.deliver(box)
    mail.ping()
    assert mail.arrived == {}


def test_replies_are_compact_json_with_the_error_first(mail: Mail, box: str) -> None:
    """A reply is JSON without spaces; `error` comes first and is empty on success."""
    for command in commands(box):
        text = mail.text(*command)
        answer = json.loads(text)
        assert json.dumps(answer, separators=(",", ":"), ensure_ascii=False) == text
        assert next(iter(answer)) == "error"
        assert (answer["error"] == "") == (command[0] != "MAILBOX.CREATE"), command


def test_replies_have_their_keys_in_the_order_of_the_documents(mail: Mail, fresh_name: str) -> None:
    """The keys of each reply, in order."""
    box = fresh_name
    created = mail.done("MAILBOX.CREATE", {"name": box, "ttl": 600})
    assert list(created) == ["error", "mail_address"]
    headers = {"mq9-key": "k", "mq9-tags": "a", "mq9-ttl": "60", "X": "y"}
    assert list(mail.done(f"MSG.SEND.{box}", b"\xff", headers)) == ["error", "msg_id"]
    fetched = mail.done(f"MSG.FETCH.{box}", {"group_name": "g", "deliver": "earliest"})
    assert list(fetched) == ["error", "messages"]
    entry = ["msg_id", "payload", "encoding", "priority", "create_time"]
    entry += ["key", "tags", "headers", "expires_at"]
    assert list(fetched["messages"][0]) == [*entry, "deliveries"]
    queried = mail.done(f"MSG.QUERY.{box}")
    assert list(queried) == ["error", "messages"]
    assert list(queried["messages"][0]) == entry
    assert list(mail.done(f"MSG.ACK.{box}", {"group_name": "g", "msg_id": 0})) == ["error"]
    assert list(mail.done(f"MSG.DELETE.{box}.0")) == ["error", "deleted"]


def test_a_request_without_a_reply_subject_is_carried_out_and_not_answered(
    mail: Mail, fresh_name: str
) -> None:
    """All commands work when nobody waits for the answer, and nothing is sent back."""
    box = fresh_name
    mail.publish("$mq9.AI.MAILBOX.CREATE", {"name": box, "ttl": 600})
    until(lambda: mail.ask(f"MSG.QUERY.{box}")["error"] == "", "the mailbox is there")
    mail.publish(f"$mq9.AI.MSG.SEND.{box}", b"one")
    mail.publish(f"$mq9.AI.MSG.SEND.{box}", b"two")
    mail.publish(f"$mq9.AI.MSG.SEND.{box}", b"three")
    mail.publish(f"$mq9.AI.MSG.DELETE.{box}.1")
    mail.publish(f"$mq9.AI.MSG.FETCH.{box}", {"group_name": "g", "deliver": "earliest"})
    mail.publish(f"$mq9.AI.MSG.ACK.{box}", {"group_name": "g", "msg_id": 0})
    mail.ping()
    assert payloads(mail.done(f"MSG.QUERY.{box}")["messages"]) == ["one", "three"]
    assert payloads(mail.fetch(box, "g")) == ["three"]
    assert mail.arrived == {}
    assert mail.errors == []


def test_a_publish_that_cannot_be_carried_out_is_told_to_its_client_and_counted(
    serve: Serve, fresh_name: str
) -> None:
    """As a permissions violation: every NATS client shows that and goes on."""
    server = serve(peer=MQ9)
    with Mail(server.url) as mail:
        mail.done("MAILBOX.CREATE", {"name": "box"})
        mail.done("MAILBOX.CREATE", {"name": "full", "max_msgs": 1, "discard": "new"})
        mail.deliver("full")
        refused: list[tuple[str, bytes, dict[str, str] | None]] = [
            (f"MSG.SEND.{fresh_name}", b"no such mailbox", None),
            ("MSG.SEND.Bad", b"bad address", None),
            ("MSG.SENT.box", b"no such command", None),
            ("NONSENSE", b"no such command", None),
            ("MSG.SEND.box", bytes(mail.info["max_payload"] + 1), None),
            ("MSG.SEND.box", b"bad header", {"mq9-priority": "none such"}),
            ("MSG.SEND.full", b"no room", None),
            ("MSG.FETCH.box", b"{", None),
            ("MSG.ACK.box", b"{}", None),
            ("MSG.DELETE.box.7", b"no such message", None),
            ("MAILBOX.CREATE", b'{"name": "box"}', None),
            ("AGENT.UNREGISTER", b"{}", None),
        ]
        for command, payload, headers in refused:
            mail.publish(f"$mq9.AI.{command}", payload, headers)
        violation = 'Permissions Violation for Publish to "$mq9.AI.{}"'.format
        expected = sorted(violation(command) for command, *_ in refused)
        while len(mail.errors) < len(refused):
            mail.pump(time.monotonic() + mail.deadline_s)
        assert sorted(mail.errors) == expected
        assert mail.deliver("box") == 0
        assert server.monitor("/varz")["mq9"]["refused"] == len(refused)


def test_a_request_to_an_unknown_command_gets_an_error_that_names_it(mail: Mail) -> None:
    """Rather than the silence of a server that has nobody for it."""
    for command in ("MSG.SENT.box", "MAILBOX.MADE", "NONSENSE", "INBOXES.box.none"):
        assert mail.text(command) == f'{{"error":"unknown command \\"{command}\\""}}'


BAD_INPUT = {
    "broken JSON": ("MSG.FETCH.{box}", b'{"deliver":', "EOF while parsing"),
    "wrong type": ("MSG.FETCH.{box}", {"config": {"num_msgs": "ten"}}, "config.num_msgs"),
    "unknown enum value": ("MSG.FETCH.{box}", {"deliver": "oldest"}, "deliver"),
    "bad address": ("MSG.FETCH.task-1", {}, 'invalid mail_address "task-1"'),
    "number out of range": ("MSG.FETCH.{box}", {"config": {"num_msgs": 0}}, "config.num_msgs is 0"),
}


@pytest.mark.parametrize("kind", BAD_INPUT)
def test_bad_input_gets_an_error_changes_nothing_and_keeps_the_connection(
    mail: Mail, box: str, kind: str
) -> None:
    """The error names what is wrong and where; the long table is in test_protocol_bad_input."""
    command, request, problem = BAD_INPUT[kind]
    answer = mail.ask(command.replace("{box}", box), request)
    assert problem in answer["error"]
    assert answer["messages"] == []
    assert mail.deliver(box) == 0
    assert mail.errors == []


def test_a_payload_over_the_limit_gets_an_error_and_keeps_the_connection(
    mail: Mail, box: str
) -> None:
    """More than `max_payload` is refused like any other bad input."""
    limit: int = mail.info["max_payload"]
    answer = mail.ask(f"MSG.SEND.{box}", bytes(limit + 1))
    assert "max_payload" in answer["error"] or str(limit) in answer["error"]
    assert answer["msg_id"] == -1
    assert mail.deliver(box, b"after it") == 0
    assert payloads(mail.fetch(box)) == ["after it"]


@pytest.mark.parametrize(
    ("command", "shape"),
    [
        ("MSG.QUERY.nobody", {"messages": []}),
        ("MAILBOX.CREATE", {"mail_address": ""}),
        ("PUBLIC.LIST", {"mailboxes": []}),
        ("ADMIN.MAILBOX.LIST", {"mailboxes": []}),
        ("ADMIN.MAILBOX.SHOW.nobody", {"mailbox": None}),
        ("AGENT.DISCOVER", {"agents": [], "total": 0}),
    ],
)
def test_a_payload_over_the_limit_is_answered_in_the_shape_of_the_command(
    mail: Mail, command: str, shape: dict[str, object]
) -> None:
    answer = mail.ask(command, bytes(mail.info["max_payload"] + 1))
    assert "max_payload" in answer.pop("error")
    assert answer == shape


@pytest.mark.parametrize("command", ["FETCH", "ACK"])
def test_fetch_and_ack_have_a_size(mail: Mail, box: str, command: str) -> None:
    """Room for ten thousand ids."""
    too_large = b'{"x":"%s"}' % (b"x" * 262_144)
    assert "at most 262144 are allowed" in mail.ask(f"MSG.{command}.{box}", too_large)["error"]
    mail.deliver(box)
    mail.fetch(box, "g")
    many = {"group_name": "g", "msg_ids": [0] * 10_000, "only": True}
    mail.done(f"MSG.ACK.{box}", many)


def test_an_empty_payload_means_an_empty_object(mail: Mail, box: str) -> None:
    """Where all fields are optional, nothing at all is a valid request."""
    mail.deliver(box, b"there")
    assert mail.done(f"MSG.QUERY.{box}", b"") == mail.done(f"MSG.QUERY.{box}", {})
    assert mail.done(f"MSG.FETCH.{box}", b"") == {"error": "", "messages": []}
    assert mail.done("MAILBOX.CREATE", b"")["mail_address"] != ""
    assert "group_name" in mail.ask(f"MSG.ACK.{box}", b"")["error"]


def test_unknown_fields_are_ignored(mail: Mail, fresh_name: str) -> None:
    """A field from the future does no harm."""
    box = fresh_name
    other: dict[str, object] = {"colour": "blue", "nested": {"deep": [1, None]}}
    mail.done("MAILBOX.CREATE", {"name": box, "ttl": 600} | other)
    mail.deliver(box, b"m")
    request = {"group_name": "g", "deliver": "earliest", "config": other} | other
    assert len(mail.done(f"MSG.FETCH.{box}", request)["messages"]) == 1
    mail.done(f"MSG.ACK.{box}", {"group_name": "g", "msg_id": 0} | other)
    assert len(mail.done(f"MSG.QUERY.{box}", other)["messages"]) == 1
    mail.done(f"MSG.DELETE.{box}.0", other)


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("MAILBOX.CREATE", "max_request"),
        ("MSG.QUERY.nobody", "max_request"),
        ("PUBLIC.LIST", "max_request"),
        ("ADMIN.MAILBOX.LIST", "max_request"),
        ("AGENT.DISCOVER", "max_request"),
        ("AGENT.REPORT", "max_request"),
        ("AGENT.REGISTER", "max_card"),
        ("AGENT.UNREGISTER", "max_card"),
    ],
)
def test_requests_have_a_size(mail: Mail, command: str, limit: str) -> None:
    """Control commands have a limit, which the error names."""
    most = {"max_request": 65_536, "max_card": 262_144}[limit]
    allowed = b'{"x":"%s"}' % (b"x" * (most - 8))
    assert limit not in mail.ask(command, allowed)["error"]
    answer = mail.ask(command, allowed[:-1] + b" }")
    problem = f"the request has {most + 1} bytes: at most {most} are allowed ({limit})"
    assert answer["error"] == problem
    assert mail.ask("MSG.DELETE.nobody.0", b"x" * 500_000)["error"] != problem


def test_requests_have_at_most_64_levels(mail: Mail) -> None:
    """What is nested deeper is refused, whether anybody knows the field or not."""
    mail.done("PUBLIC.LIST", b'{"x":%s%s}' % (b"[" * 63, b"]" * 63))
    answer = mail.ask("PUBLIC.LIST", b'{"x":%s%s}' % (b"[" * 64, b"]" * 64))
    assert answer["error"] == "invalid request: nested too deeply: at most 64 levels are allowed"


def test_error_replies_keep_the_shape_of_success(mail: Mail, fresh_name: str, box: str) -> None:
    """Each error has the keys of the success reply, with values that mean nothing."""
    missing = f"mailbox {fresh_name} does not exist"
    answers = [
        mail.text("MAILBOX.CREATE", {"name": box}),
        mail.text(f"MSG.SEND.{fresh_name}"),
        mail.text(f"MSG.FETCH.{fresh_name}"),
        mail.text(f"MSG.ACK.{fresh_name}", {"group_name": "g", "msg_id": 0}),
        mail.text(f"MSG.QUERY.{fresh_name}"),
        mail.text(f"MSG.DELETE.{fresh_name}.0"),
    ]
    assert answers == [
        f'{{"error":"mailbox {box} already exists","mail_address":""}}',
        f'{{"error":"{missing}","msg_id":-1}}',
        f'{{"error":"{missing}","messages":[]}}',
        f'{{"error":"{missing}"}}',
        f'{{"error":"{missing}","messages":[]}}',
        f'{{"error":"{missing}","deleted":false}}',
    ]


def test_unknown_headers_that_begin_with_mq9_travel_like_any_other(mail: Mail, box: str) -> None:
    """What layers above the protocol say to each other is theirs."""
    headers = {"mq9-reply-to": "planner", "mq9-a2a-task": "7", "Mq9-Deadline": "soon"}
    mail.done(f"MSG.SEND.{box}", b"", headers)
    [entry] = mail.fetch(box)
    assert entry["headers"] == {name: [value] for name, value in headers.items()}


@pytest.mark.parametrize(
    "name",
    [
        *("mq9-msg-id", "mq9-create-time", "MQ9-Deliveries", "mq9-last-delivery"),
        *("mq9-expires-at", "mq9-dead-reason"),
    ],
)
def test_headers_that_the_broker_writes_itself_are_refused(mail: Mail, box: str, name: str) -> None:
    """What mq9 says of a message, its sender cannot say."""
    error = mail.ask(f"MSG.SEND.{box}", b"", {name: "7"})["error"]
    assert error == f"{name} is a header that only the broker writes"
    assert mail.fetch(box) == []


@pytest.mark.parametrize("name", [" mq9-msg-id", "\tmq9-dead-reason", "mq9-deliveries ", "A B"])
def test_blanks_in_the_name_of_a_header_are_refused(mail: Mail, box: str, name: str) -> None:
    """A reader that strips names would take it for another."""
    error = mail.ask(f"MSG.SEND.{box}", b"", {name: "7"})["error"]
    assert "holds a blank" in error
    assert mail.fetch(box) == []


@pytest.mark.parametrize("value", ["1\rmq9-msg-id: 7", "1\nmq9-msg-id: 7", "1\r", "\r"])
def test_a_bare_cr_or_lf_in_the_value_of_a_header_is_refused(
    mail: Mail, box: str, value: str
) -> None:
    """A reader that ends lines at either would see another header."""
    error = mail.ask(f"MSG.SEND.{box}", b"", {"A": value})["error"]
    assert "holds a bare CR or LF" in error
    assert mail.fetch(box) == []


def test_the_text_for_a_message_that_is_not_there_is_literal(mail: Mail, box: str) -> None:
    """DELETE of what is not there says `message not found`, word for word."""
    assert mail.text(f"MSG.DELETE.{box}.7") == '{"error":"message not found","deleted":false}'


def test_times_on_the_wire_are_whole_seconds(mail: Mail, box: str) -> None:
    """`create_time` and `expires_at` are Unix seconds, and headers count in seconds."""
    before = int(time.time()) - 1
    mail.deliver(box, ttl=100)
    [entry] = mail.fetch(box)
    after = int(time.time()) + 1
    assert type(entry["create_time"]) is int
    assert before <= entry["create_time"] <= after
    assert type(entry["expires_at"]) is int
    assert before + 100 <= entry["expires_at"] <= after + 101


@pytest.mark.parametrize("pattern", [">", "$mq9.>", "*.*.>", "*.*.*.*.>", "$mq9.*.MSG.SEND.>"])
def test_a_wildcard_never_receives_broker_traffic(
    mail: Mail, connect: Connect, box: str, pattern: str
) -> None:
    """However wide a subscription, requests to the broker do not reach it."""
    spy = connect()
    spy.send(f"SUB {pattern} spy\r\n".encode())
    spy.ping()
    assert spy.errors == []
    mail.deliver(box, b"secret")
    mail.fetch(box, "g")
    mail.publish("$mq9.AI.NO.SUCH.COMMAND", b"secret")
    mail.ping()
    spy.ping()
    seen = [each.subject for found in spy.arrived.values() for each in found]
    assert [subject for subject in seen if subject.startswith("$mq9")] == []


@pytest.mark.parametrize("pattern", [">", "_INBOX.>", "_INBOX.*.*", "*.*.*"])
def test_the_replies_of_the_broker_reach_nobody_but_the_one_who_asked(
    mail: Mail, connect: Connect, box: str, pattern: str
) -> None:
    """They hold addresses and messages, which no wildcard may collect."""
    spy = connect()
    spy.send(f"SUB {pattern} spy\r\n".encode())
    spy.ping()
    address = mail.done("MAILBOX.CREATE", {"ttl": 60})["mail_address"]
    mail.deliver(box, b"secret")
    assert payloads(mail.fetch(box)) == ["secret"]
    mail.done(f"MSG.QUERY.{box}")
    mail.raw(f"MSG.FETCH.{box}", {"deliver": "earliest", "config": {"format": "raw"}})
    spy.ping()
    seen = b" ".join(each.payload for found in spy.arrived.values() for each in found)
    assert address.encode() not in seen
    assert b"secret" not in seen


def test_the_widest_wildcard_sees_ordinary_subjects(
    mail: Mail, connect: Connect, fresh_name: str
) -> None:
    """`>` goes on receiving everything that is not the broker's."""
    spy = connect()
    spy.send(b"SUB > spy\r\n")
    spy.ping()
    mail.publish(fresh_name, b"open")
    mail.publish("$mq9.other", b"also open")
    mail.ping()
    spy.ping()
    assert [message.payload for message in spy.arrived[fresh_name]] == [b"open"]
    assert b"also open" in [message.payload for message in spy.arrived["$mq9.other"]]


RESERVED = [
    "$mq9.AI.>",
    "$mq9.AI.*",
    "$mq9.AI.MSG.>",
    "$mq9.AI.MSG.SEND.*",
    "$mq9.AI.MSG.SEND.task.001",
    "$mq9.AI.MSG.FETCH.>",
    "$mq9.AI.MAILBOX.CREATE",
    "$mq9.AI.INBOX.*.normal",
    "$mq9.AI.MAILBOX.MSG.*",
]


@pytest.mark.parametrize("pattern", RESERVED)
def test_a_subscription_inside_the_broker_is_refused(
    mail: Mail, connect: Connect, create: Create, pattern: str
) -> None:
    """It is answered with a permissions violation that names it, and receives nothing."""
    spy = connect()
    spy.send(f"SUB {pattern} spy\r\n".encode())
    spy.ping()
    assert spy.errors == [f'Permissions Violation for Subscription to "{pattern}"']
    mail.deliver(create(), b"secret")
    spy.ping()
    assert spy.arrived == {}


@pytest.mark.parametrize("pattern", RESERVED[:2])
def test_a_queue_subscription_inside_the_broker_is_refused(connect: Connect, pattern: str) -> None:
    """The same with a queue group."""
    spy = connect()
    spy.send(f"SUB {pattern} workers spy\r\n".encode())
    spy.ping()
    [error] = spy.errors
    assert error.startswith(f'Permissions Violation for Subscription to "{pattern}"')
