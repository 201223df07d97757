"""The export of a broker that is being killed, as a reader finds it: all files whole, at any time.

Reads the folder with pyarrow alone and writes into the ledger what is in it. Whether that is right
is for the check to say.
"""

import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.parquet
from tests.faults.ledger import Ledger
from tests.faults.workload import uid_of

EVERY = "200ms"
ROWS_EACH = 1000
COLUMNS = ["mailbox", "msg_id", "level", "payload"]


def setting(out: Path) -> str:
    """What has the broker export by itself, for its `mq9` block."""
    return f'export {{ dir: "{out}", every: "{EVERY}" }}'


class Exported:
    """The folder of an export."""

    def __init__(self, out: Path, ledger: Ledger) -> None:
        self.out, self.ledger = out, ledger
        self.read: set[tuple[str, int]] = set()
        """Files that were whole, by name and inode: a piece may be begun again, under its name."""
        self.files = 0

    def look(self, most: int | None = None) -> None:
        """Reads every file that is new, or the newest few, to its end, and the manifest."""
        manifest = self.out / "manifest.json"
        if manifest.exists():
            self._try(manifest, lambda: json.loads(manifest.read_text("utf-8")))
        for dataset in ("messages", "events"):
            files = sorted((self.out / dataset).rglob("*.parquet"), reverse=True)
            for file in files[:most]:
                self._look_at(file)

    def _look_at(self, file: Path) -> None:
        try:
            known = (str(file), file.stat().st_ino)
        except FileNotFoundError:
            # It did not count: an export that was killed had not come to its end.
            return
        if known in self.read:
            return
        self.files += 1
        self._try(file, lambda: pyarrow.parquet.read_table(file, partitioning=None))
        self.read.add(known)

    def _try(self, file: Path, reading: Any) -> None:  # noqa: ANN401
        try:
            reading()
        except FileNotFoundError:
            return
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            self.ledger.write("unreadable", str(file.relative_to(self.out)), str(error))

    def finish(self, data: Path) -> None:
        """Exports the rest of a stopped store, and writes all rows into the ledger."""
        command = [sys.executable, "-m", "mq9", "export", "--data", str(data), "--json"]
        done = subprocess.run(
            [*command, "--out", str(self.out)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"mq9 export ended with {done.returncode}: {done.stderr}")
        self.look()
        self.write_rows()

    def write_rows(self) -> None:
        """All rows that a reader finds, into the ledger."""
        found = pyarrow.dataset.dataset(self.out / "messages", partitioning="hive")
        for batch in found.to_batches(columns=COLUMNS):
            rows: dict[str, list[list[int]]] = {}
            for row in batch.to_pylist():
                payload: bytes = row["payload"]
                uid = uid_of(payload.decode("utf-8", "replace"))
                shown = [row["msg_id"], uid, zlib.crc32(payload), row["level"]]
                rows.setdefault(row["mailbox"], []).append(shown)
            for mailbox, entries in rows.items():
                for start in range(0, len(entries), ROWS_EACH):
                    self.ledger.write("exported", mailbox, entries[start : start + ROWS_EACH])
        manifest = json.loads((self.out / "manifest.json").read_text("utf-8"))
        self.ledger.write("exported_all", manifest["gaps"])
