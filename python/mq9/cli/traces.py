"""`mq9 traces`: the life of messages as spans of OpenTelemetry, in a process of its own."""

import argparse
import logging
import sys
from pathlib import Path

from mq9.cli import broker
from mq9.cli.exits import OK, REFUSED, USAGE, Failure

MISSING = "spans need more than is installed: pip install 'mq9[otel]'"
_ENDPOINT = "http://127.0.0.1:4318/v1/traces"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser this command."""
    command = broker.add_local_command(
        *(commands, "traces", _traces),
        help="send the life of messages to a collector of OpenTelemetry",
        example="mq9 traces --export lake --state traces.json --follow",
    )
    command.add_argument("--export", required=True, metavar="DIR", help="folder of the export")
    command.add_argument(
        "--state", required=True, metavar="FILE", help="where to keep how far it has come"
    )
    command.add_argument(
        "--endpoint", default=_ENDPOINT, metavar="URL", help="OTLP over HTTP (default: %(default)s)"
    )
    command.add_argument("--follow", action="store_true", help="go on as the export grows")
    command.add_argument(
        "--every", type=float, default=5.0, metavar="SECONDS", help="how often, with --follow"
    )


def _traces(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.export)
    if not folder.is_dir():
        raise Failure(f"{folder} is no directory: name the one that the broker exports to", USAGE)
    try:
        from mq9.traces import Follower, follow
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mq9"):
            raise
        raise Failure(MISSING, USAGE) from None
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="mq9 traces: %(message)s")
    follower = Follower(folder, arguments.endpoint, Path(arguments.state))
    try:
        if arguments.follow:
            follow(follower, arguments.every)
        went = follower.round()
    finally:
        follower.close()
    if not went:
        raise Failure(f"{arguments.endpoint} does not take spans", REFUSED)
    print(f"spans  {follower.sent}")
    return OK
