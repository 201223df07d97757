"""`mq9 manage`: the page, REST and metrics of a broker, in a process of its own."""

import argparse
import sys

from mq9.cli import broker
from mq9.cli.exits import USAGE

MISSING = "the management interface is not installed: pip install 'mq9[manage]'"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser this command."""
    from mq9.manage import settings

    command = broker.add_local_command(
        *(commands, "manage", _manage),
        help="serve the page, REST and metrics of a broker",
        example="mq9 manage\nmq9 manage --nats-url nats://broker:4222 --listen 0.0.0.0:8055",
    )
    settings.add_arguments(command)


def _manage(arguments: argparse.Namespace) -> int:
    from mq9.manage import settings

    try:
        chosen = settings.from_arguments(arguments)
    except ValueError as error:
        print(f"mq9 manage: {error}", file=sys.stderr)
        return USAGE
    try:
        from mq9.manage import process
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mq9"):
            raise
        print(f"mq9 manage: {MISSING}", file=sys.stderr)
        return USAGE
    return process.run(chosen)
