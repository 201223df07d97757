"""What the page looks like: contrast of its colours, dialogs, and views with nothing in them."""

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.browser.conftest import PICTURES, Open
from tests.manage.conftest import Managed, managed
from tests.manage.test_api import bury
from tests.peers import Serve, until

GROUNDS = ("back", "surface", "sunk")
LEVELS = [f"level-{number}" for number in range(1, 11)]
# Text, and what it is written on: WCAG 1.4.3.
TEXT = [
    *((ink, ground) for ink in ("ink", "second", "third", "attention") for ground in GROUNDS),
    *(("broken", ground) for ground in ("back", "surface", "sunk", "broken-tint")),
    ("ink", "broken-tint"),
    ("attention", "attention-tint"),
    ("on-ink", "ink"),
]
# What has to be seen to use the page, or to understand a picture: WCAG 1.4.11.
SEEN = [
    *((mark, ground) for mark in ("focus", "ok", "attention-icon", "edge") for ground in GROUNDS),
    *((level, "surface") for level in LEVELS),
    *(("broken", ground) for ground in GROUNDS),
]
TOKENS = """names => {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(names.map(name => [name, style.getPropertyValue(`--${name}`).trim()]));
}"""


def luminance(colour: str) -> float:
    """How light a colour is, as WCAG defines it."""
    assert len(colour) == 7, colour
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_counted_as_wcag_does() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_pair_of_colours_has_contrast(nothing: Managed, open_page: Open, theme: str) -> None:
    page = open_page(nothing, theme=theme).go("/schedules")
    names = sorted({name for pair in TEXT + SEEN for name in pair})
    colours = page.evaluate(TOKENS, names)
    too_low = [
        f"{mark} on {ground}: {found:.2f}, less than {least}"
        for pairs, least in ((TEXT, 4.5), (SEEN, 3.0))
        for mark, ground in pairs
        if (found := contrast(colours[mark], colours[ground])) < least
    ]
    assert too_low == []


@pytest.fixture(scope="module")
def nothing(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker with nothing in it."""
    return managed(serve_for_session, tmp_path_factory.mktemp("nothing"))


EMPTY = {
    "overview": ("/", "No queue falls behind"),
    "queues": ("/queues", "mq9 mailbox create"),
    "queues-found": ("/queues?search=x", "No queue has “x” in its name"),
    "streams": ("/queues?kind=stream", "No stream yet"),
    "queue": ("/queue?name=none", "mailbox none does not exist"),
    "consumers": ("/consumers", "mq9 fetch"),
    "dead-letters": ("/dead-letters", "No dead letters"),
    "resolved": ("/dead-letters?resolved=true", "None here"),
    "agents": ("/agents", "mq9 agent register"),
    "agents-found": ("/agents?q=x", "No agent matches"),
    "schedules": ("/schedules", "mq9 { schedules:"),
    "connections": ("/connections", "mq9 manage"),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_empty_views_say_how_to_begin(
    nothing: Managed, open_page: Open, width: int, theme: str
) -> None:
    watched = open_page(nothing, width, theme)
    watched.expected = ("404",)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, (path, words) in EMPTY.items():
        page = watched.go(path)
        expect(page.locator("main")).to_contain_text(words)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{name} scrolls sideways: {wide}"
        page.screenshot(path=PICTURES / f"empty-{name}-{theme}-{width}.png")
        results = Axe().run(page)
        assert results.violations_count == 0, f"{name}\n{results.generate_report()}"


def press(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("button", name=name, exact=True).first.click()


DECLARED = """
streams: [ { name: ORDERS, subjects: ["orders.new", "orders.paid.>", "refunds.*"] } ]
consumers: [ { name: billing, stream: ORDERS } ]
"""
DIALOGS: dict[str, tuple[str, Callable[[Page], None]]] = {
    "help": ("/", lambda page: page.keyboard.press("?")),
    "send-anywhere": ("/queues", press("Send…")),
    "send": ("/queue?name=jobs", press("Send…")),
    "purge": ("/queue?name=jobs", press("Purge messages…")),
    "delete": ("/queue?name=jobs", press("Delete queue…")),
    "delete-group": ("/queue?name=jobs", press("Delete workers…")),
    "send-stream": ("/queue?name=ORDERS&kind=stream", press("Send…")),
    "delete-stream": ("/queue?name=ORDERS&kind=stream", press("Delete stream…")),
    "delete-consumer": ("/queue?name=ORDERS&kind=stream", press("Delete billing…")),
    "delete-message": ("/queue?name=jobs", press("Delete…")),
    "replay": ("/dead-letters", press("Replay 3…")),
    "purge-letters": ("/dead-letters", press("Purge 3…")),
    "resolve": ("/dead-letters", press("Mark resolved…")),
}


@pytest.fixture(scope="module")
def busy(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker with messages and dead letters, which nobody changes, and a declared stream."""
    found = managed(serve_for_session, tmp_path_factory.mktemp("busy"), inside=DECLARED)
    with found.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead"})
        bury(mail, "jobs", b"0", b"1", b"2")
        for priority in ("critical", "urgent", "normal", "notify"):
            mail.deliver("jobs", b"work", priority=priority)
    with found.client() as client:
        until(lambda: client.get("/v1/dead-letters").json()["total"] == 3, "they are known", 30)
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_dialogs_fit_and_axe_finds_nothing(
    busy: Managed, open_page: Open, width: int, theme: str
) -> None:
    watched = open_page(busy, width, theme)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, (path, begin) in DIALOGS.items():
        page = watched.go(path)
        expect(page.locator("main [aria-busy]")).to_have_count(0)
        begin(page)
        dialog = page.locator("dialog[open]")
        expect(dialog).to_have_count(1)
        box = dialog.bounding_box()
        assert box is not None
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= width, name
        assert box["y"] + box["height"] <= 900, name
        page.screenshot(path=PICTURES / f"dialog-{name}-{theme}-{width}.png")
        results = Axe().run(page)
        assert results.violations_count == 0, f"{name}\n{results.generate_report()}"
