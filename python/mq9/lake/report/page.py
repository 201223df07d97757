"""The page: one HTML file that needs nothing else, with the pictures inside."""

import base64
import html
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

import pandas as pd

from mq9.lake.report.figures import Figures
from mq9.lake.report.plots import pictures, png

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mq9: what went through $title</title>
<style>
:root { --ink: #22303c; --faint: #66727d; --line: #e3e7ea; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); margin: 2rem auto; max-width: 62rem;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p { margin: .3rem 0; color: var(--faint); }
.wide img { width: 100%; min-width: 44rem; height: auto; }
.cards { display: flex; flex-wrap: wrap; gap: .7rem; margin: 1.2rem 0; }
.card { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.card span { color: var(--faint); }
.wide { overflow-x: auto; }
.wide td:first-child { overflow-wrap: anywhere; min-width: 8rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th { color: var(--faint); font-weight: 500; }
th:first-child, td:first-child, td.text, th.text { text-align: left; padding-left: .4rem; }
th:first-child, td:first-child { padding-left: 0; }
</style>
</head>
<body>
<h1>What went through $title</h1>
<p>$span</p>
<p>$open</p>
<div class="cards">$cards</div>
$sections
</body>
</html>
""")


def write(numbers: Figures, folder: Path) -> list[Path]:
    """Writes `report.html` and one PNG for each picture; the paths, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    images = {name: png(figure) for name, figure in pictures(numbers).items()}
    written = [folder / "report.html"]
    written[0].write_text(_html(numbers, images), "utf-8")
    for name, image in images.items():
        written.append(folder / f"{name}.png")
        written[-1].write_bytes(image)
    return written


def _html(numbers: Figures, images: Mapping[str, bytes]) -> str:
    first = numbers.rates.index[0]
    last = numbers.rates.index[-1] + pd.Timedelta(numbers.step_ms, "ms")
    total = sum(numbers.totals.values())
    cards = [("messages", total), *numbers.totals.items()]
    return _PAGE.substitute(
        title=html.escape(numbers.title),
        open=_unfinished(numbers.totals),
        span=f"{_moment(first)} to {_moment(last)} UTC",
        cards="".join(_card(*card) for card in cards),
        sections="\n".join(_sections(numbers, images)),
    )


def _moment(at: pd.Timestamp) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" + (f".{at.microsecond // 1000:03d}" if at.microsecond else "")


def _unfinished(totals: Mapping[str, int]) -> str:
    """Why what is waiting and what is unfinished are two numbers."""
    waiting, pending = totals.get("waiting", 0), totals.get("pending", 0)
    return (
        f"Unfinished messages: {waiting + pending:,}. {waiting:,} waiting, and {pending:,} "
        "pending: in the hands of a member that has not finished them."
    )


def _card(name: str, count: int) -> str:
    said = "acknowledged" if name == "acked" else html.escape(name.replace("_", " "))
    return f'<div class="card"><b>{count:,}</b><span>{said}</span></div>'


def _sections(numbers: Figures, images: Mapping[str, bytes]) -> Iterable[str]:
    yield _section("Traffic", "What was sent, and what was acknowledged.", images, "rates")
    yield _section("Depth", "Unfinished messages: waiting or pending.", images, "depth")
    yield _table(
        numbers.mailboxes,
        {
            "mailbox": "mailbox",
            "sent": "sent",
            "bytes": "bytes",
            "acked": "acknowledged",
            "redelivered": "redelivered",
            "deepest": "most unfinished at once",
            "depth": "unfinished at the end",
        },
    )
    yield _section(
        "Latency",
        "How long messages took, by priority; the white line is the median.",
        images,
        "latency",
    )
    yield _section(
        "In time",
        "Whether important messages were delivered within their target. The share is of all that "
        "were sent: what is still open has not been delivered in time.",
        images,
    )
    yield _table(_shares(numbers.sla), {name: name for name in _shares(numbers.sla).columns})
    yield _section("Groups", "How far groups are behind, those that are furthest first.", images)
    yield _table(
        numbers.lag,
        {
            "mailbox": "mailbox",
            "group": "group",
            "lag": "not delivered yet",
            "in_flight": "pending",
            "most": "furthest behind",
            "acked": "acknowledged",
        },
    )
    yield _section(
        "Waiting for answers",
        "Who waits for whom, from a request to its answer; those that wait longest in all first.",
        images,
    )
    yield _table(
        numbers.waits,
        {
            "agent": "agent",
            "waits_for": "waits for",
            "requests": "requests",
            "answered": "answered",
            "unanswered": "unanswered",
            "mean_ms": "mean in ms",
            "longest_ms": "longest in ms",
        },
    )
    yield _section(
        "Delivered again", "Whose messages had to be delivered more than once, and why.", images
    )
    yield _table(
        numbers.retries,
        {
            "mailbox": "mailbox",
            "sender": "sender",
            "messages": "messages",
            "redeliveries": "deliveries repeated",
            "returned": "because returned",
            "ran_out": "because a lease ran out",
            "dead_letters": "given up",
        },
    )
    yield _section("Unread", "Mailboxes with messages that nobody read on the last day.", images)
    yield _table(
        numbers.unread, {"mailbox": "mailbox", "unread": "unfinished", "days": "days unread"}
    )
    yield _section("Spending", "What messages say they cost, by sender.", images)
    yield _table(
        numbers.spending,
        {name: name for name in ("agent", "conversations", "messages", "tokens", "cost")},
    )
    yield _section("Circles", "Agents that send conversations round and round.", images)
    yield _table(
        numbers.circles,
        {
            "agents": "agents",
            "conversations": "conversations",
            "rounds": "most rounds",
            "messages": "messages",
        },
    )
    yield _section("Flow", "From those who say who they are to the mailboxes.", images, "flow")
    yield _section("Dead letters", "What was given up.", images, "dead_letters")


def _shares(sla: pd.DataFrame) -> pd.DataFrame:
    sent = sla["messages"]
    share = [_share(*pair) for pair in zip(sla["within"], sent, strict=True)]
    named = {"target_ms": "target in ms", "within": "in time", "lost": "removed unread"}
    return sla.rename(columns=named).assign(**{"share in time": share})


def _share(part: int, whole: int) -> str:
    """A share that is 100 % only if it is all."""
    if not whole:
        return ""
    exact = 100 * part / whole
    return "100 %" if part == whole else f"{min(exact, 99.99):.2f} %"


def _section(title: str, text: str, images: Mapping[str, bytes], picture: str | None = None) -> str:
    shown = ""
    if picture is not None and picture not in images:
        shown = "<p>None.</p>"
    elif picture is not None:
        data = base64.b64encode(images[picture]).decode()
        image = f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}">'
        # On a narrow screen it is moved sideways: made smaller, nobody could read it.
        shown = f'<div class="wide">{image}</div>'
    return f"<h2>{html.escape(title)}</h2><p>{html.escape(text)}</p>{shown}"


def _table(rows: pd.DataFrame, columns: Mapping[str, str]) -> str:
    if not len(rows):
        return "<p>None.</p>"
    text = {name for name in columns if rows[name].dtype == object}
    marks = {name: ' class="text"' if name in text else "" for name in columns}
    head = "".join(f"<th{marks[name]}>{html.escape(said)}</th>" for name, said in columns.items())
    body = "".join(
        "<tr>" + "".join(f"<td{marks[name]}>{_cell(row[name])}</td>" for name in columns) + "</tr>"
        for _, row in rows.iterrows()
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _cell(value: object) -> str:
    if isinstance(value, str):
        return html.escape(value)
    return "" if pd.isna(value) else f"{value:,.15g}"
