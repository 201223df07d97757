"""`mq9 tail`: the newest messages of a mailbox, and with `-f` those that come."""

import argparse
from typing import TYPE_CHECKING

from mq9.cli import broker
from mq9.cli.exits import OK, USAGE, Failure
from mq9.cli.output import entry, one_line, print_json, visible, when

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq9.client import Client, Message

_WAIT_S = 30.0
_PAGE = 1000
# Lines come one by one, so that columns cannot be as wide as what is in them.
_ROW = "{:>6}  {:<25}  {:<8}  {}"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser this command."""
    tail = broker.add_command(
        *(commands, "tail", _tail),
        help="the newest messages, in the order they came",
        example="mq9 tail tasks -f\nmq9 tail tasks -f --count 1 --json",
    )
    tail.add_argument("address", help="address of the mailbox")
    tail.add_argument("-f", "--follow", action="store_true", help="go on as messages come")
    tail.add_argument("-n", "--limit", type=int, default=10, metavar="N", help="begin so far back")
    tail.add_argument("--count", type=int, metavar="N", help="end after so many messages")


async def _tail(client: "Client", arguments: argparse.Namespace) -> int:
    address = arguments.address
    if arguments.limit < 0:
        raise Failure(f"-n is {arguments.limit}: it must not be negative", USAGE)
    if arguments.count is not None and arguments.count < 1:
        raise Failure(f"--count is {arguments.count}: it must be at least 1", USAGE)
    # Also with -n 0, to know where the mailbox ends.
    newest = await client.query(address, limit=arguments.limit or 1)
    last = newest[-1].msg_id if newest else -1
    shown = _Shown(arguments)
    shown.add(newest if arguments.limit else [])
    while arguments.follow and not shown.is_full:
        last = await _more(client, arguments, last, shown)
    return OK


async def _more(client: "Client", arguments: argparse.Namespace, last: int, shown: "_Shown") -> int:
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
    shown.add(new)
    return new[-1].msg_id if new else last


class _Shown:
    """What has been printed: a line of heads, then a line for each message."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._json: bool = arguments.json
        self._most: int | None = arguments.count
        self._lines = 0
        self._heads_due = not self._json

    @property
    def is_full(self) -> bool:
        """Whether as many are printed as were asked for."""
        return self._most is not None and self._lines >= self._most

    def add(self, messages: "Sequence[Message]") -> None:
        for message in messages:
            if self.is_full:
                return
            self._lines += 1
            if self._json:
                print_json(entry(message))
                continue
            if self._heads_due:
                self._heads_due = False
                print(_ROW.format("ID", "SENT", "PRIORITY", "PAYLOAD"))
            marks = [f"key={message.key}"] if message.key else []
            marks += [f"#{tag}" for tag in message.tags]
            told = " ".join([*map(visible, marks), one_line(message.payload)])
            sent = when(message.create_time)
            print(_ROW.format(message.msg_id, sent, message.priority, told), flush=True)
