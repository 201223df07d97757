"""Tells the log what befalls the store while the server runs.

Clients are told of errors in replies to their requests; this is for whoever runs the server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq9.server.logs import Log
    from mq9.store import Store

_EVERY_S = 2.0


class StoreWatch:
    """Looks at the store now and then, and says what is new."""

    def __init__(self, store: Store, log: Log) -> None:
        self._store = store
        self._log = log
        self._damages = 0
        self._stopped: str | None = None
        self._upkeep: str | None = None

    def look(self) -> None:
        """Say what has changed since the last call."""
        damages = self._store.damage()
        for damage in damages[self._damages :]:
            self._log.error("damage in the store", file=damage.file, what=damage.text)
        self._damages = len(damages)
        info = self._store.info()
        if info.writes_stopped != self._stopped:
            self._stopped = info.writes_stopped
            self._log.error(f"the store takes no more writes: {self._stopped}")
        if info.last_maintenance_error != self._upkeep:
            self._upkeep = info.last_maintenance_error
            if self._upkeep is None:
                self._log.info("upkeep of the store works again")
            else:
                self._log.error(f"upkeep of the store failed: {self._upkeep}")

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            self.look()
