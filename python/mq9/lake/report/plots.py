"""The pictures: matplotlib figures from the numbers, and nothing else."""

import datetime
import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import dates, font_manager
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from mq9.lake.report.figures import OTHERS, Figures

INK, FAINT, GRID = "#22303c", "#66727d", "#e3e7ea"
# Of mailboxes, one for each that any picture names; no colour of a priority or cause is among them.
COLOURS = (
    *("#3f9b6e", "#7a5ea8", "#4aa5b5", "#c2699b", "#8a8a3c", "#5b6fa8", "#9c7a4d", "#2b7a78"),
    *("#7cc46b", "#b59ad6", "#1f5f3a", "#e3a6c4", "#4d3d80", "#c4b43c", "#6fd0c0", "#6b4a2b"),
    *("#a3b86c", "#39607a"),
)
CAUSES = ("#8c2f5e", "#c98bab", "#5f4b57")
GREY = "#b8c0c7"
BY_PRIORITY: Mapping[str, str] = {
    "critical": "#b5473c",
    "urgent": "#e08a2e",
    "normal": "#2f6db5",
    "notify": "#7f9cb8",
    "other": GREY,
}

DPI = 144

LONGEST = 24
"""How many characters of a name a picture shows."""

WORLD = (
    *(
        "Noto Sans CJK SC",
        "Source Han Sans SC",
        "WenQuanYi Zen Hei",
        "Microsoft YaHei",
        "PingFang SC",
    ),
    *("Hiragino Sans", "Malgun Gothic", "Arial Unicode MS"),
)
"""Fonts with the characters of most scripts; those that are there are asked after DejaVu."""

STYLE: Mapping[str, Any] = {
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "svg.hashsalt": "mq9",
    # Names are what senders choose: two dollar signs are no formula.
    "text.parse_math": False,
}


def pictures(numbers: Figures) -> dict[str, Figure]:
    """All pictures by name; one is left out where there is nothing to show."""
    wanted: dict[str, tuple[bool, Callable[[Figures], Figure]]] = {
        "depth": (len(numbers.depth) > 0, depth),
        "rates": (len(numbers.rates) > 0, rates),
        "latency": (len(numbers.latency) > 0, latency),
        "flow": (len(numbers.edges) > 0, flow),
        "dead_letters": (len(numbers.dead) > 0, dead_letters),
    }
    with mpl.rc_context(_style()):
        return {name: draw(numbers) for name, (there, draw) in wanted.items() if there}


def png(figure: Figure) -> bytes:
    """A picture as a file."""
    buffer = io.BytesIO()
    # Texts of axes are made only now. A character that no font has is a box.
    with mpl.rc_context(_style()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return buffer.getvalue()


def _style() -> dict[str, Any]:
    """With the fonts of this machine for what the first has no characters for."""
    there = set(font_manager.get_font_names())
    return {**STYLE, "font.family": ["DejaVu Sans", *(name for name in WORLD if name in there)]}


def _figure(height: float = 4.2, **grid: Any) -> tuple[Figure, Any]:  # noqa: ANN401
    figure = Figure(figsize=(10, height), layout="constrained")
    return figure, figure.subplots(**grid)


def _hours(axes: Any) -> None:  # noqa: ANN401
    locator = dates.AutoDateLocator(minticks=4, maxticks=12)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("UTC")


def _messages(axes: Any, label: str) -> None:  # noqa: ANN401
    """Half a message is none."""
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_ylim(bottom=0)
    axes.set_ylabel(label)


def _legend(axes: Any, title: str | None = None) -> None:  # noqa: ANN401
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        title=title,
        alignment="left",
        reverse=True,
        borderaxespad=0,
    )


def mailbox_colours(numbers: Figures) -> dict[str, str]:
    """The colour of each mailbox: the same in all pictures, and no other's."""
    deep = [name for name in numbers.depth.columns if name != OTHERS]
    flows = _by_weight(numbers.edges, "mailbox") if len(numbers.edges) else []
    return dict(zip(dict.fromkeys([*deep, *flows]), COLOURS, strict=False))


