"""The `mq9` command: finds the command that was asked for, runs it, and says how it ended."""

import sys
from collections.abc import Sequence

from mq9.cli.exits import REFUSED, STOPPED, USAGE, Failure


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["serve"]:
        # Its flags are nats-server's, which argparse cannot read.
        from mq9.cli.serve import serve

        return serve(arguments[1:])
    import asyncio

    from mq9.cli.parser import parser

    try:
        parsed = parser().parse_all(arguments)
    except SystemExit as end:
        return USAGE if end.code else 0
    try:
        status: int = parsed.run(parsed)
    except Failure as failure:
        from mq9.cli.output import visible

        # A failure may quote what somebody else has written.
        lines = "\n".join(map(visible, str(failure).split("\n")))
        print(f"mq9 {parsed.path}: {lines}", file=sys.stderr)
        return failure.status
    except (KeyboardInterrupt, asyncio.CancelledError):
        return STOPPED
    except BrokenPipeError:
        # Whoever read has enough; Python would complain once more on exit.
        sys.stdout = None
        return REFUSED
    return status
