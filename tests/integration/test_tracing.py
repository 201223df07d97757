"""Message tracing as in nats-server 2.11 and newer: what the document at `Nats-Trace-Dest` says."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.peers import MQ9, Serve, Server, chosen_peer
from tests.wire import Wire, messages

CONFIG = """
server_name: traced
authorization { users = [
  { user: all, password: p }
  { user: some, password: p, permissions {
      publish { deny: "no" }, subscribe { deny: in.x }
  } }
] }
"""
DESTINATION = "trace.me"
SERVER = {"name", "host", "id", "ver", "jetstream", "flags", "seq", "time"}
Document = dict[str, Any]


@pytest.fixture(scope="module")
def server(serve_for_session: Serve) -> Server:
    return serve_for_session(CONFIG)


def client(server: Server, name: str, user: str = "all", **options: object) -> Wire:
    return Wire(server.port).connect(name=name, user=user, **{"pass": "p"}, **options)


def hpub(subject: str, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    block = f"NATS/1.0\r\n{lines}\r\n".encode()
    return b"HPUB %b %d %d\r\n%bhi\r\n" % (subject.encode(), len(block), len(block) + 2, block)


def traced(wire: Wire, subject: str, **headers: str) -> Document:
    """Publishes to `subject` and returns the trace."""
    wire.send(f"SUB {DESTINATION} trace\r\n".encode())
    wire.send(hpub(subject, Nats_Trace_Dest=DESTINATION, **headers))
    while not (frame := wire.frame()).startswith(b"MSG trace.me "):
        assert frame, "the server has closed"
    wire.send(b"UNSUB trace\r\nPING\r\n")
    wire.until(b"PONG\r\n")
    document: Document = json.loads(frame.partition(b"\r\n")[2])
    return document


def events(document: Document) -> list[Document]:
    """The events of a trace without their times, which are of now."""
    found = []
    for event in document["events"]:
        time = event.pop("ts")
        moment = datetime.fromisoformat(time[:19]).replace(tzinfo=UTC)
        assert time.endswith("Z")
        assert abs(datetime.now(UTC) - moment) < timedelta(seconds=60)
        found.append(event)
    return found


def came(wire: Wire, subject: str, **more: str) -> Document:
    """The event of a message that has come in."""
    cid = wire.info["client_id"]
    return {
        "type": "in", "kind": 0, "cid": cid, "name": "n", "acc": "$G", "subj": subject, **more
    }  # fmt: skip


def went(wire: Wire, sub: str, **more: str) -> Document:
    """The event of a message that goes to a subscription."""
    return {"type": "eg", "kind": 0, "cid": wire.info["client_id"], "name": "n", "sub": sub, **more}


def in_order(found: list[Document]) -> list[Document]:
    return sorted(found, key=lambda event: json.dumps(event, sort_keys=True))


def test_a_trace_names_who_sent_the_message_and_who_got_it(server: Server) -> None:
    with client(server, "n") as sender, client(server, "n") as reader:
        reader.send(b"SUB a.* 1\r\nSUB a.b 2\r\nSUB a.b group 3\r\nPING\r\n")
        reader.until(b"PONG\r\n")
        document = traced(sender, "a.b", X="1", A="<2>")
        assert document.keys() == {"server", "request", "events"}
        assert document["server"].keys() >= SERVER
        assert document["server"]["name"] == "traced"
        assert document["request"] == {
            "header": {"A": ["<2>"], "Nats-Trace-Dest": [DESTINATION], "X": ["1"]},
            "msgsize": 55,
        }
        first, *others = events(document)
        assert first == came(sender, "a.b")
        assert in_order(others) == in_order(
            [went(reader, "a.*"), went(reader, "a.b"), went(reader, "a.b", queue="group")]
        )
        reader.send(b"PING\r\n")
        assert [message.sid for message in messages(reader.until(b"PONG\r\n"))] in (
            [["1", "2", "3"], ["2", "1", "3"], ["2", "3", "1"], ["1", "3", "2"]]
        )


@pytest.mark.parametrize("served", [False, True], ids=["without", "with"])
def test_the_server_says_whether_it_serves_jetstream(
    serve: Serve, tmp_path: Path, served: bool
) -> None:
    """In INFO, in traces and to who asks about itself alike."""
    block = f'jetstream {{ store_dir: "{tmp_path / "streams"}" }}' if served else ""
    with client(serve(f"{CONFIG}\n{block}"), "n") as wire:
        assert wire.info.get("jetstream", False) is served
        assert traced(wire, "a.b")["server"]["jetstream"] is served
        wire.send(b"SUB me 1\r\nPUB $SYS.REQ.USER.INFO me 0\r\n\r\n")
        while not (frame := wire.frame()).startswith(b"MSG me "):
            assert frame, "the server has closed"
        assert json.loads(frame.partition(b"\r\n")[2])["server"]["jetstream"] is served


def test_a_message_that_is_only_traced_goes_nowhere(server: Server) -> None:
    with client(server, "n") as sender, client(server, "n") as reader:
        reader.send(b"SUB b 1\r\nSUB b group 2\r\nPING\r\n")
        reader.until(b"PONG\r\n")
        document = traced(sender, "b", Nats_Trace_Only="true")
        assert events(document) == [
            came(sender, "b"),
            went(reader, "b"),
            went(reader, "b", queue="group"),
        ]
        reader.send(b"PING\r\n")
        assert reader.until(b"PONG\r\n") == b"PONG\r\n"


def test_a_message_that_nobody_wants_has_come_in(server: Server) -> None:
    with client(server, "n") as sender:
        assert events(traced(sender, "nobody")) == [came(sender, "nobody")]


def test_a_trace_says_why_a_subscription_did_not_get_the_message(server: Server) -> None:
    with client(server, "n", "some", echo=False) as sender, client(server, "n", "some") as reader:
        sender.send(b"SUB in.* 1\r\n")
        reader.send(b"SUB in.* 1\r\nSUB in.* group 2\r\nPING\r\n")
        reader.until(b"PONG\r\n")
        echo = "Not delivered because of no echo"
        denied = "Not delivered because subscription denies this subject"
        with client(server, "n") as listener:
            listener.send(f"SUB {DESTINATION} 1\r\nPING\r\n".encode())
            listener.until(b"PONG\r\n")
            sender.send(hpub("in.y", Nats_Trace_Dest=DESTINATION))
            (message,) = messages(listener.frame())
            assert in_order(events(json.loads(message.payload))) == in_order(
                [
                    came(sender, "in.y"),
                    went(sender, "in.*", error=echo),
                    went(reader, "in.*"),
                    went(reader, "in.*", queue="group"),
                ]
            )
            assert in_order(events(traced(listener, "in.x"))) == in_order(
                [
                    came(listener, "in.x"),
                    went(sender, "in.*", error=denied),
                    went(reader, "in.*", error=denied),
                    went(reader, "in.*", error=denied, queue="group"),
                ]
            )


def test_a_message_that_is_refused_is_traced_with_the_error(server: Server) -> None:
    with client(server, "n", "some") as sender:
        error = 'Permissions Violation for Publish to "no"'
        assert events(traced(sender, "no")) == [came(sender, "no", error=error)]


@pytest.mark.skipif(chosen_peer() != MQ9, reason="the command is mq9's")
def test_a_command_is_traced_and_with_only_not_carried_out(server: Server) -> None:
    create = "$mq9.AI.MAILBOX.CREATE"
    with client(server, "n") as sender:
        document = traced(sender, create, Nats_Trace_Only="1")
        assert events(document) == [came(sender, create)]
        to_server = {"type": "eg", "kind": 3, "cid": 0, "sub": create}
        assert events(traced(sender, create)) == [came(sender, create), to_server]


@pytest.mark.skipif(chosen_peer() != MQ9, reason="the subjects are mq9's")
def test_a_trace_is_not_published_to_subjects_of_the_server(server: Server) -> None:
    subject = "$mq9.AI.MSG.SEND.x"
    with client(server, "n") as sender:
        sender.send(b"SUB > 1\r\n" + hpub("d", Nats_Trace_Dest=subject) + b"PING\r\n")
        (message,) = messages(sender.until(b"PONG\r\n"))
        assert message.subject == "d"


@pytest.mark.skipif(chosen_peer() != MQ9, reason="nats-server's documents have no limit")
def test_a_trace_of_many_readers_is_not_larger_than_a_message_may_be(serve: Serve) -> None:
    small = serve("max_payload: 10000\n")
    with Wire(small.port).connect(name="n") as sender:
        sender.send(b"".join(b"SUB many %d\r\n" % number for number in range(1000)))
        document = traced(sender, "many", Nats_Trace_Only="true")
        assert 10 < len(document["events"]) < 1000
        assert len(json.dumps(document)) < 10_000


@pytest.mark.skipif(chosen_peer() != MQ9, reason="nats-server's documents have no limit")
def test_headers_that_would_make_a_trace_too_large_are_left_out(serve: Serve) -> None:
    small = serve("max_payload: 10000\n")
    with Wire(small.port).connect(name="n") as sender:
        document = traced(sender, "large", X="\x01" * 5000)
        assert document["request"] == {"header": {}, "msgsize": 5046}
        assert events(document) == [came(sender, "large")]
        assert traced(sender, "small", X="1")["request"]["header"]["X"] == ["1"]
