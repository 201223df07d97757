"""A worker of a group, as a process that may be killed at any moment.

Writes down what it does before it tells the broker, a line per step: `processed` when it has done
its work with a message, `acknowledged` when the broker has confirmed an ACK. Lines are written in
one call each, so that a kill leaves whole lines only. Instants are those of the machine, which all
processes share.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

from tests.mail import Json, Mail

CONNECT_DEADLINE_S = 20.0
WAIT_MS = 200


class Journal:
    """What the worker did, on file."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **fields: object) -> None:
        os.write(self.file, json.dumps(fields).encode() + b"\n")


def connected(url: str) -> Mail:
    """A connection, as soon as there is a broker."""
    end = time.monotonic() + CONNECT_DEADLINE_S
    while True:
        try:
            return Mail(url)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


class Worker:
    """Fetches, works, acknowledges, until it is killed."""

    def __init__(
        self, url: str, box: str, group: str, member: str, journal: Path, seed: int
    ) -> None:
        self.url, self.box, self.group, self.member = url, box, group, member
        self.journal = Journal(journal)
        self.choose = random.Random(seed)
        self.mail = connected(url)

    def turn(self) -> None:
        """One batch; some of it is left unacknowledged now and then, as by a worker in a hurry."""
        config = {"num_msgs": self.choose.randint(1, 8), "max_wait_ms": WAIT_MS}
        request: Json = {"group_name": self.group, "deliver": "earliest", "config": config}
        if self.member:
            request["member"] = self.member
        asked = time.monotonic_ns()
        entries: list[Json] = self.mail.done(f"MSG.FETCH.{self.box}", request)["messages"]
        for entry in entries:
            self.journal.write(
                step="processed",
                msg_id=entry["msg_id"],
                payload=entry["payload"],
                priority=entry["priority"],
                deliveries=entry["deliveries"],
                asked_ns=asked,
            )
        kept = entries[: self.choose.randint(1, len(entries))] if entries else []
        if self.choose.random() < 0.7:
            kept = entries
        if not kept:
            return
        found = [entry["msg_id"] for entry in kept]
        if self.choose.random() < 0.5:
            self.acknowledge({"msg_id": found[-1]}, found)
        else:
            self.choose.shuffle(found)
            self.acknowledge({"msg_ids": found, "only": True}, found)

    def acknowledge(self, fields: Json, found: list[int]) -> None:
        self.mail.done(f"MSG.ACK.{self.box}", {"group_name": self.group} | fields)
        self.journal.write(step="acknowledged", msg_ids=found, at_ns=time.monotonic_ns())

    def run(self) -> None:
        while True:
            try:
                self.turn()
            except OSError:
                # What it held is anybody's now: it asks again like everybody else.
                self.mail.close()
                self.mail = connected(self.url)


if __name__ == "__main__":
    url, box, group, member, journal, seed = sys.argv[1:]
    Worker(url, box, group, member, Path(journal), int(seed)).run()
