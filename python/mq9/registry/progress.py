"""Progress of the search worker, in memory that outlives it: the card that it was reading when it
died, and whether it still does anything.

The broker makes it and hands it on; the worker writes, the broker reads. Knows nothing of cards.
"""

import mmap
import os
import struct
import tempfile
from pathlib import Path
from typing import IO

_LAYOUT = struct.Struct("<qq")
_NOTHING = -1


class Progress:
    """A counter of all that the worker begins, and the number of the card in its hands."""

    def __init__(self, descriptor: int) -> None:
        """Share what the broker has made."""
        self._memory = mmap.mmap(descriptor, _LAYOUT.size)
        self._beats = 0

    def beat(self) -> None:
        """Something was begun that is no card."""
        self._write(_NOTHING)

    def begin(self, card: int) -> None:
        """A card is looked at from now on, until the next beat."""
        self._write(card)

    def _write(self, card: int) -> None:
        self._beats += 1
        _LAYOUT.pack_into(self._memory, 0, self._beats, card)

    @property
    def beats(self) -> int:
        """Changes whenever something is begun."""
        beats: int = _LAYOUT.unpack_from(self._memory)[0]
        return beats

    @property
    def card(self) -> int | None:
        """The card that is being looked at."""
        card: int = _LAYOUT.unpack_from(self._memory)[1]
        return None if card == _NOTHING else card


def shared() -> tuple[IO[bytes], Progress]:
    """A new one, with the open file to hand on; the file has no name."""
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(_LAYOUT.pack(0, _NOTHING))
    file.flush()
    return file, Progress(file.fileno())


def processor_time_s(pid: int) -> float:
    """How long a process has used a processor; 0 where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return 0.0
    # The name in parentheses may hold anything. Behind it user and system time are 12th and 13th.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
