"""Data folders of nodes: copied from one that runs or not, and moved into and out of clusters.

Knows files. What they say, the core knows.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mq9._core import cluster_leave, cluster_place, cluster_reseed, cluster_seed
from mq9.errors import StoreError

_PIECE = 8 << 20
_TRIES = 10
_SECRET = "token.secret"

Progress = Callable[[int, int], object]
"""Hears how many bytes of how many are copied."""


class FolderError(Exception):
    """It cannot be done; the message says why and what to do."""


@dataclass(frozen=True)
class Place:
    """Where a folder stands in the log of its cluster."""

    sequence: int
    digest: str
    term: int


def place(folder: Path) -> Place:
    """Where the folder of a node that does not run stands."""
    with _said(folder):
        return Place(*cluster_place(folder))


def seed(folder: Path) -> Place:
    """Make the folder of a single node the first of a cluster."""
    with _said(folder):
        return Place(*cluster_seed(folder))


def reseed(folder: Path) -> Place:
    """Make the folder of a node the first of a cluster whose stream is gone."""
    with _said(folder):
        return Place(*cluster_reseed(folder))


def leave(folder: Path) -> Place:
    """Make the folder of a node one of a single node."""
    with _said(folder):
        return Place(*cluster_leave(folder))


def copy(source: Path, target: Path, progress: Progress) -> tuple[Place, int]:
    """Copy a node's folder, whose node may run; where the copy stands, and its bytes.

    A checkpoint comes before the log that goes on behind it. Files that go meanwhile were replaced
    by newer ones: then all of it begins again. What is half written at the end is cut off when the
    copy is opened.
    """
    if not any(source.glob("segment-*.log")):
        raise FolderError(f"{source} holds no data of mq9: there is no segment-*.log in it")
    if target.exists() and any(target.iterdir()):
        raise FolderError(f"{target} is not empty: name a new folder")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            copied = _copy(source, target, progress)
            return place(target), copied
        for file in target.iterdir():
            file.unlink()
    raise FolderError(f"files of {source} went while they were copied, {_TRIES} times; try again")


def _copy(source: Path, target: Path, progress: Progress) -> int:
    files = [*sorted(source.glob("checkpoint-*.mq9"), reverse=True)]
    files += sorted(source.glob("segment-*.log"))
    files += [file for file in (source / _SECRET,) if file.exists()]
    whole, done = sum(file.stat().st_size for file in files), 0
    for file in files:
        new = target / file.name
        with file.open("rb") as old, new.open("xb") as written:
            shutil.copystat(file, new)
            while piece := old.read(_PIECE):
                written.write(piece)
                done += len(piece)
                progress(done, max(whole, done))
            os.fsync(written.fileno())
    # A segment that was begun meanwhile is not needed. One that is gone again may be.
    for file in files:
        file.stat()
    return done


@contextlib.contextmanager
def _said(folder: Path) -> Iterator[None]:
    if not folder.is_dir():
        raise FolderError(f"{folder} is no directory: name the data folder of a node")
    try:
        yield
    except StoreError as error:
        raise FolderError(f"{folder}: {error}") from error
