"""The data source `mq9`: which reader or writer the options ask for.

Spark starts a new Python for most of what it wants to know of a source, and waits for it. So
readers and writers, with Arrow and the client of NATS, are imported only where they are made.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from mq9.errors import InvalidField
from mq9.spark.options import Broker, mailboxes, number
from mq9.spark.schema import DATASETS, MAILBOX

if TYPE_CHECKING:
    from mq9.spark.export_source import Export
    from mq9.spark.mailbox_source import Mailboxes


class Mq9DataSource(DataSource):
    """Messages of a live broker, or of an export: `spark.read.format("mq9")`."""

    @classmethod
    def name(cls) -> str:
        """What comes after `format`."""
        return "mq9"

    def schema(self) -> StructType:
        """The columns; a DataFrame may be read with fewer of them by giving its own schema."""
        return MAILBOX if self._folder is None else DATASETS[self._dataset]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads what is there now."""
        if self._folder is not None:
            from mq9.spark.export_source import ExportReader

            return ExportReader(self._export(schema), self._tasks)
        from mq9.spark.filters import Wanted
        from mq9.spark.mailbox_source import MailboxReader

        return MailboxReader(self._source(schema), Wanted(tuple(self._mailboxes)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Reads what is there and what comes."""
        if self._folder is not None:
            from mq9.spark.export_source import ExportStreamReader

            return ExportStreamReader(
                self._export(schema), self._tasks, self._limit("maxFilesPerTrigger")
            )
        from mq9.spark.mailbox_source import MailboxStreamReader

        start = self.options.get("startingOffsets", "earliest")
        if start not in {"earliest", "latest"}:
            raise InvalidField(f"startingOffsets is {start!r}: it must be earliest or latest")
        return MailboxStreamReader(
            self._source(schema),
            self._mailboxes,
            self._limit("maxRowsPerTrigger"),
            latest=start == "latest",
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Sends rows; needs mode("append")."""
        from mq9.spark.writer import MessageWriter, Sending

        if overwrite:
            raise InvalidField('mailboxes are not overwritten: write with mode("append")')
        return MessageWriter(Sending.of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Sends rows of micro-batches; needs outputMode("append") or ("update")."""
        from mq9.spark.writer import MessageStreamWriter, Sending

        if overwrite:
            raise InvalidField('mailboxes are not overwritten: use outputMode("append")')
        return MessageStreamWriter(Sending.of(self.options, schema))

    @property
    def _folder(self) -> str | None:
        folder = self.options.get("path")
        if folder is None and not mailboxes(self.options):
            raise InvalidField(
                "say what to read: a mailbox with the option mailbox, or an export with "
                "load(folder)"
            )
        return folder

    @property
    def _dataset(self) -> str:
        name = self.options.get("dataset", "messages")
        if name not in DATASETS:
            raise InvalidField(f"dataset is {name!r}: it must be {' or '.join(DATASETS)}")
        return name

    @property
    def _mailboxes(self) -> list[str]:
        return mailboxes(self.options)

    @property
    def _tasks(self) -> int:
        return number(self.options, "numPartitions", 8, at_least=1)

    def _limit(self, name: str) -> int | None:
        return number(self.options, name, 0, at_least=1) or None

    def _export(self, schema: StructType) -> "Export":
        from mq9.spark.export_source import Export

        assert self._folder is not None
        self._check(schema, DATASETS[self._dataset])
        return Export(self._folder, self._dataset, schema)

    def _source(self, schema: StructType) -> "Mailboxes":
        from mq9.spark.mailbox_source import Mailboxes

        self._check(schema, MAILBOX)
        page = number(self.options, "pageSize", 1000, at_least=1)
        return Mailboxes(Broker.of(self.options), schema, page, self._tasks)

    def _check(self, asked: StructType, known: StructType) -> None:
        unknown = [name for name in asked.names if name not in known.names]
        if unknown:
            raise InvalidField(
                f"there is no column {', '.join(unknown)}: there are {', '.join(known.names)}"
            )
