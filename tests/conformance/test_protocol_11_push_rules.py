"""Push: permissions and tokens, one test for each sentence. Runs a broker with users of its own."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.conformance.conftest import URL_VARIABLE
from tests.conformance.reader import Reader
from tests.mail import PREFIX, Json, Mail
from tests.peers import MQ9, Serve, Server

Login = Callable[[str], Mail]


def users(publish: str = "{}", subscribe: str = "{}") -> str:
    """`agent` may do anything and is no operator; `poor` has these rules."""
    return f"""authorization {{ users: [
      {{ user: agent, password: p }}
      {{ user: poor, password: p, permissions: {{ publish: {publish}, subscribe: {subscribe} }} }}
    ] }}
    no_auth_user: agent
    """


class Place:
    """A broker with users, and connections of them."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self.server = server
        self._stack = stack

    def login(self, user: str) -> Mail:
        url = self.server.url.replace("://", f"://{user}:p@")
        return self._stack.enter_context(Mail(url))

    def poor(self, subject: str, queue: str = "") -> Reader:
        return Reader(self.login("poor")).subscribe(subject, queue)


@pytest.fixture
def place(serve: Serve) -> Iterator[Callable[..., Place]]:
    """Starts a broker where `poor` has these rules; there is the mailbox `box`."""
    if os.environ.get(URL_VARIABLE):
        pytest.skip(f"needs users of its own, which {URL_VARIABLE} does not have")
    with ExitStack() as stack:

        def open_place(**rules: str) -> Place:
            here = Place(serve(users(**rules), peer=MQ9), stack)
            here.login("agent").done("MAILBOX.CREATE", {"name": "box"})
            return here

        yield open_place


SUBJECTS = ["MAILBOX.MSG.box", "MAILBOX.MSG.box.*", "INBOX.box.*", "INBOX.box.urgent"]


def violation(kind: str, subject: str) -> str:
    return f'Permissions Violation for {kind} to "{PREFIX}{subject}"'


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_client_needs_the_permission_to_subscribe(
    place: Callable[..., Place], subject: str
) -> None:
    family = subject[: subject.index("box")]
    here = place(subscribe=f'{{ deny: "{PREFIX}{family}>" }}')
    here.login("agent").deliver("box", b"x", priority="urgent")
    reader = here.poor(subject)
    assert reader.refused() == violation("Subscription", subject)
    reader.nothing()


def test_priorities_that_it_may_not_subscribe_to_are_left_out(place: Callable[..., Place]) -> None:
    here = place(subscribe=f'{{ deny: "{PREFIX}*.box.urgent" }}')
    agent = here.login("agent")
    for priority in ("urgent", "normal", "notify"):
        agent.deliver("box", priority.encode(), priority=priority)
    reader = here.poor("INBOX.box.*")
    assert reader.texts(2) == ["normal", "notify"]
    agent.deliver("box", b"2", priority="urgent")
    agent.deliver("box", b"3")
    assert reader.texts(1) == ["3"]
    # Who may gets them: they are unread.
    inbox = Reader(here.login("agent")).subscribe("INBOX.box.urgent")
    assert inbox.texts(2) == ["urgent", "2"]


def test_a_rule_with_a_queue_counts_for_queue_groups(place: Callable[..., Place]) -> None:
    here = place(subscribe=f'{{ allow: ["_INBOX.>", "{PREFIX}MAILBOX.MSG.> workers"] }}')
    here.login("agent").deliver("box", b"x")
    subject = "MAILBOX.MSG.box"
    assert here.poor(subject, "workers").texts(1) == ["x"]
    for queue in ("", "others"):
        assert here.poor(subject, queue).refused().startswith(violation("Subscription", subject))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_whoever_is_denied_fetch_is_not_pushed_anything(
    place: Callable[..., Place], subject: str
) -> None:
    here = place(publish=f'{{ deny: "{PREFIX}MSG.FETCH.box" }}')
    here.login("agent").deliver("box", b"x", priority="urgent")
    assert here.poor(subject).refused() == violation("Subscription", subject)


def test_whoever_is_denied_fetch_cannot_use_mailbox_query(place: Callable[..., Place]) -> None:
    here = place(publish=f'{{ deny: "{PREFIX}MSG.FETCH.>" }}')
    agent, poor = here.login("agent"), here.login("poor")
    made = agent.done("MAILBOX.CREATE", {"ttl": 600})
    box, token = made["mail_id"], {"token": made["token"]}
    agent.deliver(box, b"x")
    assert "permission denied" in poor.ask(f"MAILBOX.QUERY.{box}", token)["error"]
    assert agent.done(f"MAILBOX.QUERY.{box}", token)["unread"] == 1


@pytest.mark.parametrize(
    "subject", ["MAILBOX.MSG.box", "MAILBOX.MSG.box.urgent", "INBOX.box.normal"]
)
def test_whoever_is_denied_send_cannot_send_by_these_subjects(
    place: Callable[..., Place], subject: str
) -> None:
    here = place(publish=f'{{ deny: "{PREFIX}MSG.SEND.box" }}')
    poor = here.login("poor")
    poor.publish(PREFIX + subject, b"x")
    poor.ping()
    assert poor.errors == [violation("Publish", subject)]
    assert here.login("agent").fetch("box") == []


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize(
    "taken",
    [
        {"subscribe": f'{{ deny: "{PREFIX}*.>" }}'},
        {"publish": f'{{ deny: "{PREFIX}MSG.FETCH.>" }}'},
    ],
)
def test_when_the_permission_goes_the_push_ends_with_an_error(
    place: Callable[..., Place], subject: str, taken: dict[str, str]
) -> None:
    here = place()
    agent = here.login("agent")
    agent.deliver("box", b"1", priority="urgent")
    reader = here.poor(subject)
    assert reader.texts(1) == ["1"]
    here.server.reconfigure(users(**taken))
    assert reader.refused().startswith(violation("Subscription", subject))
    agent.deliver("box", b"2", priority="urgent")
    reader.nothing()


