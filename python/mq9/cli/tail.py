"""`mq9 tail`: the newest messages of a mailbox, and with `-f` those that come."""

import argparse
from typing import TYPE_CHECKING

from mq9.cli import broker
from mq9.cli.exits import OK, USAGE, Failure
from mq9.cli.output import entry, one_line, print_json, when

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq9.client import Client, Message

_WAIT_S = 30.0
_PAGE = 1000


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser this command."""
    tail = commands.add_parser("tail", help="the newest messages, in the order they came")
    tail.add_argument("address", help="address of the mailbox")
    tail.add_argument("-f", "--follow", action="store_true", help="go on as messages come")
    tail.add_argument("-n", "--limit", type=int, default=10, metavar="N", help="begin so far back")
    broker.add_options(tail)
    tail.set_defaults(run=lambda a: broker.run(_tail, a), path="tail")


async def _tail(client: "Client", arguments: argparse.Namespace) -> int:
    address = arguments.address
    if arguments.limit < 0:
        raise Failure(f"-n is {arguments.limit}: it must not be negative", USAGE)
    # Also with -n 0, to know where the mailbox ends.
    newest = await client.query(address, limit=arguments.limit or 1)
    _show(newest if arguments.limit else [], arguments)
    last = newest[-1].msg_id if newest else -1
    while arguments.follow:
        last = await _more(client, arguments, last)
    return OK


async def _more(client: "Client", arguments: argparse.Namespace, last: int) -> int:
    from mq9.errors import ConnectionLost

    try:
        # FETCH waits but goes by priority; QUERY has the order and skips nothing.
        if not await client.fetch(
            arguments.address, from_id=last + 1, max_msgs=1, max_wait=_WAIT_S
        ):
            return last
        new = await client.query(
            arguments.address, after_id=last if last >= 0 else None, since=0, limit=_PAGE
        )
    except ConnectionLost:
        # The next request waits until the client has reconnected.
        return last
    _show(new, arguments)
    return new[-1].msg_id if new else last


def _show(messages: "Sequence[Message]", arguments: argparse.Namespace) -> None:
    for message in messages:
        if arguments.json:
            print_json(entry(message))
        else:
            marks = [message.priority, *([f"key={message.key}"] if message.key else [])]
            marks += [f"#{tag}" for tag in message.tags]
            head = f"{message.msg_id}  {when(message.create_time)}  {' '.join(marks)}"
            print(f"{head}  {one_line(message.payload)}", flush=True)
