"""Takes pictures of the report of `mq9 lake`: `python -m tests.browser.report_pictures FOLDER`.

Makes tables of two exports, one of a single message and one of a busy day, and opens the report of
each in Chromium, wide and as on a phone. Owns what is in the pictures; the report is the lake's.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from tests.browser.pictures import CHROMIUM
from tests.spark.rows import Log
from tests.spark.test_stream_for_months import piece

from mq9.lake import batch
from mq9.lake.jobs import Progress, running
from mq9.lake.report.figures import figures
from mq9.lake.report.page import write

sys.path.insert(0, str(Path(__file__).parents[2] / "spark"))

from generate import Traffic

WIDTHS = {"wide": 1280, "narrow": 390}
HIGH = 900
# What the docs show: the top of one page.
SHOWN = ("much", "wide", 1180)
TITLES = {"little": "a broker with one message", "much": "broker-1, on 2 May"}


def exports(folder: Path) -> dict[str, Path]:
    """An export of little, and one of much."""
    made = {name: folder / name for name in TITLES}
    log = Log()
    log.send("agent.a", 0, 0, priority="urgent", headers={"From": "agent.b"})
    piece(made["little"], log, 1)
    Traffic(20_000, hours=24.0, agents=40).write(made["much"])
    return made


def reports(folder: Path) -> dict[str, Path]:
    """The pages."""
    pages = {}
    with running("mq9-pictures", memory="2g", parallelism=2) as spark:
        for name, export in exports(folder).items():
            tables = batch.run(spark, str(export), f"{export}-tables", tell=Progress())
            pages[name] = write(figures(tables, TITLES[name]), folder / f"report-{name}")[0]
    return pages


def take(browser: Browser, page: Path, width: int, file: Path) -> None:
    """A picture of a whole page, which must not be wider than the screen."""
    context = browser.new_context(viewport={"width": width, "height": HIGH})
    seen = context.new_page()
    seen.goto(page.as_uri())
    assert seen.evaluate("document.documentElement.scrollWidth") == width, "it is too wide"
    seen.screenshot(path=file, full_page=True)
    context.close()


def take_all(folder: Path, shown: Path | None) -> None:
    """All pictures, and the one that the docs show."""
    assert CHROMIUM is not None, "make chromium"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        pages = reports(Path(made))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, page in pages.items():
            for screen, width in WIDTHS.items():
                take(browser, page, width, folder / f"report-{name}-{screen}.png")
            shutil.copy(page, folder / f"report-{name}.html")
        if shown is not None:
            name, screen, height = SHOWN
            size = {"width": WIDTHS[screen], "height": height}
            context = browser.new_context(viewport=size)  # type: ignore[arg-type]
            top = context.new_page()
            top.goto(pages[name].as_uri())
            top.screenshot(path=shown)
            context.close()
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--docs", type=Path, help="the file of the picture that the docs show")
    options = parser.parse_args()
    take_all(options.folder, options.docs)


if __name__ == "__main__":
    main()
