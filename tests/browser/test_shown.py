"""What views show of real things, and of names that try to do harm."""

import asyncio
import json
import time

import nats
import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import PICTURES, Open
from tests.manage.conftest import Managed, managed
from tests.peers import Serve, until

EMOJI = "👩\u200d🚀"
PATH = "../..%2F%2e%2e/etc"
SCRIPT = "<script>document.title='owned'</script>"
TURNED = "a\u202eb\u200dc\U000e0041"
DRAWN = "a⟨U+202E⟩b⟨U+200D⟩c⟨U+E0041⟩"
HOSTILE = f"{EMOJI}{PATH}{SCRIPT}{TURNED}"
SEEN = f"{EMOJI}{PATH}{SCRIPT}{DRAWN}"
STREAM = f"%2F{EMOJI}%2e"
SCHEDULES = """schedules: [
  { name: "report", mailbox: "desk", cron: "0 2 * * *", data: { type: "daily" } }
  { name: "standup", mailbox: "desk", cron: "30 9 * * 1-5", timezone: "Europe/Berlin" }
  { name: "reconcile", subject: "mq.scheduled.reconcile", cron: "0 */6 * * *", payload: "go" }
]"""


async def fill_stream(url: str) -> None:
    client = await nats.connect(url)
    streams = client.jetstream()
    await streams.add_stream(name=STREAM, subjects=["orders.>"])
    await streams.add_consumer(STREAM, durable_name=f"{EMOJI}%2F")
    await client.close()


