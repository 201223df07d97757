"""Keeps what this process knows in step with the broker.

Owns when the broker is asked, and for how much: one page at a time, a few pages a second at most.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from mq9.manage.attention import attention
from mq9.manage.letters import Letters
from mq9.manage.link import BrokerGoneError, CredentialsError, Link, RefusedError
from mq9.manage.mirror import Mirror
from mq9.manage.series import STEP_S, Series

if TYPE_CHECKING:
    from mq9.manage.archive import Archive
    from mq9.manage.scheduler import Scheduler

_LOG = logging.getLogger("mq9.manage")
_EVERY_S = 1.0
_PAGE_ROWS = 1000
# A broker where more mailboxes change in a second is followed a little later.
_PAGES_AT_ONCE = 10
_RETRY_S = 1.0


class Follower:
    """Follows the broker until it is stopped."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.mirror = Mirror()
        self.series = Series()
        self.letters = Letters(link, self.mirror)
        self.archive: Archive | None = None
        """Where letters are copied to, if they are."""
        self.scheduler: Scheduler | None = None
        """What sends at set times, if something does."""
        self.server: dict[str, Any] = {}
        """The broker's own figures, as of the last answer."""
        self.gone_since: float | None = time.time()
        self.problem = "not connected yet"
        self.next_try: float | None = None
        self.restarts = -1
        """How many times the broker was found again."""
        self._next = 0
        self._attention: list[dict[str, Any]] = []
        self._attention_at = -_EVERY_S
        self._point_at = 0.0

    def attention(self) -> list[dict[str, Any]]:
        """What needs attention: looked for once a second at most, however many pages ask."""
        now = time.monotonic()
        if now - self._attention_at >= _EVERY_S:
            self._attention, self._attention_at = attention(self), now
        return self._attention

    async def run(self) -> None:
        """Follow; every failure is a reason to try again."""
        while True:
            try:
                await self._round()
            except (BrokerGoneError, CredentialsError, RefusedError) as error:
                self._lost(str(error))
                self.next_try = time.time() + _RETRY_S
                await asyncio.sleep(_RETRY_S)
            else:
                await asyncio.sleep(_EVERY_S)

    async def _round(self) -> None:
        if self.gone_since is not None or not self.mirror.whole:
            await self._read_all()
        else:
            await self._read_changes()
        self.server = await self.link.request("ADMIN.SERVER.VARZ")
        now = time.time()
        if now - self._point_at >= STEP_S:
            self._point_at = now
            totals = {**self.mirror.totals, **self._traffic()}
            self.series.add(totals, self.mirror.levels.tolist(), now)
        await self.letters.refresh()

    def _traffic(self) -> dict[str, int]:
        varz = self.server.get("varz", {})
        return {name: int(varz.get(name, 0)) for name in ("in_msgs", "out_msgs")}

    async def _read_all(self) -> None:
        began = await self.link.request("ADMIN.ACTIVITY", {"after": 0})
        fresh = Mirror()
        fresh.totals |= {
            name: self.mirror.totals[name]
            for name in ("sent", "delivered", "redelivered", "acked", "dead", "returned")
        }
        start: int | None = 0
        while start is not None:
            page = await self.link.request("ADMIN.ACTIVITY", {"start": start, "limit": _PAGE_ROWS})
            fresh.apply(page["mailboxes"])
            start = page["next"] if page["more"] else None
        # Whoever holds the old one keeps it: it is changed in one step.
        fresh.whole = True
        self.mirror.take_over(fresh)
        self._next = int(began["next"])
        if self.gone_since is not None:
            _LOG.info("following the broker: %d mailboxes", fresh.count)
            self.restarts += 1
        self.gone_since, self.problem, self.next_try = None, "", None

    async def _read_changes(self) -> None:
        for _ in range(_PAGES_AT_ONCE):
            request = {"after": self._next, "limit": _PAGE_ROWS}
            page = await self.link.request("ADMIN.ACTIVITY", request)
            if page["reset"]:
                self.mirror.whole = False
                return
            self.mirror.apply(page["mailboxes"], page["gone"])
            self._next = int(page["next"])
            if not page["more"]:
                return

    def _lost(self, problem: str) -> None:
        if self.gone_since is None:
            self.gone_since = time.time()
            _LOG.warning("the broker is gone: %s", problem)
            self.series.gap()
        elif problem != self.problem:
            _LOG.warning("the broker cannot be followed: %s", problem)
        self.problem = problem
