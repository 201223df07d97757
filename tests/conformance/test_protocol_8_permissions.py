"""Permissions count for what is done, not for the subject it is said with."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.mail import Mail, ids, payloads
from tests.peers import MQ9, Serve, Server, until


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


def test_a_command_as_reply_subject_counts_only_where_its_client_may_give_it(
    place: Callable[..., Place],
) -> None:
    """Otherwise whoever answers would carry it out in its own name."""
    allowed = ["work", "$mq9.AI.MSG.SEND.box", "$mq9.AI.MSG.SEND.mine"]
    allowed += ["$mq9.AI.MAILBOX.CREATE", "$mq9.AI.AGENT.>"]
    here = place(stranger=f"{{ allow: {json.dumps(allowed)} }}")
    root, stranger = here.user("root"), here.user("stranger")
    root.done("MAILBOX.CREATE", {"name": "box"})
    root.deliver("box")
    root.send(b"SUB work 1\r\n")
    root.ping()
    replies = ["$mq9.AI.MSG.DELETE.box.0", "$mq9.AI.MSG.RACK.Zw.0.box"]
    replies += ["$mq9.AI.ADMIN.MAILBOX.LIST", "$JS.API.STREAM.DELETE.s", "$SYS.REQ.SERVER.PING"]
    # These it may give, but they ask who gives them: a responder is somebody else.
    replies += ["$mq9.AI.MAILBOX.CREATE", "$mq9.AI.AGENT.REGISTER", "$mq9.AI.AGENT.UNREGISTER"]
    for asked in ("work", "$mq9.AI.MSG.SEND.box"):
        for reply in replies:
            stranger.publish(asked, b"", reply=reply)
    stranger.ping()
    refused = 'Permissions Violation for Publish with Reply of "{}"'.format
    assert stranger.errors == [refused(reply) for reply in replies] * 2
    root.ping()
    assert root.arrived == {}
    assert ids(root.fetch("box")) == [0]


def test_an_answer_can_be_asked_for_into_a_mailbox(place: Callable[..., Place]) -> None:
    """From a responder, and from the broker: a client that may send there may be answered there."""
    here = place(asker='{ allow: ["work", "$mq9.AI.MSG.QUERY.box", "$mq9.AI.MSG.SEND.mine"] }')
    root, asker = here.user("root"), here.user("asker")
    for name in ("box", "mine"):
        root.done("MAILBOX.CREATE", {"name": name})
    root.send(b"SUB work 1\r\n")
    root.ping()
    asker.publish("work", b"?", reply="$mq9.AI.MSG.SEND.mine")
    root.publish(root.reply("work").reply, b"!")
    asker.publish("$mq9.AI.MSG.QUERY.box", b"", reply="$mq9.AI.MSG.SEND.mine")
    until(lambda: len(root.fetch("mine")) == 2, "both have come")
    assert sorted(payloads(root.fetch("mine"))) == ["!", '{"error":"","messages":[]}']
    assert asker.errors == []
    assert asker.arrived == {}


def test_a_dead_letter_mailbox_needs_the_permission_of_the_creator_to_send_to_it(
    place: Callable[..., Place],
) -> None:
    """Otherwise the broker would carry there what its creator may not."""
    here = place(
        maker="""{ allow: ["$mq9.AI.MAILBOX.CREATE", "$mq9.AI.MSG.SEND.mine.>"] }""",
        other="""{ deny: "$mq9.AI.MSG.SEND.victim" }""",
    )
    for name in ("maker", "other"):
        client = here.user(name)
        request = {"name": f"{name}.q", "max_deliver": 1, "dead_letter": "victim"}
        error = 'permission denied: dead_letter needs the permission to send to "victim"'
        assert client.ask("MAILBOX.CREATE", request) == {"error": error, "mail_address": ""}
        client.done("MAILBOX.CREATE", request | {"dead_letter": "mine.dead"})
    here.user("root").done(
        "MAILBOX.CREATE", {"name": "q", "max_deliver": 1, "dead_letter": "victim"}
    )


def test_a_wait_ends_when_its_permission_is_taken_away(place: Callable[..., Place]) -> None:
    """With an error and at once, not when something comes or the time is over."""
    here = place(reader='{ allow: "$mq9.AI.>" }')
    root, reader = here.user("root"), here.user("reader")
    for name in ("box", "open"):
        root.done("MAILBOX.CREATE", {"name": name})
    wait = {"config": {"max_wait_ms": 600_000}}
    taken, left = (reader.begin(f"MSG.FETCH.{name}", wait) for name in ("box", "open"))
    reader.ping()
    here.server.reconfigure(users(reader='{ allow: "$mq9.AI.>", deny: "$mq9.AI.MSG.FETCH.box" }'))
    subject = "$mq9.AI.MSG.FETCH.box"
    answer = reader.answer(taken)
    assert answer == {
        "error": f'the permission to publish to "{subject}" has ended',
        "messages": [],
    }
    assert reader.errors == [violation(subject)]
    for name in ("box", "open"):
        root.deliver(name, b"new")
    assert payloads(reader.answer(left)["messages"]) == ["new"]
    reader.ping()
    assert reader.arrived == {}


def test_a_wait_ends_when_its_connection_becomes_somebody_without_the_permission(
    place: Callable[..., Place],
) -> None:
    """A second CONNECT takes the first one's waits with it as far as it may not wait there."""
    here = place(nobody='{ deny: "$mq9.AI.MSG.FETCH.>" }')
    root, client = here.user("root"), here.user("root")
    root.done("MAILBOX.CREATE", {"name": "box"})
    client.begin("MSG.FETCH.box", {"config": {"max_wait_ms": 600_000}})
    client.ping()
    said = {"user": "nobody", "pass": "p", "verbose": False, "headers": True}
    client.send(b"CONNECT %s\r\nSUB > 1\r\n" % json.dumps(said).encode())
    client.ping()
    assert client.errors == [violation("$mq9.AI.MSG.FETCH.box")]
    root.deliver("box", b"secret")
    client.ping()
    assert b"secret" not in b"".join(m.payload for found in client.arrived.values() for m in found)


