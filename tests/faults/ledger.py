"""What clients did and were told, in a file outside the broker: one JSON list for each step.

A line is written before a request leaves and after its reply has come, under one lock. So the order
of lines is an order in time: what a line says was true before any request that a later line
announces. Only the clients' process writes here, and nothing in it was read back from the broker's
files.

    ["box", box, [group, ...], alone, work_queue, policy]
                                                    alone: the groups with a single worker;
                                                    policy: ack_wait_ms, max_deliver, dead_letter
    ["life", number]                                a broker is ready
    ["killed", number]
    ["forgot"]                                      what was not synced may be gone
    ["send", box, sender, at_ns, [[uid, crc, level, key, delay_s, ttl_s], ...]]
    ["sent", box, sender, at_ns, [[uid, msg_id], ...]]
    ["refused", box, sender, at_ns, [uid, ...]]     the broker said that it did not store them
    ["fetch", box, group, worker, number, at_ns]
    ["got", box, group, worker, number, at_ns, [[msg_id, uid, crc, level, deliveries], ...]]
    ["pushed", box, reader, connection, at_ns, [[msg_id, uid, crc, level], ...]]
    ["answering", box, [msg_id, ...]]               read, and the broker is told so now
    ["read", box, [msg_id, ...]]                    the broker knows that they were read
    ["dropped", box, connection]                    given up, with what it had not read
    ["ack", box, group, worker, only, [msg_id, ...]]
    ["acked", box, group, worker, [msg_id, ...]]
    ["nak", box, group, worker, [msg_id, ...]]
    ["buried", dead_letter, [[uid, msg_id, deliveries], ...]]  what dead letters say of themselves
    ["delete", box, [msg_id, ...]]                  and "deleted" when confirmed
    ["look", box, at_ns]
    ["looked", box, at_ns, [[msg_id, uid, crc, level], ...]]   all that is in the mailbox
    ["end"]                                         every group has been given all that there was
    ["unreadable", file, error]                     a reader of the export could not read it
    ["exported", box, [[msg_id, uid, crc, level], ...]]        rows of the export
    ["exported_all", gaps]                          these were all rows; parts of the log left out
"""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = list[Any]

# Lines whose last part is what the broker has confirmed. Those of streams: see check_streams.
CONFIRMED = ("sent", "acked", "published", "done for good")


class Ledger:
    """Appends events, from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged = 0
        """How many messages the broker has confirmed, as stored or as acknowledged."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = threading.Lock()

    def write(self, *event: object) -> None:
        """One event; it is with the operating system when this returns."""
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            os.write(self._file, line)
            if event[0] in CONFIRMED:
                confirmed = event[-1]
                assert isinstance(confirmed, list)
                self.acknowledged += len(confirmed)

    def close(self) -> None:
        os.close(self._file)


class Reader:
    """Reads a ledger that may still grow."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def new(self) -> Iterator[Event]:
        """The events since the last call; the writer must be at rest."""
        for line in self._file:
            event: Event = json.loads(line)
            yield event

    def close(self) -> None:
        self._file.close()


def events(path: Path) -> list[Event]:
    """All events of a ledger."""
    reader = Reader(path)
    try:
        return list(reader.new())
    finally:
        reader.close()
