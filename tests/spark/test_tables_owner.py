"""A folder of tables is kept by `build` or by one stream: nothing is lost when they meet there."""

from contextlib import ExitStack
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import pytest
from tests.spark.rows import Log
from tests.spark.test_stream_for_months import piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sent(export: Path, number: int) -> None:
    piece(export, Log().send("a", number, number), number)


def messages(spark: "SparkSession", tables: Path) -> int:
    from mq9.lake.tables import Tables

    rows = Tables(spark, str(tables)).read("message_lifecycle")
    return 0 if rows is None else rows.count()


def follow(spark: "SparkSession", export: Path, tables: Path, checkpoint: Path) -> None:
    from mq9.lake import stream

    folders = [str(folder) for folder in (export, tables, checkpoint)]
    stream.finish(lambda: stream.start(spark, *folders), 300)


def test_a_build_and_a_stream_do_not_share_tables(spark: "SparkSession", tmp_path: Path) -> None:
    from mq9.lake import batch
    from mq9.lake.owner import Taken

    export, tables, built = (tmp_path / name for name in ("export", "tables", "built"))
    sent(export, 1)
    follow(spark, export, tables, tables / "_checkpoint")
    with pytest.raises(Taken, match="kept up to date by `mq9 lake stream`"):
        batch.run(spark, str(export), str(tables))
    sent(export, 2)
    follow(spark, export, tables, tables / "_checkpoint")
    assert messages(spark, tables) == 2
    batch.run(spark, str(export), str(built))
    with pytest.raises(Exception, match="was made by `mq9 lake build`"):
        follow(spark, export, built, built / "_checkpoint")
    assert messages(spark, built) == 2


def test_a_stream_outlasts_a_job_that_was_started_by_mistake(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from mq9.lake import stream
    from mq9.lake.files import Files

    export, tables, checkpoint = (tmp_path / name for name in ("export", "tables", "checkpoint"))
    sent(export, 1)
    with ExitStack() as held:
        held.enter_context(Files(str(tables)).locked())

        def tell(what: str) -> None:
            if what.startswith("micro-batch"):
                # The micro-batch has asked for the tables by then, and was told to wait.
                Timer(1, held.close).start()

        folders = [str(folder) for folder in (export, tables, checkpoint)]
        stream.finish(lambda: stream.start(spark, *folders, tell=tell), 300)
    assert messages(spark, tables) == 1


def test_a_stream_does_not_go_on_from_tables_that_lack_what_it_brought(
    spark: "SparkSession", tmp_path: Path
) -> None:
    export, checkpoint = tmp_path / "export", tmp_path / "checkpoint"
    sent(export, 1)
    follow(spark, export, tmp_path / "tables", checkpoint)
    sent(export, 2)
    with pytest.raises(Exception, match="lacks the 1 micro-batches"):
        follow(spark, export, tmp_path / "others", checkpoint)
    # From the beginning, with a place of its own, it brings everything.
    follow(spark, export, tmp_path / "tables", tmp_path / "another")
    assert messages(spark, tmp_path / "tables") == 2
    sent(export, 3)
    with pytest.raises(Exception, match="is not what this stream left there"):
        follow(spark, export, tmp_path / "tables", checkpoint)


def test_a_name_that_this_mq9_does_not_understand_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")
    from mq9.lake.files import Files
    from mq9.lake.owner import NAME, Owner, Taken, let_build, let_stream, owner

    files, mine = Files(str(tmp_path)), Owner("a", 3, 17)

    def write(text: str) -> None:
        (tmp_path / NAME).write_text(text, "utf-8")

    write(mine.text())
    assert owner(files) == mine
    # As it was before it had a version.
    write('{"stream": "a", "batch": 3, "highest": 17}')
    assert owner(files) == mine
    write('{"version": 2, "keeper": "a"}')
    with pytest.raises(Taken, match="version 2, and this mq9 knows version 1: install a newer"):
        let_stream(files, "a", 4)
    for damaged in ('{"stream": "a"', "[]", '{"stream": "a", "bat": 3}', '{"version": null}'):
        write(damaged)
        with pytest.raises(Taken, match=r"_owner\.json is damaged"):
            let_build(files)
