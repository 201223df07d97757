"""What a broker with quotas refuses, by the name of the setting, and when there is room again.

Runs brokers of its own.
"""

import os

import pytest
from tests.conformance.conftest import URL_VARIABLE
from tests.mail import Mail
from tests.peers import MQ9, Serve, Server, until

USERS = """
authorization { users: [
  { user: ada, password: x }
  { user: bob, password: x }
] }
no_auth_user: bob
mq9 {
  max_mailboxes: 4, max_mailboxes_per_user: 2, max_groups: 2
  max_store_bytes: 10000, max_bytes_per_user: 6000
  max_waiting_fetches: 3, max_waiting_fetches_per_connection: 2
}
"""
BIG = b"x" * 4000


pytestmark = pytest.mark.skipif(
    URL_VARIABLE in os.environ,
    reason=f"needs settings of its own, which a broker of {URL_VARIABLE} does not have",
)


@pytest.fixture
def limited(serve: Serve) -> Server:
    """A broker with quotas."""
    return serve(USERS, peer=MQ9)


def login(server: Server, user: str) -> Mail:
    return Mail(server.url.replace("://", f"://{user}:x@"))


def create(mail: Mail, name: str) -> str:
    """The error."""
    error: str = mail.ask("MAILBOX.CREATE", {"name": name})["error"]
    return error


def send(mail: Mail, name: str, payload: bytes = BIG) -> str:
    """The error."""
    error: str = mail.ask(f"MSG.SEND.{name}", payload)["error"]
    return error


def test_mailboxes_altogether_and_of_a_user(limited: Server) -> None:
    """The agents' registry has mailboxes of its own, which do not count."""
    with login(limited, "ada") as ada, login(limited, "bob") as bob:
        assert [create(ada, "a1"), create(ada, "a2")] == ["", ""]
        own = "quota max_mailboxes_per_user reached: at most 2 mailboxes"
        assert create(ada, "a3") == own
        assert [create(bob, "b1"), create(bob, "b2")] == ["", ""]
        assert create(bob, "b3") == "quota max_mailboxes reached: at most 4 mailboxes"
        assert create(bob, "a1") == "mailbox a1 already exists"
        bob.done("AGENT.REGISTER", {"mailbox": "b1", "name": "Bob"})


def test_bytes_altogether_and_of_a_user_whoever_sends(limited: Server) -> None:
    """What goes makes room at once."""
    with login(limited, "ada") as ada, login(limited, "bob") as bob:
        assert [create(ada, "a1"), create(bob, "b1")] == ["", ""]
        assert send(bob, "a1") == ""
        own = "quota max_bytes_per_user reached: at most 6000 bytes"
        assert [send(bob, "a1"), send(ada, "a1")] == [own, own]
        assert send(bob, "b1") == ""
        assert send(bob, "a1", b"x" * 1000) == ""
        full = "quota max_store_bytes reached: at most 10000 bytes"
        assert send(bob, "b1", b"x" * 1000) == full
        ada.done("MSG.DELETE.a1.0")
        assert send(bob, "b1", b"x" * 1000) == ""


def test_groups_of_a_mailbox(limited: Server) -> None:
    """As many as `max_groups`."""
    with login(limited, "ada") as ada:
        assert create(ada, "a1") == ""
        for group in ("g", "h"):
            ada.fetch("a1", group)
        request = {"group_name": "i", "config": {"max_wait_ms": 0}}
        error = "quota max_groups reached: at most 2 groups of mailbox a1"
        assert ada.ask("MSG.FETCH.a1", request)["error"] == error


def test_fetches_that_wait(limited: Server) -> None:
    """Of a connection, and altogether; one that does not wait is always answered."""
    with login(limited, "ada") as ada, login(limited, "bob") as bob:
        assert create(ada, "a1") == ""
        request = {"config": {"max_wait_ms": 60_000}}
        for mail, count in ((ada, 2), (bob, 1)):
            for _ in range(count):
                mail.begin("MSG.FETCH.a1", request)
            mail.ping()
        per = "quota max_waiting_fetches_per_connection reached: at most 2 FETCHes that wait"
        full = "quota max_waiting_fetches reached: at most 3 FETCHes that wait"
        assert ada.ask("MSG.FETCH.a1", request) == {"error": full, "messages": []}
        assert bob.fetch("a1") == []
        bob.deliver("a1")
        ada.begin("MSG.FETCH.a1", request)
        ada.begin("MSG.FETCH.a1", request)
        assert ada.ask("MSG.FETCH.a1", request) == {"error": per, "messages": []}


def test_fetches_that_wait_of_a_user_over_all_connections(serve: Serve) -> None:
    """Whoever created the mailbox; a name that nobody had to prove is nobody's."""
    per = "quota max_waiting_fetches_per_user reached: at most 1 FETCHes that wait"
    setting = "mq9 { max_waiting_fetches_per_user: 1 }"
    server = serve(USERS[: USERS.index("mq9 {")] + setting, peer=MQ9)
    request = {"config": {"max_wait_ms": 60_000}}
    with login(server, "ada") as ada, login(server, "bob") as bob, Mail(server.url) as unnamed:
        assert create(ada, "a1") == ""
        with login(server, "ada") as again:
            again.begin("MSG.FETCH.a1", request)
            again.ping()
            assert ada.ask("MSG.FETCH.a1", request) == {"error": per, "messages": []}
            # Who shows nothing is bob.
            unnamed.begin("MSG.FETCH.a1", request)
            unnamed.ping()
            assert bob.ask("MSG.FETCH.a1", request) == {"error": per, "messages": []}
        # The connection is gone, and its wait with it.
        brief = {"config": {"max_wait_ms": 1}}
        until(lambda: not ada.ask("MSG.FETCH.a1", brief)["error"], "room for a wait")
        assert bob.ask("MSG.FETCH.a1", request)["error"] == per
    server = serve(setting, peer=MQ9)
    with login(server, "ada") as ada:
        assert create(ada, "a1") == ""
        for _ in range(3):
            ada.begin("MSG.FETCH.a1", request)
        assert ada.fetch("a1") == []
        ada.ping()
