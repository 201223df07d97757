"""One bit turned in a file of an export: the next run refuses to go on, or every row is there once.

The log is the truth: no damage to an export ever reaches it. mq9 reads the manifest back, and never
a Parquet file: that is for readers to notice.
"""

import os
import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from tests.exported import manifest, read
from tests.faults.report import Row, record

from mq9._core import Export
from mq9.errors import ExportError
from mq9.store import Store

# For each kind of file.
FLIPS = int(os.environ.get("MQ9_FAULTS_FLIPS", "25"))
MESSAGES = 80
PIECE_BYTES = 8192
# Within one hour, so that there is one folder.
NOW_MS = (1_800_000_000_000, 1)

Id = tuple[int, int]


@dataclass
class Begun:
    """A store of which a part is exported."""

    data: Path
    out: Path
    rows: Counter[Id]
    """What all of its export holds."""


def export(data: Path, out: Path) -> None:
    """Exports what is new, in small pieces."""
    running = Export(data, out, piece_bytes=PIECE_BYTES)
    try:
        running.run()
    finally:
        running.close()


def refusal(data: Path, out: Path) -> str:
    """Why an export does not go on; empty if it does."""
    try:
        export(data, out)
    except ExportError as error:
        return str(error)
    return ""


def rows(out: Path) -> Counter[Id]:
    """The rows that a reader finds, by their place in the log."""
    return Counter((row["segment"], row["offset"]) for row in read(out, "messages"))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    folder = tmp_path_factory.mktemp("begun")
    data, out = folder / "data", folder / "out"
    choose = random.Random(1)
    for turn in range(2):
        with Store(data, sync="none", segment_bytes=1 << 16, maintain_every_ms=0) as store:
            if not turn:
                store.create_mailbox("box", now=NOW_MS)
            for _ in range(MESSAGES):
                store.send("box", choose.randbytes(choose.randrange(600)), now=NOW_MS)
        if not turn:
            export(data, out)
    assert len(list(out.rglob("*.parquet"))) > 5
    export(data, folder / "whole")
    found = rows(folder / "whole")
    assert set(found.values()) == {1}
    assert len(found) == 2 * MESSAGES > sum(rows(out).values()) > 0
    return Begun(data, out, found)


def flip(file: Path, bit: int) -> None:
    """Turns a bit of a file."""
    contents = bytearray(file.read_bytes())
    contents[bit // 8] ^= 1 << bit % 8
    file.write_bytes(contents)


def copy_of(begun: Begun, folder: Path) -> Path:
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(begun.out, out)
    return out


def test_an_undamaged_export_goes_on(begun: Begun, tmp_path: Path) -> None:
    out = copy_of(begun, tmp_path)
    export(begun.data, out)
    assert rows(out) == begun.rows


def test_a_bit_turned_in_the_manifest_is_noticed_or_harmless(begun: Begun, tmp_path: Path) -> None:
    text = (begun.out / "manifest.json").read_bytes()
    # Each bit that says how far the export is, and some of all.
    place = re.search(rb'"segment": (\d+),\s+"offset": (\d+)', text)
    assert place is not None
    digits = [*range(*place.span(1)), *range(*place.span(2))]
    bits = [8 * at + bit for at in digits for bit in range(8)]
    bits += random.Random("manifest").sample(range(8 * len(text)), FLIPS)
    refused = lost = doubled = 0
    unnoticed = []
    before = rows(begun.out)
    for where in bits:
        out = copy_of(begun, tmp_path)
        flip(out / "manifest.json", where)
        if said := refusal(begun.data, out):
            refused += 1
            assert "manifest" in said or "another store" in said, (where, said)
            assert rows(out) == before, where
            continue
        found = rows(out)
        lost += (begun.rows - found).total()
        doubled += (found - begun.rows).total()
        if found != begun.rows or manifest(out)["messages"]["rows"] != found.total():
            unnoticed.append(where)
    note = f"{refused} refused, {len(unnoticed)} unnoticed"
    runs = len(bits)
    record(Row("disk", "a bit turned: manifest of the export", runs, 0, lost, doubled, note=note))
    assert refused > 0
    assert unnoticed == [], (lost, doubled)


def test_a_bit_turned_in_a_parquet_file_is_the_readers_to_notice(
    begun: Begun, tmp_path: Path
) -> None:
    """The export goes on, all other files are as they were, and so is the log."""
    choose = random.Random("parquet")
    noticed = harmless = 0
    log = {file: file.read_bytes() for file in begun.data.glob("segment-*.log")}
    for _ in range(FLIPS):
        out = copy_of(begun, tmp_path)
        file = choose.choice(sorted(out.rglob("*.parquet")))
        sound = pyarrow.parquet.read_table(file, partitioning=None)
        flip(file, choose.randrange(8 * file.stat().st_size))
        try:
            harmless += pyarrow.parquet.read_table(file, partitioning=None) == sound
        except (OSError, ValueError, pyarrow.ArrowException):
            noticed += 1
    damaged = file.read_bytes()
    export(begun.data, out)
    assert file.read_bytes() == damaged
    file.unlink()
    assert rows(out) <= begun.rows
    # Made anew from the log, it is whole again.
    shutil.rmtree(out)
    export(begun.data, out)
    assert rows(out) == begun.rows
    assert {file: file.read_bytes() for file in log} == log
    changed = FLIPS - noticed - harmless
    note = f"the reader noticed {noticed}, {harmless} had no effect, {changed} changed a row"
    record(Row("disk", "a bit turned: Parquet of the export", FLIPS, note=note))


def test_control_rows_that_are_there_twice_or_not_at_all_are_noticed(
    begun: Begun, tmp_path: Path
) -> None:
    out = copy_of(begun, tmp_path)
    export(begun.data, out)
    last = max((out / "messages").rglob("*.parquet"))
    shutil.copy(last, last.with_name("part-0000000000-0000000001.parquet"))
    assert rows(out) != begun.rows
    for file in last.parent.glob("part-0000000000-*"):
        file.unlink()
    assert rows(out) == begun.rows
    last.unlink()
    assert rows(out) != begun.rows
