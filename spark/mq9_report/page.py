"""The page: one HTML file that needs nothing else, with the pictures inside."""

import base64
import html
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

import pandas as pd
from matplotlib.figure import Figure

from mq9_report.figures import Figures
from mq9_report.plots import pictures

DPI = 144

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mq9: what went through</title>
<style>
:root { --ink: #22303c; --faint: #66727d; --line: #e3e7ea; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); margin: 2rem auto; max-width: 62rem;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p { margin: .3rem 0; color: var(--faint); }
img { width: 100%; height: auto; }
.cards { display: flex; flex-wrap: wrap; gap: .7rem; margin: 1.2rem 0; }
.card { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.card span { color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th { color: var(--faint); font-weight: 500; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
</style>
</head>
<body>
<h1>What went through</h1>
<p>$span</p>
<div class="cards">$cards</div>
$sections
</body>
</html>
""")


def write(numbers: Figures, folder: Path) -> list[Path]:
    """Writes `report.html` and one PNG for each picture; the paths, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    images = {name: _png(figure) for name, figure in pictures(numbers).items()}
    written = [folder / "report.html"]
    written[0].write_text(_html(numbers, images), "utf-8")
    for name, image in images.items():
        written.append(folder / f"{name}.png")
        written[-1].write_bytes(image)
    return written


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return buffer.getvalue()


def _html(numbers: Figures, images: Mapping[str, bytes]) -> str:
    first = numbers.rates.index[0]
    last = numbers.rates.index[-1] + pd.Timedelta(numbers.step_ms, "ms")
    total = sum(numbers.totals.values())
    cards = [("messages", total), *numbers.totals.items()]
    return _PAGE.substitute(
        span=f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC",
        cards="".join(_card(*card) for card in cards),
        sections="\n".join(_sections(numbers, images)),
    )


def _card(name: str, count: int) -> str:
    said = html.escape(name.replace("_", " "))
    return f'<div class="card"><b>{count:,}</b><span>{said}</span></div>'


def _sections(numbers: Figures, images: Mapping[str, bytes]) -> Iterable[str]:
    yield _section("Traffic", "What was sent, and what was acknowledged.", images, "rates")
    yield _section("Depth", "Messages that nobody had finished.", images, "depth")
    yield _table(
        numbers.mailboxes,
        {
            "mailbox": "mailbox",
            "sent": "sent",
            "bytes": "bytes",
            "acked": "acknowledged",
            "redelivered": "redelivered",
            "deepest": "deepest",
            "depth": "left",
        },
    )
    yield _section("Latency", "How long messages took, by priority.", images, "latency")
    yield _section(
        "In time", "Whether important messages were delivered within their target.", images
    )
    yield _table(_shares(numbers.sla), {name: name for name in _shares(numbers.sla).columns})
    yield _section("Groups", "How far groups are behind, those that are furthest first.", images)
    yield _table(
        numbers.lag,
        {
            "mailbox": "mailbox",
            "group": "group",
            "lag": "not given yet",
            "in_flight": "in hand",
            "most": "most behind",
            "acked": "acknowledged",
        },
    )
    yield _section("Flow", "From those who say who they are to the mailboxes.", images, "flow")
    yield _section("Dead letters", "What was given up.", images, "dead_letters")
    if not len(numbers.dead):
        yield "<p>None.</p>"


def _shares(sla: pd.DataFrame) -> pd.DataFrame:
    known = sla["messages"] - sla.get("open", 0)
    share = (100 * sla["within"] / known.where(known > 0)).map(
        lambda value: "" if pd.isna(value) else f"{value:.2f} %"
    )
    return sla.rename(columns={"target_ms": "target in ms"}).assign(**{"in time": share})


def _section(title: str, text: str, images: Mapping[str, bytes], picture: str | None = None) -> str:
    shown = ""
    if picture is not None and picture in images:
        data = base64.b64encode(images[picture]).decode()
        shown = f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}">'
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
    return html.escape(value) if isinstance(value, str) else f"{value:,}"
