"""Keeps what this process knows in step with the broker.

Owns when the broker is asked, and for how much: one page at a time, a few pages a second at most.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mq9.manage.attention import attention
from mq9.manage.disk import DiskTrend
from mq9.manage.latency import Latencies
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
_LONGEST_RETRY_S = 30.0


class Follower:
    """Follows the broker until it is stopped."""

    def __init__(self, link: Link, series_of: Sequence[str] = ()) -> None:
        self.link = link
        self.series_of = series_of
        """Names of queues and groups that always have series."""
        self.mirror = Mirror()
        self.series = Series()
        self._latencies = Latencies()
        self.disk_trend = DiskTrend()
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
        self._connection = 0
        self._many: dict[int, None] = {}
        """Places of mailboxes with groups to be read, the first to come first."""
        self.slow_since: float | None = None
        """When a client was last cut off as too slow, as far as this process knows."""
        self._attention: list[dict[str, Any]] = []
        self._attention_at = -_EVERY_S
        self._point_at = 0.0
        self._pause = _RETRY_S

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
            except (BrokerGoneError, CredentialsError) as error:
                self._lost(str(error))
                pause = self._pause = _RETRY_S
            except RefusedError as error:
                # It is there and does not let us: to read all of it again and again helps nobody.
                self._lost(f"the broker refused: {error}")
                pause = self._pause = min(self._pause * 2, _LONGEST_RETRY_S)
            except Exception as error:
                # Whatever it is, nobody may take old numbers for new ones.
                _LOG.exception("following the broker failed")
                self._lost(f"what the broker says is not understood: {type(error).__name__}")
                pause = self._pause = min(self._pause * 2, _LONGEST_RETRY_S)
            else:
                pause, self._pause = _EVERY_S, _RETRY_S
            self.next_try = time.time() + pause if self.gone_since is not None else None
            await asyncio.sleep(pause)

    async def _round(self) -> None:
        if self.gone_since is not None or not self.mirror.whole:
            await self._read_all()
        else:
            await self._read_changes()
        before = self.server.get("varz", {}).get("slow_consumers", 0)
        self.server = await self.link.request("ADMIN.SERVER.VARZ")
        now = time.time()
        if self.server["varz"].get("slow_consumers", 0) > before:
            self.slow_since = now
        if disk := self.server.get("disk"):
            self.disk_trend.add(int(disk["free"]), now)
        if now - self._point_at >= STEP_S:
            self._point_at = now
            totals = {**self.mirror.totals, **self._traffic()}
            took = self._latencies.since(self.server.get("latency", {}))
            self.series.add(totals, self.mirror.levels.tolist(), now, values=took)
        await self.letters.refresh()

    def _traffic(self) -> dict[str, int]:
        varz = self.server.get("varz", {})
        return {name: int(varz.get(name, 0)) for name in ("in_msgs", "out_msgs")}

    async def _read_all(self) -> None:
        life = self.server.get("started_ms")
        began = await self.link.request("ADMIN.ACTIVITY", {"after": 0})
        self.server = await self.link.request("ADMIN.SERVER.VARZ")
        # What is numbered in one life of the broker means nothing in the next.
        connection = self.link.connections
        fresh = self.mirror.begin_again(is_new_life=life != self.server["started_ms"])
        start: int | None = 0
        while start is not None:
            page = await self.link.request("ADMIN.ACTIVITY", {"start": start, "limit": _PAGE_ROWS})
            fresh.apply(page["mailboxes"])
            start = page["next"] if page["more"] else None
        # Whoever holds the old one keeps it: it is changed in one step.
        self.mirror.take_over(fresh)
        self._many = dict.fromkeys(self.mirror.crowded())
        self._next, self._connection = int(began["next"]), connection
        if self.gone_since is not None:
            _LOG.info("following the broker: %d mailboxes", fresh.count)
            self.restarts += 1
        self.gone_since, self.problem, self.next_try = None, "", None

    async def _read_changes(self) -> None:
        for _ in range(_PAGES_AT_ONCE):
            request = {"after": self._next, "limit": _PAGE_ROWS}
            page = await self.link.request("ADMIN.ACTIVITY", request)
            if page["reset"] or self.link.connections != self._connection:
                self.mirror.whole = False
                return
            self.mirror.apply(page["mailboxes"], page["gone"])
            self._many |= dict.fromkeys(
                int(row["slot"])
                for row in page["mailboxes"]
                if len(row["groups"]) < int(row["group_count"])
            )
            self._next = int(page["next"])
            if not page["more"]:
                self.mirror.looked()
                break
        await self._read_groups()

    async def _read_groups(self) -> None:
        """Of mailboxes with more groups than a row tells of, the others: some of them each time."""
        pages = _PAGES_AT_ONCE
        while self._many and pages > 0:
            place = next(iter(self._many))
            del self._many[place]
            start, more, seen = 0, True, set[str]()
            while more:
                pages -= 1
                request = {"groups_of": place, "start": start, "limit": _PAGE_ROWS}
                page = await self.link.request("ADMIN.ACTIVITY", request)
                start, more = int(page["next"]), bool(page["more"])
                if not self.mirror.is_at(place, page["address"]):
                    # Another one is there by now: its row comes with the next changes.
                    seen.clear()
                    break
                self.mirror.apply_groups(place, page["groups"])
                seen.update(str(group["name"]) for group in page["groups"])
            if seen:
                self.mirror.keep_groups(place, seen)

    def _lost(self, problem: str) -> None:
        if self.gone_since is None:
            self.gone_since = time.time()
            _LOG.warning("the broker is gone: %s", problem)
            self.series.gap()
        elif problem != self.problem:
            _LOG.warning("the broker cannot be followed: %s", problem)
        self.problem = problem