@pytest.fixture(scope="module")
def hostile(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker whose every free text tries to do harm."""
    folder = tmp_path_factory.mktemp("hostile")
    found = managed(serve_for_session, folder, "jetstream {}", inside=SCHEDULES)
    asyncio.run(fill_stream(found.server.url))
    with found.mail() as mail:
        for name in ("desk", "copied", "sent.to"):
            mail.done("MAILBOX.CREATE", {"name": name})
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead", "desc": HOSTILE})
        headers = [
            ("X-<img/src=x/onerror=document.title='owned'>", SCRIPT),
            ("X-Turned", TURNED),
            ("X-Path", PATH),
            ("mq9-key", HOSTILE),
            ("mq9-tags", f"{EMOJI},{PATH},<b>"),
        ]
        mail.done("MSG.SEND.jobs", HOSTILE.encode(), headers)
        for entry in mail.fetch("jobs", HOSTILE):
            fields = {"kind": "term", "reason": HOSTILE}
            mail.ack("jobs", HOSTILE, entry["msg_id"], **fields)
        mail.done("MSG.SEND.jobs", HOSTILE.encode(), headers)
        card = {"name": HOSTILE, "description": HOSTILE, "mailbox": "desk", HOSTILE: HOSTILE}
        mail.done("AGENT.REGISTER", card)
    with found.client() as client:
        until(lambda: client.get("/v1/dead-letters").json()["total"] == 1, "it is known", 30)
        until(lambda: client.get("/v1/agents").json()["total"] == 1, "it is known", 30)
        until(lambda: client.get("/v1/queues?kind=stream").json()["total"] == 1, "known", 30)
    return found


NAMED = {
    "overview": ("/", ()),
    "queues": ("/queues", (STREAM,)),
    "stream": ("/queue?kind=stream&name=%252F%F0%9F%91%A9%E2%80%8D%F0%9F%9A%80%252e", (STREAM,)),
    "queue": ("/queue?name=jobs", (SEEN, "X-<img/src=x", PATH, DRAWN)),
    "consumers": ("/consumers", (SEEN, STREAM, f"{EMOJI}%2F")),
    "dead-letters": ("/dead-letters", (SEEN, "X-<img/src=x", PATH, DRAWN)),
    "agents": ("/agents", (SEEN,)),
}


@pytest.mark.parametrize(("width", "theme"), [(320, "dark"), (1440, "light")])
def test_what_is_named_to_do_harm_is_text_in_every_view(
    hostile: Managed, open_page: Open, width: int, theme: str
) -> None:
    watched = open_page(hostile, width, theme)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for view, (path, texts) in NAMED.items():
        page = watched.go(path)
        expect(page.locator("main [aria-busy]")).to_have_count(0)
        for text in texts:
            expect(page.locator("main")).to_contain_text(text)
        assert page.locator("main script, main img, main b b").count() == 0, view
        assert page.title() != "owned", view
        assert "\u202e" not in page.locator("body").inner_text(), view
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{view} scrolls sideways: {wide}"
        page.screenshot(path=PICTURES / f"hostile-{view}-{theme}-{width}.png")


def test_a_name_that_looks_like_a_path_leads_to_what_it_names(
    hostile: Managed, open_page: Open
) -> None:
    page = open_page(hostile).go("/queues?kind=stream")
    page.locator("main tbody a").click()
    expect(page.locator("main h1")).to_have_text(STREAM)
    expect(page.get_by_role("row").filter(has_text=f"{EMOJI}%2F")).to_have_count(1)


@pytest.mark.parametrize("width", [390, 1440])
def test_a_connection_is_shown_as_it_is(hostile: Managed, open_page: Open, width: int) -> None:
    watched = open_page(hostile, width)
    with hostile.mail() as mail:
        options = {"name": HOSTILE, "lang": f"<i>{TURNED}", "version": "1.0", "headers": True}
        mail.send(f"CONNECT {json.dumps({'verbose': False} | options)}\r\n".encode())
        mail.send(b"SUB a.b 7\r\nSUB a.c 8\r\n")
        mail.publish("elsewhere", b"x")
        mail.ping()
        page = watched.go("/connections")
        row = page.locator("main tbody tr").filter(has_text=SCRIPT)
        expect(row).to_have_count(1)
        expect(row).to_contain_text(SEEN)
        expect(row).to_contain_text("<i>a⟨U+202E⟩b")
        port = mail.socket.getsockname()[1]
        expect(row).to_contain_text(f"127.0.0.1:{port}")
        cells = row.locator("td")
        # Subscriptions: these two, since CONNECT begins anew.
        expect(cells.nth(6)).to_have_text("2")
        expect(cells.nth(7)).to_have_text("1")
        mail.publish("elsewhere", b"x")
        mail.ping()
        expect(cells.nth(7)).to_have_text("2")
        if width == 1440:
            first = page.locator("main tbody tr td:first-child")
            expect(page.locator("th[aria-sort=ascending]")).to_have_text("No. ↑")
            numbers = [int(text) for text in first.all_inner_texts()]
            assert numbers == sorted(numbers)
            page.get_by_role("button", name="Subscriptions").click()
            page.wait_for_url("**/connections?sort=subs*")
            expect(page.locator("main tbody tr").first).to_contain_text(SCRIPT)
            expect(page.locator("th[aria-sort=descending]")).to_have_text("Subscriptions ↓")
        page.screenshot(path=PICTURES / f"hostile-connections-light-{width}.png")
    expect(row).to_have_count(0)


@pytest.mark.parametrize("width", [390, 1440])
def test_a_schedule_is_shown_as_it_is(hostile: Managed, open_page: Open, width: int) -> None:
    page = open_page(hostile, width).go("/schedules")
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(3)
    with hostile.client() as client:
        due = {
            each["name"]: each["due"] for each in client.get("/v1/schedules").json()["schedules"]
        }
    for name, times, target in (
        ("report", "0 2 * * * UTC", "desk"),
        ("standup", "30 9 * * 1-5 Europe/Berlin", "desk"),
        ("reconcile", "0 */6 * * * UTC", "mq.scheduled.reconcile"),
    ):
        row = rows.filter(has_text=name).first if name != "reconcile" else rows.nth(2)
        expect(row).to_contain_text(name)
        expect(row).to_contain_text(times)
        expect(row).to_contain_text(target)
        expect(row).to_contain_text("in time")
        # It has not been fired yet.
        expect(row.locator("td").nth(4)).to_have_text("\u2013")
        hours = int((due[name] - time.time()) // 3600)
        days, rest = divmod(hours, 24)
        words = f"in {days} d" if days else f"in {rest} h" if rest else "in "
        expect(row.locator("td").nth(3)).to_contain_text(words)


def test_times_are_those_of_the_server(hostile: Managed, open_page: Open) -> None:
    """A clock of the browser that is wrong by a day changes nothing."""
    watched = open_page(hostile)
    watched.page.clock.set_system_time(time.time() + 86_400)
    page = watched.go("/schedules")
    expect(page.locator("main tbody tr")).to_have_count(3)
    expect(page.locator("main tbody")).not_to_contain_text("now")


def clipboard(page: Page) -> str:
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_what_is_copied_is_the_original(hostile: Managed, open_page: Open) -> None:
    payloads = (b'{"a":1,\n "b":"' + TURNED.encode() + b'"}', b"x" * 200_000 + b"end", b"\xff\x00")
    with hostile.mail() as mail:
        for payload in payloads:
            mail.deliver("copied", payload)
    watched = open_page(hostile)
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = watched.go("/queue?name=copied&show=oldest&msg=0")
    told = page.locator("#news")
    page.get_by_role("button", name="Copy the name").click()
    expect(told).to_have_text("Copied")
    box = told.bounding_box()
    assert box is not None
    assert box["height"] > 20, "people see it too"
    assert clipboard(page) == "copied"
    for number, payload in enumerate(payloads[:2]):
        watched.go(f"/queue?name=copied&show=oldest&msg={number}")
        expect(page.locator(".payload .tools b.code")).to_have_text(str(number))
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(told).to_have_text("Copied")
        assert clipboard(page) == payload.decode()
    watched.go("/queue?name=copied&show=oldest&msg=2")
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(told).to_have_text("Copied")
    assert "ff 00" in clipboard(page)
    watched.go("/agents")
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(told).to_have_text("Copied")
    assert json.loads(clipboard(page))["name"] == HOSTILE


def test_copying_that_is_not_allowed_is_told(hostile: Managed, open_page: Open) -> None:
    watched = open_page(hostile)
    page = watched.go("/queue?name=jobs")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.get_by_role("button", name="Copy the name").click()
    expect(page.locator("#news")).to_have_text("The browser does not allow copying here")


def test_a_message_is_sent_from_the_queues(hostile: Managed, open_page: Open) -> None:
    watched = open_page(hostile)
    watched.expected = ("400", "404", "422")
    page = watched.go("/queues")
    page.get_by_role("button", name="Send…").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("To").fill("no.such")
    dialog.get_by_role("textbox", name="Payload").fill(HOSTILE)
    dialog.get_by_label("Priority").select_option("urgent")
    dialog.get_by_label("Key").fill("k1")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.locator(".wrong")).to_contain_text("no.such")
    # What was typed stays.
    expect(dialog.get_by_role("textbox", name="Payload")).to_have_value(HOSTILE)
    dialog.get_by_label("To").fill("sent.to")
    dialog.get_by_role("button", name="Send").click()
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("#news")).to_have_text("Sent as message 0")
    expect(page.get_by_role("button", name="Send…")).to_be_focused()
    row = page.locator("main tbody tr").filter(has_text="sent.to")
    expect(row.locator("td").nth(1)).to_have_text("1")
    with hostile.mail() as mail:
        [found] = mail.fetch("sent.to")
    assert (found["payload"], found["priority"], found["key"]) == (HOSTILE, "urgent", "k1")
    page.get_by_role("button", name="Send…").click()
    dialog.get_by_label("To").fill("sent.to")
    dialog.get_by_label("Delay in seconds").fill("3600")
    dialog.get_by_role("button", name="Send").click()
    expect(page.locator("#news")).to_have_text("Sent, to come later")


def test_on_a_phone_every_view_can_be_reached(hostile: Managed, open_page: Open) -> None:
    page = open_page(hostile, 390).go("/")
    for word, path in (("Schedules", "/schedules"), ("Connections", "/connections")):
        page.get_by_role("link", name=word).click()
        page.wait_for_url(f"**{path}")
        expect(page.locator("main h1")).to_have_text(word)
    for word, path in (
        ("Groups", "/consumers"),
        ("Letters", "/dead-letters"),
        ("Agents", "/agents"),
    ):
        page.locator(".tabs").get_by_role("link", name=word).click()
        page.wait_for_url(f"**{path}")
