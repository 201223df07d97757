"""The page with very much in it: 10,000 rows, payloads of 12 MiB, names that never end."""

import json
import resource
import socket
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import PICTURES, Open
from tests.browser.demo import SCRIPT, TURNED
from tests.mail import Mail
from tests.manage.conftest import Managed, managed
from tests.peers import Serve, until

ROWS = 10_000
# Two for payloads and names; two with dead letters, and where those lie.
QUEUES = ROWS + 2 + 4
ENDLESS = "endless" + ".and.on" * 17
LARGE = 12 << 20
DEEP = "[" * 100_000 + "]" * 100_000


def fill_rows(mail: Mail) -> None:
    """So many mailboxes, every third with a message and a group that was not given it."""
    for first in range(0, ROWS, 500):
        numbers = range(first, first + 500)
        made = [mail.begin("MAILBOX.CREATE", {"name": f"task.{number:05}"}) for number in numbers]
        done(mail, made)
        asked = []
        for number in numbers[-first % 3 :: 3]:
            fetch = {"group_name": f"worker.{number % 7}", "config": {"max_wait_ms": 0}}
            asked.append(mail.begin(f"MSG.FETCH.task.{number:05}", fetch))
            asked.append(mail.begin(f"MSG.SEND.task.{number:05}", b"%d" % number))
        done(mail, asked)


def bury_rows(mail: Mail) -> None:
    """So many dead letters, of two mailboxes."""
    for name in ("graves.deep", "graves.flat"):
        mail.done("MAILBOX.CREATE", {"name": name, "dead_letter": f"{name}.dead"})
        for first in range(0, ROWS // 2, 500):
            numbers = range(first, first + 500)
            done(mail, [mail.begin(f"MSG.SEND.{name}", b"%d" % number) for number in numbers])
            given = mail.fetch(name, "diggers", num_msgs=500)
            term = {"group_name": "diggers", "mail_address": name, "kind": "term"}
            acks = [term | {"msg_id": each["msg_id"]} for each in given]
            done(mail, [mail.begin(f"MSG.ACK.{name}", ack) for ack in acks])


def register_rows(mail: Mail) -> None:
    """So many agents, whose mailboxes are there."""
    for first in range(0, ROWS, 500):
        cards = [
            {
                "name": f"Agent {number:05}",
                "description": "Carries a stone",
                "mailbox": f"task.{number:05}",
            }
            for number in range(first, first + 500)
        ]
        done(mail, [mail.begin("AGENT.REGISTER", card) for card in cards])


def connect_rows(managed: Managed) -> list[socket.socket]:
    """So many connections, which must be held."""
    sockets = []
    for _ in range(ROWS):
        each = socket.create_connection((managed.server.host, managed.server.port), timeout=20)
        sockets.append(each)
        each.sendall(b'CONNECT {"verbose":false,"name":"bystander"}\r\n')
    return sockets


def done(mail: Mail, asked: list[str]) -> None:
    for reply in asked:
        assert mail.answer(reply)["error"] == ""


@pytest.fixture(scope="module")
def crowded(
    serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Managed]:
    # For the broker as well, which is a child of this process.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    folder = tmp_path_factory.mktemp("crowded")
    found = managed(serve_for_session, folder, "max_payload: 16MB")
    with found.mail() as mail:
        fill_rows(mail)
        mail.done("MAILBOX.CREATE", {"name": ENDLESS, "desc": SCRIPT})
        for group in (SCRIPT, TURNED, "g" * 200, "line\nbreak"):
            request = {"group_name": group, "config": {"max_wait_ms": 0}}
            mail.done(f"MSG.FETCH.{ENDLESS}", request)
        mail.done("MAILBOX.CREATE", {"name": "payloads"})
        mail.deliver("payloads", b"")
        mail.deliver("payloads", b"\xff\xfe broken \xc3")
        mail.deliver("payloads", DEEP.encode())
        mail.deliver("payloads", json.dumps({"note": SCRIPT, "turned": TURNED}).encode())
        mail.deliver("payloads", b"start " + b"x" * (LARGE - 10) + b" end")
        bury_rows(mail)
        register_rows(mail)
    sockets = connect_rows(found)

    def told(path: str) -> int:
        return int(client.get(path).json()["total"])

    with found.client() as client:
        until(lambda: told("/v1/queues") == QUEUES, "all are known", 90)
        until(lambda: told("/v1/dead-letters") == ROWS, "all letters are known", 90)
        until(lambda: told("/v1/agents") == ROWS, "all agents are known", 90)
        until(lambda: told("/v1/connections") >= ROWS, "all connections are known", 90)
    yield found
    for each in sockets:
        each.close()


@pytest.fixture(
    params=[(320, "light"), (390, "dark"), (768, "dark"), (1440, "light")],
    ids=["small-light", "phone-dark", "tablet-dark", "wide-light"],
)
def view(request: pytest.FixtureRequest, crowded: Managed, open_page: Open) -> Iterator[Page]:
    width, theme = request.param
    watched = open_page(crowded, width, theme)
    watched.page.width = width  # type: ignore[attr-defined]
    watched.page.theme = theme  # type: ignore[attr-defined]
    watched.page.go = watched.go  # type: ignore[attr-defined]
    yield watched.page
    assert watched.page.title() != "owned"


def keep(page: Page, name: str) -> None:
    """A picture of a view that must not be wider than its window."""
    width, theme = page.width, page.theme  # type: ignore[attr-defined]
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{name} scrolls sideways: {wide}"
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}-{theme}-{width}.png")


