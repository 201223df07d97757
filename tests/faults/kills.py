"""Kills the broker again and again under mixed load, and holds the ledger against the promises.

Owns which clients there are and when the broker dies.
"""

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import exports, poison, readers
from tests.faults.check import Check
from tests.faults.check_export import ExportCheck
from tests.faults.exports import Exported
from tests.faults.ledger import Ledger, Reader
from tests.faults.supervisor import Supervisor, Times
from tests.faults.workload import BACKLOG, Client, Deleter, Gate, Sender, Stock, Worker, look
from tests.mail import Mail
from tests.peers import until

CREW = 3
KEYS = 40
READERS = 2
PARK_DEADLINE_S = 60.0
ROUND_DEADLINE_S = 60.0
DRAIN_DEADLINE_S = 60.0
# How many of the kills come while the broker is starting.
EARLY_SHARE = 0.15


@dataclass
class Outcome:
    """What a run came to."""

    kills: int = 0
    acknowledged: int = 0
    delivered: int = 0
    repeated: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    times: Times = field(default_factory=Times)
    seconds: float = 0.0
    segments_gone: int = 0
    """Files of the log that upkeep has emptied and removed on the way."""
    dead: int = 0
    """Dead letters."""
    pushed: int = 0
    """Messages pushed to readers of an inbox."""
    pushed_again: int = 0
    """Of these, those that had been on a connection that broke."""
    exported: int = 0
    """Messages in the export."""

    @property
    def lost(self) -> int:
        """How many messages are gone, from the broker or its export."""
        return sum(self.broken[rule] for rule in ("lost", "left over", "not exported"))

    @property
    def doubled(self) -> int:
        """How many came again, or are there twice."""
        again = ("duplicated", "came back", "in both", "stored twice", "exported twice")
        return sum(self.broken[rule] for rule in again)


def any_level(choose: random.Random, _uid: int) -> dict[str, object]:
    return {"priority": choose.choice(["critical", "urgent", "normal", "normal", "notify", "7"])}


def keyed(choose: random.Random, uid: int) -> dict[str, object]:
    # The sender is part of the key: then the newest is the one it sent last.
    return {"key": f"{uid // 10**9}.{choose.randrange(KEYS)}"}


def timed(choose: random.Random, uid: int) -> dict[str, object]:
    kind = choose.randrange(4)
    said: dict[str, object] = {"priority": "urgent"} if uid % 5 == 0 else {}
    if kind in (0, 2):
        said["delay"] = choose.randint(1, 2)
    if kind in (1, 2):
        said["ttl"] = choose.randint(1, 3)
    return said


