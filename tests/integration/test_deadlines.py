"""What is due happens when it is due, whatever else the broker has to do then."""

from contextlib import ExitStack

from tests.mail import Mail
from tests.peers import MQ9, Serve

CLIENTS = 200
FIRST_PING_MS = 2_200
"""About when a client is first asked for a sign of life."""


def test_polls_that_end_while_clients_are_pinged_are_answered(serve: Serve) -> None:
    """To look again after one deadline is not put off by the next, which is much later."""
    with ExitStack() as stack:
        url = serve(peer=MQ9).url
        clients = [stack.enter_context(Mail(url)) for _ in range(CLIENTS)]
        clients[0].done("MAILBOX.CREATE", {"name": "quiet", "ttl": 600})
        poll = {"config": {"max_wait_ms": FIRST_PING_MS}}
        polls = [client.begin("MSG.FETCH.quiet", poll) for client in clients]
        for client, begun in zip(clients, polls, strict=True):
            assert client.answer(begun)["messages"] == []