def part(first: int, last: int, total: int) -> str:
    """What a list says of the rows that it shows."""
    return f"{first:,}\u2013{last:,} of {total:,}"


def test_ten_thousand_rows_are_paged_sorted_and_found(view: Page) -> None:
    view.go("/queues?sort=name")  # type: ignore[attr-defined]
    expect(view.locator("main tbody tr")).to_have_count(50)
    expect(view.locator("main .foot")).to_contain_text(part(1, 50, QUEUES))
    keep(view, "many-queues")
    view.get_by_role("button", name="Next").click()
    expect(view.locator("main .foot")).to_contain_text(part(51, 100, QUEUES))
    view.go(f"/queues?sort=name&page={QUEUES // 50 + 1}")  # type: ignore[attr-defined]
    expect(view.locator("main .foot")).to_contain_text(part(QUEUES // 50 * 50 + 1, QUEUES, QUEUES))
    expect(view.get_by_role("button", name="Next")).to_be_disabled()
    view.go("/queues")  # type: ignore[attr-defined]
    view.locator("#filter").fill("k.0999")
    expect(view.locator("main .foot")).to_contain_text(part(1, 10, 10))
    view.go("/consumers")  # type: ignore[attr-defined]
    expect(view.locator("main tbody tr")).to_have_count(50)
    expect(view.locator("main .foot")).to_contain_text("of 3,340")
    keep(view, "many-consumers")
    view.go("/")  # type: ignore[attr-defined]
    expect(view.locator("main")).to_contain_text(f"{QUEUES:,} queues")
    keep(view, "many-overview")


def test_ten_thousand_dead_letters_are_paged(view: Page) -> None:
    view.go("/dead-letters")  # type: ignore[attr-defined]
    expect(view.get_by_role("heading", name=f"{ROWS:,} dead letters")).to_be_visible()
    expect(view.locator("main tbody tr")).to_have_count(50)
    expect(view.get_by_role("button", name=f"Purge {ROWS:,}…")).to_be_enabled()
    keep(view, "many-letters")
    view.go(f"/dead-letters?page={ROWS // 50}")  # type: ignore[attr-defined]
    expect(view.locator("main .foot").first).to_contain_text(part(ROWS - 49, ROWS, ROWS))
    expect(view.get_by_role("button", name="Next")).to_be_disabled()
    view.get_by_role("button", name="graves.flat").click()
    expect(view.locator("main .foot").first).to_contain_text(part(1, 50, ROWS // 2))


def test_ten_thousand_agents_are_paged(view: Page) -> None:
    view.go("/agents")  # type: ignore[attr-defined]
    expect(view.locator("main")).to_contain_text(f"{ROWS:,} registered")
    expect(view.locator("main .pick li")).to_have_count(50)
    keep(view, "many-agents")
    view.go(f"/agents?page={ROWS // 50}")  # type: ignore[attr-defined]
    expect(view.locator("main .foot").first).to_contain_text(part(ROWS - 49, ROWS, ROWS))
    expect(view.locator("main .pick")).to_contain_text("Agent 09999")


def test_ten_thousand_connections_are_paged(view: Page) -> None:
    view.go("/connections?sort=cid")  # type: ignore[attr-defined]
    expect(view.locator("main tbody tr")).to_have_count(50)
    expect(view.locator("main .foot")).to_contain_text("1\u201350 of 10,0")
    keep(view, "many-connections")
    view.get_by_role("button", name="Next").click()
    expect(view.locator("main .foot")).to_contain_text("51\u2013100 of 10,0")
    expect(view.locator("main tbody")).to_contain_text("bystander")


def test_names_that_never_end_or_do_harm_are_text(view: Page) -> None:
    view.go(f"/queue?name={ENDLESS}")  # type: ignore[attr-defined]
    expect(view.locator("main")).to_contain_text("<script>")
    expect(view.locator("main")).to_contain_text("⟨U+202E⟩")
    expect(view.locator("main")).to_contain_text("line↵break")
    assert view.locator("main script, main img").count() == 0
    keep(view, "many-endless")
    view.go("/consumers?search=script")  # type: ignore[attr-defined]
    expect(view.locator("main tbody tr")).to_have_count(1)
    keep(view, "many-hostile")


def shown(page: Page, msg_id: int) -> Page:
    page.go(f"/queue?name=payloads&show=oldest&msg={msg_id}")  # type: ignore[attr-defined]
    expect(page.locator(".payload .tools b.code")).to_have_text(str(msg_id))
    return page


def test_payloads_of_all_kinds_can_be_looked_at(view: Page) -> None:
    expect(shown(view, 0).locator("main")).to_contain_text("The payload is empty.")
    expect(shown(view, 1).locator(".payload pre")).to_contain_text("ff fe 20 62")
    expect(shown(view, 2).locator(".payload pre")).to_contain_text("[[[[[[[[")
    expect(shown(view, 2).locator(".payload .foot").last).to_contain_text("The first 64 KiB of")
    view.get_by_role("button", name="Show all").click()
    expect(view.locator(".payload pre")).to_contain_text("]]]]]]]]")
    expect(shown(view, 3).locator(".payload pre")).to_contain_text("⟨U+202E⟩")
    keep(view, "many-payload")


def test_twelve_mebibytes_are_shown_in_part_and_had_as_a_file(view: Page) -> None:
    view.go("/queue?name=payloads")  # type: ignore[attr-defined]
    expect(view.locator(".payload .tools b.code")).to_have_text("4")
    expect(view.locator(".payload .note").first).to_contain_text("12 MiB")
    foot = view.locator(".payload .foot").last
    expect(foot).to_contain_text("The first 64 KiB of 12 MiB. Download it to see the rest.")
    assert view.get_by_role("button", name="Show all").count() == 0
    assert len(view.locator(".payload pre").inner_text()) < 70_000
    keep(view, "many-large")
    with view.expect_download() as coming:
        view.get_by_role("button", name="Download").click()
    data = coming.value.path().read_bytes()
    assert (len(data), data[:6], data[-4:]) == (LARGE, b"start ", b" end")
