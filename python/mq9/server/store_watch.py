"""Tells the operator what befalls the store while the server runs: in the log, and for monitoring.

Clients learn of errors from replies to their requests; this is for the people who run the server.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mq9.server.refusals import Refusals
from mq9.server.set_aside import SetAside, SetAsideFiles

if TYPE_CHECKING:
    from mq9.server.logs import Log
    from mq9.store import Store

_EVERY_S = 2.0
_MOST_LINES = 20
"""So many places of damage are told one by one in a single look."""


class StoreWatch:
    """Looks at the store now and then, and says what is new."""

    def __init__(self, store: Store, log: Log) -> None:
        self._store = store
        self._log = log
        self._files = SetAsideFiles(Path(store.path))
        self._refusals = Refusals(log)
        self._stopped: str | None = None
        self._upkeep: str | None = None
        self.found = 0
        """Places of damage found since the store was opened, opening included."""
        self.set_aside = SetAside()

    def begin(self) -> None:
        """At the start: say what is damaged, be it found now or earlier."""
        self.look()
        self.set_aside = self._files.count()
        self._tell_set_aside()

    def end(self) -> None:
        """Before the store is closed: say what nobody was told yet, and what is left to do."""
        self.begin()

    def look(self) -> None:
        """Say what has changed since the last call."""
        damages = self._store.damage()
        new = damages[self.found :]
        for damage in new[:_MOST_LINES]:
            self._log.error("damage in the store", file=damage.file, what=damage.text)
        if len(new) > _MOST_LINES:
            self._log.error("damage in the store, in more places", places=len(new) - _MOST_LINES)
        self.found = len(damages)
        info = self._store.info()
        if info.writes_stopped != self._stopped:
            self._stopped = info.writes_stopped
            self._log.error(f"the store takes no more writes: {self._stopped}")
        self._refusals.look(info.last_refusal, info.refused, is_over=info.refusing is None)
        if info.last_maintenance_error != self._upkeep:
            self._upkeep = info.last_maintenance_error
            if self._upkeep is None:
                self._log.info("upkeep of the store works again")
            else:
                self._log.error(f"upkeep of the store failed: {self._upkeep}")

    async def run(self) -> None:
        """Look until cancelled."""
        # Imported here: clients are greeted before there is an event loop.
        import asyncio

        while True:
            await asyncio.sleep(_EVERY_S)
            self.look()
            before, self.set_aside = self.set_aside, await asyncio.to_thread(self._files.count)
            if before.files and not self.set_aside.files:
                self._log.info("damaged bytes are set aside no more", files=0)
            elif before.files < self.set_aside.files:
                self._tell_set_aside()

    def warning(self) -> str | None:
        """What an operator still has to look at, though the server works; None if nothing."""
        if not self.set_aside.files:
            return None
        count = self.set_aside.files
        files = "1 damaged-* file" if count == 1 else f"{count} damaged-* files"
        return f"damage was found: {files} in the data directory"

    def _tell_set_aside(self) -> None:
        if warning := self.warning():
            self._log.warn(
                f"{warning}; move or remove what you have looked at",
                data=self._store.path,
                bytes=self.set_aside.bytes,
            )
