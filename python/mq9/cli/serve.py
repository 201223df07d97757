"""`mq9 serve`: reads the configuration and runs the broker."""

import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

from mq9.imports import imports_that_stay

# What they ask for can be done later.
_HELD = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def serve(arguments: Sequence[str], *, management: bool | None = None) -> int:
    """Run the broker until it is told to stop.

    `management` says whether it starts management where its configuration does not.
    """
    _hold_signals()
    # Imported here: other commands start without the server and what it needs.
    with imports_that_stay():
        from mq9 import config

    try:
        options = config.from_arguments(arguments)
    except config.ConfigError as error:
        print(f"mq9 serve: {error}", file=sys.stderr)
        return 1
    if options.management is None:
        options = replace(options, management=management)
    if options.test_only:
        for warning in options.warnings:
            print(f"mq9 serve: warning: {warning}", file=sys.stderr)
        ignored = "; not all of it applies, see the warnings" if options.warnings else ""
        print(f"mq9 serve: configuration file {options.config_file} is valid{ignored}")
        return 0
    with imports_that_stay():
        from mq9.server import run

    return run(options)


def _hold_signals() -> None:
    """Have signals wait until the server listens to them; Ctrl-C ends it at once until then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
