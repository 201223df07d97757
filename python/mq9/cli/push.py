"""`mq9 sub`, `inbox`, `broadcast`: what is pushed, printed as it comes."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from mq9.cli import broker, plain
from mq9.cli.exits import NOTHING, OK, USAGE, Failure
from mq9.cli.mailbox import add_mailbox_token
from mq9.cli.messages import given_header, given_payloads
from mq9.cli.output import entry, one_line, print_json, print_payload, visible, when

if TYPE_CHECKING:
    from mq9.client import Broadcast, Client, Message, Subscription

_PRIORITIES = ("critical", "urgent", "normal", "notify")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    _add_sub(commands)
    _add_inbox(commands)
    _add_broadcast(commands)


def _add_sub(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = broker.add_command(
        *(commands, "sub", _sub),
        help="print what comes: to a mailbox, as broadcasts, or to a NATS subject",
        example="mq9 sub -m tasks\n"
        "mq9 sub -m tasks --priority urgent --count 1 --payload\n"
        "mq9 sub -m tasks --queue workers --delete\n"
        "mq9 sub -b 'task.*'\n"
        "mq9 sub 'weather.>'",
    )
    what = sub.add_mutually_exclusive_group(required=True)
    what.add_argument("subject", nargs="?", help="a NATS subject; * and > stand for tokens")
    what.add_argument(
        "-m", "--mailbox", metavar="ADDRESS", help="all messages of a mailbox, then live ones"
    )
    what.add_argument(
        "-b",
        "--broadcast",
        metavar="EVENTS",
        help="broadcasts, such as task.available, task.*, *.failed or >",
    )
    sub.add_argument(
        "-p", "--priority", choices=_PRIORITIES, help="of a mailbox: only these messages"
    )
    sub.add_argument("-q", "--queue", metavar="NAME", help="share them in this queue group")
    sub.add_argument(
        "--delete",
        action="store_true",
        help="of a mailbox, with --queue: delete messages that were printed",
    )
    _add_ending(sub)


def _add_inbox(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    inbox = broker.add_command(
        *(commands, "inbox", _inbox),
        help="print the messages that nobody has read yet, each once",
        example="mq9 inbox alice\n"
        "mq9 inbox alice --priority urgent --count 1\n"
        "mq9 inbox alice --no-wait --json",
    )
    inbox.add_argument("address", help="address of the mailbox")
    inbox.add_argument("-p", "--priority", choices=_PRIORITIES, help="only these messages")
    inbox.add_argument(
        "--no-wait", action="store_true", help="print what is there; for the owner of the mailbox"
    )
    add_mailbox_token(inbox)
    _add_ending(inbox)


def _add_broadcast(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    broadcast = broker.add_command(
        *(commands, "broadcast", _run_broadcast),
        help="tell everybody who listens; `mq9 sub -b` does",
        example='mq9 broadcast task.available \'{"task_id": "t-001"}\'\n'
        "mq9 broadcast system.restart --persist",
        connects=False,
    )
    broadcast.add_argument("event", help="domain and event")
    broadcast.add_argument("payload", nargs="?", help="the message; - reads the standard input")
    broadcast.add_argument("-f", "--file", metavar="FILE", help="read the message from a file")
    broadcast.add_argument(
        "--persist", action="store_true", help="store it for those who begin to listen later"
    )
    broadcast.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header to go with it; may be repeated",
    )


def _add_ending(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--count", type=int, metavar="N", help="end after so many")
    parser.add_argument("--payload", action="store_true", help="print payloads and nothing else")


async def _sub(client: "Client", arguments: argparse.Namespace) -> int:
    _check(arguments)
    if arguments.mailbox is None and (arguments.priority or arguments.delete):
        raise Failure("--priority and --delete are for a mailbox: give one with -m", USAGE)
    if arguments.mailbox is not None:
        return await _print_messages(
            client.subscribe(
                arguments.mailbox,
                arguments.priority,
                arguments.queue,
                delete=arguments.delete,
                limit=arguments.count,
            ),
            arguments.mailbox,
            arguments,
        )
    if arguments.broadcast is None:
        return await plain.sub(client, arguments)
    told = client.on_broadcast(arguments.broadcast, arguments.queue, limit=arguments.count)
    seen = 0
    async with told:
        _say_listening(f"broadcasts {arguments.broadcast}", arguments)
        async for event in told:
            _show_event(event, arguments)
            seen += 1
    return OK if seen else NOTHING


async def _inbox(client: "Client", arguments: argparse.Namespace) -> int:
    _check(arguments)
    if not arguments.no_wait:
        unread = client.inbox(arguments.address, arguments.priority, limit=arguments.count)
        return await _print_messages(unread, arguments.address, arguments)
    if arguments.priority or arguments.count:
        raise Failure("--no-wait prints all that is unread: without --priority, --count", USAGE)
    found = await client.unread(arguments.address, token=arguments.mailbox_token)
    for message in found:
        _show(message, arguments)
    return OK if found else NOTHING


async def _print_messages(
    messages: "Subscription[Message]", address: str, arguments: argparse.Namespace
) -> int:
    seen = 0
    async with messages:
        _say_listening(f"mailbox {address}", arguments)
        async for message in messages:
            _show(message, arguments)
            seen += 1
    return OK if seen else NOTHING


def _run_broadcast(arguments: argparse.Namespace) -> int:
    if arguments.payload is None and arguments.file is None:
        arguments.payload = ""
    headers = dict(given_header(written) for written in arguments.header)
    [payload] = given_payloads(arguments)

    async def tell(client: "Client", arguments: argparse.Namespace) -> int:
        msg_id = await client.broadcast(
            arguments.event, payload, persist=arguments.persist, headers=headers
        )
        if arguments.json:
            stored = {} if msg_id is None else {"msg_id": msg_id}
            print_json({"broadcast": arguments.event, "bytes": len(payload)} | stored)
        else:
            whom = "whoever listens" if msg_id is None else "whoever listens now or later"
            print(f"told {len(payload)} bytes to {whom} to {visible(arguments.event)}")
        return OK

    return broker.run(tell, arguments)


def _check(arguments: argparse.Namespace) -> None:
    if arguments.count is not None and arguments.count < 1:
        raise Failure(f"--count is {arguments.count}: it must be at least 1", USAGE)


def _say_listening(what: str, arguments: argparse.Namespace) -> None:
    if not (arguments.json or arguments.payload):
        print(f"listening to {visible(what)}; Ctrl-C ends it", file=sys.stderr)


def _show(message: "Message", arguments: argparse.Namespace) -> None:
    if arguments.payload:
        print_payload(message.payload)
    elif arguments.json:
        print_json(entry(message))
    else:
        head = f"{message.msg_id:>6}  {when(message.create_time)}  {message.priority:<8}"
        print(f"{head}  {one_line(message.payload)}", flush=True)


def _show_event(event: "Broadcast", arguments: argparse.Namespace) -> None:
    if arguments.payload:
        print_payload(event.payload)
    elif arguments.json:
        print_json(_fields(event))
    else:
        print(f"{visible(event.event)}  {one_line(event.payload)}", flush=True)


def _fields(event: "Broadcast") -> dict[str, Any]:
    import base64

    fields: dict[str, Any] = {"event": event.event}
    if event.msg_id is not None:
        fields |= {"msg_id": event.msg_id, "create_time": event.create_time}
    if event.reply:
        fields["reply"] = event.reply
    if event.headers:
        fields["headers"] = dict(event.headers)
    try:
        return fields | {"payload": event.text}
    except UnicodeDecodeError:
        encoded = base64.b64encode(event.payload).decode()
        return fields | {"payload": encoded, "encoding": "base64"}
