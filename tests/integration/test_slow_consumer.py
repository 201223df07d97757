"""A client that does not read is cut off at `max_pending`; nobody else notices."""

import threading

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
