"""Workers of a mailbox with dead letters: some messages they never confirm.

They give them back, or hold them until the lease runs out, until the broker gives up on them. Only
what was confirmed while its lease ran counts as done: a later reply proves nothing, as the message
may have gone to another by then.
"""

import time

from tests.faults.ledger import Ledger
from tests.faults.workload import Gate, Worker, uid_of
from tests.mail import Json

BOX = "poison"
DEAD = "graves"
ACK_WAIT_MS = 1500
MAX_DELIVER = 3
POLICY = {"ack_wait_ms": ACK_WAIT_MS, "max_deliver": MAX_DELIVER, "dead_letter": DEAD}
# Every so many messages can never be worked on; of the others some fail now and then.
POISON_EACH = 4
FAILING = 0.15
# What may be in the mailbox before its sender pauses: few, as each is delivered several times.
BACKLOG = 150


class Failing(Worker):
    """A worker whose work fails: it confirms, gives back, or forgets a message."""

    def __init__(
        self, gate: Gate, ledger: Ledger, name: str, box: str, seed: int, group: str
    ) -> None:
        super().__init__(gate, ledger, name, box, seed, group)
        self.life = self.names = 0
        self.held_until_ns = 0
        self.finishing = False
        """Whether it is to forget no more messages, so that the end comes sooner."""

    def begin(self, life: int) -> None:
        self.life = life
        # What was under way stays open: the message may be a dead letter by now.
        self.unanswered = []

    def said(self) -> Json:
        """A name that changes whenever it forgets something: the same one would get it again."""
        self.member = f"{self.name}.{self.life}.{self.names}"
        return {"member": self.member}

    def turn(self) -> None:
        entries = self.fetch(self.choose.randint(1, 20))
        is_idle = not entries and self.asked_ns > self.held_until_ns
        self.idle_ns = self.asked_ns if is_idle else 0
        done, back = [], []
        for entry in entries:
            if uid_of(entry["payload"]) % POISON_EACH and self.choose.random() > FAILING:
                done.append(entry["msg_id"])
            elif self.finishing or self.choose.random() < 0.7:
                back.append(entry["msg_id"])
            else:
                self.names += 1
                # It was given out before now.
                self.held_until_ns = time.monotonic_ns() + ACK_WAIT_MS * 1_000_000
        if done:
            self.acknowledge(done, only=True)
        if back:
            self.give_back(back)

    def acknowledge(self, ids: list[int], *, only: bool) -> None:
        self.ledger.write("ack", self.box, self.group, self.member, only, ids)
        fields: Json = {"group_name": self.group, "msg_ids": ids, "only": only}
        answer = self.link.ask(f"MSG.ACK.{self.box}", fields)
        assert answer["error"] == "", (self.box, answer, ids)
        if time.monotonic_ns() < self.asked_ns + ACK_WAIT_MS * 1_000_000:
            self.ledger.write("acked", self.box, self.group, self.member, ids)
            self.confirmed(ids)

    def give_back(self, ids: list[int]) -> None:
        self.ledger.write("nak", self.box, self.group, self.member, ids)
        fields: Json = {"group_name": self.group, "msg_ids": ids, "kind": "nak"}
        answer = self.link.ask(f"MSG.ACK.{self.box}", fields)
        assert answer["error"] == "", (self.box, answer, ids)
