"""What was measured: medians, spreads and ratios of a row, and the file that keeps all rows.

Rows are kept by name, so that some can be measured again and the rest stays.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailbox_rows import ROWS, Row
from mailbox_runs import Numbers
from mailbox_servers import Contender

OURS, PEERS = "mq9", ("JetStream", "Redis")

# What is compared, where more is better.
COMPARED = {
    "send": "rate",
    "tls": "rate",
    "drain": "rate",
    "create": "rate",
    "backlog": "fetch_rate",
}


@dataclass
class Results:
    """All measurements of one row, by contender, in the order of the rounds."""

    row: Row
    contenders: Sequence[Contender]
    runs: dict[str, list[Numbers]] = field(default_factory=dict)

    def add(self, turn: Mapping[str, Numbers]) -> None:
        """The numbers of one round, of all contenders."""
        for name, run in turn.items():
            self.runs.setdefault(name, []).append(run)

    def best(self, server: str) -> str | None:
        """The fastest way of using a server, by the median of its rates."""
        ways = [way.name for way in self.contenders if way.server == server]
        compared = COMPARED.get(self.row.kind)
        if compared is None or len(ways) < 2:
            return next(iter(ways), None)
        return max(ways, key=lambda way: statistics.median(run[compared] for run in self.runs[way]))

    def ratios(self, peer: str) -> list[float]:
        """Ours over the peer's in each round: a machine drifts from one to the next."""
        ours, theirs = self.best(OURS), self.best(peer)
        compared = COMPARED.get(self.row.kind)
        if ours is None or theirs is None or compared is None:
            return []
        pairs = zip(self.runs[ours], self.runs[theirs], strict=True)
        return [our[compared] / their[compared] for our, their in pairs]

    def goal(self, peer: str) -> float | None:
        """The least ratio, if the row is held to one."""
        if self.row.goal is None:
            return None
        return self.row.goal if peer == "JetStream" else 1.0

    def summary(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """The row as it goes into the result file; `about` says when and how it was measured."""
        peers = {}
        for peer in PEERS:
            if ratios := self.ratios(peer):
                ratio, goal = statistics.median(ratios), self.goal(peer)
                met = None if goal is None else ratio >= goal
                peers[peer] = {"ratios_by_round": ratios, "ratio": ratio, "goal": goal, "met": met}
        servers = dict.fromkeys(way.server for way in self.contenders)
        return {
            "row": self.row.name,
            "kind": self.row.kind,
            "sync": self.row.sync,
            "goal": self.row.goal,
            **about,
            "best": {server: self.best(server) for server in servers},
            "peers": peers,
            "contenders": {way.name: spread(self.runs[way.name]) for way in self.contenders},
        }


def spread(rounds: Sequence[Numbers]) -> dict[str, Any]:
    """The rounds, and of every number median, least and most."""
    by_name = {name: [run[name] for run in rounds] for name in rounds[0]}
    return {
        "median": {name: statistics.median(values) for name, values in by_name.items()},
        "min": {name: min(values) for name, values in by_name.items()},
        "max": {name: max(values) for name, values in by_name.items()},
        "rounds": list(rounds),
    }


class ResultFile:
    """The rows that were measured, at this or an earlier time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.document: dict[str, Any] = {"rows": []}
        if path.exists():
            self.document = json.loads(path.read_text("utf-8"))

    def has(self, row: Row) -> bool:
        """Whether the row was measured."""
        return any(kept["row"] == row.name for kept in self.document["rows"])

    def keep(self, rows: Sequence[Mapping[str, Any]], **about: Any) -> None:  # noqa: ANN401
        """Puts rows in, in place of those of the same name, and writes all down."""
        kept = {row["row"]: row for row in [*self.document["rows"], *rows]}
        order = [row.name for row in ROWS if row.name in kept]
        self.document = {**self.document, **about, "rows": [kept[name] for name in order]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(self.document, indent=1) + "\n", "utf-8")
        beside.replace(self.path)
