"""`mq9 send`, `fetch`, `ack`, `query`, `delete`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK, REFUSED, USAGE, Failure
from mq9.cli.output import (
    DELAYED_HEADS,
    MESSAGE_HEADS,
    delayed_entry,
    delayed_row,
    entry,
    message_row,
    print_json,
    print_payload,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mq9.client import Client, Message

_PAST = {"ack": "acknowledged", "nak": "returned", "progress": "renewed", "term": "given up"}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    _add_send(commands)
    _add_fetch(commands)

    ack = broker.add_command(
        *(commands, "ack", _ack),
        help="say what became of messages that a group was given",
        example="mq9 ack tasks 7 --group workers\n"
        "mq9 ack tasks 8 --group workers --kind nak --delay 60",
    )
    ack.add_argument("address", help="address of the mailbox")
    ack.add_argument("msg_ids", metavar="ID", nargs="+", type=int, help="numbers of messages")
    ack.add_argument("-g", "--group", required=True, help="the group that was given them")
    ack.add_argument(
        "--only", action="store_true", help="just these, not what was given before them as well"
    )
    ack.add_argument(
        "--kind",
        choices=tuple(_PAST),
        default="ack",
        help="done (ack, the default), to be given again (nak), still at work (progress), or never "
        "to be given again (term)",
    )
    ack.add_argument("--delay", type=broker.seconds, metavar="SECONDS", help="rest before a nak")

    query = broker.add_command(
        *(commands, "query", _query),
        help="look at the messages of a mailbox; moves no group",
        example="mq9 query tasks --limit 5\nmq9 query tasks --delayed",
    )
    query.add_argument("address", help="address of the mailbox")
    query.add_argument("--key", help="the message with this key")
    query.add_argument("--tag", action="append", default=[], help="with any of these tags")
    query.add_argument("--since", type=int, metavar="UNIX", help="sent at this second or later")
    query.add_argument("--after", type=int, metavar="ID", help="behind this message")
    query.add_argument(
        "-n", "--limit", type=int, metavar="N", help="at most so many; alone, the newest"
    )
    query.add_argument("--delayed", action="store_true", help="those that are not due yet")
    query.add_argument("--payload", action="store_true", help="print payloads and nothing else")

    delete = broker.add_command(
        *(commands, "delete", _delete),
        help="remove messages from a mailbox",
        example="mq9 delete tasks 7 8",
    )
    delete.add_argument("address", help="address of the mailbox")
    delete.add_argument(
        "msg_ids",
        metavar="ID",
        nargs="+",
        type=_deletable,
        help="numbers of messages; d7 is the delayed message 7",
    )


def _add_send(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    send = broker.add_command(
        *(commands, "send", _run_send),
        help="store a message and print its number",
        example='mq9 send tasks "water the plants" --priority urgent\n'
        "mq9 send tasks --file tasks.txt --lines",
        connects=False,
    )
    send.add_argument("address", help="address of the mailbox")
    send.add_argument("payload", nargs="?", help="the message; - reads the standard input")
    send.add_argument("-f", "--file", metavar="FILE", help="read the message from a file")
    send.add_argument(
        "--lines", action="store_true", help="each line of the input is a message of its own"
    )
    send.add_argument("--count", type=int, default=1, metavar="N", help="send it N times")
    send.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header to go with it; may be repeated",
    )
    send.add_argument(
        "-p",
        "--priority",
        metavar="LEVEL",
        help="critical, urgent, normal (the default), notify, or 1 (highest) to 10",
    )
    send.add_argument("--id", help="sent again with the same id, it is stored once")
    send.add_argument("-k", "--key", help="replaces the message with the same key")
    send.add_argument("-t", "--tag", action="append", default=[], help="may be repeated")
    send.add_argument(
        "--delay", type=broker.seconds, default=0, metavar="SECONDS", help="deliver it later"
    )
    send.add_argument(
        "--ttl", type=broker.seconds, default=0, metavar="SECONDS", help="remove it after that"
    )


def _add_fetch(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    fetch = broker.add_command(
        *(commands, "fetch", _fetch),
        help="take messages out, the most important first",
        example="mq9 fetch tasks --group workers --deliver earliest --ack",
    )
    fetch.add_argument("address", help="address of the mailbox")
    fetch.add_argument("-g", "--group", help="the group whose place the broker remembers")
    fetch.add_argument("--member", help="name in the group (default: this one connection)")
    fetch.add_argument(
        "--deliver",
        choices=("latest", "earliest", "from_time", "from_id"),
        help="where to begin: for a group only the first time (default: latest, which is what "
        "comes from now on)",
    )
    fetch.add_argument("--from-time", type=int, metavar="UNIX", help="begin at this second")
    fetch.add_argument("--from-id", type=int, metavar="ID", help="begin at this message")
    fetch.add_argument("--force", action="store_true", help="forget the group's place")
    fetch.add_argument("-n", "--limit", type=int, default=100, metavar="N", help="at most (100)")
    fetch.add_argument(
        "-w",
        "--wait",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="how long to wait for a message (default: 0.5)",
    )
    fetch.add_argument("--min-priority", metavar="LEVEL", help="none below this")
    fetch.add_argument("--ack", action="store_true", help="acknowledge them once they are printed")
    fetch.add_argument("--payload", action="store_true", help="print payloads and nothing else")


def _run_send(arguments: argparse.Namespace) -> int:
    payloads = given_payloads(arguments)
    headers = dict(given_header(written) for written in arguments.header)
    return broker.run(lambda client, given: _send(client, given, payloads, headers), arguments)


async def _send(
    client: "Client",
    arguments: argparse.Namespace,
    payloads: "Sequence[bytes]",
    headers: dict[str, str],
) -> int:
    from mq9.client import NewMessage
    from mq9.errors import PartlySent

    messages = (
        NewMessage(
            payload,
            priority=arguments.priority,
            key=arguments.key,
            tags=arguments.tag,
            delay=arguments.delay,
            ttl=arguments.ttl,
            headers=headers,
            id=arguments.id,
        )
        for _ in range(arguments.count)
        for payload in payloads
    )
    try:
        msg_ids = await client.send_many(arguments.address, messages)
    except PartlySent as error:
        if len(error.errors) == len(error.msg_ids):
            raise next(iter(error.errors.values())) from error
        raise
    if arguments.json:
        single = arguments.count == 1 and not arguments.lines
        print_json({"msg_id": msg_ids[0]} if single else {"msg_ids": msg_ids})
    elif arguments.delay:
        print(f"{len(msg_ids)} delayed by {arguments.delay:g} s")
    else:
        print("\n".join(map(str, msg_ids)))
    return OK


async def _fetch(client: "Client", arguments: argparse.Namespace) -> int:
    if arguments.ack and not arguments.group:
        raise Failure("--ack needs --group: without a group nothing is remembered", USAGE)
    messages = await client.fetch(
        arguments.address,
        group=arguments.group,
        member=arguments.member,
        deliver=arguments.deliver,
        from_time=arguments.from_time,
        from_id=arguments.from_id,
        force_deliver=arguments.force,
        max_msgs=arguments.limit,
        max_wait=arguments.wait,
        min_priority=arguments.min_priority,
    )
    _print_messages(messages, arguments)
    if not messages and not arguments.json:
        await _explain_nothing(client, arguments)
    if messages and arguments.ack:
        # Printed means done: what did not reach the reader is not acknowledged.
        sys.stdout.flush()
        await client.ack(*messages, only=True)
    return OK if messages else NOTHING


async def _explain_nothing(client: "Client", arguments: argparse.Namespace) -> None:
    """Says why a mailbox that holds messages gave none."""
    if not await client.query(arguments.address, limit=1):
        return
    if arguments.group is None and arguments.deliver in (None, "latest"):
        hint = "--deliver earliest takes those that are there"
    elif arguments.group is not None:
        hint = (
            "the group has had them, or began behind them, or another member holds them; "
            "--deliver earliest --force begins anew"
        )
    else:
        return
    print(f"The mailbox holds messages: {hint}.", file=sys.stderr)


async def _ack(client: "Client", arguments: argparse.Namespace) -> int:
    where = {"address": arguments.address, "group": arguments.group, "msg_ids": arguments.msg_ids}
    if arguments.delay is not None and arguments.kind != "nak":
        raise Failure("--delay goes with --kind nak: nothing else comes again", USAGE)
    match arguments.kind:
        case "ack":
            await client.ack(**where, only=arguments.only)
        case "nak":
            await client.nak(**where, delay=arguments.delay or 0)
        case "progress":
            await client.progress(**where)
        case _:
            await client.term(**where)
    if arguments.json:
        print_json({"kind": arguments.kind, "msg_ids": arguments.msg_ids})
    else:
        print(f"{_PAST[arguments.kind]} {', '.join(map(str, arguments.msg_ids))}")
    return OK


async def _query(client: "Client", arguments: argparse.Namespace) -> int:
    if arguments.delayed:
        return await _query_delayed(client, arguments)
    messages = await client.query(
        arguments.address,
        key=arguments.key,
        tags=arguments.tag,
        since=arguments.since,
        after_id=arguments.after,
        limit=arguments.limit,
    )
    _print_messages(messages, arguments)
    return OK if messages else NOTHING


async def _query_delayed(client: "Client", arguments: argparse.Namespace) -> int:
    given = (arguments.key, arguments.since, arguments.after, arguments.limit)
    if arguments.tag or any(value is not None for value in given):
        raise Failure("--delayed stands alone: it lists all that are not due yet", USAGE)
    messages = await client.list_delayed(arguments.address)
    if arguments.payload:
        for message in messages:
            print_payload(message.payload)
    elif arguments.json:
        print_json([delayed_entry(message) for message in messages])
    elif messages:
        table(DELAYED_HEADS, map(delayed_row, messages))
    else:
        print("no delayed messages", file=sys.stderr)
    return OK if messages else NOTHING


async def _delete(client: "Client", arguments: argparse.Namespace) -> int:
    from mq9.errors import MessageNotFound

    deleted, missing = [], []
    for msg_id in arguments.msg_ids:
        try:
            if isinstance(msg_id, str):
                await client.cancel_delayed(arguments.address, int(msg_id[1:]))
            else:
                await client.delete(arguments.address, msg_id)
            deleted.append(msg_id)
        except MessageNotFound:
            missing.append(msg_id)
    if arguments.json:
        print_json({"deleted": deleted, "missing": missing})
    elif deleted:
        print(f"deleted {', '.join(map(str, deleted))}")
    if missing:
        print(
            f"mq9 delete: message not found: {', '.join(map(str, missing))}; it was deleted or "
            "replaced, has expired, or was never there",
            file=sys.stderr,
        )
    return REFUSED if missing else OK


def _print_messages(messages: "Iterable[Message]", arguments: argparse.Namespace) -> None:
    if arguments.payload:
        for message in messages:
            print_payload(message.payload)
    elif arguments.json:
        print_json([entry(message) for message in messages])
    elif rows := [message_row(message) for message in messages]:
        table(MESSAGE_HEADS, rows)
    else:
        print("no messages", file=sys.stderr)


def given_payloads(arguments: argparse.Namespace) -> "list[bytes]":
    """The payloads that the command line names."""
    lines_wanted = getattr(arguments, "lines", False)
    if (arguments.payload is None) == (arguments.file is None):
        raise Failure("give the message as an argument, or - for the input, or --file", USAGE)
    if getattr(arguments, "count", 1) < 1:
        raise Failure(f"--count is {arguments.count}: it must be at least 1", USAGE)
    if arguments.file is not None:
        try:
            given = Path(arguments.file).read_bytes()
        except OSError as error:
            raise Failure(f"cannot read {arguments.file}: {error.strerror}", USAGE) from error
    elif arguments.payload == "-":
        given = sys.stdin.buffer.read()
    elif lines_wanted:
        raise Failure(
            "--lines goes with - or --file: the input is taken apart, not an argument", USAGE
        )
    else:
        given = arguments.payload.encode("utf-8", "surrogateescape")
    if not lines_wanted:
        return [given]
    lines = given.splitlines()
    if not lines:
        raise Failure("the input has no lines: nothing was sent", USAGE)
    return lines


def _deletable(written: str) -> int | str:
    number = written.removeprefix("d")
    if not (number.isascii() and number.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected a number, or d and a number: {written!r}")
    return written if written != number else int(number)


def given_header(written: str) -> tuple[str, str]:
    """A header as the command line has it."""
    name, colon, value = written.partition(":")
    if not colon or not name.strip():
        raise Failure(f"-H {written!r}: expected NAME:VALUE", USAGE)
    return name.strip(), value.strip()
