"""How long a page of a list takes that management has of a million mailboxes.

    make bench-pages

The first page of 50 after a change, and the same one asked for again: the median and the longest.
A request holds up all others of the process for as long. It needs no broker.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.unit.test_manage_mirror import group, row

from mq9.manage.mirror import Mirror

ROUNDS = 15
SEARCHES = {"": "none", "m.00001": "a few have it", "m": "all have it"}


def filled(count: int) -> Mirror:
    """A mirror of so many mailboxes, one in a hundred with a group."""
    mirror, groups = Mirror(), [group(lag=3)]
    mirror.apply(
        row(at, f"m.{at * 7919 % count:07}", at % 5, *groups[: at % 100 == 0])
        for at in range(count)
    )
    mirror.whole = True
    mirror.looked()
    return mirror


def took_ms(mirror: Mirror, sort: str, search: str) -> float:
    """How long one page takes."""
    began = time.perf_counter()
    mirror.page(sort=sort, search=search, limit=50)
    return (time.perf_counter() - began) * 1000


def say(text: str) -> None:
    """A line of the result."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mailboxes", type=int, default=1_000_000)
    count = parser.parse_args().mailboxes
    mirror = filled(count)
    say(f"{count:,} mailboxes, {ROUNDS} rounds; milliseconds, median (longest)\n")
    say("| sorted by | search | after a change | again |")
    say("| --- | --- | ---: | ---: |")
    for search, word in SEARCHES.items():
        for sort in ("name", "depth", "outlook"):
            # Names are read when they are looked for first.
            took_ms(mirror, sort, search)
            rounds = []
            for _ in range(ROUNDS):
                mirror.apply(())
                rounds.append((took_ms(mirror, sort, search), took_ms(mirror, sort, search)))
            cells = [
                f"{statistics.median(each):.1f} ({max(each):.1f})"
                for each in zip(*rounds, strict=True)
            ]
            say(f"| {sort} | {word} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
