"""Takes pictures of the built site: `make site-pictures`, or with this module and a FOLDER.

They are a record of how the site looks, for people to look at. Owns which pages are taken.
"""

import argparse
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.browser.pictures import CHROMIUM
from tests.pages import ROOT

SITE = ROOT / ".build" / "site"
PAGES = ("index", "tutorial", "api")
SIZES = {"wide": (1440, 900), "phone": (390, 844)}


class Quiet(SimpleHTTPRequestHandler):
    """Writes no line for each file."""

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The site as a server has it: opened as files, it hides its search."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def take_all(site: Path, folder: Path) -> list[Path]:
    """The beginning of each page on each screen; fails if a page is wider than its screen."""
    assert CHROMIUM is not None, "make chromium"
    folder.mkdir(parents=True, exist_ok=True)
    taken = []
    with served(site) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for screen, (width, height) in SIZES.items():
            context = browser.new_context(viewport={"width": width, "height": height})
            for name in PAGES:
                page = context.new_page()
                page.goto(f"{url}/{name}.html")
                page.wait_for_selector("h1")
                needed = page.evaluate("document.documentElement.scrollWidth")
                assert needed <= width, f"{name} is {needed} pixels wide on a screen of {width}"
                file = folder / f"site-{name}-{screen}.png"
                page.screenshot(path=file)
                taken.append(file)
        browser.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    take_all(SITE, parser.parse_args().folder)


if __name__ == "__main__":
    main()
