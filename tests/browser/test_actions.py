"""What is done on the page besides reading it: agents, dead letters, sorting, theme, dialogs."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.browser.conftest import Open
from tests.manage.conftest import Manage, Managed
from tests.manage.test_api import bury
from tests.manage.test_stream_letters import QUEUE, give_up, within
from tests.peers import until


@pytest.fixture
def work(manage: Manage) -> Managed:
    """A broker with two agents, dead letters, and groups that lag."""
    managed = manage()
    with managed.mail() as mail:
        for number, text in enumerate(("reads scanned invoices", "translates German manuals")):
            mail.done("MAILBOX.CREATE", {"name": f"agent.{number}"})
            card = {"name": f"Agent {number}", "description": text, "mailbox": f"agent.{number}"}
            mail.done("AGENT.REGISTER", card)
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead"})
        bury(mail, "jobs", *(b"%d" % number for number in range(3)))
        for number in range(5):
            mail.deliver("jobs", b"work %d" % number)
        mail.fetch("jobs", "zebra", num_msgs=1)
    with managed.client() as client:
        until(lambda: client.get("/v1/dead-letters").json()["total"] == 3, "they are known", 30)
        until(lambda: client.get("/v1/agents").json()["total"] == 2, "agents are known", 30)
    return managed


def in_dialog(page: Page) -> Page:
    expect(page.locator("dialog[open]")).to_have_count(1)
    return page


def test_agents_are_found_seen_and_written_to(work: Managed, open_page: Open) -> None:
    page = open_page(work).go("/agents")
    expect(page.locator(".pick .presence")).to_have_count(2)
    expect(page.locator(".pick .presence").first).to_have_text(re.compile("alive, seen .+ ago"))
    expect(page.locator(".pick .score").first).to_have_text("")
    page.get_by_role("textbox").last.fill("invoices")
    page.get_by_role("button", name="Words").click()
    page.get_by_role("button", name="Find", exact=True).click()
    page.wait_for_url("**/agents?*by=words*")
    expect(page.locator(".pick li")).to_have_count(1)
    expect(page.locator(".pick .score")).to_have_text(re.compile(r"^\d+\.\d\d$"))
    page.get_by_role("button", name="Meaning").click()
    expect(page.locator(".pick li").first).to_contain_text("Agent 0")
    page.get_by_role("button", name="Send…").click()
    in_dialog(page).get_by_role("textbox", name="Payload").fill("please")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("dialog")).to_have_count(0)
    with work.mail() as mail:
        assert [each["payload"] for each in mail.fetch("agent.0")] == ["please"]


@pytest.mark.parametrize("width", [390, 1440])
def test_dead_letters_are_purged_by_name(work: Managed, open_page: Open, width: int) -> None:
    watched = open_page(work, width)
    # One that is shown may be gone when it is read.
    watched.expected = ("404",)
    page = watched.go("/dead-letters")
    page.locator(".pick button").first.click()
    expect(page.locator(".pick [aria-current=true]")).to_have_count(1)
    page.get_by_role("button", name="Purge 3…").click()
    purge = in_dialog(page).get_by_role("button", name="Purge 3 dead letters")
    expect(purge).to_be_disabled()
    assert Axe().run(page).violations_count == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("dialog input").fill("jobs")
    purge.click()
    expect(page.locator("main")).to_contain_text("No dead letters")
    expect(page.locator("main")).to_contain_text("Purged 3 of 3")
    with work.mail() as mail:
        assert mail.fetch("jobs", "workers", num_msgs=10)[0]["payload"] == "work 0"
        assert mail.done("MSG.QUERY.jobs.dead", {"since": 0})["messages"] == []


def test_consumers_are_sorted_as_the_address_says(work: Managed, open_page: Open) -> None:
    page = open_page(work).go("/consumers?sort=-name")
    rows = page.locator("main tbody tr")
    expect(rows.first).to_contain_text("zebra")
    page.get_by_role("button", name=re.compile("^Group")).click()
    page.wait_for_url("**/consumers?sort=name")
    expect(rows.first).to_contain_text("workers")
    expect(page.locator("th[aria-sort]")).to_have_text(re.compile("^Group"))


def test_the_theme_is_changed_and_kept(work: Managed, open_page: Open) -> None:
    page = open_page(work).go("/")
    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_stream_is_purged_and_its_dead_letter_goes_back(manage: Manage, open_page: Open) -> None:
    found = manage("jetstream {}", inside=QUEUE)
    with ThreadPoolExecutor(1) as pool:
        # The loop of this thread is the browser's.
        work = partial(give_up, subject="mq.inference.chat", payloads=[b"stuck"])
        pool.submit(within, found, work).result()
    opened = open_page(found)
    page = opened.go("/dead-letters")
    expect(page.locator("main")).to_contain_text("no such model")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("h1")).to_have_text("Dead letters")
    with found.client() as client:
        row = partial(client.get, "/v1/queues/HANZO_MQ", params={"kind": "stream"})
        until(lambda: row().json()["depth"] == 1, "it is known to be back", 30)
    opened.go("/queue?name=HANZO_MQ&kind=stream")
    expect(page.locator(".payload").first).to_contain_text("stuck")
    page.get_by_role("button", name="Purge messages…").click()
    in_dialog(page).get_by_role("textbox").last.fill("HANZO_MQ")
    page.get_by_role("button", name="Purge 1 message").click()
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("No messages here")
