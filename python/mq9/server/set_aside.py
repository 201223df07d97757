"""Files of damaged bytes (`damaged-*`), until the operator takes them away.

Only counts. The store makes them; nothing reads or removes them.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "damaged-"
# A file that was made so recently may still be written to.
_SETTLED_NS = 1_000_000_000


@dataclass(frozen=True)
class SetAside:
    """How many such files there are, and how large they are together."""

    files: int = 0
    bytes: int = 0


class SetAsideFiles:
    """Counts them again only when the directory has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed_ns: int | None = None
        self._counted = SetAside()

    def count(self) -> SetAside:
        """What is there now; of a directory that cannot be read, what was there before."""
        try:
            changed_ns = self._folder.stat().st_mtime_ns
            if changed_ns != self._changed_ns:
                self._counted = counted(self._folder)
                settled = time.time_ns() - changed_ns > _SETTLED_NS
                self._changed_ns = changed_ns if settled else None
        except OSError:
            self._changed_ns = None
        return self._counted


def counted(folder: Path) -> SetAside:
    """The files in `folder`."""
    sizes = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                try:
                    sizes.append(entry.stat().st_size)
                except FileNotFoundError:
                    continue
    return SetAside(len(sizes), sum(sizes))
