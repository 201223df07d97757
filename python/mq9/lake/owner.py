"""The owner of a folder of tables: `build`, or one stream and its position.

A stream goes on from what it left in the tables. On tables of somebody else, or on older ones of
its own, it would lose what came before, so it does not begin. Nor does `build` on a stream's.
"""

import json
from dataclasses import asdict, dataclass

from mq9.lake.files import Files

NAME = "_owner.json"
NEWEST_VERSION = 1
# Tables of an mq9 that did not write its name on them.
_STATE = "part_state"
_REMEDY = "name another folder with --tables, or remove this one"


class Taken(Exception):  # noqa: N818
    """The tables are of somebody else."""


@dataclass(frozen=True)
class Owner:
    """Who made the tables; of a stream its id, its last micro-batch, and how far its facts go."""

    stream: str | None = None
    batch: int = 0
    highest: int = -1
    """The highest place in the log that the tables know of."""

    def text(self) -> str:
        """As it is written down."""
        return json.dumps({"version": NEWEST_VERSION, **asdict(self)})


def owner(files: Files) -> Owner | None:
    """Who made the tables; None if there are none, or nobody's name is on them."""
    if not files.exists(NAME):
        return None
    try:
        written = json.loads(files.read_text(NAME))
        # Before there was a version it looked as it does with the first.
        version = written.pop("version", 1)
        if version <= NEWEST_VERSION:
            return Owner(**written)
    except (ValueError, TypeError, AttributeError) as error:
        raise Taken(f"{files.root}: {NAME} is damaged ({error}): {_REMEDY}") from error
    raise Taken(
        f"{files.root} has tables of version {version}, and this mq9 knows version "
        f"{NEWEST_VERSION}: install a newer one, or {_REMEDY}"
    )


def let_build(files: Files) -> None:
    """Raises if the tables are those of a stream."""
    found = owner(files)
    if (found is not None and found.stream is not None) or (found is None and _unnamed(files)):
        raise Taken(f"{files.root} is kept up to date by `mq9 lake stream`: {_REMEDY}")


def let_stream(files: Files, stream: str, batch: int) -> Owner:
    """Raises if a stream cannot go on from the tables with this micro-batch; who made them."""
    found = owner(files)
    if found is None:
        if batch:
            raise Taken(
                f"{files.root} lacks the {batch} micro-batches that the checkpoint of this stream "
                "says it has brought: remove both, and run the stream again"
            )
        if _unnamed(files):
            raise Taken(f"{files.root} has tables of an older mq9: {_REMEDY}")
        return Owner()
    if found.stream is None:
        raise Taken(f"{files.root} was made by `mq9 lake build`: {_REMEDY}")
    # A stream from the beginning brings all facts, and finds again those that are there.
    if batch and (found.stream != stream or found.batch < batch - 1):
        raise Taken(
            f"{files.root} is not what this stream left there: its checkpoint is past micro-batch "
            f"{batch - 1}, the tables are not. Remove both, and run the stream again"
        )
    return found


def _unnamed(files: Files) -> bool:
    return files.exists(_STATE) or files.exists("message_lifecycle")
