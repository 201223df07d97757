"""What the page says when it is told no: rights, letters that have gone, sessions that end."""

import json

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import PICTURES, Open
from tests.browser.test_page import sign_in
from tests.manage.conftest import OPERATORS, Manage, Managed
from tests.manage.test_api import bury
from tests.peers import until

CHANGES = """async paths => {
  const { csrf } = await (await fetch('/v1/session')).json();
  const ask = async ([method, path]) => (await fetch(path, {
    method, body: '{"resolved": true}',
    headers: { 'X-CSRF-Token': csrf, 'Content-Type': 'application/json' },
  })).status;
  return Promise.all(paths.map(ask));
}"""


def with_letters(managed: Managed, count: int, user: str = "") -> None:
    """Make so many dead letters, from a queue with nothing else in it."""
    with managed.mail(user) as mail:
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead"})
        bury(mail, "jobs", *(b"%d" % number for number in range(count)))
    auth = (user, f"{user}-pw") if user else None
    with managed.client(auth=auth) as client:
        until(lambda: client.get("/v1/dead-letters").json()["total"] == count, "all known", 30)


def letter_ids(managed: Managed, auth: tuple[str, str] | None = None) -> list[str]:
    listed = httpx.get(f"{managed.url}/v1/dead-letters", auth=auth, timeout=20).json()
    return [each["id"] for each in listed["dead_letters"]]


def test_who_may_only_look_sends_no_letter_back(manage: Manage, open_page: Open) -> None:
    managed = manage(OPERATORS)
    with_letters(managed, 2, "boss")
    watched = open_page(managed)
    watched.expected = ("401", "403")
    page = watched.go("/dead-letters")
    sign_in(page, "eyes", "eyes-pw")
    expect(page.get_by_role("heading", name="2 dead letters")).to_be_visible()
    expect(page.locator(".payload pre")).to_be_visible()
    for word in ("Replay", "Mark resolved…", "Replay 2…", "Purge 2…"):
        assert page.get_by_role("button", name=word, exact=True).count() == 0
    [first, _] = letter_ids(managed, ("eyes", "eyes-pw"))
    letter = f"/v1/dead-letters/{first}"
    changes = [
        ("POST", f"{letter}/replay"),
        ("PATCH", letter),
        ("POST", "/v1/dead-letters/replay-all"),
        ("POST", "/v1/dead-letters/purge"),
    ]
    assert page.evaluate(CHANGES, changes) == [403] * 4
    assert len(letter_ids(managed, ("eyes", "eyes-pw"))) == 2


def test_rights_that_are_taken_away_are_told(manage: Manage, open_page: Open) -> None:
    managed = manage(OPERATORS)
    with_letters(managed, 2, "boss")
    watched = open_page(managed)
    watched.expected = ("401", "403", "503")
    page = watched.go("/dead-letters")
    sign_in(page, "boss", "boss-pw")
    expect(page.get_by_role("button", name="Replay", exact=True)).to_be_enabled()
    expect(page.locator(".side")).to_contain_text("may steer")
    assert managed.server.config_file is not None
    before = managed.server.config_file.read_text()
    rights = before.partition("user: eyes")[2].partition("permissions: ")[2].partition("\n  ]")[0]
    rights = rights.partition("{ user: agent")[0].strip().removesuffix("}").strip()
    less = before.replace('{ publish: [">", "$mq9.AI.ADMIN.>"] }', rights)
    assert less != before
    managed.server.reconfigure(less)
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("main .wrong")).not_to_be_empty()
    # The page asks every two seconds who it is; the broker is asked every ten.
    expect(page.locator(".side")).to_contain_text("may look")
    expect(page.get_by_role("button", name="Replay", exact=True)).to_have_count(0)
    expect(page.get_by_role("heading", name="2 dead letters")).to_be_visible()


@pytest.mark.parametrize("action", ["Replay", "Mark resolved…"])
def test_a_letter_that_has_gone_is_told_and_no_other_taken(
    manage: Manage, open_page: Open, action: str
) -> None:
    managed = manage()
    with_letters(managed, 2)
    watched = open_page(managed)
    watched.expected = ("404",)
    page = watched.go("/dead-letters")
    expect(page.locator(".payload pre")).to_be_visible()
    # What is shown is from before somebody else was faster.
    page.keyboard.press("p")
    gone, other = letter_ids(managed)
    path = f"{managed.url}/v1/dead-letters/{gone}"
    assert httpx.patch(path, json={"resolved": True}, timeout=20).status_code == 200
    page.get_by_role("button", name=action, exact=True).click()
    if action == "Mark resolved…":
        page.get_by_role("button", name="Mark 1 as resolved").click()
        wrong = page.locator("dialog .wrong")
        expect(wrong).to_contain_text("there is no dead letter")
        page.get_by_role("button", name="Leave it").click()
    else:
        expect(page.locator("main .wrong")).to_contain_text(f"there is no dead letter '{gone}'")
    expect(page.get_by_role("heading", name="1 dead letter")).to_be_visible()
    assert letter_ids(managed) == [other]
    with managed.mail() as mail:
        assert mail.fetch("jobs", "workers") == []


