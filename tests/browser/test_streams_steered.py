"""Streams on the page: sent to, with delays and refusals, and deleted, as are consumers."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from nats.js import JetStreamContext
from playwright.sync_api import Page, expect
from tests.browser.conftest import PICTURES, Open
from tests.browser.test_actions import in_dialog
from tests.browser.test_page import sign_in
from tests.manage.conftest import Manage, Managed
from tests.manage.test_stream_letters import within
from tests.manage.test_streams import STEERERS
from tests.peers import until

DECLARED = """
streams: [
  { name: ORDERS, subjects: ["orders.>", "refunds"] }
  { name: OTHER, subjects: ["other"] }
]
consumers: [ { name: billing, stream: ORDERS } ]
"""
ADDRESS = "/queue?name=ORDERS&kind=stream"


@pytest.fixture
def declared(manage: Manage) -> Managed:
    found = manage(STEERERS, inside=DECLARED)
    with found.client(auth=("boss", "boss-pw")) as client:
        until(lambda: client.get("/v1/consumers").json()["total"], "the consumer is known", 30)
    return found


def message_of(found: Managed, sequence: int) -> tuple[str | None, bytes | None, Any]:
    async def get(stream: JetStreamContext) -> tuple[str | None, bytes | None, Any]:
        message = await stream.get_msg("ORDERS", sequence)
        return message.subject, message.data, message.headers

    with ThreadPoolExecutor(1) as pool:
        # The loop of this thread is the browser's.
        work = pool.submit(within, found, get, user="boss", password="boss-pw")
        read: tuple[str | None, bytes | None, Any] = work.result()
    return read


def submit(page: Page) -> None:
    page.get_by_role("button", name="Send", exact=True).click()


def opened(found: Managed, open_page: Open, width: int, theme: str, user: str = "boss") -> Page:
    watched = open_page(found, width, theme)
    watched.expected = ("401", "403", "409", "422")
    page = watched.go(ADDRESS)
    sign_in(page, user, f"{user}-pw")
    expect(page.get_by_role("heading", name="ORDERS")).to_be_visible()
    return page


def keep(page: Page, name: str, theme: str, width: int) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=PICTURES / f"{name}-{theme}-{width}.png")


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1440, "light")])
def test_a_stream_is_sent_to(declared: Managed, open_page: Open, width: int, theme: str) -> None:
    page = opened(declared, open_page, width, theme)
    page.get_by_role("button", name="Send…").click()
    field = partial(in_dialog(page).get_by_role, "textbox")
    expect(page.locator("dialog")).to_contain_text("The stream stores orders.>, refunds")
    submit(page)
    expect(page.locator("dialog")).to_have_count(1)
    field(name="Subject").fill("elsewhere")
    field(name="Payload").fill("two cups")
    field(name="Headers").fill("X-Hop: 1\nno header")
    field(name="Nats-Msg-Id").fill("order 7")
    submit(page)
    expect(page.locator("dialog .wrong")).to_contain_text("“no header” is no header")
    field(name="Headers").fill("X-Hop: 1\n")
    submit(page)
    expect(page.locator("dialog .wrong")).to_contain_text(
        "stream ORDERS does not store the subject elsewhere: it stores orders.>, refunds"
    )
    keep(page, "stream-refused", theme, width)
    field(name="Subject").fill("orders.new")
    submit(page)
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("#news")).to_have_text("Sent as message 1")
    expect(page.locator(".payload").first).to_contain_text("two cups")
    found = message_of(declared, 1)
    assert found == ("orders.new", b"two cups", {"X-Hop": "1", "Nats-Msg-Id": "order 7"})
    page.get_by_role("button", name="Send…").click()
    field(name="Subject").fill("orders.new")
    field(name="Nats-Msg-Id").fill("order 7")
    submit(page)
    expect(page.locator("#news")).to_have_text("It was there already, as message 1")
    page.get_by_role("button", name="Send…").click()
    field(name="Subject").fill("refunds")
    page.get_by_role("spinbutton", name="Delay").fill("3600")
    submit(page)
    expect(page.locator("#news")).to_have_text("Sent, to come later")
    delayed = page.locator(".numbers > div").filter(has_text="Delayed")
    expect(delayed.locator(".value")).to_have_text("1")
    keep(page, "stream-sent", theme, width)
    page.get_by_role("button", name="Purge messages…").click()
    expect(page.locator("dialog")).to_contain_text("and so do 1 delayed message.")
    page.keyboard.press("Escape")
    page.goto(page.url.split("/queue?")[0] + "/queues?kind=stream")
    row = page.get_by_role("row").filter(has_text="ORDERS")
    expect(row).to_have_count(1)
    if width > 720:
        heads = page.locator("thead th").all_inner_texts()
        expect(row.locator("td").nth(heads.index("Delayed"))).to_have_text("1")


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1440, "dark")])
def test_a_consumer_and_its_stream_are_deleted_by_name(
    declared: Managed, open_page: Open, width: int, theme: str
) -> None:
    page = opened(declared, open_page, width, theme)
    page.get_by_role("button", name="Delete billing…").click()
    expect(in_dialog(page).locator("dialog")).to_contain_text("declares it: it comes back")
    go = page.get_by_role("button", name="Delete the consumer")
    expect(go).to_be_disabled()
    page.locator("dialog input").fill("ORDERS")
    expect(go).to_be_disabled()
    page.locator("dialog input").fill("billing")
    go.click()
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("No consumer reads here")
    page.get_by_role("button", name="Delete stream…").click()
    expect(page.locator("dialog")).to_contain_text("declares it: it comes back")
    page.locator("dialog input").fill("ORDERS")
    with declared.client(auth=("boss", "boss-pw"), params={"kind": "stream"}) as client:
        given = {"subject": "refunds", "payload": "late"}
        assert client.post("/v1/queues/ORDERS/messages", json=given).json() == {"msg_id": 1}
        page.get_by_role("button", name="Delete it and 0 messages").click()
        expect(page.locator("dialog .wrong")).to_contain_text("there are 1 messages by now, not 0")
        assert client.get("/v1/queues/ORDERS").status_code == 200
        page.get_by_role("button", name="Keep it").click()
        # The message is read from the broker, and the number is known a little later.
        expect(page.locator(".numbers .value").first).to_have_text("1")
        page.get_by_role("button", name="Delete stream…").click()
        page.locator("dialog input").fill("ORDERS")
        page.get_by_role("button", name="Delete it and 1 message", exact=True).click()
        page.wait_for_url("**/queues")
        until(lambda: client.get("/v1/queues/ORDERS").status_code == 404, "it is gone", 30)
        assert client.get("/v1/queues/OTHER").status_code == 200
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(page.locator("main tbody")).to_contain_text("OTHER")


def test_who_looks_sees_no_control_and_who_may_not_is_told(
    declared: Managed, open_page: Open
) -> None:
    page = opened(declared, open_page, 1440, "light", "eyes")
    expect(page.locator("main")).to_contain_text("Stores orders.>, refunds")
    expect(page.get_by_role("button", name=re.compile("Send|Delete|Purge"))).to_have_count(0)
    page = opened(declared, open_page, 1440, "light", "half")
    page.get_by_role("button", name="Delete stream…").click()
    page.locator("dialog input").fill("ORDERS")
    page.get_by_role("button", name="Delete it and 0 messages").click()
    expect(page.locator("dialog .wrong")).to_contain_text("permission denied")
