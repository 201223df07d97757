"""A client that does not read is cut off at `max_pending`; nobody else notices."""

import threading
import time

import pytest
from tests.integration.conftest import Certificates
from tests.peers import Serve, until
from tests.wire import Wire, messages

MAX_PENDING_BYTES = 1 << 20
PAYLOAD = b"x" * 10_000
COUNT = 2_000
END = b"MSG end 2 0\r\n\r\n"


def test_a_client_that_never_reads_is_cut(serve: Serve) -> None:
    server = serve(f"max_pending: {MAX_PENDING_BYTES}\n")
    with (
        Wire(server.port) as stuck,
        Wire(server.port) as reader,
        Wire(server.port) as publisher,
        Wire(server.port) as bystander,
    ):
        for wire in (stuck, reader, publisher, bystander):
            wire.connect()
        stuck.ask(b"SUB slow 1\r\n")
        reader.ask(b"SUB slow 1\r\nSUB end 2\r\n")
        received: list[bytes] = []
        thread = threading.Thread(target=lambda: received.append(reader.until(END)))
        thread.start()
        message = b"PUB slow %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
        for _ in range(COUNT // 100):
            publisher.ask(message * 100)
            assert bystander.ask(b"") == b""
        publisher.ask(b"PUB end 0\r\n\r\n")
        thread.join(30)
        assert received, "the client that reads has not got everything"
        assert [each.payload for each in messages(received[0])] == [PAYLOAD] * COUNT + [b""]

        until(lambda: server.monitor("/varz")["slow_consumers"] == 1, "it is counted")
        assert server.monitor("/varz")["slow_consumer_stats"]["clients"] == 1
        cid = stuck.info["client_id"]
        [closed] = [
            each
            for each in server.monitor("/connz?state=closed")["connections"]
            if each["cid"] == cid
        ]
        assert closed["reason"] == "Slow Consumer (Pending Bytes)"
        left = stuck.until_closed()
        assert len(left) < COUNT * len(PAYLOAD) / 2
        assert publisher.ask(b"PUB slow 1\r\nx\r\n") == b""
    assert server.stop() == 0


def test_a_client_that_reads_slowly_enough_is_cut_by_the_write_deadline(serve: Serve) -> None:
    server = serve('write_deadline: "300ms"\n')
    with Wire(server.port) as stuck, Wire(server.port) as publisher:
        stuck.connect()
        stuck.ask(b"SUB slow 1\r\n")
        publisher.connect()
        # More than the kernel buffers, less than `max_pending`.
        message = b"PUB slow %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
        publisher.ask(message * 2000)
        until(lambda: server.monitor("/varz")["slow_consumers"] == 1, "it is counted")
        until(lambda: server.monitor("/connz")["num_connections"] == 1, "it is gone")
        [closed] = server.monitor("/connz?state=closed")["connections"]
        assert closed["reason"] == "Slow Consumer (Write Deadline)"


@pytest.mark.parametrize("encrypted", [False, True])
def test_who_asks_for_much_at_once_gets_it_as_fast_as_it_reads(
    serve: Serve, certificates: Certificates, encrypted: bool
) -> None:
    # An answer is more than a fourth of this: the next question waits until it is taken.
    limits = "max_pending: 64KB\nmax_payload: 32KB\n"
    server = serve((certificates.config() if encrypted else "") + limits)
    asked = 100
    fetch = b'PUB $mq9.AI.MSG.FETCH.large inbox 23\r\n{"deliver": "earliest"}\r\n'
    with Wire(server.port) as wire:
        if encrypted:
            context = certificates.trusting()
            wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
        wire.connect()
        wire.ask(b"SUB inbox 1\r\n")
        wire.send(b'PUB $mq9.AI.MAILBOX.CREATE inbox 17\r\n{"name": "large"}\r\n')
        wire.until(b'"mail_address":"large"}\r\n')
        wire.send(b"PUB $mq9.AI.MSG.SEND.large inbox 20000\r\n%s\r\n" % (b"x" * 20_000))
        wire.until(b'"msg_id":0}\r\n')
        started = time.monotonic()
        wire.send(fetch * asked + b"PUB $mq9.AI.MSG.SEND.large inbox 1\r\nx\r\n")
        answers = messages(wire.until(b'"msg_id":1}\r\n'))
        # A tenth of a second for each would be too long.
        assert time.monotonic() - started < asked * 0.1
        assert [len(answer.payload) > 20_000 for answer in answers] == [True] * asked + [False]
