"""The page in a real Chromium: every view and action, and what it never does."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.browser.conftest import PICTURES, Open
from tests.browser.demo import LONG
from tests.manage.conftest import Manage, Managed, wait_healthy
from tests.peers import start, until

VIEWS = {
    "overview": "/",
    "queues": "/queues",
    "queue": "/queue?name=translate.jobs",
    "payloads": "/queue?name=agent.invoices",
    "long": f"/queue?name={LONG}",
    "stream": "/queue?name=ORDERS&kind=stream",
    "consumers": "/consumers",
    "dead-letters": "/dead-letters",
    "agents": "/agents",
    "schedules": "/schedules",
    "connections": "/connections",
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1440])
def test_every_view_fits_and_is_clean(
    filled: Managed, open_page: Open, width: int, theme: str
) -> None:
    watched = open_page(filled, width, theme)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, path in VIEWS.items():
        page = watched.go(path)
        assert page.title() != "owned"
        expect(page.locator("main [aria-busy]")).to_have_count(0)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{name} scrolls sideways: {wide}"
        page.screenshot(path=PICTURES / f"{name}-{theme}-{width}.png")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1440])
def test_axe_finds_nothing(filled: Managed, open_page: Open, width: int, theme: str) -> None:
    watched = open_page(filled, width, theme)
    for path in VIEWS.values():
        watched.go(path)
        results = Axe().run(watched.page)
        assert results.violations_count == 0, f"{path}\n{results.generate_report()}"


def test_names_and_payloads_are_text(filled: Managed, open_page: Open) -> None:
    watched = open_page(filled)
    page = watched.go("/queue?name=agent.invoices")
    expect(page.locator("main")).to_contain_text("<script>")
    expect(page.locator("main")).to_contain_text("⟨U+202E⟩")
    assert page.locator("main script, main img").count() == 0
    page.get_by_role("link", name="0", exact=True).click()
    expect(page.locator(".payload pre")).to_contain_text("ff fe 00 01")
    page = watched.go("/agents")
    expect(page.locator("main")).to_contain_text("<script>")
    page = watched.go("/dead-letters")
    expect(page.locator(".payload pre")).to_contain_text("onerror")


def dialog(page: Page) -> Page:
    expect(page.locator("dialog[open]")).to_have_count(1)
    return page


def test_send_purge_and_delete(filled: Managed, open_page: Open) -> None:
    with filled.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "to.be.changed"})
    watched = open_page(filled)
    with filled.client() as client:
        until(lambda: client.get("/v1/queues/to.be.changed").status_code == 200, "it is known")
    page = watched.go("/queue?name=to.be.changed")
    for number in range(2):
        page.get_by_role("button", name="Send…").click()
        dialog(page).get_by_role("textbox", name="Payload").fill(f'{{"hello": {number}}}')
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator("dialog")).to_have_count(0)
    expect(page.get_by_role("row").filter(has_text="hello")).to_have_count(2)
    # Waiting counts follow the broker within a second or two.
    expect(page.locator(".numbers .value").first).to_have_text("2")
    page.get_by_role("button", name="Purge messages…").click()
    purge = dialog(page).get_by_role("button", name="Purge 2 messages")
    expect(page.get_by_role("button", name="Keep them")).to_be_focused()
    expect(purge).to_be_disabled()
    page.locator("dialog input").fill("to.be.changes")
    expect(purge).to_be_disabled()
    page.locator("dialog input").fill("to.be.changed")
    # One more came meanwhile: the broker is asked what is there, and the purge refused.
    with filled.mail() as mail:
        mail.deliver("to.be.changed", b"late")
    watched.expected = ("409", "404")
    purge.click()
    expect(page.locator("dialog .wrong")).to_contain_text("has 3 messages by now")
    page.get_by_role("button", name="Keep them").click()
    expect(page.get_by_role("button", name="Purge messages…")).to_be_focused()
    expect(page.locator(".numbers .value").first).to_have_text("3")
    page.get_by_role("button", name="Purge messages…").click()
    page.locator("dialog input").fill("to.be.changed")
    page.get_by_role("button", name="Purge 3 messages").click()
    expect(page.locator("main")).to_contain_text("No messages here")
    expect(page.locator(".numbers .value").first).to_have_text("0")
    page.get_by_role("button", name="Delete queue…").click()
    page.locator("dialog input").fill("to.be.changed")
    page.get_by_role("button", name="Delete it and 0 messages").click()
    page.wait_for_url("**/queues")
    with filled.client() as client:
        lines = client.get("/v1/audit").json()["lines"]
    mine = [each["action"] for each in reversed(lines) if each["target"] == "to.be.changed"]
    assert mine == ["send", "send", "purge", "purge", "remove"]


def test_dead_letters_go_back(manage: Manage, open_page: Open) -> None:
    managed = manage()
    with managed.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead"})
        for number in range(8):
            mail.deliver("jobs", b"job %d" % number)
        for entry in mail.fetch("jobs", "g"):
            mail.ack("jobs", "g", entry["msg_id"], kind="term")
        watched = open_page(managed)
        page = watched.go("/dead-letters")
        expect(page.get_by_role("heading", name="8 dead letters")).to_be_visible()
        page.get_by_role("button", name="Replay", exact=True).click()
        expect(page.get_by_role("heading", name="7 dead letters")).to_be_visible()
        page.get_by_role("button", name="Mark resolved…").click()
        page.get_by_role("button", name="Mark 1 as resolved").click()
        expect(page.get_by_role("heading", name="6 dead letters")).to_be_visible()
        page.get_by_role("button", name="Replay 6…").click()
        page.get_by_role("button", name="Replay", exact=True).last.click()
        expect(page.get_by_role("heading", name="1 dead letter")).to_be_visible()
        expect(page.locator("main")).to_contain_text("Replayed 5 of 5")
        page.get_by_role("button", name="Resolved", exact=True).click()
        expect(page.locator("main tbody tr")).to_have_count(7)
        assert len(mail.fetch("jobs", "g")) == 6


def test_numbers_move_by_themselves_and_can_be_paused(filled: Managed, open_page: Open) -> None:
    page = open_page(filled).go("/queue?name=agent.idle")
    first = page.locator(".numbers .value").first
    expect(first).to_have_text("0")
    with filled.mail() as mail:
        mail.deliver("agent.idle", b"x")
        expect(first).to_have_text("1")
        page.keyboard.press("p")
        expect(page.locator(".live")).to_have_text("Paused")
        mail.deliver("agent.idle", b"y")
        page.wait_for_timeout(4000)
        expect(first).to_have_text("1")
        page.keyboard.press("p")
        expect(first).to_have_text("2")


def test_streams_are_shown_with_their_messages(filled: Managed, open_page: Open) -> None:
    page = open_page(filled).go("/queues")
    page.get_by_role("button", name="Streams").click()
    page.wait_for_url("**/queues?kind=stream")
    expect(page.locator("main tbody tr")).to_have_count(1)
    page.get_by_role("link", name="ORDERS").click()
    expect(page.get_by_role("heading", name="ORDERS")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="billing")).to_have_count(1)
    rows = page.get_by_role("table", name="Messages").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("orders.")
    expect(page.locator(".payload").first).to_contain_text("order ")
    page.get_by_role("button", name="From the oldest").click()
    expect(rows.nth(1)).to_contain_text("orders.0")
    expect(page.get_by_role("button", name="Delayed")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("Stores orders.>")
    for word in ("Send…", "Purge messages…", "Delete stream…", "Delete billing…"):
        assert page.get_by_role("button", name=word).count() == 1
    assert page.get_by_role("button", name="Delete queue…").count() == 0
    page = open_page(filled).go("/consumers")
    expect(page.get_by_role("row").filter(has_text="billing")).to_contain_text("stream")


def test_keys_and_addresses(filled: Managed, open_page: Open) -> None:
    page = open_page(filled).go("/")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queues")
    expect(page.locator("main tbody tr").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("translate")
    page.keyboard.press("Enter")
    page.wait_for_url("**/queues?search=translate")
    expect(page.locator("main tbody tr")).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/queue?name=translate*")
    page.go_back()
    page.wait_for_url("**/queues?search=translate")
    expect(page.locator("#filter")).to_have_value("translate")


def sign_in(page: Page, user: str, password: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_signing_in_and_who_may_only_look(locked: Managed, open_page: Open) -> None:
    watched = open_page(locked)
    watched.expected = ("401",)
    page = watched.go("/queue?name=desk")
    sign_in(page, "eyes", "wrong")
    expect(page.locator("main .wrong")).to_contain_text("does not know this user")
    sign_in(page, "eyes", "eyes-pw")
    expect(page.locator(".side")).to_contain_text("may look")
    expect(page.get_by_role("heading", name="desk")).to_be_visible()
    for word in ("Send…", "Purge messages…", "Delete queue…", "Delete…"):
        assert page.get_by_role("button", name=word).count() == 0
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, "boss", "boss-pw")
    expect(page.get_by_role("button", name="Purge messages…")).to_be_enabled()


def test_a_broker_that_goes_and_comes_back(manage: Manage, open_page: Open) -> None:
    managed = manage()
    with managed.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "kept"})
    watched = open_page(managed)
    watched.expected = ("Failed to load", "503", "ERR_CONNECTION_REFUSED")
    page = watched.go("/queues")
    expect(page.locator("main")).to_contain_text("kept")
    managed.server.stop()
    expect(page.locator(".banner")).to_contain_text("does not answer")
    expect(page.locator("main")).to_contain_text("kept")
    expect(page.get_by_role("button", name="Send…")).to_be_disabled()
    folder = managed.server.log_file.parent
    assert managed.server.config_file is not None
    config = managed.server.config_file.read_text()
    again = start(folder, config, port=managed.server.port)
    try:
        wait_healthy(managed)
        expect(page.locator(".banner")).to_have_count(0)
        expect(page.get_by_role("button", name="Send…")).to_be_enabled()
    finally:
        again.stop()
