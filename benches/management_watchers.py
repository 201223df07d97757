"""Watches a broker as people and Prometheus do: the page open in browsers, `/metrics` each second.

    python benches/management_watchers.py URL BROWSERS

A process of its own, of low priority: elsewhere browsers are on other machines. It says `ready`
when all pages are drawn, and answers each line of its input with how much was asked so far.
"""

import asyncio
import json
import os
import shutil
import sys
import urllib.request
from typing import Any

import psutil
from nats_runs import BenchError

NICE = 10
EVERY_S = 1.0
READY_MS = 180_000
# One browser each: what most look at, the longest list, and one queue with its messages.
VIEWS = ("/", "/queues", "/queue?name=bench")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium() -> str:
    """The browser that is installed."""
    given = os.environ.get("MQ9_CHROMIUM")
    found = given or next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        raise BenchError("no Chromium: `make chromium` installs it (or set MQ9_CHROMIUM)")
    return found


async def scrape(url: str, count: dict[str, int]) -> None:
    """Asks for the metrics, as Prometheus does."""

    def once() -> None:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
            if b"mq9_up 1" not in reply.read():
                raise BenchError("/metrics says that the broker is gone")

    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        await asyncio.to_thread(once)
        count["scrapes"] += 1
        due = max(due + EVERY_S, loop.time())
        await asyncio.sleep(due - loop.time())


async def look(playwright: Any, url: str, view: str, count: dict[str, int]) -> None:  # noqa: ANN401
    """Opens a view in a browser of its own; it asks again and again by itself."""
    arguments = {"executable_path": find_chromium(), "args": ["--no-sandbox"]}
    browser = await playwright.chromium.launch(**arguments)
    page = await browser.new_page(viewport={"width": 1440, "height": 900})

    def note(request: Any) -> None:  # noqa: ANN401
        count["requests"] += "/v1/" in request.url

    page.on("requestfinished", note)
    page.set_default_timeout(READY_MS)
    await page.goto(url + view)
    await page.wait_for_selector("main h1")


async def watch(url: str, browsers: int) -> None:
    """Watches until nobody wants to hear of it."""
    from playwright.async_api import async_playwright

    count = {"scrapes": 0, "requests": 0}
    async with async_playwright() as playwright:
        for number in range(browsers):
            await look(playwright, url, VIEWS[number % len(VIEWS)], count)
        give_way()
        scraping = asyncio.create_task(scrape(url, count))
        say("ready")
        while await asyncio.to_thread(sys.stdin.readline):
            if scraping.done():
                scraping.result()
            say(json.dumps(count))
        scraping.cancel()


def say(line: str) -> None:
    """A line for whoever has started this."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def give_way() -> None:
    """This and all browsers get low priority: not before, or nothing starts on a busy machine."""
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        process.nice(NICE)


if __name__ == "__main__":
    try:
        asyncio.run(watch(sys.argv[1], int(sys.argv[2])))
    except (BenchError, OSError) as error:
        sys.exit(f"management_watchers: {error}")
