"""Spans of messages reach a real receiver of OTLP over HTTP, and say what happened to them."""

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.mail import Mail
from tests.peers import Serve, until

from mq9.traces import Follower

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"


class Collector:
    """Takes what is exported, or refuses it."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.refusing = False
        self.asked = 0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.asked += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if not collector.refusing:
                    request = ExportTraceServiceRequest.FromString(body)
                    for resource in request.resource_spans:
                        for scope in resource.scope_spans:
                            collector.spans += scope.spans
                self.send_response(400 if collector.refusing else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def named(self, name: str) -> Span:
        [found] = [span for span in self.spans if span.name == name]
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


@pytest.fixture
def exported(serve: Serve, tmp_path: Path) -> Iterator[tuple[Mail, Path]]:
    """A client of a broker that exports all the time, and the folder of that."""
    folder = tmp_path / "export"
    server = serve(f'mq9 {{ management: off\n export {{ dir: "{folder}", every: "100ms" }} }}')
    with Mail(server.url) as mail:
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead"})
        yield mail, folder


def send(mail: Mail, payload: bytes, traceparent: str, name: str = "traceparent") -> None:
    mail.done("MSG.SEND.jobs", payload, {name: traceparent} if traceparent else None)


def attribute(span: Span, name: str) -> str | int:
    [found] = [each.value for each in span.attributes if each.key == name]
    return str(found.string_value) or int(found.int_value)


def rounds(follower: Follower, collector: Collector, names: set[str]) -> None:
    def there() -> bool:
        follower.round()
        return names <= {span.name for span in collector.spans}

    until(there, f"{names} have come", 60)


def test_a_message_leaves_the_spans_of_its_life(
    exported: tuple[Mail, Path], collector: Collector, tmp_path: Path
) -> None:
    mail, folder = exported
    send(mail, b"traced", SAMPLED)
    [entry] = mail.fetch("jobs", "workers")
    # It is carried through to whoever goes on with the work.
    assert entry["headers"]["traceparent"] == [SAMPLED]
    follower = Follower(folder, collector.url, tmp_path / "state.json")
    rounds(follower, collector, {"send jobs", "deliver jobs"})
    follower.close()
    # Another process goes on where this one was, with what it knew.
    mail.ack("jobs", "workers", entry["msg_id"])
    follower = Follower(folder, collector.url, tmp_path / "state.json")
    rounds(follower, collector, {"ack jobs"})
    follower.close()
    sent, given, done = (collector.named(f"{word} jobs") for word in ("send", "deliver", "ack"))
    assert {span.trace_id.hex() for span in (sent, given, done)} == {TRACE}
    assert sent.parent_span_id.hex() == PARENT
    assert (given.parent_span_id, done.parent_span_id) == (sent.span_id, given.span_id)
    kinds = (Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER, Span.SPAN_KIND_CLIENT)
    assert (sent.kind, given.kind, done.kind) == kinds
    assert done.start_time_unix_nano == given.end_time_unix_nano
    assert sent.end_time_unix_nano <= given.end_time_unix_nano <= done.end_time_unix_nano
    assert attribute(sent, "messaging.destination.name") == "jobs"
    assert attribute(given, "messaging.consumer.group.name") == "workers"
    assert attribute(done, "messaging.message.id") == str(entry["msg_id"])
    assert len(collector.spans) == 3


def test_only_what_is_sampled_and_valid_leaves_spans(
    exported: tuple[Mail, Path], collector: Collector, tmp_path: Path
) -> None:
    mail, folder = exported
    for header in (f"00-{TRACE}-{PARENT}-00", "nonsense", f"00-{'0' * 32}-{PARENT}-01", ""):
        send(mail, b"quiet", header)
    send(mail, b"loud", SAMPLED, "Traceparent")
    for entry in mail.fetch("jobs", "g"):
        mail.ack("jobs", "g", entry["msg_id"], kind="term")
    follower = Follower(folder, collector.url, tmp_path / "state.json")
    rounds(follower, collector, {"send jobs", "deliver jobs", "give up jobs"})
    follower.close()
    assert attribute(collector.named("give up jobs"), "messaging.message.id") == "4"
    assert collector.named("give up jobs").status.code == 2
    ours = [span for span in collector.spans if not span.name.endswith("jobs.dead")]
    assert len(ours) == 3


def test_a_collector_that_refuses_gets_all_of_it_later(
    exported: tuple[Mail, Path], collector: Collector, tmp_path: Path
) -> None:
    mail, folder = exported
    collector.refusing = True
    send(mail, b"traced", SAMPLED)
    follower = Follower(folder, collector.url, tmp_path / "state.json")
    until(lambda: not follower.round(), "it was refused", 60)
    collector.refusing = False
    rounds(follower, collector, {"send jobs"})
    follower.close()
    assert follower.sent == len(collector.spans) == 1


def test_the_command_sends_what_there_is(
    exported: tuple[Mail, Path], collector: Collector, tmp_path: Path
) -> None:
    mail, folder = exported
    send(mail, b"traced", SAMPLED)
    command = [sys.executable, "-m", "mq9", "traces", "--export", str(folder)]
    command += ["--state", str(tmp_path / "state.json"), "--endpoint", collector.url]

    def ran() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout if collector.spans else ""

    assert until(ran, "it has sent one", 90) == "spans  1\n"
    assert subprocess.run(command, check=False, capture_output=True).stdout == b"spans  0\n"
