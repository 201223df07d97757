"""Folders of tables are replaced so that nothing is lost, wherever a process dies and on any store.

The file system is a real one of this machine, which dies after so many changes. As an object store
it has no folders to rename.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mq9.lake.files import Files

NEW = ["hour=1/a.parquet", "hour=1/b.parquet"]


class Died(OSError):  # noqa: N818
    """The process ended here."""


class Mortal:
    """Arrow's file system of this machine, which dies before one of its changes."""

    def __init__(self, changes: int, *, objects: bool) -> None:
        import pyarrow.fs as pafs

        self.local, self.left, self.objects = pafs.LocalFileSystem(), changes, objects

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.local, name)

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Died("here")

    def move(self, name: str, to: str) -> None:
        assert not (self.objects and Path(name).is_dir()), "objects are moved one by one"
        self._change()
        self.local.move(name, to)

    def delete_file(self, name: str) -> None:
        self._change()
        self.local.delete_file(name)

    def delete_dir(self, name: str) -> None:
        for file in sorted(Path(name).rglob("*"), reverse=True):
            self._change()
            if file.is_dir():
                file.rmdir()
            else:
                file.unlink()
        self._change()
        Path(name).rmdir()


def files(root: Path, changes: int = 10**6, *, objects: bool) -> "Files":
    from mq9.lake.files import Files

    made = Files(str(root))
    made._system, made._renames = Mortal(changes, objects=objects), not objects
    return made


def written(root: Path, name: str, *inside: str) -> None:
    for file in inside:
        (root / name / file).parent.mkdir(parents=True, exist_ok=True)
        (root / name / file).write_text(name.partition("/")[0])


def found(root: Path, name: str) -> dict[str, str]:
    files = (root / name).rglob("*.parquet")
    return {str(file.relative_to(root / name)): file.read_text() for file in files}


@pytest.mark.parametrize("objects", [False, True])
@pytest.mark.parametrize("new", [NEW, NEW[:1], []])
def test_a_folder_is_replaced_wherever_the_process_dies(
    tmp_path: Path, objects: bool, new: list[str]
) -> None:
    old = ["hour=1/a.parquet", "hour=1/old.parquet"]
    died = missing = 0
    for changes in range(50):
        root = tmp_path / str(changes)
        written(root, "sla", *old)
        written(root, "_staging/sla", *new)
        replaced = ("sla", "_staging/sla", new, "_staging/_old/sla")
        try:
            files(root, changes, objects=objects).replace(*replaced)
        except Died:
            died += 1
            seen = found(root, "sla")
            missing += not seen
            before, after = dict.fromkeys(old, "sla"), dict.fromkeys(new, "_staging")
            if not objects:
                assert seen in ({}, before, after)
            elif new:
                assert set(new) <= set(seen) or "sla" in seen.values(), "nothing was there"
            # Whoever comes next dies as well, at once, and the one behind it does not.
            for again in (1, 10**6):
                try:
                    files(root, again, objects=objects).replace(*replaced)
                except Died:
                    assert again == 1
        assert found(root, "sla") == dict.fromkeys(new, "_staging")
    assert died >= 1
    if new:
        assert missing <= 1, "between two renames, and at no other time"


def test_a_folder_without_files_that_a_store_left_over_takes_no_place(tmp_path: Path) -> None:
    written(tmp_path, "sla", "hour=1/a.parquet")
    (tmp_path / "_staging" / "sla").mkdir(parents=True)
    again = ("sla", "_staging/sla", ["hour=1/a.parquet"], "_staging/_old/sla")
    files(tmp_path, objects=True).replace(*again)
    assert found(tmp_path, "sla") == {"hour=1/a.parquet": "sla"}


def test_one_job_at_a_time(tmp_path: Path) -> None:
    from mq9.lake.files import Busy, Files

    with (
        Files(str(tmp_path)).locked(),
        pytest.raises(Busy, match="another job is at work"),
        Files(f"file://{tmp_path}").locked(),
    ):
        pass
    with Files(str(tmp_path)).locked():
        pass


def test_one_that_is_patient_goes_on_when_the_other_is_done(tmp_path: Path) -> None:
    from mq9.lake.files import Files

    begun = Event()

    def wait() -> bool:
        begun.set()
        with Files(str(tmp_path)).locked(patience_s=60):
            return True

    with ThreadPoolExecutor(1) as pool:
        with Files(str(tmp_path)).locked():
            waits = pool.submit(wait)
            assert begun.wait(60)
        assert waits.result(60)