def _shown(name: str) -> str:
    """A name as pictures show it: what tells mailboxes apart is at the beginning or the end.

    Senders choose theirs: what ends a line or cannot be printed is a space.
    """
    name = "".join(each if each.isprintable() else " " for each in name)
    if len(name) <= LONGEST:
        return name
    half = (LONGEST - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def depth(numbers: Figures) -> Figure:
    """How many messages were left at the end of each hour."""
    figure, axes = _figure()
    table = numbers.depth
    named = [name for name in table.columns if name != OTHERS]
    order = [*([OTHERS] if OTHERS in table.columns else []), *named[::-1]]
    colour = {OTHERS: GREY, **mailbox_colours(numbers)}
    at = list(table.index.to_pydatetime())
    # What is true at a step is true until the next, also of the last, which may be the only one.
    at.append(at[-1] + datetime.timedelta(milliseconds=numbers.step_ms))
    axes.stackplot(
        at,
        [[*table[name], table[name].iloc[-1]] for name in order],
        labels=list(map(_shown, order)),
        colors=[colour[name] for name in order],
        step="post",
    )
    axes.set_xlim(at[0], at[-1])
    _hours(axes)
    _legend(axes)
    _messages(axes, "unfinished messages")
    axes.set_title("Depth over time, by mailbox", loc="left", weight="bold")
    return figure


def rates(numbers: Figures) -> Figure:
    """What came in by priority, and what was done."""
    figure, axes = _figure()
    table = numbers.rates
    at = table.index.to_pydatetime()
    bottom = np.zeros(len(table))
    width = datetime.timedelta(milliseconds=numbers.step_ms * 0.86)
    for name in [*BY_PRIORITY][::-1]:
        axes.bar(
            at, table[name], width, bottom=bottom, color=BY_PRIORITY[name], label=name, align="edge"
        )
        bottom += table[name].to_numpy(float)
    middles = at + width / 2
    line = {"color": INK, "marker": "o", "markersize": 3, "linewidth": 1.2}
    axes.plot(middles, table["acked"], label="acknowledged", **line)
    _hours(axes)
    _legend(axes)
    axes.margins(y=0.06)
    _messages(axes, f"messages in {_time(numbers.step_ms)}")
    axes.set_title("Messages sent, by priority, and acknowledged", loc="left", weight="bold")
    return figure


def latency(numbers: Figures) -> Figure:
    """Waiting and processing by priority, on a scale on which ten times is one step."""
    figure, (left, right) = _figure(
        max(2.6, 0.6 * len(numbers.latency) + 1.4), ncols=2, sharex=True, sharey=True
    )
    for axes, name, title in (
        (left, "waiting", "Waiting for the first delivery"),
        (right, "processing", "From the last delivery to the acknowledgement"),
    ):
        _bars(axes, numbers, name)
        axes.set_title(title, loc="left", weight="bold")
    left.invert_yaxis()
    return figure


def _bars(axes: Any, numbers: Figures, name: str) -> None:  # noqa: ANN401
    table = numbers.latency
    for row, (priority, spread) in enumerate(zip(table["priority"], table[name], strict=True)):
        if spread is None:
            continue
        low, quarter, half, three, high, most = (max(float(value), 1.0) for value in spread)
        colour = BY_PRIORITY.get(priority, GREY)
        axes.plot([low, high], [row, row], color=colour, linewidth=2, solid_capstyle="butt")
        axes.barh(row, three - quarter, left=quarter, height=0.46, color=colour)
        axes.plot([half, half], [row - 0.23, row + 0.23], color="white", linewidth=2)
        axes.plot(most, row, "o", color=colour, markersize=4)
        axes.annotate(
            f"median {_time(half)}",
            (half, row - 0.27),
            ha="center",
            va="bottom",
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: _time(value))
    axes.xaxis.set_minor_formatter("")
    axes.grid(axis="y", visible=False)
    axes.set_yticks(range(len(table)), [_priority(name) for name in table["priority"]])
    axes.set_ylim(-0.7, len(table) - 0.4)
    axes.set_xlabel("bar: half of the messages; line: 5 to 95 %; dot: 99 %")


def _priority(name: str) -> str:
    return f"level {name}" if name.isdecimal() else name


def _time(milliseconds: float) -> str:
    for unit, size, least in (("h", 3_600_000, 1), ("min", 60_000, 5), ("s", 1_000, 1)):
        if milliseconds >= least * size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.3g} ms"


