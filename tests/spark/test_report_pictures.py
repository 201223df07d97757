"""What can be wrong with pictures of a report: colours, long names, little data."""

import itertools
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mq9.lake.report.figures import Figures

LONG = "department-of-very-long-names.agent-that-does-everything-for-everybody."


@pytest.fixture(autouse=True)
def _needs_spark() -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")


def numbers(mailboxes: int = 8, steps: int = 1) -> "Figures":
    """Figures of some mailboxes with long names; those that get most are not the deepest."""
    import pandas as pd

    from mq9.lake.parts import PRIORITIES
    from mq9.lake.report.figures import Figures

    line = pd.date_range("2026-05-02T07:00", periods=steps, freq="h")
    names = [f"{LONG}{number:02d}" for number in range(mailboxes)]
    rates = {name: [5.0] * steps for name in (*PRIORITIES, "other", "acked", "sent")}
    spread = [1.0, 5.0, 50.0, 500.0, 5_000.0, 50_000.0]
    edges = [
        {"sender": sender, "mailbox": mailbox, "messages": 1_000_000 + at, "urgent": 1}
        for at, (sender, mailbox) in enumerate(itertools.product(names[:10], names[-10:]))
    ]
    nothing = pd.DataFrame()
    return Figures(
        title="x",
        step_ms=3_600_000,
        totals={"waiting": 3},
        depth=pd.DataFrame({name: [3.0] * steps for name in names[:8]}, index=line),
        rates=pd.DataFrame(rates, index=line),
        latency=pd.DataFrame(
            {
                "priority": list(PRIORITIES),
                "level": [1, 3, 5, 9],
                "messages": [1] * 4,
                "waiting": [spread] * 4,
                "processing": [spread] * 4,
            }
        ),
        edges=pd.DataFrame(edges),
        dead=pd.DataFrame({"mailbox": names[:8], "cause": "max_deliver", "messages": 1_000_000}),
        sla=nothing,
        mailboxes=nothing,
        lag=nothing,
        waits=nothing,
        unread=nothing,
        retries=nothing,
        spending=nothing,
        circles=nothing,
    )


def test_a_colour_has_one_meaning_in_all_pictures() -> None:
    from mq9.lake.report.plots import BY_PRIORITY, CAUSES, GREY, mailbox_colours, pictures

    # So many that depth and flow show other mailboxes, and some both.
    found = numbers(mailboxes=18)
    colours = mailbox_colours(found)
    assert len(colours) == len(set(colours.values())) == 18
    assert not {*BY_PRIORITY.values(), *CAUSES, GREY} & set(colours.values())
    made = pictures(found)
    in_depth = dict(
        zip(found.depth.columns, reversed(colours_of_areas(made["depth"])), strict=True)
    )
    assert in_depth == {name: colours[name] for name in found.depth.columns}
    squares = [
        line.get_color() for line in made["flow"].axes[0].get_lines() if line.get_marker() == "s"
    ]
    assert set(squares) == {colours[name] for name in set(found.edges["mailbox"])}


def colours_of_areas(figure: Any) -> list[str]:  # noqa: ANN401
    from matplotlib.colors import to_hex

    return [to_hex(area.get_facecolor()[0]) for area in figure.axes[0].collections]


@pytest.mark.parametrize("steps", [1, 96])
@pytest.mark.parametrize("mailboxes", [1, 18])
def test_no_text_is_cut_off_and_pictures_are_most_of_the_place(mailboxes: int, steps: int) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Annotation

    from mq9.lake.report.plots import pictures

    for name, figure in pictures(numbers(mailboxes, steps)).items():
        FigureCanvasAgg(figure).draw()
        whole = figure.bbox
        for text in figure.findobj(Annotation):
            assert isinstance(text, Annotation)
            box = text.get_window_extent()
            assert whole.x0 <= box.x0 < box.x1 <= whole.x1, (name, text.get_text())
        width = sum(axes.get_position().width for axes in figure.axes)
        assert width > 0.5, (name, "legends and names leave too little")


@pytest.mark.parametrize("name", [r"$\x$", "two\nlines\x07 \u7ffb\u8bd1"])
def test_senders_may_have_any_name(name: str) -> None:
    from matplotlib.text import Text

    from mq9.lake.report.plots import pictures, png

    found = numbers(mailboxes=1)
    found.edges["sender"] = name
    found.dead["mailbox"] = [name]
    for figure in pictures(found).values():
        assert png(figure).startswith(b"\x89PNG")
        for text in figure.findobj(Text):
            assert isinstance(text, Text)
            assert text.get_text().isprintable(), text


def test_a_section_without_anything_says_so(tmp_path: Path) -> None:
    import dataclasses

    import pandas as pd

    from mq9.lake.report.page import write

    sla = pd.DataFrame(columns=["priority", "target_ms", "messages", "within", "late", "lost"])
    nothing = dict.fromkeys(("latency", "edges", "dead"), pd.DataFrame())
    short = dataclasses.replace(numbers(mailboxes=1), step_ms=100, sla=sla, **nothing)
    page, *_ = write(short, tmp_path)
    text = page.read_text("utf-8")
    for title in ("Latency", "Flow", "Dead letters"):
        section = text.partition(f"<h2>{title}</h2>")[2].partition("<h2>")[0]
        assert section.rstrip().count("<p>None.</p>") == 1, title
    assert "2026-05-02 07:00:00 to 2026-05-02 07:00:00.100 UTC" in text
    assert "Unfinished messages: 3. 3 waiting, and 0 pending" in text


def test_depth_of_a_single_step_can_be_seen() -> None:
    from mq9.lake.report.plots import pictures

    figure = pictures(numbers(mailboxes=1, steps=1))["depth"]
    [area] = figure.axes[0].collections
    corners: Any = area.get_paths()[0].vertices
    low, high = figure.axes[0].get_xlim()
    assert corners[:, 0].max() - corners[:, 0].min() == pytest.approx(high - low)
    assert corners[:, 1].max() == 3


def test_messages_are_counted_in_whole_ones() -> None:
    from mq9.lake.report.plots import pictures

    made = pictures(numbers(mailboxes=1, steps=1))
    for name in ("depth", "rates"):
        ticks = made[name].axes[0].get_yticks()
        assert all(tick == int(tick) for tick in ticks), (name, ticks)


def test_a_long_title_does_not_make_a_narrow_page_wider(tmp_path: Path) -> None:
    import dataclasses

    import pandas as pd

    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    from mq9.lake.report.page import write

    sla = pd.DataFrame(columns=["priority", "target_ms", "messages", "within", "late", "lost"])
    long = dataclasses.replace(numbers(mailboxes=2, steps=2), title="x" * 80, sla=sla)
    page, *_ = write(long, tmp_path)
    with playwright.sync_playwright() as play:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = play.chromium.launch(executable_path=chromium, args=flags)
        seen = browser.new_page(viewport={"width": 390, "height": 900})
        seen.goto(page.as_uri())
        assert seen.evaluate("document.documentElement.scrollWidth") == 390
        browser.close()
