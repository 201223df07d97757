"""Mailboxes of a live broker as a source: looked at with QUERY, so nothing is consumed.

The offset of a stream is the `msg_id` up to which each mailbox was read. What a mailbox no longer
holds (expired, deleted, replaced by its key, consumed from a work queue) cannot be read, also not
when a micro-batch is done again.
"""

import asyncio
import datetime
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mq9.client import Client, Message
from mq9.spark.filters import Wanted
from mq9.spark.options import Broker

IDS_PER_TASK = 50_000

Result = TypeVar("Result")


@dataclass
class Ids(InputPartition):
    """A range of ids of one mailbox."""

    mailbox: str
    first: int
    last: int


@dataclass
class Mailboxes:
    """How mailboxes are read; picklable."""

    broker: Broker
    schema: StructType
    page: int
    tasks: int

    def newest(self, mailboxes: Iterable[str]) -> dict[str, int]:
        """The highest id in each mailbox, -1 where it is empty."""

        async def ask() -> dict[str, int]:
            async with self.broker.client() as client:
                found = {name: await client.query(name, limit=1) for name in mailboxes}
            return {name: ms[-1].msg_id if ms else -1 for name, ms in found.items()}

        return _run(ask())

    def oldest(self, mailbox: str) -> int:
        """The lowest id in a mailbox, 0 where it is empty."""

        async def ask() -> int:
            async with self.broker.client() as client:
                found = await client.query(mailbox, since=0, limit=1)
            return found[0].msg_id if found else 0

        return _run(ask())

    def split(self, mailbox: str, first: int, last: int) -> list[InputPartition]:
        """A range of ids dealt out to tasks."""
        if last < first:
            return []
        tasks = min(self.tasks, -(-(last - first + 1) // IDS_PER_TASK))
        size = -(-(last - first + 1) // tasks)
        starts = range(first, last + 1, size)
        return [Ids(mailbox, start, min(start + size - 1, last)) for start in starts]

    def read(self, ids: Ids, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """The messages of a range, page by page."""
        loop = asyncio.new_event_loop()
        try:
            client = self.broker.client()
            loop.run_until_complete(client.connect())
            try:
                for page in self._pages(loop, client, ids, wanted):
                    if batch := self._batch(page):
                        yield batch
            finally:
                loop.run_until_complete(client.close())
        finally:
            loop.close()

    def _pages(
        self, loop: asyncio.AbstractEventLoop, client: Client, ids: Ids, wanted: Wanted
    ) -> Iterator[list[Message]]:
        after = ids.first - 1
        while after < ids.last:
            asked = client.query(
                ids.mailbox,
                key=wanted.key,
                # Nothing is before 0, and a page without this would be of the newest.
                since=wanted.since_s or 0,
                after_id=after if after >= 0 else None,
                limit=min(self.page, ids.last - after),
            )
            found = loop.run_until_complete(asked)
            yield [message for message in found if message.msg_id <= ids.last]
            if not found or wanted.key is not None:
                return
            after = found[-1].msg_id

    def _batch(self, messages: list[Message]) -> pa.RecordBatch | None:
        if not messages:
            return None
        schema = to_arrow_schema(self.schema, timezone="UTC")
        columns: dict[str, list[Any]] = {
            "mailbox": [m.address for m in messages],
            "msg_id": [m.msg_id for m in messages],
            "level": [m.level for m in messages],
            "priority": [m.priority for m in messages],
            "key": [m.key for m in messages],
            "tags": [list(m.tags) for m in messages],
            "headers": [[{"name": n, "value": v} for n, v in m.headers.items()] for m in messages],
            "payload": [m.payload for m in messages],
            "size": [len(m.payload) for m in messages],
            "visible": [_time(m.create_time) for m in messages],
            "expires": [_time(m.expires_at) for m in messages],
        }
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        return pa.record_batch(arrays, schema=schema)


def _run(asked: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(asked)


def _time(seconds: int | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.UTC)


class MailboxReader(DataSourceReader):
    """Reads what mailboxes hold now."""

    def __init__(self, source: Mailboxes, wanted: Wanted) -> None:
        self.source, self.wanted = source, wanted

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Takes filters on mailbox, msg_id, key and, to the second, visible."""
        self.wanted, left = self.wanted.narrowed(filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of ids up to the newest message; what is sent from now on is not read."""
        wanted = self.wanted
        found: list[InputPartition] = []
        for mailbox, newest in self.source.newest(wanted.mailboxes).items():
            last = newest if wanted.last is None else min(wanted.last, newest)
            if last >= wanted.first:
                first = max(wanted.first, self.source.oldest(mailbox))
                found += self.source.split(mailbox, first, last)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a partition."""
        # Without any range Spark makes up one partition of its own.
        if isinstance(partition, Ids):
            yield from self.source.read(partition, self.wanted)


class MailboxStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows mailboxes."""

    def __init__(
        self, source: Mailboxes, mailboxes: Sequence[str], max_rows: int | None, *, latest: bool
    ) -> None:
        self.source, self.mailboxes = source, tuple(mailboxes)
        self.max_rows, self.latest = max_rows, latest
        self.target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the oldest message, or behind the newest, as the option startingOffsets says."""
        if self.latest:
            return self.source.newest(self.mailboxes)
        return dict.fromkeys(self.mailboxes, -1)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the option maxRowsPerTrigger says."""
        return ReadMaxRows(self.max_rows) if self.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is sent later is for the next run."""
        self.target = self.source.newest(self.mailboxes)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The newest message of each mailbox, or as far as one micro-batch may go."""
        newest = self.target or self.source.newest(self.mailboxes)
        # The newest message may have been deleted since: an offset never goes back.
        end = {name: max(newest[name], start.get(name, -1)) for name in self.mailboxes}
        if isinstance(limit, ReadMaxRows):
            share = max(1, limit.max_rows // max(1, len(self.mailboxes)))
            end = {name: min(last, self._begin(start, name) + share) for name, last in end.items()}
        return end

    def _begin(self, start: dict[str, int], mailbox: str) -> int:
        """The last id that was read, or that is known not to be there any more."""
        known = start.get(mailbox, -1)
        return known if known >= 0 else self.source.oldest(mailbox) - 1

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Ranges of ids between two offsets."""
        found: list[InputPartition] = []
        for mailbox, last in end.items():
            found += self.source.split(mailbox, start.get(mailbox, -1) + 1, last)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a partition."""
        if isinstance(partition, Ids):
            yield from self.source.read(partition, Wanted((partition.mailbox,)))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: QUERY moves no group."""