class Cast:
    """The mailboxes, and who works on them."""

    def __init__(self, gate: Gate, ledger: Ledger, seed: int) -> None:
        self.gate, self.ledger, self.seed = gate, ledger, seed
        self.senders: list[Sender] = []
        self.workers: list[Worker] = []
        self.done: dict[int, set[str]] = defaultdict(set)
        self.lock = threading.Lock()
        self.stock = Stock()
        self.boxes = {
            # Two senders, one worker: order.
            "solo": (["only"], ["only"], True),
            # Two senders, three workers who compete.
            "crew": (["crew"], [], True),
            # Two groups, and messages that are deleted once both are done with them.
            "lanes": (["only", "crew"], ["only"], False),
            # The newest of each key.
            "keys": (["only"], ["only"], False),
            # Delays and lifetimes.
            "times": (["only"], ["only"], True),
            # Dead letters, and the messages that may become some. They are looked at in this order:
            # what has moved is known before it is missed.
            poison.DEAD: (["only"], ["only"], True),
            poison.BOX: (["crew"], [], True),
            # What is pushed to readers who share an inbox.
            readers.INBOX: ([readers.GROUP], [], False),
        }
        for box in ("solo", "solo", "crew", "crew", "lanes", "lanes", readers.INBOX):
            self._sender(box, any_level)
        self._sender("keys", keyed)
        self._sender("times", timed, window=12)
        self._sender(poison.BOX, any_level, window=8, backlog=poison.BACKLOG)
        for box, (groups, _, _) in self.boxes.items():
            for group in groups:
                if group == readers.GROUP:
                    continue
                for number in range(CREW if group == "crew" else 1):
                    self._worker(box, group, number)
        self.readers = [
            readers.InboxReader(gate, ledger, f"reader{number}", readers.INBOX, seed)
            for number in range(READERS)
        ]
        self.deleter = Deleter(gate, ledger, "deleter", "lanes", seed)
        for client in self.clients:
            client.stock = self.stock

    @property
    def clients(self) -> list[Client]:
        return [*self.senders, *self.workers, *self.readers, self.deleter]

    @property
    def takers(self) -> list[Worker | readers.InboxReader]:
        """Those to whom messages come."""
        return [*self.workers, *self.readers]

    def _sender(
        self,
        box: str,
        headers: Callable[..., dict[str, object]],
        window: int = 64,
        backlog: int = BACKLOG,
    ) -> None:
        place = len(self.senders) + 1
        name = f"{box}{place}"
        made = Sender(self.gate, self.ledger, name, box, self.seed, place, headers, window, backlog)
        self.senders.append(made)

    def _worker(self, box: str, group: str, number: int) -> None:
        name = f"{box}.{group}{number}"
        kind = poison.Failing if box == poison.BOX else Worker
        made = kind(self.gate, self.ledger, name, box, self.seed, group)
        made.confirmed = self._deleted_after(group) if box == "lanes" else self._removed_from(box)
        self.workers.append(made)

    def _removed_from(self, box: str) -> Callable[[list[int]], None]:
        # A dead letter has left the mailbox that it was sent to.
        sent_to = poison.BOX if box == poison.DEAD else box
        return lambda ids: self.stock.add(sent_to, -len(ids))

    def _deleted_after(self, group: str) -> Callable[[list[int]], None]:
        def confirmed(ids: list[int]) -> None:
            with self.lock:
                for msg_id in ids:
                    self.done[msg_id].add(group)
                    if len(self.done[msg_id]) == 2:
                        del self.done[msg_id]
                        self.deleter.wanted.append(msg_id)

        return confirmed

    def create(self, mail: Mail) -> None:
        for box, (groups, alone, work_queue) in self.boxes.items():
            retention = "work_queue" if work_queue else "limits"
            policy = poison.POLICY if box == poison.BOX else {}
            mail.done("MAILBOX.CREATE", {"name": box, "retention": retention} | policy)
            self.ledger.write("box", box, groups, alone, work_queue, policy)
            for group in groups:
                assert group == readers.GROUP or mail.fetch(box, group) == []


