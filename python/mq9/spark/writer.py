"""Rows sent as messages, so that a task that runs twice leaves each message in the mailbox once.

Spark runs a task again when it failed or is slow, and a streaming batch again when it was cut off.
The broker does not know a message it has seen before; it knows keys: a message takes the place
of the one with the same key. So each row gets a key that is the same in every attempt.
"""

import asyncio
import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from mq9.client import Client, NewMessage
from mq9.errors import InvalidField
from mq9.spark.options import Broker, flag, mailboxes

COLUMNS = (
    "mailbox",
    "payload",
    "priority",
    "level",
    "key",
    "tags",
    "headers",
    "delay",
    "ttl",
)


@dataclass
class Sent(WriterCommitMessage):
    """What a task sent, and what an attempt before it had sent already."""

    sent: int
    skipped: int


@dataclass(frozen=True)
class Sending:
    """How rows become messages; picklable."""

    broker: Broker
    mailbox: str | None
    idempotent: bool
    id_column: str | None
    create: bool
    write_id: str

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> "Sending":
        """From the options and the columns of a DataFrame that is written."""
        id_column = options.get("idColumn")
        unknown = [name for name in schema.names if name not in {*COLUMNS, id_column}]
        if unknown:
            raise InvalidField(
                f"columns {', '.join(unknown)}: mq9 writes {', '.join(COLUMNS)}; drop the others, "
                "or name the one that tells rows apart in the option idColumn"
            )
        if "payload" not in schema.names:
            raise InvalidField("there is no column payload: it holds what is sent")
        if id_column is not None and id_column not in schema.names:
            raise InvalidField(f"idColumn is {id_column!r}, and there is no such column")
        [mailbox, *more] = [*mailboxes(options), None]
        if more[1:] or (mailbox is None and "mailbox" not in schema.names):
            raise InvalidField("say where to send: with the option mailbox or a column mailbox")
        return cls(
            broker=Broker.of(options),
            mailbox=mailbox,
            idempotent=flag(options, "idempotent", default=True),
            id_column=id_column,
            create=flag(options, "create", default=False),
            write_id=options.get("writeId") or uuid.uuid4().hex[:16],
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        """Sends all rows of a task; when this returns they are on the broker's disk."""
        return asyncio.run(self._write(batches))

    async def _write(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        task = TaskContext.get()
        again = task is not None and task.attemptNumber() > 0
        keys = Keys(self.id_column, *_run_and_part(self.write_id, self.id_column, task))
        known: set[str] = set()
        sent = skipped = 0
        async with self.broker.client() as client:
            for batch in batches:
                for mailbox, messages in self._messages(batch, keys).items():
                    if self.create and mailbox not in known:
                        await client.create_mailbox(mailbox, exist_ok=True)
                        known.add(mailbox)
                    fresh = messages
                    if again and self.idempotent:
                        fresh = await _not_there(client, mailbox, messages)
                    await client.send_many(mailbox, fresh)
                    sent += len(fresh)
                    skipped += len(messages) - len(fresh)
        return Sent(sent, skipped)

    def _messages(self, batch: pa.RecordBatch, keys: "Keys") -> dict[str, list[NewMessage]]:
        found: dict[str, list[NewMessage]] = {}
        for row in batch.to_pylist():
            mailbox = row.get("mailbox") or self.mailbox
            if mailbox is None:
                raise InvalidField("a row has no mailbox, and there is no option mailbox")
            if row["payload"] is None:
                raise InvalidField("a row has no payload: it may be empty, but not null")
            key = row.get("key")
            if key is None and self.idempotent:
                key = keys.of(mailbox, row)
            level = row.get("level")
            message = NewMessage(
                row["payload"],
                priority=row.get("priority") or level,
                key=key,
                tags=row.get("tags") or (),
                delay=row.get("delay") or 0,
                ttl=row.get("ttl") or 0,
                headers=_headers(row.get("headers")),
            )
            found.setdefault(mailbox, []).append(message)
        return found


class Keys:
    """Keys that a row has in every attempt.

    Of what the row says and, for rows that say the same, which of them it is; so the order in
    which a task gets its rows does not matter. Or of a column that tells all rows apart.
    """

    def __init__(self, id_column: str | None, run: str, part: str) -> None:
        self.id_column, self.run, self.part = id_column, run, part
        self.seen: Counter[bytes] = Counter()

    def of(self, mailbox: str, row: Mapping[str, Any]) -> str:
        """The key of a row; rows must not be asked for twice."""
        if self.id_column is not None:
            said = row[self.id_column]
            if said is None:
                raise InvalidField(f"a row has no {self.id_column}, which idColumn names")
            text = f"id {said}"
        else:
            text = repr(sorted(row.items()))
        digest = hashlib.blake2b(f"{mailbox}\n{text}".encode(), digest_size=16).digest()
        number = 0
        if self.id_column is None:
            number = self.seen[digest]
            self.seen[digest] += 1
        return f"{self.run}/{self.part}/{digest.hex()}/{number}"


def _run_and_part(
    write_id: str, id_column: str | None, task: TaskContext | None
) -> tuple[str, str]:
    """What tells this write from others, and rows of this task from those of others."""
    run = write_id
    # A query keeps its id in the checkpoint, and a batch that is done again its number.
    if task is not None and (query := task.getLocalProperty("sql.streaming.queryId")):
        run = f"{query[:8]}-{task.getLocalProperty('streaming.sql.batchId')}"
    part = "" if task is None or id_column is not None else str(task.partitionId())
    return run, part


async def _not_there(
    client: Client, mailbox: str, messages: Sequence[NewMessage]
) -> list[NewMessage]:
    """The messages that no earlier attempt has left in the mailbox."""
    return [
        message
        for message in messages
        if message.key is None or not await client.query(mailbox, key=message.key)
    ]


def _headers(written: Iterable[Any] | None) -> dict[str, str]:
    """Headers as a map, or as the list of names and values that the readers give."""
    return dict(
        (entry["name"], entry["value"]) if isinstance(entry, dict) else entry
        for entry in written or ()
    )


class MessageWriter(DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Sends the rows of one task."""
        return self.sending.write(iterator)


class MessageStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of every micro-batch."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Sends the rows of one task of a micro-batch."""
        return self.sending.write(iterator)
