"""The tables of what watching costs, and their place on the page: from the result file alone."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bystander_report import ms
from mailbox_report import put
from mailbox_tables import markdown
from nats_core import rate

PAGE, COMMAND = "benchmarks-management.md", "make bench-management"
STATES = ("without", "stopped", "with")
# More is better, or less.
NAMES = {"rate": ("rate", 1), "p99": ("p99", -1), "server_cpu_us": ("processor time of a SEND", -1)}

Document = Mapping[str, Any]


def tables(document: Document) -> str:
    """What was measured, then the ratios."""
    return f"{numbers(document)}\n\n{ratios(document)}"


def numbers(document: Document) -> str:
    """A line for each load and state."""
    head = ["SENDs", "management", "rate", "p50", "p99", "processor time each"]
    lines = [[*head, "broker", "others"]]
    for row in document["rows"]:
        for state in STATES:
            found = row["medians"][state]
            cells = [row["title"], state, rate(found["rate"]), ms(found["p50"])]
            cells += [ms(found["p99"]), f"{found['server_cpu_us']:.2f} us"]
            cells += [f"{found[name]:.2f}" for name in ("server_cores", "others_cores")]
            lines.append(cells)
    return markdown(lines)


def ratios(document: Document) -> str:
    """What matters of each load, with management to without."""
    lines = [["SENDs", "", "with / without", "by round", "with / stopped", "within 3 %"]]
    for row in document["rows"]:
        for name, (called, sign) in NAMES.items():
            if name == "rate" and not row["has_rate"]:
                continue
            all_of_it = row["ratios"][name]
            middle = statistics.median(all_of_it)
            is_met = sign * (middle - 1) >= -document["goal"]
            cells = [row["title"], called, f"{middle:.3f}", spread(all_of_it)]
            cells += [f"{statistics.median(row['ratios_to_stopped'][name]):.3f}"]
            lines.append([*cells, "yes" if is_met else "no"])
    return markdown(lines)


def spread(values: Sequence[float]) -> str:
    """The least and the most."""
    return f"{min(values):.3f} to {max(values):.3f}"


def about(document: Document) -> str:
    """On what and how it was measured, and how much was asked meanwhile."""
    machine = document["machine"]
    words = " ".join(f"--{name} {value}" for name, value in document["settings"].items())
    kernel = ".".join(machine["system"].split(".")[:2])
    meanwhile = [row["meanwhile"] for row in document["rows"]]
    scrapes, requests, cores = (
        [found[name] for found in meanwhile] for name in ("scrapes", "requests", "watching_cores")
    )
    return (
        f"{machine['cores']} cores of {machine['processor']}, {kernel}, {machine['file_system']}, "
        f"Python {machine['python']}; {document['measured']}, `{words}`. Meanwhile, by the second: "
        f"{min(scrapes):.1f} to {max(scrapes):.1f} scrapes, {min(requests):.1f} to "
        f"{max(requests):.1f} requests of the pages; management and browsers used "
        f"{min(cores):.2f} to {max(cores):.2f} cores."
    )


def write(document: Document, docs: Path) -> Path:
    """The page, with what was measured."""
    page = docs / PAGE
    text = page.read_text("utf-8")
    for name, block in {"about": about(document), "tables": tables(document)}.items():
        text = put(text, name, block, PAGE, COMMAND)
    page.write_text(text, "utf-8")
    return page
