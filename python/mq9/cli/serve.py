"""`mq9 serve`: reads the configuration and runs the broker."""

import sys
from collections.abc import Sequence


def serve(arguments: Sequence[str]) -> int:
    """Run the broker until it is told to stop."""
    # Imported here: other commands start without the server and what it needs.
    from mq9 import config

    try:
        options = config.from_arguments(arguments)
    except config.ConfigError as error:
        print(f"mq9 serve: {error}", file=sys.stderr)
        return 1
    if options.test_only:
        print(f"mq9 serve: configuration file {options.config_file} is valid")
        return 0
    from mq9.server import run

    return run(options)