def test_the_last_letter_that_has_gone_is_told_too(manage: Manage, open_page: Open) -> None:
    managed = manage()
    with_letters(managed, 1)
    watched = open_page(managed)
    watched.expected = ("404",)
    page = watched.go("/dead-letters")
    expect(page.locator(".payload pre")).to_be_visible()
    page.keyboard.press("p")
    [gone] = letter_ids(managed)
    assert httpx.post(f"{managed.url}/v1/dead-letters/{gone}/replay", timeout=20).is_success
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("main")).to_contain_text("No dead letters")
    expect(page.locator("main .wrong")).to_contain_text("there is no dead letter")
    with managed.mail() as mail:
        assert len(mail.fetch("jobs", "workers")) == 1


def test_a_replay_is_stopped(manage: Manage, open_page: Open) -> None:
    managed = manage()
    count = 3000
    with managed.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead"})
        sent = [mail.begin("MSG.SEND.jobs", b"%d" % number) for number in range(count)]
        for reply in sent:
            assert mail.answer(reply)["error"] == ""
        for _ in range(count // 100):
            entries = mail.fetch("jobs", "g", num_msgs=100)
            request = {"group_name": "g", "mail_address": "jobs", "kind": "term"}
            given_up = [
                mail.begin("MSG.ACK.jobs", request | {"msg_id": entry["msg_id"], "only": True})
                for entry in entries
            ]
            for reply in given_up:
                assert mail.answer(reply)["error"] == ""
    with managed.client() as client:
        until(lambda: client.get("/v1/dead-letters").json()["total"] == count, "all known", 60)
    page = open_page(managed).go("/dead-letters")
    page.get_by_role("button", name="Replay 3,000…").click()
    page.get_by_role("radio", name="All 3,000").check()
    page.get_by_role("button", name="Replay", exact=True).last.click()
    expect(page.locator("main [role=status]")).to_contain_text("Replaying:")
    expect(page.get_by_role("button", name="Purge 3,000…")).to_be_disabled()
    page.get_by_role("button", name="Stop", exact=True).click()
    told = page.locator("main [role=status]")
    expect(told).to_contain_text("Stopped: replayed")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    words = told.inner_text()
    replayed = int(words.split()[2].replace(",", ""))
    assert 0 < replayed < count, words
    assert words.endswith("of 3,000"), words
    left = count - replayed
    expect(page.get_by_role("heading", name=f"{left:,} dead letters")).to_be_visible()
    with managed.client() as client:
        assert client.get("/v1/dead-letters").json()["total"] == left
        lines = client.get("/v1/audit").json()["lines"]
    actions = [line["action"] for line in reversed(lines)]
    assert actions == ["begin replay", "stop replay", "replay"]
    assert lines[0]["result"] == f"{replayed} replayed, 0 failed"


def end_session(page: Page) -> None:
    """Sign out in another tab of the same browser."""
    tab = page.context.new_page()
    tab.goto(page.url)
    tab.get_by_role("button", name="Sign out").click()
    expect(tab.get_by_role("button", name="Sign in")).to_be_visible()
    tab.close()


@pytest.mark.parametrize("width", [390, 1440])
def test_a_session_that_ends_midway(locked: Managed, open_page: Open, width: int) -> None:
    watched = open_page(locked, width)
    watched.expected = ("401",)
    address = "/queue?name=desk&show=oldest&msg=0"
    page = watched.go(address)
    sign_in(page, "boss", "boss-pw")
    expect(page.locator(".payload pre")).to_have_text("one")
    # What was typed is there until it is sent or dropped.
    page.get_by_role("button", name="Send…").click()
    page.get_by_role("textbox", name="Payload").fill("typed before")
    end_session(page)
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("dialog .wrong")).to_contain_text("sign in")
    expect(page.get_by_role("textbox", name="Payload")).to_have_value("typed before")
    page.keyboard.press("Escape")
    expect(page.locator("main")).to_contain_text("Your session has ended")
    # Nothing that only operators may see is left.
    expect(page.locator("#app")).not_to_contain_text("desk")
    expect(page.get_by_label("User")).to_have_value("boss")
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"ended-light-{width}.png")
    sign_in(page, "boss", "boss-pw")
    expect(page.locator(".payload pre")).to_have_text("one")
    assert page.url == watched.url + address
    page.get_by_role("button", name="Send…").click()
    page.get_by_role("textbox", name="Payload").fill("typed after")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("dialog")).to_have_count(0)
    with locked.mail("boss") as mail:
        found = mail.done("MSG.QUERY.desk", {"since": 0})["messages"]
    assert [each["payload"] for each in found][:1] == ["one"]
    assert "typed after" in json.dumps(found)
    assert "typed before" not in json.dumps(found)


def test_a_sign_in_in_another_tab_is_noticed(locked: Managed, open_page: Open) -> None:
    watched = open_page(locked)
    watched.expected = ("401",)
    page = watched.go("/queue?name=desk")
    sign_in(page, "boss", "boss-pw")
    expect(page.get_by_role("heading", name="desk")).to_be_visible()
    tab = page.context.new_page()
    tab.goto(page.url)
    tab.get_by_role("button", name="Sign out").click()
    sign_in(tab, "eyes", "eyes-pw")
    expect(tab.locator(".side")).to_contain_text("eyes")
    # The other tab shows who it is by now, and what they may do.
    expect(page.locator(".side")).to_contain_text("may look")
    expect(page.get_by_role("button", name="Send…")).to_have_count(0)
