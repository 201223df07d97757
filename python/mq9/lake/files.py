"""Files and folders on any file system that Arrow opens: a path, `file:`, `hdfs:`, `s3a:`.

Knows no tables and no Spark. Runs on the driver and touches names, never data.
"""

import fcntl
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pyarrow.fs as pafs

from mq9.spark.places import opened

_LOCK = "_lock"
_LOOK_S = 0.1


class Busy(Exception):  # noqa: N818
    """Another process is at work in the folder."""


class Files:
    """A folder; all names are relative to it."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self._system, self._inside = opened(self.root)
        # Where folders are only parts of names, as on S3, each file is moved by itself.
        self._renames = isinstance(self._system, pafs.LocalFileSystem | pafs.HadoopFileSystem)

    def path(self, name: str) -> str:
        """The full path of a name."""
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        return bool(self._info(name).type != pafs.FileType.NotFound)

    def changed(self, name: str) -> int:
        """When a file was changed last, in nanoseconds; 0 if there is none."""
        return int(self._info(name).mtime_ns or 0)

    def folders(self, name: str) -> list[str]:
        """Names of the folders inside a folder; none if it does not exist."""
        return sorted(
            info.base_name
            for info in self._listed(name, recursive=False)
            if info.type == pafs.FileType.Directory
        )

    def data(self, name: str) -> list[tuple[str, int]]:
        """The paths and sizes of the files that readers look at, also in folders inside."""
        return sorted(
            (self.path(info.path.removeprefix(self._inside).lstrip("/")), info.size)
            for info in self._listed(name, recursive=True)
            if info.type == pafs.FileType.File and info.base_name.endswith(".parquet")
        )

    def inside(self, name: str) -> list[str]:
        """Names of all files in a folder, relative to it; also of those in folders inside."""
        above = f"{self._at(name)}/"
        return sorted(
            info.path.removeprefix(above)
            for info in self._listed(name, recursive=True)
            if info.type == pafs.FileType.File
        )

    def read_text(self, name: str) -> str:
        """The contents of a small file."""
        with self._system.open_input_stream(self._at(name)) as stream:
            return bytes(stream.read()).decode()

    def write_text(self, name: str, text: str) -> None:
        """Makes a small file that is there with all of its contents or not at all."""
        unfinished = f"{name}.unfinished"
        self._make_room(unfinished)
        with self._system.open_output_stream(self._at(unfinished)) as stream:
            stream.write(text.encode())
        # In the place of an older one, which is there until this moment.
        self._system.move(self._at(unfinished), self._at(name))

    def remove(self, name: str) -> None:
        """Removes a file or folder; nothing happens if there is none."""
        kind = self._info(name).type
        if kind == pafs.FileType.Directory:
            self._system.delete_dir(self._at(name))
        elif kind != pafs.FileType.NotFound:
            self._system.delete_file(self._at(name))

    def replace(self, name: str, new: str, files: Collection[str], old: str) -> None:
        """Puts the folder `new`, which has these files, in the place of `name`; or removes it.

        May be done again after it was cut off at any point. What was there goes to `old`, with one
        rename: for readers the folder is missing only until the next rename.
        """
        if not self._renames:
            self._replace_files(name, new, files)
        elif not files or self.exists(new):
            # Otherwise it was moved already, before a crash after which this is done again.
            if self.exists(name):
                self.remove(old)
                self._rename(name, old)
            if files:
                self._rename(new, name)

    def _replace_files(self, name: str, new: str, files: Collection[str]) -> None:
        """File by file: each is there before those go that it takes the place of."""
        for file in files:
            if self.exists(f"{new}/{file}"):
                self._rename(f"{new}/{file}", f"{name}/{file}")
        for file in set(self.inside(name)).difference(files):
            self.remove(f"{name}/{file}")
        if not files:
            self.remove(name)

    @contextmanager
    def locked(self, patience_s: float = 0.0) -> Iterator[None]:
        """For one process at a time; where the file system has no locks, for whoever asks.

        Another one is waited for as long as `patience_s`.
        """
        if not isinstance(self._system, pafs.LocalFileSystem):
            yield
            return
        self._system.create_dir(self._inside, recursive=True)
        lock = os.open(self._at(_LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            until = time.monotonic() + patience_s
            while not _taken(lock):
                if time.monotonic() >= until:
                    raise Busy(f"another job is at work in {self.root}: run this one after it")
                time.sleep(_LOOK_S)
            yield
        finally:
            os.close(lock)

    def _rename(self, name: str, to: str) -> None:
        self._make_room(to)
        self._system.move(self._at(name), self._at(to))

    def _make_room(self, name: str) -> None:
        self._system.create_dir(self._at(name).rpartition("/")[0], recursive=True)

    def _info(self, name: str) -> pafs.FileInfo:
        return self._system.get_file_info(self._at(name))

    def _listed(self, name: str, *, recursive: bool) -> list[pafs.FileInfo]:
        listed: list[pafs.FileInfo] = self._system.get_file_info(
            pafs.FileSelector(self._at(name), allow_not_found=True, recursive=recursive)
        )
        return listed

    def _at(self, name: str) -> str:
        return f"{self._inside}/{name}"


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
