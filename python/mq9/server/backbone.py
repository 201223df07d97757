"""The nats-servers that keep a cluster's log, as their monitoring ports describe them.

Clients of a nats-server cannot see how it syncs: it is asked over HTTP. Who confirms what is not
synced is refused.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING

from mq9.server.running import StartError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq9.server.logs import Log

_TIMEOUT_S = 2.0
_AGAIN_S = 1.0
# One that is started again may sync otherwise than before.
_EVERY_S = 60.0
# After the start of a machine they may take as long as this.
_PATIENCE_S = 30.0
_MOST_BYTES = 1 << 20
_WHY = "a power cut of all machines may lose what was confirmed"


class SyncCheck:
    """Whether all servers sync what they confirm. One that is away is asked when it is back."""

    refusal: StartError | None = None
    """Why this node has to end."""

    def __init__(
        self,
        monitors: Sequence[str],
        log: Log,
        patience_s: float = _PATIENCE_S,
        every_s: float = _EVERY_S,
    ) -> None:
        self._monitors = list(monitors)
        self._left = list(monitors)
        self._patience_s, self._every_s = patience_s, every_s
        self._enough = (len(monitors) - 1) // 2
        self._log = log

    async def begin(self, stop: asyncio.Event) -> None:
        """Wait until most have answered; StartError if they do not, or if one does not sync."""
        until = asyncio.get_running_loop().time() + self._patience_s
        while (silent := await self._ask()) and not stop.is_set():
            if len(silent) <= self._enough:
                for url, why in silent.items():
                    self._log.warn(f"Cluster: {url} does not say yet how it syncs: {why}")
                return
            if asyncio.get_running_loop().time() >= until:
                url, why = next(iter(silent.items()))
                raise StartError(
                    f"most of the `monitors` do not say how their nats-servers sync ({url}: "
                    f"{why}): without sync_interval: always {_WHY}. If you made sure of it by "
                    "other means, set sync: unchecked"
                )
            await _pause(stop, _AGAIN_S)

    async def finish(self, stop: asyncio.Event) -> None:
        """Ask until all have answered, and now and then again; who does not sync ends this node."""
        while not stop.is_set():
            await _pause(stop, _AGAIN_S if self._left else self._every_s)
            self._left = self._left or list(self._monitors)
            try:
                await self._ask()
            except StartError as error:
                self._log.error(f"Cluster: {error}")
                self.refusal = error
                stop.set()

    async def _ask(self) -> dict[str, str]:
        """Those that do not answer, and why."""
        asked = [asyncio.to_thread(_syncs_always, url) for url in self._left]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        silent = {}
        for url, answer in zip(self._left, answers, strict=True):
            if answer is False:
                raise StartError(
                    f"the nats-server at {url} confirms messages before they are synced: {_WHY}. "
                    "Set jetstream { sync_interval: always } there and restart it"
                )
            if isinstance(answer, OSError | ValueError | HTTPException):
                silent[url] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
        self._left = list(silent)
        return silent


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass


def _syncs_always(url: str) -> bool:
    with urllib.request.urlopen(f"{url.rstrip('/')}/varz", timeout=_TIMEOUT_S) as answer:
        found = json.loads(answer.read(_MOST_BYTES))
    config = found.get("jetstream", {}).get("config") if isinstance(found, dict) else None
    if not isinstance(config, dict):
        raise ValueError("it has no JetStream")
    return config.get("sync_always") is True
