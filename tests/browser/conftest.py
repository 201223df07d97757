"""A real Chromium, and a broker with its page."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.browser.demo import SCHEDULES, fill, fill_stream
from tests.manage.conftest import OPERATORS, Managed, manage, managed, needed
from tests.peers import Serve, until

__all__ = ["manage"]

CHROMIUM = os.environ.get("MQ9_CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
PICTURES = Path(os.environ.get("MQ9_PICTURES", ".build/pictures"))


Open = Callable[..., "Watched"]
expect.set_options(timeout=15_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = needed("chromium", CHROMIUM)
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def filled(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker with something of everything."""
    folder = tmp_path_factory.mktemp("filled")
    found = managed(serve_for_session, folder, "jetstream {}", inside=SCHEDULES)
    with found.mail() as mail:
        fill(mail)
    # Playwright may have an event loop of its own in this thread.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, fill_stream(found.server.url)).result()
    with found.client() as client:
        until(lambda: client.get("/v1/dead-letters").json()["total"] >= 12, "it is known", 30)
    return found


@pytest.fixture(scope="module")
def locked(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker with operators, and a mailbox with a message."""
    found = managed(serve_for_session, tmp_path_factory.mktemp("locked"), OPERATORS)
    with found.mail("boss") as mail:
        mail.done("MAILBOX.CREATE", {"name": "desk"})
        mail.deliver("desk", b"one")
    with found.client(auth=("eyes", "eyes-pw")) as client:
        until(lambda: client.get("/v1/queues/desk").status_code == 200, "it is known", 30)
    return found


class Watched:
    """A page that notes what a good page does not do: errors, and requests to other hosts."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.expected: tuple[str, ...] = ()
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("request", self._sent)

    def _heard(self, message: object) -> None:
        text = f"{message.type}: {message.text}"  # type: ignore[attr-defined]
        if text.startswith("error") and not any(word in text for word in self.expected):
            self.errors.append(text)

    def _sent(self, request: object) -> None:
        address: str = request.url  # type: ignore[attr-defined]
        if not address.startswith((self.url, "data:", "blob:")):
            self.foreign.append(address)

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path)
        self.page.wait_for_selector("main h1")
        return self.page

    def check(self) -> None:
        assert self.errors == []
        assert self.foreign == []


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens pages that must have done nothing wrong when the test ends."""
    contexts: list[BrowserContext] = []
    opened: list[Watched] = []

    def open_page(
        managed: Managed, width: int = 1440, theme: str = "light", timezone: str | None = None
    ) -> Watched:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            timezone_id=timezone,
            color_scheme=theme,  # type: ignore[arg-type]
        )
        context.set_default_timeout(20_000)
        contexts.append(context)
        opened.append(Watched(context, managed.url))
        return opened[-1]

    yield open_page
    for each in contexts:
        each.close()
    for watched in opened:
        watched.check()