# Whoever answers at one of these would do so in its own name; they ask who that is.
ASK_WHO = [
    "MAILBOX.CREATE",
    "MAILBOX.UPDATE.box",
    "MAILBOX.REMOVE.box",
    "MAILBOX.PURGE.box",
    "MAILBOX.QUERY.box",
    "GROUP.REMOVE.box",
    "GROUP.LIST.box",
    "AGENT.REGISTER",
    "AGENT.REPORT",
    "AGENT.UNREGISTER",
    "AGENT.DISCOVER",
    "AGENT.LATER",
    "ADMIN.STATUS",
    "ADMIN.MAILBOX.LIST",
    "ADMIN.MAILBOX.SHOW.box",
    "ADMIN.ACTIVITY",
    "ADMIN.ACCESS",
    "ADMIN.SERVER.VARZ",
    "ADMIN.SERVER.CONNZ",
    "ADMIN.SERVER.YIELD",
    "ADMIN.DEAD.REPLAY.box.0",
    "ADMIN.DEAD.RESOLVE.box.0",
    "ADMIN.DEAD.STREAMS",
    "ADMIN.STREAM.QUERY.ORDERS",
    "ADMIN.SCHEDULE.LIST",
    "ADMIN.LATER",
]


def test_commands_that_ask_who_gives_them_are_never_reply_subjects(
    place: Callable[..., Place],
) -> None:
    """Not for an operator either: the responder may be one, and the broker itself is asked too."""
    here = place(operator='{ allow: [">", "$mq9.AI.ADMIN.>"] }')
    root, operator = here.user("root"), here.user("operator")
    root.done("MAILBOX.CREATE", {"name": "box"})
    root.deliver("box", b"kept")
    root.send(b"SUB work 1\r\n")
    root.ping()
    refused = 'Permissions Violation for Publish with Reply of "$mq9.AI.{}"'.format
    for command in ASK_WHO:
        for asked in ("work", "$mq9.AI.MSG.QUERY.box", "$mq9.AI.MSG.FETCH.box"):
            operator.publish(asked, b"", reply=f"$mq9.AI.{command}")
            operator.ping()
            assert operator.errors.pop() == refused(command)
    root.ping()
    assert root.arrived == {}
    assert payloads(root.fetch("box")) == ["kept"]


@pytest.mark.parametrize(
    "subject",
    ["MSG.SEND.box", "INBOX.box.normal", "INBOX.box.critical", "MAILBOX.MSG.box"],
)
def test_who_may_not_send_may_not_by_another_name(
    place: Callable[..., Place], subject: str
) -> None:
    here = place(quiet='{ allow: ">", deny: "$mq9.AI.MSG.SEND.box" }')
    root, quiet = here.user("root"), here.user("quiet")
    for name in ("box", "open"):
        root.done("MAILBOX.CREATE", {"name": name})
    quiet.publish(f"$mq9.AI.{subject}", b"x")
    quiet.ping()
    assert quiet.errors == [violation(f"$mq9.AI.{subject}")]
    assert root.fetch("box") == []
    quiet.done(subject.replace("box", "open"), b"x")


@pytest.mark.parametrize("subject", ["MSG.DELETE.box.0", "MAILBOX.DELETE.box.0"])
def test_who_may_not_delete_may_not_by_another_name(
    place: Callable[..., Place], subject: str
) -> None:
    here = place(keeper='{ allow: ">", deny: "$mq9.AI.MSG.DELETE.>" }')
    root, keeper = here.user("root"), here.user("keeper")
    root.done("MAILBOX.CREATE", {"name": "box"})
    root.deliver("box")
    keeper.publish(f"$mq9.AI.{subject}")
    keeper.ping()
    assert keeper.errors == [violation(f"$mq9.AI.{subject}")]
    assert ids(root.fetch("box")) == [0]


@pytest.mark.parametrize("subject", ["MAILBOX.MSG.box", "INBOX.box.*"])
def test_a_push_ends_when_its_connection_becomes_somebody_without_the_permission(
    place: Callable[..., Place], subject: str
) -> None:
    """Whoever says CONNECT again may be somebody else: all subscriptions end."""
    here = place(nobody='{ deny: "$mq9.AI.MSG.FETCH.box" }')
    root, client = here.user("root"), here.user("root")
    root.done("MAILBOX.CREATE", {"name": "box"})
    client.send(f"SUB $mq9.AI.{subject} 1\r\n".encode())
    client.ping()
    said = {"user": "nobody", "pass": "p", "verbose": False, "headers": True}
    client.send(b"CONNECT %s\r\n" % json.dumps(said).encode())
    client.ping()
    root.deliver("box", b"secret")
    client.ping()
    assert client.arrived == {}


@pytest.mark.parametrize("headers", [None, {"mq9-persist": "true"}], ids=["live", "stored"])
def test_a_broadcast_needs_the_permission_to_publish(
    place: Callable[..., Place], headers: dict[str, str] | None
) -> None:
    here = place(teller='{ deny: "$mq9.AI.BROADCAST.system.>" }')
    listener, teller = here.user("root"), here.user("teller")
    listener.send(b"SUB $mq9.AI.BROADCAST.> 1\r\n")
    listener.ping()
    subject = "$mq9.AI.BROADCAST.system.x"
    teller.publish(subject, b"x", headers)
    teller.ping()
    assert teller.errors == [violation(subject)]
    listener.ping()
    assert listener.arrived == {}
