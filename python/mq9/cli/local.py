"""`mq9 local`: mail in plain files, with tables for people; `zos-mq` prints the same as JSON."""

import argparse
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from mq9.cli.exits import NOTHING, OK, USAGE, Failure
from mq9.cli.output import one_line, print_json, size, table, when

_HEADS = ("ID", "SENT", "FROM", "TO", "TOPIC", "BODY")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    from mq9.local.command import ROOT_HELP, add_commands

    local = commands.add_parser("local", help="mail in plain files, without a broker")
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
    runs = {"send": _send, "poll": _poll, "tail": _tail, "expire": _expire, "status": _status}
    for name, parser in parsers.items():
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(run=_run(runs[name]), path=f"local {name}")


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
            print(json.dumps(message, ensure_ascii=False), flush=True)
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