class Run:
    """One run: so many kills, and the books checked after each."""

    def __init__(self, folder: Path, sync: str, seed: int, around: tuple[str, ...] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.choose = random.Random(seed)
        out = folder / "export"
        self.supervisor = Supervisor(folder, sync, around, exports.setting(out))
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.exported = Exported(out, self.ledger)
        self.export_check = ExportCheck()
        self.reader = Reader(self.ledger.path)
        self.check = Check()
        self.gate = Gate()
        self.cast = Cast(self.gate, self.ledger, seed)
        self.kills = 0
        self.began: Callable[[], None] = lambda: None
        self.restarting: Callable[[], None] = lambda: None

    def play(self, kills: int, each: int, told: Callable[[str], None] = lambda _: None) -> Outcome:
        """Kills the broker `kills` times, after about `each` acknowledgements every time."""
        began = time.monotonic()
        try:
            self.begin()
            while not self.is_enough(kills):
                self._round(each)
                told(self._line(kills))
                if self.check.broken:
                    break
            else:
                self.end()
        finally:
            self.gate.end()
            self.supervisor.stop()
            self.reader.close()
            self.ledger.close()
        return Outcome(
            kills=self.kills,
            acknowledged=self.ledger.acknowledged,
            delivered=self.check.delivered,
            repeated=self.check.repeated,
            broken=self.check.broken + self.export_check.broken,
            violations=self.check.violations + self.export_check.violations,
            times=self.supervisor.times,
            seconds=time.monotonic() - began,
            segments_gone=self._segments_gone(),
            dead=self.dead(),
            pushed=self.check.pushed,
            pushed_again=self.check.pushed_again,
            exported=self.export_check.rows,
        )

    def end(self) -> None:
        """What is left is taken, and the export is finished."""
        self._drain()
        self._export()

    def dead(self) -> int:
        """How many messages have become dead letters."""
        return len(self.check.boxes[poison.BOX].dead)

    def is_enough(self, kills: int) -> bool:
        """Whether the broker was killed often enough."""
        return self.kills >= kills

    def begin(self) -> None:
        """The first broker, the mailboxes, and the clients at work."""
        server = self.supervisor.start()
        with Mail(server.url) as mail:
            self.cast.create(mail)
        for client in self.cast.clients:
            client.start()
        self.gate.all_wait(len(self.cast.clients), PARK_DEADLINE_S)
        self._live(server.url)
        self.began()

    def _live(self, url: str) -> None:
        self.ledger.write("life", self.gate.life + 1)
        self.gate.open(url)

    def _round(self, each: int) -> None:
        """Load, a kill at a random moment, a restart, a look at everything, the check."""
        goal = self.ledger.acknowledged + int(each * self.choose.uniform(0.2, 1.8))
        until(
            lambda: self.gate.failures or self.ledger.acknowledged >= goal,
            f"{goal} acknowledgements",
            ROUND_DEADLINE_S,
        )
        # Not always right after a reply.
        time.sleep(self.choose.uniform(0, 0.005))
        self.kill()
        while self.choose.random() < EARLY_SHARE:
            self.supervisor.kill_while_starting(self.choose)
            self.kills += 1
            self.killed()
        self.restart()
        self._live(self.supervisor.running.url)

    def kill(self) -> None:
        """Kills the broker under load, and waits until all clients have noticed.

        Readers of its export look at it at that moment, and when the broker is gone.
        """
        self.exported.look(most=2)
        self.supervisor.kill()
        self.exported.look()
        self.gate.close()
        self.kills += 1
        self.gate.all_wait(len(self.cast.clients), PARK_DEADLINE_S)
        # Only now: until then a client could still read replies that had left in time.
        self.ledger.write("killed", self.kills)
        self.killed()

    def forgettable(self) -> None:
        """From a power cut on, deliveries that were not acknowledged may never have been made."""
        for worker in self.cast.workers:
            worker.forgettable = True

    def killed(self) -> None:
        """What happens to the data directory while there is no broker: nothing."""

    def restart(self) -> None:
        """Starts a broker, looks at all mailboxes while nobody else does, and checks the books."""
        self.restarting()
        server = self.supervisor.start()
        self.look(server.url)

    def look(self, url: str) -> None:
        with Mail(url) as mail:
            for box in self.cast.boxes:
                self.cast.stock.held[box] = look(mail, self.ledger, box)
        self.check.feed(self.reader.new())

    def _drain(self) -> None:
        """Senders stop, workers go on until there is nothing left."""
        for sender in self.cast.senders:
            sender.active = False
        for worker in self.cast.workers:
            if isinstance(worker, poison.Failing):
                worker.finishing = True
        # All delays are over by then.
        self._all_idle(time.monotonic_ns() + 2_500_000_000)
        # The last FETCH of one may have been what made a dead letter for another.
        self._all_idle(time.monotonic_ns())
        self.gate.close()
        self.gate.all_wait(len(self.cast.clients), PARK_DEADLINE_S)
        self.ledger.write("end")
        self.look(self.supervisor.running.url)

    def _all_idle(self, since_ns: int) -> None:
        """Waits until no worker finds anything, having asked after that instant."""
        until(
            lambda: self.gate.failures or all(each.idle_ns > since_ns for each in self.cast.takers),
            "the workers were done",
            DRAIN_DEADLINE_S,
        )

    def _export(self) -> None:
        """The export of the stopped broker, against all of the ledger."""
        self.supervisor.stop()
        self.exported.finish(self.supervisor.data)
        self.check.feed(self.reader.new())
        again = Reader(self.ledger.path)
        self.export_check.feed(again.new())
        again.close()

    def _segments_gone(self) -> int:
        left = [int(file.stem[8:]) for file in self.supervisor.data.glob("segment-*.log")]
        return max(left, default=0) - len(left)

    def _line(self, kills: int) -> str:
        done, times = self.ledger.acknowledged, self.supervisor.times
        wrong = ", ".join(f"{count} {rule}" for rule, count in self.check.broken.items())
        return (
            f"kill {self.kills}/{kills}: {done} acknowledged, {self.check.delivered} delivered "
            f"({self.check.repeated} again), ready in {times.ready_s[-1]:.2f} s, "
            f"first FETCH in {times.fetch_s[-1]:.2f} s; {wrong or 'nothing wrong'}"
        )
