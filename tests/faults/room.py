"""A small disk that only one test sees: a tmpfs in a mount namespace of its own.

Works for root, and for others where the kernel lets them have user namespaces. The mounts go with
the process that holds the namespace, so nothing is left behind.
"""

import os
import subprocess
from pathlib import Path
from types import TracebackType

SETUP = 'set -e; mount -t tmpfs -o size="$2" tmpfs "$1"; echo ready; exec cat'


class NoRoomError(Exception):
    """This machine lets nobody mount anything here."""


class Room:
    """A tmpfs of some size over `folder`; `around` runs a command that sees it."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        unshare = ["unshare", "--user", "--map-root-user", "--mount"]
        self.holder = subprocess.Popen(
            [*unshare, "sh", "-c", SETUP, "sh", str(folder), str(size_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.holder.stdout is not None
        if self.holder.stdout.readline() != b"ready\n":
            _, said = self.holder.communicate()
            raise NoRoomError(f"needs to mount a tmpfs in a namespace: {said.decode().strip()}")
        into = ["nsenter", f"--target={self.holder.pid}", "--user", "--mount"]
        self.around = (*into, "--preserve-credentials", f"--wd={Path.cwd()}")

    def run(self, *command: str) -> None:
        """Runs a command in the namespace."""
        subprocess.run([*self.around, *command], check=True, capture_output=True, timeout=30)

    def free_bytes(self) -> int:
        """What is left on the small disk."""
        found = os.statvfs(f"/proc/{self.holder.pid}/root{self.folder}")
        return found.f_bavail * found.f_frsize

    def __enter__(self) -> "Room":
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.holder.communicate()
