"""Owns the broker's process while it is being mistreated: starts it, kills it, and takes the time.

Knows nothing of mailboxes beyond one FETCH, with which it sees that the broker works.
"""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mail import Mail
from tests.peers import MQ9, Server, ServerDiedError, command, start

# Small files and a busy upkeep, so that a run of seconds sees many segments, checkpoints and
# compactions.
CONFIG = """
mq9 {{
  sync: {sync}
  segment_size: 256KiB
  checkpoint_size: 256KiB
  upkeep_interval: "20ms"
  {more}
}}
"""
# A start takes about this long; a kill in the middle of one comes before that.
STARTING_S = 0.5


@dataclass
class Times:
    """How long the broker took to be back, counted from the start of its process."""

    ready_s: list[float] = field(default_factory=list)
    fetch_s: list[float] = field(default_factory=list)


class Supervisor:
    """One data directory and the brokers that live on it, one after the other."""

    def __init__(
        self, folder: Path, sync: str = "always", around: Sequence[str] = (), more: str = ""
    ) -> None:
        self.folder = folder
        self.config = CONFIG.format(sync=sync, more=more)
        self.around = around
        self.times = Times()
        self.server: Server | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def running(self) -> Server:
        assert self.server is not None
        return self.server

    def start(self) -> Server:
        """Starts a broker and waits until it has answered a FETCH."""
        began = time.monotonic()
        self.server = start(self.folder, self.config, peer=MQ9, around=self.around)
        self.times.ready_s.append(time.monotonic() - began)
        with Mail(self.server.url) as mail:
            # An error is an answer as well: nobody made this mailbox.
            mail.ask("MSG.FETCH.supervisor", {"config": {"max_wait_ms": 0}})
        self.times.fetch_s.append(time.monotonic() - began)
        return self.server

    def kill(self) -> None:
        """SIGKILL, and the end of the process."""
        self.running.process.send_signal(signal.SIGKILL)
        self.running.process.wait()
        for file in self.folder.glob("*.ports"):
            # A later process may have the same number.
            file.unlink()

    def kill_while_starting(self, choose: random.Random) -> None:
        """Starts a broker and kills it before it is ready, perhaps."""
        log = (self.folder / "starting.log").open("wb")
        arguments = [*self.around, *command(MQ9, self.folder), "-a", "127.0.0.1", "-p", "-1"]
        config = self.folder / "server.conf"
        with log:
            process = subprocess.Popen(
                [*arguments, "-c", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            process.wait(choose.uniform(0, STARTING_S))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return
        text = (self.folder / "starting.log").read_text("utf-8", "replace")
        raise ServerDiedError(f"mq9 ended with {process.returncode} by itself:\n{text}")

    def stop(self) -> None:
        """Ends it if it still runs."""
        if self.server is not None:
            self.server.stop()


def report_line(text: str) -> None:
    """Progress for people: one line on the standard error output."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
