"""The `zos-mq` command: the queue for shells and scripts.

Exit codes: 0 done, 1 it could not be done, 2 the command line is wrong.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence

from mq9.local.errors import QueueError
from mq9.local.queue import Queue
from mq9.local.settings import TOPICS

OK = 0
FAILED = 1
USAGE = 2
_STOPPED = 130

ROOT_HELP = "default: $ZOS_MQ_ROOT, $ZOS_HOME/agent-mq, ~/.zos/agent-mq"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status of the process."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as end:
        return USAGE if end.code else OK
    try:
        _run(arguments)
    except BrokenPipeError:
        # Whoever read has enough; Python would complain once more on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return _STOPPED
    except (QueueError, ValueError, TypeError, OSError) as error:
        print(f"zos-mq {arguments.command}: {error}", file=sys.stderr)
        return status_of(error)
    return OK


def status_of(error: Exception) -> int:
    """The exit code for what went wrong: with what was asked, or with doing it."""
    return USAGE if isinstance(error, ValueError) else FAILED


def add_commands(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> dict[str, argparse.ArgumentParser]:
    """The commands of a queue and their options."""
    send = commands.add_parser("send", help="send a message and print its msg_id")
    send.add_argument("--topic", required=True, help=", ".join(sorted(TOPICS)))
    send.add_argument("--body", help="the text; - or nothing reads the standard input")
    send.add_argument("--to", metavar="ID", help="the agent it is for (default: all)")
    send.add_argument("--ttl", type=_number, metavar="S", help="seconds until nobody is given it")
    send.add_argument("--session", metavar="S", help="default: $ZOS_MQ_SESSION, or default")
    send.add_argument("--sender", metavar="ID", help="default: $ZOS_MQ_AGENT_ID, or anonymous")
    send.add_argument("--reply-to", metavar="MSG_ID", help="the message that this answers")

    poll = commands.add_parser("poll", help="print what is new for an agent, each message once")
    poll.add_argument("--agent", metavar="ID", required=True, help="the agent that reads")
    poll.add_argument("--topic", action="append", help="only these topics; the rest is skipped")
    poll.add_argument("--session", metavar="S", help="default: $ZOS_MQ_SESSION, or default")

    tail = commands.add_parser("tail", help="look at the last messages; moves nobody's cursor")
    tail.add_argument("-n", type=int, default=10, metavar="N", help="so many (default: 10)")
    tail.add_argument("--session", metavar="S", help="default: $ZOS_MQ_SESSION, or default")
    tail.add_argument("--include-expired", action="store_true", help="also those that are over")

    expire = commands.add_parser("expire", help="remove messages whose time is over")
    expire.add_argument("--session", metavar="S", help="default: $ZOS_MQ_SESSION, or default")

    status = commands.add_parser("status", help="print what is in the queue")
    status.add_argument("--session", metavar="S", help="default: all sessions")
    return {"send": send, "poll": poll, "tail": tail, "expire": expire, "status": status}


def body_of(arguments: argparse.Namespace) -> str:
    """The text to send: the argument, or the standard input."""
    if arguments.body not in {None, "-"}:
        return str(arguments.body)
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise QueueError(f"the standard input is no text: {error}") from None


def print_lines(lines: Iterable[str]) -> None:
    """Prints in UTF-8 whatever the terminal says: what was polled does not come again."""
    for line in lines:
        sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


def _run(arguments: argparse.Namespace) -> None:
    queue = Queue(arguments.root)
    if arguments.command == "send":
        msg_id = queue.send(
            arguments.topic,
            body_of(arguments),
            arguments.to,
            arguments.ttl,
            arguments.session,
            sender=arguments.sender,
            reply_to=arguments.reply_to,
        )
        print_lines([msg_id])
    elif arguments.command == "poll":
        found = queue.poll(arguments.agent, arguments.topic, arguments.session)
        print_lines(json.dumps(record, ensure_ascii=False) for record in found)
    elif arguments.command == "tail":
        last = queue.tail(arguments.n, arguments.session, arguments.include_expired)
        print_lines(json.dumps(record, ensure_ascii=False) for record in last)
    elif arguments.command == "expire":
        print_lines([str(queue.expire(arguments.session))])
    else:
        counts = queue.status(arguments.session)
        print_lines([json.dumps(counts, ensure_ascii=False, indent=2)])


def _parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="zos-mq",
        description="Mail between agents of one machine, in plain files.",
        epilog="exit codes: 0 done; 1 it could not be done; 2 wrong command line",
    )
    root.add_argument("--root", metavar="DIR", help=ROOT_HELP)
    add_commands(root.add_subparsers(dest="command", metavar="command", required=True))
    return root


def _number(written: str) -> int | float:
    # As it was written: 600 stays a whole number.
    try:
        return int(written)
    except ValueError:
        return float(written)
