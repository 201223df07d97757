"""Reads an export as it grows, and sends the spans that follow from it to a collector.

Owns how far it has come, in a file of its own. What a collector did not take is sent again, with
the same ids. The broker never waits for it: it reads files that are there anyway.
"""

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mq9.traces.spans import Spans

_LOG = logging.getLogger("mq9.traces")
_BATCH = 512
_TIMEOUT_S = 10.0
_COLUMNS = ("kind", "mailbox", "msg_id", "level", "group", "member", "time", "count", "size")
_PLACE = ("segment", "offset", "seq")
_FIRST = ""


class Follower:
    """Sends what is new whenever it is asked to."""

    def __init__(
        self, folder: Path, endpoint: str, state: Path, exporter: SpanExporter | None = None
    ) -> None:
        self._folder, self._state = folder, state
        self._spans = Spans(Resource.create({"service.name": "mq9"}))
        self._exporter = exporter or OTLPSpanExporter(endpoint, timeout=_TIMEOUT_S)
        self._done = _FIRST
        self.sent = 0
        """Spans that the collector took."""
        self._read_state()

    def round(self) -> bool:
        """Send what is new; False if the collector did not take it, and it is to be tried again."""
        for piece in self._new_pieces():
            before = self._spans.state()
            spans = self._spans.of(self._events(piece), self._parents(piece))
            for first in range(0, len(spans), _BATCH):
                batch = spans[first : first + _BATCH]
                if self._exporter.export(batch) is not SpanExportResult.SUCCESS:
                    self._spans = Spans(Resource.create({"service.name": "mq9"}))
                    self._spans.restore(before)
                    return False
                self.sent += len(batch)
            self._done = piece
            self._write_state()
        return True

    def close(self) -> None:
        """Send nothing any more."""
        self._exporter.shutdown()

    def _new_pieces(self) -> list[str]:
        """Pieces of the log that are exported as a whole, in order, behind those that are done."""
        try:
            manifest = json.loads((self._folder / "manifest.json").read_text("utf-8"))
        except FileNotFoundError:
            return []
        end = f"{manifest['segment']:010}-{manifest['offset']:010}"
        found = {
            file.stem.removeprefix("part-")
            for file in self._folder.glob("events/date=*/*/*.parquet")
        }
        return sorted(each for each in found if self._done < each < end)

    def _files(self, kind: str, piece: str) -> Iterator[Path]:
        yield from sorted(self._folder.glob(f"{kind}/date=*/hour=*/part-{piece}.parquet"))

    def _events(self, piece: str) -> list[dict[str, Any]]:
        """What happened in a piece of the log, in the order of its records."""
        found: list[dict[str, Any]] = []
        for file in self._files("events", piece):
            table = parquet.ParquetFile(file).read(columns=[*_COLUMNS, *_PLACE])
            table = table.set_column(
                table.schema.get_field_index("time"), "time", table["time"].cast("int64")
            )
            found += table.to_pylist()
        found.sort(key=lambda event: tuple(event[name] for name in _PLACE))
        return found

    def _parents(self, piece: str) -> dict[tuple[str, int], str]:
        """The `traceparent`s of the messages in a piece."""
        found: dict[tuple[str, int], str] = {}
        for file in self._files("messages", piece):
            table = parquet.ParquetFile(file).read(columns=["mailbox", "msg_id", "headers"])
            for row in table.to_pylist():
                for header in row["headers"] or ():
                    if header["name"].lower() == "traceparent":
                        found[row["mailbox"], row["msg_id"]] = header["value"]
        return found

    def _read_state(self) -> None:
        try:
            state = json.loads(self._state.read_text("utf-8"))
        except FileNotFoundError:
            return
        self._done = state["done"]
        self._spans.restore(state["open"])

    def _write_state(self) -> None:
        fresh = self._state.with_name(f"{self._state.name}.new")
        fresh.write_text(json.dumps({"done": self._done, "open": self._spans.state()}), "utf-8")
        fresh.replace(self._state)


def follow(follower: Follower, every_s: float) -> None:
    """Send what is new for ever."""
    failing = False
    while True:
        went = follower.round()
        if failing == went:
            failing = not went
            (_LOG.info if went else _LOG.warning)(
                "the collector takes spans again" if went else "the collector does not take spans"
            )
        time.sleep(every_s)
