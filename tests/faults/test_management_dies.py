"""The process of the page is killed and stopped under load: no message notices.

Nothing is timed: the ledger of the clients is held against the promises, and nobody's connection
breaks.
"""

import os
import signal
import threading
from pathlib import Path

import httpx
import psutil
from tests.faults import exports
from tests.faults.kills import ROUND_DEADLINE_S, Run
from tests.faults.supervisor import Supervisor
from tests.manage.conftest import free_port
from tests.peers import until

KILLS = 3
STOPS = 3
EACH = 1500


class Beside(Run):
    """The broker lives; what is beside it is asked for its metrics all the time, and dies."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, "always", seed)
        listen = free_port()
        self.url = f"http://127.0.0.1:{listen}"
        block = f'management {{ listen: "127.0.0.1:{listen}" }}'
        more = f"{exports.setting(folder / 'export')}\n{block}"
        self.supervisor = Supervisor(folder, "always", more=more)
        self.pids: set[int] = set()
        self.stops = self.scrapes = 0
        self.over = threading.Event()
        self.scraper = threading.Thread(target=self._scrape, daemon=True)

    def _scrape(self) -> None:
        while not self.over.wait(0.05):
            if self._answers("/metrics", 2.0):
                self.scrapes += 1

    def _answers(self, path: str, timeout_s: float = 10.0) -> bool:
        try:
            return httpx.get(self.url + path, timeout=timeout_s).status_code == 200
        except httpx.TransportError:
            return False

    def process(self) -> psutil.Process:
        """The management process, once it follows the broker."""
        until(lambda: self._answers("/healthz"), "management follows the broker", 60)
        children = psutil.Process(self.supervisor.running.pid).children()
        [found] = [child for child in children if "manage" in child.cmdline()]
        return found

    def begin(self) -> None:
        super().begin()
        self.scraper.start()

    def is_enough(self, kills: int) -> bool:
        return len(self.pids) >= kills and self.stops >= STOPS

    def _round(self, each: int) -> None:
        """Load, a death or a long pause beside the broker in the middle of it, more load."""
        self._work(each // 3)
        process = self.process()
        if self.stops <= len(self.pids):
            os.kill(process.pid, signal.SIGSTOP)
            until(lambda: process.status() == psutil.STATUS_STOPPED, "it has stopped")
            self._work(each)
            assert process.status() == psutil.STATUS_STOPPED
            os.kill(process.pid, signal.SIGCONT)
            self.stops += 1
        else:
            self.pids.add(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            self._work(each // 3)

    def _drain(self) -> None:
        try:
            super()._drain()
        except TimeoutError as error:
            busy = [each.name for each in self.cast.takers if not each.idle_ns]
            raise TimeoutError(f"{error}: {busy}, {dict(self.cast.stock.held)}") from error

    def _work(self, count: int) -> None:
        goal = self.ledger.acknowledged + count
        until(
            lambda: self.gate.failures or self.ledger.acknowledged >= goal,
            f"{goal} acknowledgements",
            ROUND_DEADLINE_S,
        )
        assert self.gate.waiting == 0, "a client has lost its connection"


def test_nothing_is_lost_or_given_again_when_the_page_dies_or_hangs(tmp_path: Path) -> None:
    run = Beside(tmp_path, seed=21)
    try:
        outcome = run.play(KILLS, EACH)
    finally:
        run.over.set()
        run.scraper.join()
    assert outcome.violations == []
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert (len(run.pids), run.stops) == (KILLS, STOPS)
    assert run.scrapes > 0, "nobody asked: it had nothing to do"
    assert run.gate.life == 1, "the broker has lived through all of it"
    assert outcome.acknowledged > (KILLS + STOPS) * EACH / 2