def test_a_history_that_is_on_its_way_ends_with_the_permission(place: Callable[..., Place]) -> None:
    here = place()
    agent = here.login("agent")
    payload = b"x" * 50_000
    for _ in range(100):
        agent.deliver("box", payload)
    reader = here.poor("MAILBOX.MSG.box")
    # It does not read: more is stored than is written ahead of it.
    here.server.reconfigure(users(subscribe=f'{{ deny: "{PREFIX}MAILBOX.>" }}'))
    reader.mail.ping()
    assert reader.mail.errors
    assert len(reader.came) < 100


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "the token is missing"),
        ({"token": ""}, "the token is not that of this mailbox"),
        ({"token": "tok-0"}, "the token is not that of this mailbox"),
        ({"token": "tok-" + "0" * 32}, "the token is not that of this mailbox"),
    ],
)
def test_mailbox_query_needs_the_token(place: Callable[..., Place], asked: Json, said: str) -> None:
    mail = place().login("agent")
    made = mail.done("MAILBOX.CREATE", {"ttl": 600})
    box = made["mail_id"]
    mail.deliver(box, b"x")
    answer = mail.ask(f"MAILBOX.QUERY.{box}", asked)
    assert answer["error"].startswith(f"permission denied: {said}")
    assert (answer["mail_id"], answer["unread"], answer["messages"]) == ("", 0, [])
    # An error reads nothing.
    assert mail.done(f"MAILBOX.QUERY.{box}", {"token": made["token"]})["unread"] == 1


PRIORITIES = ["critical", "urgent", "normal", "notify"]


def shares(address: str, neighbour: str) -> str:
    return (
        f"permission denied: {address} would share subjects with mailbox {neighbour}: "
        "neighbour_token must be its token; operators need none"
    )


@pytest.mark.parametrize("priority", PRIORITIES)
def test_whoever_knows_an_address_cannot_take_a_priority_of_it(
    place: Callable[..., Place], priority: str
) -> None:
    here = place()
    mail = here.login("agent")
    token = mail.done("MAILBOX.CREATE", {"name": "mine", "token": True})["token"]
    other = mail.done("MAILBOX.CREATE", {"name": "other", "token": True})["token"]
    whole = f"mine.{priority}"
    reader = Reader(mail).subscribe(f"INBOX.{whole}")
    for asked in ({}, {"neighbour_token": ""}, {"neighbour_token": other}, {"exist_ok": True}):
        answer = mail.ask("MAILBOX.CREATE", {"name": whole} | asked)
        assert answer["error"] == shares(whole, "mine")
    mail.done(f"INBOX.{whole}", b"x", {"mq9-persist": "true"})
    assert reader.texts(1) == ["x"]
    assert [entry["priority"] for entry in mail.fetch("mine")] == [priority]
    # The owner may.
    mail.done("MAILBOX.CREATE", {"name": whole, "neighbour_token": token})
    mail.done("MAILBOX.CREATE", {"name": whole, "exist_ok": True})
    mail.done(f"INBOX.{whole}", b"y")
    assert len(mail.fetch(whole)) == 1


def test_a_priority_of_a_mailbox_to_be_is_not_taken_either(place: Callable[..., Place]) -> None:
    """Whichever of the two is created first."""
    mail = place().login("agent")
    token = mail.done("MAILBOX.CREATE", {"name": "mine.urgent", "token": True})["token"]
    answer = mail.ask("MAILBOX.CREATE", {"name": "mine"})
    assert answer["error"] == shares("mine", "mine.urgent")
    mail.done("MAILBOX.CREATE", {"name": "mine", "neighbour_token": token})
    # What does not end with a priority, or has no such neighbour, is nobody's concern.
    mail.done("MAILBOX.CREATE", {"name": "mine.own"})
    mail.done("MAILBOX.CREATE", {"name": "other.urgent"})


def test_a_dead_letter_mailbox_is_no_way_round(place: Callable[..., Place]) -> None:
    """It is created when it is needed, so it is looked at when it is named."""
    mail = place().login("agent")
    token = mail.done("MAILBOX.CREATE", {"name": "mine", "token": True})["token"]
    mine = mail.done("MAILBOX.CREATE", {"name": "source", "token": True})["token"]
    letters: Json = {"max_deliver": 1, "dead_letter": "mine.urgent"}
    answer = mail.ask("MAILBOX.CREATE", {"name": "more"} | letters)
    assert answer["error"] == shares("mine.urgent", "mine")
    answer = mail.ask("MAILBOX.UPDATE.source", {"token": mine} | letters)
    assert answer["error"] == shares("mine.urgent", "mine")
    mail.done("MAILBOX.UPDATE.source", {"token": mine, "neighbour_token": token} | letters)


def test_operators_need_no_token_of_a_neighbour(place: Callable[..., Place]) -> None:
    here = place(publish='[">", "$mq9.AI.ADMIN.>"]')
    here.login("agent").done("MAILBOX.CREATE", {"name": "mine"})
    here.login("poor").done("MAILBOX.CREATE", {"name": "mine.urgent"})
