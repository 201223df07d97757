"""Power cuts under the real broker: a kill, and then all that was not synced is taken back.

The kill run with a shim between the broker and its files. What it takes back and what it leaves is
decided in `shim`; what the clients must find is decided in `check`, as after any kill.
"""

import subprocess
from pathlib import Path

from tests.faults.kills import Run
from tests.faults.shim import Shim


class PowerRun(Run):
    """Power cuts where the other run has kills."""

    def __init__(self, folder: Path, sync: str, seed: int, *, lie: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.shim = Shim(folder / "shim", folder / "data", undo=True)
        super().__init__(folder, sync, seed, self.shim.around)
        self.forgettable()
        self.undone = 0
        # From the first message on syncs do nothing, for a control: that losses are found then.
        self.began = lambda: self.shim.set("lie_about_syncs", int(lie))

    def is_enough(self, kills: int) -> bool:
        """About every second cut comes while something is not synced: one of all must."""
        return super().is_enough(kills) and (self.undone > 0 or self.kills >= 5 * kills)

    def killed(self) -> None:
        self.undone += self.shim.cut_power(self.choose)
        self.ledger.write("forgot")


class MountedRun(Run):
    """Power cuts on a file system that forgets what was not synced when a command is run."""

    def __init__(self, folder: Path, sync: str, seed: int, *, data: Path, cut: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data").symlink_to(data)
        super().__init__(folder, sync, seed)
        self.forgettable()
        self.cut = cut

    def killed(self) -> None:
        subprocess.run(self.cut, shell=True, check=True, timeout=60)
        self.ledger.write("forgot")
