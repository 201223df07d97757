"""One broker, one mailbox, one sender and one worker, for faults that come step by step.

The clients, the ledger and the check are those of the kill run; here they do one thing at a time.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.faults.check import Check
from tests.faults.ledger import Ledger, events
from tests.faults.report import Row
from tests.faults.supervisor import Supervisor
from tests.faults.workload import Gate, Link, Sender, Worker, look
from tests.mail import Json, Mail
from tests.peers import Server

BOX = "box"
GROUP = "g"


class Scene:
    """Owns the books of a single mailbox, a work queue, over any number of brokers."""

    def __init__(self, folder: Path, around: Sequence[str] = (), sync: str = "always") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.supervisor = Supervisor(folder, sync, around)
        self.ledger = Ledger(folder / "ledger.jsonl")
        gate = Gate()
        self.sender = Sender(gate, self.ledger, "sender", BOX, 1, 1, lambda _choose, _uid: {})
        self.worker = Worker(gate, self.ledger, "worker", BOX, 1, GROUP)
        self.kills = 0
        self.lives = 0

    def __enter__(self) -> "Scene":
        self.start()
        self.link.done("MAILBOX.CREATE", {"name": BOX, "retention": "work_queue"})
        self.ledger.write("box", BOX, [GROUP], [GROUP], True)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.link.close()
        self.supervisor.stop()
        self.ledger.close()

    @property
    def server(self) -> Server:
        return self.supervisor.running

    def start(self) -> None:
        self.lives += 1
        server = self.supervisor.start()
        self.ledger.write("life", self.lives)
        self.link = Link(server.url)
        self.sender.link = self.worker.link = self.link
        self.worker.member = f"worker.{self.lives}"

    def kill(self) -> None:
        self.supervisor.kill()
        self.link.close()
        self.kills += 1
        self.ledger.write("killed", self.kills)

    def restart(self) -> None:
        """A kill and a new broker."""
        self.kill()
        self.start()

    def send(self, count: int) -> list[str]:
        """Sends; the errors of what was refused."""
        return self.sender.send_window(count)

    def take(self, count: int) -> list[Json]:
        """Fetches and confirms."""
        found = self.worker.fetch(count, wait_ms=0)
        if found:
            self.worker.acknowledge([entry["msg_id"] for entry in found], only=False)
        return found

    def look(self) -> int:
        with Mail(self.server.url) as mail:
            return look(mail, self.ledger, BOX)

    def drain(self) -> None:
        """Takes everything there is."""
        while self.take(1000):
            pass
        self.ledger.write("end")

    def check(self) -> Check:
        """All of the books."""
        check = Check()
        check.feed(events(self.ledger.path))
        return check

    def row(self, part: str, fault: str, check: Check, note: str = "", runs: int = 1) -> Row:
        times = self.supervisor.times
        doubled = check.broken["duplicated"] + check.broken["came back"]
        ready, fetch = times.ready_s[1:], times.fetch_s[1:]
        return Row(
            part, fault, runs, self.ledger.acknowledged, check.lost, doubled, ready, fetch, note
        )