def flow(numbers: Figures) -> Figure:
    """The ways between the busiest senders and mailboxes; as wide as much goes there."""
    edges = numbers.edges
    senders = _by_weight(edges, "sender")
    mailboxes = _by_weight(edges, "mailbox")
    rows = max(len(senders), len(mailboxes))
    figure, axes = _figure(max(3.0, 0.5 * rows + 1.0))
    left = {name: _spread(index, len(senders)) for index, name in enumerate(senders)}
    right = {name: _spread(index, len(mailboxes)) for index, name in enumerate(mailboxes)}
    most = edges["messages"].max()
    colour = mailbox_colours(numbers)
    for edge in edges.sort_values("messages").itertuples():
        start, end = left[edge.sender], right[edge.mailbox]
        curve = Path(
            [(0, start), (0.5, start), (0.5, end), (1, end)],
            [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
        )
        width = 0.5 + 9 * edge.messages / most
        axes.add_patch(
            PathPatch(curve, fill=False, linewidth=width, color=colour[edge.mailbox], alpha=0.5)
        )
    for name, at in left.items():
        total = int(edges.loc[edges["sender"] == name, "messages"].sum())
        axes.plot(0, at, "o", color=INK, markersize=5)
        axes.annotate(
            f"{_shown(name)}  {total:,}", (-0.015, at), ha="right", va="center", fontsize=9
        )
    for name, at in right.items():
        total = int(edges.loc[edges["mailbox"] == name, "messages"].sum())
        axes.plot(1, at, "s", color=colour[name], markersize=6)
        axes.annotate(f"{total:,}  {_shown(name)}", (1.015, at), ha="left", va="center", fontsize=9)
    axes.set_xlim(-0.42, 1.42)
    axes.set_ylim(1.0, -0.04)
    axes.annotate("senders", (-0.015, -0.01), ha="right", color=FAINT)
    axes.annotate("mailboxes", (1.015, -0.01), ha="left", color=FAINT)
    axes.set_axis_off()
    title = f"Who sends to whom: busiest senders ({len(senders)}) and mailboxes ({len(mailboxes)})"
    axes.set_title(title, loc="left", weight="bold")
    return figure


def _by_weight(edges: Any, side: str) -> list[str]:  # noqa: ANN401
    totals = edges.groupby(side)["messages"].sum().sort_values(ascending=False, kind="stable")
    return list(totals.index)


def _spread(index: int, count: int) -> float:
    return (index + 0.5) / count


def dead_letters(numbers: Figures) -> Figure:
    """Where messages were given up, and why."""
    table = numbers.dead.pivot_table(
        index="mailbox", columns="cause", values="messages", aggfunc="sum", fill_value=0
    )
    table = table.loc[table.sum(axis=1).sort_values(ascending=False, kind="stable").index]
    figure, axes = _figure(max(2.4, 0.36 * len(table) + 1.3))
    left = np.zeros(len(table))
    for cause, colour in zip(table.columns, CAUSES, strict=False):
        axes.barh(
            range(len(table)), table[cause], 0.66, left=left, color=colour, label=_cause(cause)
        )
        left += table[cause].to_numpy(float)
    for row, total in enumerate(left):
        axes.annotate(f" {int(total):,}", (total, row), va="center", fontsize=9)
    axes.set_yticks(range(len(table)), list(map(_shown, table.index)))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
    axes.set_xlabel("messages")
    _legend(axes)
    axes.set_title("Dead letters, by mailbox and cause", loc="left", weight="bold")
    return figure


def _cause(cause: str) -> str:
    return {"max_deliver": "delivered too often", "terminated": "given up by a worker"}.get(
        cause, cause
    )
