"""`mq9 lake`: tables, a report and answers from an export. Needs the extra `spark`."""

import argparse
import base64
import datetime
import decimal
import importlib.util
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK, USAGE, Failure
from mq9.cli.output import pairs, print_json, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_ROWS = 1000


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser this command."""
    lake = broker.add_family(
        *(commands, "lake"),
        help="make tables of an export, keep them up to date, ask them, draw them",
        example="mq9 lake build export",
    )
    build = _command(lake, "build", _build, "make all tables of an export", "mq9 lake build export")
    stream = _command(
        *(lake, "stream", _stream, "bring tables up to date with an export"),
        "mq9 lake stream export --every 60",
    )
    for parser in (build, stream):
        for priority, ms in (("critical", 1000), ("urgent", 5000)):
            parser.add_argument(
                f"--{priority}-ms",
                type=_number,
                default=ms,
                metavar="MS",
                help=f"how long a message that is {priority} may wait ({ms})",
            )
    stream.add_argument("--every", type=_seconds, metavar="SECONDS", help="look for more so often")
    stream.add_argument("--files", type=_number, help="at most so many files in one micro-batch")
    stream.add_argument(
        "--checkpoint", metavar="DIR", help="its place; TABLES/_checkpoint if unset"
    )
    report = _command(
        *(lake, "report", _report, "write a page about the tables"),
        "mq9 lake report export --out report",
    )
    report.add_argument("--broker", metavar="NAME", help="whose traffic it is, for the title")
    report.add_argument("--out", default="report", metavar="DIR", help="for the page (report)")
    query = _command(
        *(lake, "query", _query, "ask the tables in SQL"),
        'mq9 lake query export "select priority, sum(late) from sla group by priority"',
    )
    query.add_argument("sql", metavar="SQL", help="a query; the tables have their names")
    query.add_argument(
        "--limit",
        type=_number,
        default=_MOST_ROWS,
        metavar="ROWS",
        help=f"print at most so many rows, and say if there are more ({_MOST_ROWS})",
    )


def _number(text: str) -> int:
    if re.fullmatch(r"0*[1-9][0-9]{0,8}", text) is None:
        raise argparse.ArgumentTypeError("must be a whole number, at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError("must be a number of seconds, at least 0")
    return seconds


def _memory(text: str) -> str:
    if re.fullmatch(r"[1-9][0-9]*[kmgt]b?", text.lower()) is None:
        raise argparse.ArgumentTypeError("must be a size such as 512m or 2g")
    return text


def _command(
    lake: Any,  # noqa: ANN401
    name: str,
    run: Callable[[argparse.Namespace], int],
    said: str,
    example: str,
) -> argparse.ArgumentParser:
    parser = broker.add_local_command(lake, f"lake {name}", run, help=said, example=example)
    parser.add_argument("export", metavar="EXPORT", help="the folder that mq9 export wrote")
    parser.add_argument("--tables", metavar="DIR", help="folder of the tables (EXPORT-tables)")
    parser.add_argument("--master", help="of Spark; all cores of this machine if unset")
    parser.add_argument("--memory", type=_memory, default="2g", help="heap of a local Spark (2g)")
    parser.add_argument("--parallelism", type=_number, default=8, help="tasks of a shuffle (8)")
    return parser


def _tables(arguments: argparse.Namespace) -> str:
    asked: str | None = arguments.tables
    return asked or f"{arguments.export.rstrip('/')}-tables"


def _started(arguments: argparse.Namespace, name: str, *, lasting: bool = False) -> Any:  # noqa: ANN401
    if importlib.util.find_spec("pyspark") is None:
        raise Failure("this needs Spark: pip install 'mq9[spark]'", USAGE)
    from mq9.lake.jobs import running

    return running(
        name,
        master=arguments.master,
        memory=arguments.memory,
        parallelism=arguments.parallelism,
        lasting=lasting,
    )


def _told(tables: str, counts: dict[str, int], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json({"tables": tables, "rows": counts})
    else:
        pairs({"tables": tables, **{name: f"{count:,} rows" for name, count in counts.items()}})


def _targets(arguments: argparse.Namespace) -> dict[str, int]:
    return {"critical": arguments.critical_ms, "urgent": arguments.urgent_ms}


def _build(arguments: argparse.Namespace) -> int:
    with _started(arguments, "mq9-build") as spark:
        from mq9.lake import batch
        from mq9.lake.files import Busy
        from mq9.lake.folder import NoExport
        from mq9.lake.jobs import Progress
        from mq9.lake.owner import Taken

        try:
            into = _tables(arguments)
            made = batch.run(spark, arguments.export, into, _targets(arguments), Progress())
        except (NoExport, Taken, Busy) as error:
            raise Failure(str(error), USAGE) from error
        _told(into, made.counts(), arguments)
    return OK


def _stream(arguments: argparse.Namespace) -> int:
    with _started(arguments, "mq9-stream", lasting=arguments.every is not None) as spark:
        from pyspark.errors import StreamingQueryException
        from pyspark.sql.streaming.query import StreamingQuery

        from mq9.lake import folder, stream
        from mq9.lake.jobs import Progress
        from mq9.lake.tables import Tables

        into = _tables(arguments)
        try:
            folder.end(arguments.export)
        except folder.NoExport as error:
            raise Failure(str(error), USAGE) from error
        tell = Progress()

        def begin() -> StreamingQuery:
            return stream.start(
                spark,
                arguments.export,
                into,
                arguments.checkpoint or f"{into}/_checkpoint",
                every_s=arguments.every,
                files_per_batch=arguments.files,
                targets_ms=_targets(arguments),
                tell=tell,
            )

        try:
            stream.finish(begin, tell=tell)
        except StreamingQueryException as error:
            raise Failure(_said(error)) from error
        _told(into, Tables(spark, into).counts(), arguments)
    return OK


def _said(error: Exception) -> str:
    """What a micro-batch ended with: Spark tells all of its traceback, in Java."""
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [line for line in lines if line.startswith("mq9.")]
    return raised[-1].partition(": ")[2] if raised else str(error)


def _report(arguments: argparse.Namespace) -> int:
    with _started(arguments, "mq9-report") as spark:
        from mq9.lake.report.figures import NoTables, figures
        from mq9.lake.report.page import write
        from mq9.lake.tables import Tables

        try:
            title = arguments.export
            if arguments.broker:
                title = f"{arguments.broker}, as exported to {title}"
            tables = Tables(spark, _tables(arguments))
            numbers = tables.answer(lambda: figures(tables, title))
        except NoTables as error:
            raise Failure(str(error), USAGE) from error
        page, *pictures = write(numbers, Path(arguments.out))
    if arguments.json:
        print_json({"page": str(page), "pictures": list(map(str, pictures))})
    else:
        pairs({"page": str(page)})
    return OK


def _query(arguments: argparse.Namespace) -> int:
    with _started(arguments, "mq9-query") as spark:
        heads, rows = _asked(spark, _tables(arguments), arguments.sql, arguments.limit + 1)
    if len(rows) > arguments.limit:
        rows.pop()
        sys.stderr.write(f"There are more than {arguments.limit:,} rows: see --limit\n")
    if arguments.json:
        print_json([dict(zip(heads, map(_plain, row), strict=True)) for row in rows])
    elif rows:
        table(heads, [list(map(_cell, row)) for row in rows])
    return OK if rows else NOTHING


def _asked(
    spark: "SparkSession", folder: str, sql: str, most: int
) -> tuple[list[str], list[list[Any]]]:
    from pyspark.errors import PySparkException

    from mq9.lake.tables import Tables

    tables = Tables(spark, folder)
    names: list[str] = []

    def ask() -> Any:  # noqa: ANN401
        names[:] = tables.views(sql)
        if not names:
            raise Failure(tables.nothing(), USAGE)
        # With Arrow times keep their zone; rows of Spark have that of this machine.
        return spark.sql(sql).limit(most).toArrow()

    try:
        found = tables.answer(ask)
    except PySparkException as error:
        said = str(error).split("\n", 1)[0]
        raise Failure(f"{said}\nThe tables are {', '.join(names)}.", USAGE) from error
    columns = [column.to_pylist() for column in found.columns]
    return found.column_names, [list(row) for row in zip(*columns, strict=True)]


def _plain(value: object) -> object:
    """As JSON has it: exact numbers, times and days as ISO 8601, bytes as base64."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(name): _plain(inside) for name, inside in value.items()}
        case list() | tuple():
            return [_plain(inside) for inside in value]
    return value


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple | dict):
        return json.dumps(_plain(value), ensure_ascii=False)
    return str(value)
