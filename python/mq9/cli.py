"""The `mq9` command: reads the arguments and calls the part that does the work."""

import argparse
import sys
from collections.abc import Sequence

from mq9 import __version__

EXIT_UNAVAILABLE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status of the process."""
    command: str = _parser().parse_args(argv).command
    if command == "version":
        print(f"mq9 {__version__}")
        return 0
    print(
        f"mq9 serve: the server is not part of version {__version__} yet; "
        "so far mq9 holds the message store only.",
        file=sys.stderr,
    )
    return EXIT_UNAVAILABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mq9", description="Durable priority mailboxes for agents, over the NATS protocol."
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    commands.add_parser("serve", help="start the broker (not available yet)")
    commands.add_parser("version", help="print the version and exit")
    return parser
