"""The tables of the comparison, made from the result file alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mailbox_results import OURS, PEERS
from mailbox_rows import PERCENTS
from nats_core import micros, rate

Summary = Mapping[str, Any]
Document = Mapping[str, Any]
Show = Callable[[float], str]

SERVERS = (OURS, *PEERS)


def tables(document: Document) -> dict[str, str]:
    """All tables by the kind of their rows, without those that have none."""
    made = {
        "send": rate_table(rows_of(document, "send")),
        "tls": rate_table(rows_of(document, "tls")),
        "drain": rate_table(rows_of(document, "drain")),
        "ways": ways_list(rows_of(document, "drain")),
        "latency": latency_table(rows_of(document, "latency")),
        "create": create_table(rows_of(document, "create")),
        "backlog": backlog_table(rows_of(document, "backlog")),
        "wait": wait_table(rows_of(document, "wait")),
    }
    return {name: text for name, text in made.items() if text}


def rows_of(document: Document, kind: str) -> list[Summary]:
    """The rows of a kind."""
    return [row for row in document["rows"] if row["kind"] == kind]


def servers_of(rows: Sequence[Summary]) -> list[str]:
    """The servers that were measured in any of the rows."""
    return [server for server in SERVERS if any(server in row["best"] for row in rows)]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Aligned, the first line as the head; nothing if there is only that."""
    if len(lines) < 2:
        return ""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    rule = ["-" * max(width, 3) for width in widths]
    return "\n".join(
        "| "
        + " | ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in [lines[0], rule, *lines[1:]]
    )


def cell(row: Summary, server: str, name: str, show: Show, *, spread: bool = True) -> str:
    """The median of a number, with least and most behind it; empty if it was not measured."""
    way = row["best"].get(server)
    if way is None:
        return ""
    found = row["contenders"][way]
    median, least, most = (found[part][name] for part in ("median", "min", "max"))
    if not spread or least == most:
        return show(median)
    return f"{show(median)} ({show(least)} to {show(most)})"


def ratio_text(ratio: float) -> str:
    """A ratio for people."""
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}"


def ratio_cell(row: Summary, peer: str) -> str:
    """The median ratio to a peer, and that of the worst and the best round."""
    if peer not in row["peers"]:
        return ""
    found = row["peers"][peer]
    ratios = found["ratios_by_round"]
    text = ratio_text(found["ratio"])
    if len(ratios) < 2:
        return text
    return f"{text} ({ratio_text(min(ratios))} to {ratio_text(max(ratios))})"


def verdict(row: Summary, peers: Sequence[str]) -> str:
    """Whether the row meets its goals, or what it falls short of."""
    compared = row["peers"]
    if short := [peer for peer in peers if peer in compared and not compared[peer]["met"]]:
        return f"no: {', '.join(short)}"
    missing = [peer for peer in peers if peer not in compared]
    return f"yes, without {', '.join(missing)}" if missing else "yes"


def rate_table(rows: Sequence[Summary]) -> str:
    """Rates with their ratios and goals; then latency and processor time."""
    servers = servers_of(rows)
    peers = [peer for peer in PEERS if peer in servers] if OURS in servers else []
    head = ["", *servers, *(f"to {peer}" for peer in peers), *(["goal", "met"] if peers else [])]
    head += [f"{server} p99" for server in servers] + [f"{server} CPU" for server in servers]
    lines = [head]
    for row in rows:
        cells = [row["row"], *(cell(row, server, "rate", rate) for server in servers)]
        cells += [ratio_cell(row, peer) for peer in peers]
        # Without JetStream there is nothing to hold against its goal.
        goal = f"{row['goal']:g}" if "JetStream" in row["peers"] else ""
        cells += [goal, verdict(row, peers)] if peers else []
        for name in ("p99_us", "server_cpu_us"):
            cells += [cell(row, server, name, micros, spread=False) for server in servers]
        lines.append(cells)
    return markdown(lines)


def ways_list(rows: Sequence[Summary]) -> str:
    """The rates of every way of taking messages, where a server has several."""
    lines = []
    for row in rows:
        ways = row["contenders"].items()
        parts = [f"{way} {rate(found['median']['rate'])}" for way, found in ways]
        lines.append(f"- {row['row']}: {', '.join(parts)}")
    return "\n".join(lines)


def latency_table(rows: Sequence[Summary]) -> str:
    """Percentiles at parts of each server's own peak."""
    servers = servers_of(rows)
    names = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9"}
    columns = [(server, name) for server in servers for name in names]
    lines = [["", "load", *(f"{server} {names[name]}" for server, name in columns)]]
    for row in rows:
        for percent in PERCENTS:
            cells = [
                cell(row, server, f"{name}_{percent}", micros, spread=name == "p99_us")
                for server, name in columns
            ]
            lines.append([row["row"], f"{percent} %", *cells])
    peaks = [
        f"- {row['row']}: peaks are "
        + ", ".join(f"{server} {cell(row, server, 'peak_rate', rate)}" for server in row["best"])
        for row in rows
    ]
    table = markdown(lines)
    return "\n\n".join([table, "\n".join(peaks)]) if table else ""


def create_table(rows: Sequence[Summary]) -> str:
    """What it takes to create mailboxes, or streams."""
    shown: list[tuple[str, str, Show]] = [
        ("created", "count", amount),
        ("rate", "rate", rate),
        ("processor time each", "server_cpu_us", micros),
        ("memory each", "bytes_each", size),
    ]
    return by_number(rows, shown)


def backlog_table(rows: Sequence[Summary]) -> str:
    """Memory, restart and rates with a backlog."""
    shown: list[tuple[str, str, Show]] = [
        ("messages", "count", amount),
        ("sent at", "fill_rate", rate),
        ("resident memory", "resident_bytes", size),
        ("memory for each message", "bytes_each", size),
        ("stopped and started: first FETCH answered after", "restart_s", seconds),
        ("resident memory then", "restarted_bytes", size),
        ("FETCH+ACK then, batches of 100", "fetch_rate", rate),
        ("processor time of that for each message", "fetch_cpu_us", micros),
    ]
    return by_number(rows, shown)


def wait_table(rows: Sequence[Summary]) -> str:
    """What clients that wait cost, and how soon they wake."""
    shown: list[tuple[str, str, Show]] = [
        ("clients that wait", "count", amount),
        ("processor while nothing happens", "idle_percent", lambda value: f"{value:.2g} %"),
        ("woken after, p50", "p50_us", micros),
        ("woken after, p99", "p99_us", micros),
        ("woken after, p99.9", "p999_us", micros),
    ]
    return by_number(rows, shown)


def by_number(rows: Sequence[Summary], shown: Sequence[tuple[str, str, Show]]) -> str:
    """A line for each number of each row, a column for each server."""
    servers = servers_of(rows)
    lines = [["", "", *servers]]
    for row in rows:
        for label, name, show in shown:
            cells = [cell(row, server, name, show) for server in servers]
            lines.append([row["row"], label, *cells])
    return markdown(lines)


def amount(count: float) -> str:
    """A count for people."""
    return f"{count:,.0f}"


def size(count: float) -> str:
    """Bytes for people."""
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(count) >= each:
            return f"{count / each:.3g} {unit}"
    return f"{count:.3g} B"


def seconds(time_s: float) -> str:
    """Seconds for people."""
    return f"{time_s:.2f} s"
