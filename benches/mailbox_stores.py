"""Folders with messages in them, made once for each server and copied for each measurement."""

import shutil
from pathlib import Path

import nats_runs
from mailbox_servers import Contender
from nats_runs import BenchError


class Stores:
    """The folders that were made so far."""

    def __init__(self, folder: Path, load: Path, stored: int) -> None:
        self.folder = folder
        self.load = load
        self.stored = stored

    def copy(self, contender: Contender, size: int, priorities: bool, to: Path) -> None:
        """Fills the empty folder `to` with messages of a size."""
        mixed = "-mixed" if priorities and contender.has_priorities else ""
        original = self.folder / f"{contender.server}-{size}{mixed}"
        if not original.exists():
            original.mkdir()
            self._fill(contender, size, priorities, original)
        shutil.copytree(original, to, dirs_exist_ok=True)

    def _fill(self, contender: Contender, size: int, priorities: bool, folder: Path) -> None:
        words = [*contender.send_arguments(priorities), "--window", "1024", "--size", str(size)]
        words += ["--count", str(self.stored), "--warmup", "0"]
        with contender.run(folder, "interval") as server:
            contender.create(server.address)
            nats_runs.run_load(self.load, words, server, -1)
            if (kept := contender.kept(server.address)) != self.stored:
                raise BenchError(f"{contender.name} kept {kept} of {self.stored} messages")
        for leftover in folder.glob("*.ports"):
            leftover.unlink()
