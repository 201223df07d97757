"""Takes the pictures of the page that the docs show: `python -m tests.browser.pictures FOLDER`.

Starts a broker with people and agents at work, waits until the charts have something to show, and
opens each view in Chromium. Owns what is in the pictures; what the page looks like is the page's.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright
from tests.mail import Mail
from tests.manage.conftest import Managed, free_port, wait_healthy
from tests.peers import start, until

SECONDS = 100.0
WIDE, PHONE = (1440, 900), (390, 844)
CHROMIUM = os.environ.get("MQ9_CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
SCHEDULES = """schedules: [
  { name: "usage-report", mailbox: "notify.slack", cron: "0 2 * * *", data: { type: "daily" } }
  { name: "standup", mailbox: "agent.planner", cron: "30 9 * * 1-5", timezone: "Europe/Berlin" }
  { name: "reindex", mailbox: "crawl.frontier", cron: "0 */6 * * *", data: { full: true } }
]"""
MAILBOXES: dict[str, dict[str, object]] = {
    "translate.jobs": {"dead_letter": "translate.dead", "max_deliver": 3, "ack_wait_ms": 30_000},
    "embeddings.batch": {"dead_letter": "embeddings.dead", "max_deliver": 3},
    "crawl.frontier": {"retention": "work_queue"},
    "notify.slack": {"desc": "What people are told", "public": True},
    "agent.planner": {"desc": "Plans who does what"},
    "agent.invoices": {},
    "agent.translator": {},
}
AGENTS = (
    ("Invoice reader", "Reads scanned invoices and pulls out totals and tax", "agent.invoices"),
    ("Translator", "Translates manuals from German to French", "agent.translator"),
    ("Planner", "Splits a goal into tasks and hands them to other agents", "agent.planner"),
    ("Crawler", "Fetches pages of the web and keeps those that are new", "crawl.frontier"),
)
LEVELS = ("normal",) * 12 + ("urgent",) * 3 + ("notify",) * 2 + ("critical",)


def views() -> dict[str, tuple[str, tuple[int, int], str]]:
    """Name of the picture: address, size of the window, theme."""
    queue = "/queue?name=translate.jobs&show=oldest"
    return {
        "overview": ("/", WIDE, "light"),
        "overview-phone": ("/", PHONE, "light"),
        "queue": (queue, WIDE, "light"),
        "consumers": ("/consumers", WIDE, "light"),
        "dead-letters": ("/dead-letters", WIDE, "light"),
        "agents": ("/agents?q=who+can+read+a+bill", WIDE, "light"),
    }


@contextmanager
def at_work(url: str) -> Iterator[None]:
    """Senders and workers, in the background."""
    over = threading.Event()

    def keep(work: Callable[[Mail], None], every_s: float) -> threading.Thread:
        def run() -> None:
            with suppress(OSError), Mail(url) as mail:
                while not over.wait(every_s):
                    work(mail)

        return threading.Thread(target=run, daemon=True)

    threads = [
        keep(Sender(), 0.05),
        keep(worker("translate.jobs", "translators", 3), 0.2),
        keep(worker("embeddings.batch", "embedders", 4), 0.1),
        keep(worker("notify.slack", "people", 20), 0.5),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


class Sender:
    """Sends to each queue at a pace of its own."""

    def __init__(self) -> None:
        self._random = random.Random(9)
        self._numbers = itertools.count(1)

    def __call__(self, mail: Mail) -> None:
        number = next(self._numbers)
        level = self._random.choice(LEVELS)
        task = {"task": "translate", "doc": f"s3://in/handbook-{number}.docx", "to": "fr"}
        mail.deliver("translate.jobs", json.dumps(task).encode(), priority=level)
        if self._random.random() < 0.7:
            chunk = {"chunk": number, "text": "mailboxes for agents", "model": "small"}
            mail.deliver("embeddings.batch", json.dumps(chunk).encode())
        if number % 4 == 0:
            page = {"url": f"https://example.org/{number}", "depth": number % 5}
            mail.deliver("crawl.frontier", json.dumps(page).encode(), priority=level)
        if number % 20 == 0:
            mail.deliver("notify.slack", b'{"text": "20 more"}', priority="notify")
            # The crawler has gone.
            for _, _, address in AGENTS[:3]:
                mail.done("AGENT.REPORT", {"mailbox": address, "load": 0.5})


def worker(address: str, group: str, at_once: int) -> Callable[[Mail], None]:
    """Takes a few; gives up on some of them, and fails on others each time."""

    def work(mail: Mail) -> None:
        for entry in mail.fetch(address, group, num_msgs=at_once, member="w1"):
            number = entry["msg_id"] + 1
            kind = "term" if number % 70 == 0 else "nak" if number % 45 == 0 else "ack"
            mail.ack(address, group, entry["msg_id"], kind=kind, only=True)

    return work


def prepare(mail: Mail) -> None:
    """What is there before anybody works."""
    for name, fields in MAILBOXES.items():
        mail.done("MAILBOX.CREATE", {"name": name} | fields)
    for name, text, address in AGENTS:
        card = {"name": name, "description": text, "mailbox": address, "version": "1.2"}
        mail.done("AGENT.REGISTER", card)
    mail.deliver("agent.planner", b'{"goal": "French manual by Friday"}', priority="urgent")
    mail.deliver("agent.planner", b'{"remind": "standup"}', delay=3600)


def take(page: Page, url: str, path: str, file: Path) -> None:
    """A picture of a view that has all it shows."""
    page.goto(url + path)
    page.wait_for_selector("main h1")
    page.wait_for_function("!document.querySelector('main [aria-busy]')")
    page.screenshot(path=file)


def take_all(folder: Path, seconds: float) -> list[Path]:
    """All pictures, of a broker that has worked for so long."""
    assert CHROMIUM is not None, "make chromium"
    folder.mkdir(parents=True, exist_ok=True)
    listen = f"127.0.0.1:{free_port()}"
    config = f'server_name: broker-1\nmq9 {{ management {{ listen: "{listen}" }}\n{SCHEDULES} }}'
    taken = []
    with tempfile.TemporaryDirectory() as data:
        broker = start(Path(data), config)
        try:
            managed = Managed(broker, f"http://{listen}", Path(data))
            wait_healthy(managed)
            with managed.mail() as mail:
                prepare(mail)
                # Somebody has begun, and gone.
                mail.fetch("crawl.frontier", "crawlers", num_msgs=1)
            with at_work(broker.url), sync_playwright() as playwright:
                until(lambda: letters(managed) > 2, "some have failed", 120)
                time.sleep(seconds)
                browser = playwright.chromium.launch(
                    executable_path=CHROMIUM, args=["--no-sandbox"]
                )
                for name, (path, size, theme) in views().items():
                    context = browser.new_context(
                        viewport={"width": size[0], "height": size[1]},
                        color_scheme=theme,  # type: ignore[arg-type]
                    )
                    file = folder / f"page-{name}.png"
                    take(context.new_page(), managed.url, path, file)
                    context.close()
                    taken.append(file)
                browser.close()
        finally:
            broker.stop()
    return taken


def letters(managed: Managed) -> int:
    """How many dead letters there are."""
    found: int = httpx.get(f"{managed.url}/v1/dead-letters", timeout=20).json()["total"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of work (%(default)s)")
    options = parser.parse_args()
    take_all(options.folder, options.seconds)


if __name__ == "__main__":
    main()
