"""The page when something is not as it should be: a dead broker, lost connections, two clicks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
from playwright.sync_api import Page, Request, Route, expect
from tests.browser.conftest import PICTURES, Open
from tests.manage.conftest import Manage, Managed, free_port, wait_healthy
from tests.peers import start, until


def test_a_broker_that_dies_while_the_page_server_lives(tmp_path: Path, open_page: Open) -> None:
    port, listen = free_port(), free_port()
    off = "mq9 { management: off }"
    broker = start(tmp_path / "broker", off, port=port)
    command = [sys.executable, "-m", "mq9", "manage", "--nats-url", broker.url]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{listen}"]) as process:
        try:
            managed = Managed(broker, f"http://127.0.0.1:{listen}", tmp_path)
            wait_healthy(managed)
            with managed.mail() as mail:
                mail.done("MAILBOX.CREATE", {"name": "kept"})
                mail.deliver("kept", b"still here")
            with managed.client() as client:
                until(lambda: client.get("/v1/queues/kept").status_code == 200, "it is known", 30)
            watched = open_page(managed)
            watched.expected = ("503",)
            page = watched.go("/queue?name=kept")
            expect(page.locator("main")).to_contain_text("still here")
            expect(page.locator(".live")).to_have_text("Live")
            os.kill(broker.pid, signal.SIGKILL)
            broker.process.wait()
            expect(page.locator(".banner")).to_contain_text("The broker has not answered since")
            expect(page.locator(".live")).to_have_text("Not connected")
            expect(page.locator("main")).to_contain_text("still here")
            for word in ("Send…", "Purge messages…", "Delete queue…"):
                expect(page.get_by_role("button", name=word)).to_be_disabled()
            PICTURES.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=PICTURES / "gone-queue-light-1440.png")
            page.get_by_role("link", name="Overview").first.click()
            expect(page.locator(".banner")).to_contain_text("The broker has not answered since")
            expect(page.locator("main h1")).to_be_visible()
            page.screenshot(path=PICTURES / "gone-overview-light-1440.png")
            page.go_back()
            broker = start(tmp_path / "broker", off, port=port)
            expect(page.locator(".banner")).to_have_count(0, timeout=60_000)
            expect(page.locator(".live")).to_have_text("Live")
            expect(page.locator("main")).to_contain_text("still here")
            expect(page.get_by_role("button", name="Send…")).to_be_enabled()
        finally:
            process.terminate()
            process.wait(10)
            broker.stop()


def test_a_broker_that_hangs_is_told_as_gone(tmp_path: Path, open_page: Open) -> None:
    """It takes connections and says nothing: several pages are open, and none waits for another."""
    listen = free_port()
    broker = start(tmp_path / "broker", "mq9 { management: off }")
    command = [sys.executable, "-m", "mq9", "manage", "--nats-url", broker.url]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{listen}"]) as process:
        try:
            managed = Managed(broker, f"http://127.0.0.1:{listen}", tmp_path)
            wait_healthy(managed)
            with managed.mail() as mail:
                mail.done("MAILBOX.CREATE", {"name": "kept"})
                mail.deliver("kept", b"still here")
            with managed.client() as client:
                until(lambda: client.get("/v1/queues/kept").status_code == 200, "it is known", 30)
            pages = []
            for path in ("/queue?name=kept", "/queue?name=kept", "/consumers", "/", "/queues"):
                watched = open_page(managed)
                # And nothing else: that it took too long says nothing.
                watched.expected = ("503",)
                pages.append(watched.go(path))
                expect(pages[-1].locator(".live")).to_have_text("Live")
            broker.signal(signal.SIGSTOP)
            end = time.monotonic() + 12
            while time.monotonic() < end:
                # Rights are asked for again after ten seconds.
                for page in pages:
                    page.wait_for_timeout(200)
                    expect(page.locator(".banner")).to_contain_text("The broker has not answered")
                    expect(page.locator(".live")).to_have_text("Not connected")
            expect(pages[0].locator("main")).to_contain_text("still here")
            broker.signal(signal.SIGCONT)
            for page in pages:
                expect(page.locator(".banner")).to_have_count(0, timeout=60_000)
                expect(page.locator(".live")).to_have_text("Live")
                page.close()
        finally:
            process.terminate()
            process.wait(10)
            broker.signal(signal.SIGCONT)
            broker.stop()


def filled(managed: Managed, letters: int = 0) -> None:
    with managed.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead"})
        for number in range(3 + letters):
            mail.deliver("jobs", b"job %d" % number)
        for entry in mail.fetch("jobs", "g", num_msgs=letters) if letters else ():
            mail.ack("jobs", "g", entry["msg_id"], kind="term")
    with managed.client() as client:
        until(lambda: client.get("/v1/queues/jobs").status_code == 200, "it is known")
        until(lambda: client.get("/v1/dead-letters").json()["total"] == letters, "they are known")


def actions(managed: Managed) -> list[str]:
    """What the audit log has, oldest first."""
    lines = httpx.get(f"{managed.url}/v1/audit", timeout=10).json()["lines"]
    return [f"{line['action']}: {line['result']}" for line in reversed(lines)]


def open_purge(page: Page, name: str) -> None:
    page.get_by_role("button", name="Purge messages…").click()
    page.locator("dialog input").fill(name)


def test_two_clicks_are_one_wish(manage: Manage, open_page: Open) -> None:
    managed = manage()
    filled(managed, letters=2)
    page = open_page(managed).go("/dead-letters")
    page.get_by_role("button", name="Replay", exact=True).dblclick()
    expect(page.get_by_role("heading", name="1 dead letter")).to_be_visible()
    page.goto(f"{managed.url}/queue?name=jobs")
    expect(page.locator(".numbers .value").first).to_have_text("6")
    open_purge(page, "jobs")
    page.get_by_role("button", name="Purge 6 messages").dblclick()
    expect(page.locator("main")).to_contain_text("No messages here")
    assert actions(managed) == ["replay: done", "purge: done"]


def test_a_purge_whose_answer_is_lost_is_told_and_can_be_tried_again(
    manage: Manage, open_page: Open
) -> None:
    managed = manage()
    filled(managed)
    watched = open_page(managed)
    watched.expected = ("Failed to load",)
    page = watched.go("/queue?name=jobs")
    open_purge(page, "jobs")

    def lose(route: Route, request: Request) -> None:
        route.abort() if request.method == "POST" else route.continue_()

    page.route("**/purge?*", lose)
    page.get_by_role("button", name="Purge 3 messages").click()
    expect(page.locator("dialog .wrong")).to_contain_text("does not answer")
    page.unroute("**/purge?*")
    page.get_by_role("button", name="Purge 3 messages").click()
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("No messages here")
    assert actions(managed) == ["purge: done"]


def test_one_message_is_deleted_and_no_other(manage: Manage, open_page: Open) -> None:
    managed = manage()
    filled(managed)
    page = open_page(managed).go("/queue?name=jobs&msg=1")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete 1 message").click()
    expect(page.locator("dialog")).to_have_count(0)
    rows = page.get_by_role("row").filter(has_text="job ")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="job 1")).to_have_count(0)
    assert actions(managed) == ["delete message: done"]


def test_letters_that_no_list_has_are_told(manage: Manage, open_page: Open) -> None:
    """Of more than 100,000 the older ones: the page must not show a part as if it were all."""
    managed = manage()
    filled(managed, letters=2)
    page = open_page(managed).page

    def add(route: Route) -> None:
        told = route.fetch()
        found = told.json()
        assert (found["total"], found["unlisted"]) == (2, 0)
        route.fulfill(response=told, json=found | {"total": 100_009, "unlisted": 100_007})

    page.route("**/v1/dead-letters/reasons", add)
    page.goto(f"{managed.url}/dead-letters")
    expect(page.get_by_role("heading", name="100,009 dead letters")).to_be_visible()
    expect(page.locator("main")).to_contain_text("100,007 more, older than these, are not listed")
    page.unroute_all(behavior="ignoreErrors")


def test_a_view_that_takes_long_shows_that_it_loads(manage: Manage, open_page: Open) -> None:
    managed = manage()
    filled(managed)
    page = open_page(managed).page
    waiting: list[Route] = []
    page.route("**/v1/queues?*", lambda route, _request: waiting.append(route))
    page.goto(f"{managed.url}/queues")
    expect(page.locator("main [aria-busy]")).to_be_visible()
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / "loading-queues-light-1440.png")
    [held] = waiting
    held.continue_()
    expect(page.locator("main [aria-busy]")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("jobs")
    page.unroute_all(behavior="ignoreErrors")


def test_times_are_in_one_zone_everywhere_and_that_is_remembered(
    manage: Manage, open_page: Open
) -> None:
    managed = manage()
    filled(managed)
    page = open_page(managed, timezone="Asia/Kathmandu").go("/queue?name=jobs")

    def times() -> list[str]:
        found: list[str] = page.locator("main time").evaluate_all(
            "all => all.map(each => each.title)"
        )
        return found

    assert times()
    assert all(each.endswith(" UTC") for each in times())
    page.get_by_role("button", name="Local").click()
    until(lambda: times() and not any("UTC" in each for each in times()), "all are local")
    utc = page.locator("main time").first.get_attribute("datetime")
    local = times()[0]
    hours = page.evaluate("([a, b]) => (Date.parse(`${b}Z`) - Date.parse(a)) / 36e5", [utc, local])
    # Local times have no fractions of a second.
    assert round(hours, 2) == 5.75
    page.reload()
    expect(page.get_by_role("button", name="Local")).to_have_attribute("aria-pressed", "true")


def test_all_can_be_done_with_the_keyboard_alone(manage: Manage, open_page: Open) -> None:
    managed = manage()
    filled(managed)
    page = open_page(managed).go("/")
    page.keyboard.press("Tab")
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("next and previous row")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.locator("main tbody tr")).to_have_count(1)
    page.keyboard.press("/")
    page.keyboard.type("jobs")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("#filter")).to_have_value("jobs")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/queue?name=jobs*")
    purge = page.get_by_role("button", name="Purge messages…")
    expect(purge).to_be_enabled()
    purge.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Keep them")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("jobs")
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("No messages here")
    expect(purge).to_be_focused()
    page.keyboard.press("Escape")
    page.wait_for_url("**/queues")
    assert actions(managed) == ["purge: done"]
