"""Continuous export: what went through the broker becomes Parquet files while it runs.

Owns when an export runs and what the log says of it. It runs in a thread, off the event loop.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mq9._core import Export
from mq9.errors import ExportError, StoreError
from mq9.server.clock import now_ms
from mq9.server.opening import FIRST_SEGMENT

if TYPE_CHECKING:
    from mq9._core import ExportSummary
    from mq9.config.options import Export as ExportOptions
    from mq9.server.running import Running

_DAY_MS = 86_400_000


class Exporting:
    """Exports the log every so often until it is closed."""

    def __init__(self, running: Running, options: ExportOptions) -> None:
        self._running = running
        self._options = options
        self._export: Export | None = None
        self._stop = asyncio.Event()
        self._failure = ""
        self._threads = ThreadPoolExecutor(1, "mq9-export")
        running.exported_ms = now_ms()
        running.export = {"dir": str(options.dir), "messages": 0, "events": 0, "error": ""}

    def start(self) -> None:
        """Begin to export."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop after the piece under way; the next start goes on behind it."""
        self._stop.set()
        if self._export is not None:
            self._export.stop()
        await self._task
        if self._export is not None:
            self._export.close()
        self._threads.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            try:
                began = now_ms()
                self._note(await loop.run_in_executor(self._threads, self._round))
                self._running.exported_ms = began
            except (StoreError, OSError) as error:
                self._fail(error)
            try:
                await asyncio.wait_for(self._stop.wait(), self._options.every_ms / 1000)
            except TimeoutError:
                continue

    def _round(self) -> ExportSummary:
        store, options = self._running.store, self._options
        if self._export is None:
            data = self._running.options.data_dir
            self._export = Export(data, options.dir, payloads=options.payloads)
        try:
            summary = self._export.run(store)
            if options.keep_days is not None:
                now_ms = round(time.time() * 1000)
                self._export.forget(max(0, now_ms - options.keep_days * _DAY_MS))
            return summary
        finally:
            segment, _ = self._export.position()
            store.keep_segments(max(segment, FIRST_SEGMENT), options.keep_bytes)

    def _note(self, summary: ExportSummary) -> None:
        if self._failure:
            self._running.log.info("Export goes on", dir=self._options.dir)
            self._failure = ""
        if summary.gaps:
            self._running.log.warn(
                "a part of the log was removed before it was exported", times=summary.gaps
            )
        told: dict[str, Any] = self._running.export or {}
        told["messages"] += summary.messages
        told["events"] += summary.events
        told["error"] = ""

    def _fail(self, error: Exception) -> None:
        if self._stop.is_set() and isinstance(error, ExportError):
            return
        if str(error) != self._failure:
            self._running.log.error(f"the export failed and is tried again: {error}")
        self._failure = str(error)
        if self._running.export is not None:
            self._running.export["error"] = self._failure
