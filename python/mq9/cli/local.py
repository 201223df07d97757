"""`mq9 local`: mail in plain files, with tables for people; `zos-mq` prints the same as JSON."""

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK, REFUSED, USAGE, Failure
from mq9.cli.output import one_line, print_json, size, table, when

if TYPE_CHECKING:
    from mq9.client import Client

_FOLLOW_S = 0.2
_EXAMPLES = {
    "send": 'mq9 local send --topic ask --body "Is the disk full?" --to builder --sender boss',
    "poll": "mq9 local poll --agent builder --wait 10",
    "tail": "mq9 local tail -n 5",
    "expire": "mq9 local expire",
    "status": "mq9 local status",
}
_HEADS = ("ID", "SENT", "FROM", "TO", "TOPIC", "BODY")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    from mq9.local.command import ROOT_HELP, add_commands

    local = commands.add_parser(
        "local",
        help="mail in plain files, without a broker",
        epilog=broker.examples("mq9 local status --root mail"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    local.add_argument("--root", metavar="DIR", help=ROOT_HELP)
    below = local.add_subparsers(dest="local", metavar="command", required=True)
    parsers = add_commands(below)
    parsers["send"].add_argument(
        "--priority",
        metavar="LEVEL",
        type=_level,
        help="critical, urgent, normal, notify, or 1 (highest) to 10",
    )
    parsers["send"].add_argument(
        "--durable", action="store_true", help="return when it is safe from a power cut"
    )
    parsers["poll"].add_argument(
        "--wait", type=float, metavar="SECONDS", help="if there is nothing, wait so long"
    )
    parsers["poll"].add_argument(
        "--by-priority", action="store_true", help="the most important first"
    )
    _add_crossings(below)
    runs = {"send": _send, "poll": _poll, "tail": _tail, "expire": _expire, "status": _status}
    for name, parser in parsers.items():
        parser.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON"
        )
        parser.epilog = broker.examples(_EXAMPLES[name])
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.set_defaults(run=_run(runs[name]), path=f"local {name}", parser=parser)


def _add_crossings(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    forward = broker.add_command(
        *(commands, "local forward", _run(lambda a: broker.run(_forward, a))),
        help="send a session's messages to a broker's mailboxes, and bring answers back",
        example="mq9 local forward --session default --url nats://127.0.0.1:4222 --follow",
        connects=False,
    )
    receive = broker.add_command(
        *(commands, "local receive", _run(lambda a: broker.run(_receive, a))),
        help="bring an agent's messages from a broker into the files",
        example="mq9 local receive --agent builder",
        connects=False,
    )
    forward.add_argument(
        "--agent",
        metavar="ID",
        action="append",
        default=[],
        help="an agent that lives in the files; may be repeated (default: whoever has polled)",
    )
    receive.add_argument(
        "--agent", metavar="ID", action="append", required=True, help="may be repeated"
    )
    for parser in (forward, receive):
        parser.add_argument("--session", metavar="S", help="default: $ZOS_MQ_SESSION, or default")
        parser.add_argument(
            "--url",
            dest="server",
            metavar="URL",
            default=argparse.SUPPRESS,
            help="the same as --server",
        )
        parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")


async def _forward(client: "Client", arguments: argparse.Namespace) -> int:
    return await _cross(client, arguments, up=True)


async def _receive(client: "Client", arguments: argparse.Namespace) -> int:
    return await _cross(client, arguments, up=False)


async def _cross(client: "Client", arguments: argparse.Namespace, *, up: bool) -> int:
    import asyncio

    from mq9.errors import BrokerUnavailable, RequestTimeout
    from mq9.local import Queue
    from mq9.local.forwarding import Forwarder
    from mq9.local.settings import checked_name, session_name

    agents = tuple(checked_name("agent", agent) for agent in arguments.agent)
    queue = Queue(arguments.root)
    forwarder = Forwarder(client, queue, session_name(arguments.session), agents)
    sent = received = 0
    with forwarder.alone():
        while True:
            try:
                sent += await forwarder.up() if up else 0
                received += await forwarder.down()
            except (BrokerUnavailable, RequestTimeout):
                # The client connects again; what is in doubt is looked at before it is sent.
                if not arguments.follow:
                    raise
            if not arguments.follow:
                break
            await asyncio.sleep(_FOLLOW_S)
    if arguments.json:
        print_json({"sent": sent, "received": received, "refused": forwarder.refused})
    else:
        print(f"sent {sent}, received {received}")
    return REFUSED if forwarder.refused else OK


def _run(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        from mq9.local import QueueError
        from mq9.local.command import status_of

        try:
            return command(arguments)
        except (QueueError, ValueError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise Failure(str(error), status_of(error)) from error

    return run


def _send(arguments: argparse.Namespace) -> int:
    from mq9.local import Queue
    from mq9.local.command import body_of

    msg_id = Queue(arguments.root, durable=arguments.durable).send(
        arguments.topic,
        body_of(arguments),
        arguments.to,
        arguments.ttl,
        arguments.session,
        sender=arguments.sender,
        reply_to=arguments.reply_to,
        priority=arguments.priority,
    )
    if arguments.json:
        print_json({"msg_id": msg_id})
    else:
        print(msg_id)
    return OK


def _poll(arguments: argparse.Namespace) -> int:
    from mq9.local import Queue

    if arguments.wait is not None and not arguments.wait >= 0:
        raise Failure(f"--wait is {arguments.wait}: it must not be negative", USAGE)
    found = Queue(arguments.root).wait(
        arguments.agent,
        arguments.wait or 0,
        arguments.topic,
        arguments.session,
        by_priority=arguments.by_priority,
    )
    return _show(found, arguments)


def _tail(arguments: argparse.Namespace) -> int:
    from mq9.local import Queue

    last = Queue(arguments.root).tail(arguments.n, arguments.session, arguments.include_expired)
    return _show(last, arguments)


def _expire(arguments: argparse.Namespace) -> int:
    from mq9.local import Queue

    dropped = Queue(arguments.root).expire(arguments.session)
    if arguments.json:
        print_json({"dropped": dropped})
    else:
        print(f"removed {dropped}")
    return OK


def _status(arguments: argparse.Namespace) -> int:
    from mq9.local import Queue

    sessions = Queue(arguments.root).status(arguments.session)
    if arguments.json:
        print_json(sessions)
        return OK
    rows = [
        (
            name,
            counts["messages"],
            counts["expired"],
            size(counts["queue_bytes"]),
            ", ".join(f"{topic} {count}" for topic, count in counts["by_topic"].items()),
            ", ".join(
                f"{agent} {_share(offset, counts['queue_bytes'])}"
                for agent, offset in counts["cursors"].items()
            ),
        )
        for name, counts in sessions.items()
    ]
    if rows:
        table(("SESSION", "MESSAGES", "EXPIRED", "SIZE", "TOPICS", "READ BY"), rows)
    return OK if rows else NOTHING


def _show(messages: Sequence[dict[str, Any]], arguments: argparse.Namespace) -> int:
    if arguments.json:
        for message in messages:
            print_json(message)
    elif messages:
        table(_HEADS, map(_row, messages))
    return OK if messages else NOTHING


def _row(message: dict[str, Any]) -> tuple[str, ...]:
    sent = message.get("ts")
    try:
        moment = when(int(datetime.fromisoformat(str(sent)).timestamp()))
    except ValueError:
        moment = "?"
    return (
        message["msg_id"],
        moment,
        str(message.get("from")),
        str(message.get("to") or "all"),
        message["topic"],
        one_line(message["body"].encode()),
    )


def _share(offset: int, total: int) -> str:
    return "all" if offset >= total else f"{offset * 100 // total} %"


def _level(written: str) -> str | int:
    return int(written) if written.isdecimal() else written
