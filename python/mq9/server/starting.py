"""The start of a server: its port listens and greets while the rest of it is imported.

Importing an event loop takes longer than all that a greeting needs. So nothing here may import one
before clients are greeted; what they say waits in their sockets until there is one. Messages flow
from then on, while the commands of Python are still imported; requests to those wait for them.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from mq9._core import end_process_on_panic
from mq9.config import ConfigError
from mq9.imports import imports_that_stay
from mq9.server.listener import accept_until
from mq9.server.logs import Log
from mq9.server.opening import Opened, prepared
from mq9.server.running import StartError

if TYPE_CHECKING:
    from mq9.config import Options

# How long the thread that imports may keep the interpreter to itself.
_IMPORTING_SWITCH_S = 0.0005


def run(options: Options) -> int:
    """Run a server until it is told to stop; the exit status of the process."""
    try:
        log = Log(
            file=options.log_file,
            debug=options.debug,
            trace=options.trace,
            time=options.logtime,
            utc=options.logtime_utc,
        )
    except OSError as error:
        sys.stderr.write(f"mq9 serve: cannot write the log {options.log_file}: {error.strerror}\n")
        return 1
    # What a panic leaves behind is half changed; recovery is what puts it right.
    end_process_on_panic(options.log_file)
    try:
        return _run(options, log)
    except (ConfigError, StartError) as error:
        if options.log_file is not None:
            log.error(str(error))
        sys.stderr.write(f"mq9 serve: {error}\n")
        return 1
    finally:
        log.close()


def _run(options: Options, log: Log) -> int:
    if options.replication is not None:
        # A node listens for others as long as it does not lead.
        from mq9.server.server import serve_in_cluster

        return serve_in_cluster(options, log)
    opened = prepared(options, log).opened()
    try:
        _greet_while_importing(opened)
        from mq9.server.server import serve_alone
    except BaseException:
        opened.close()
        raise
    return serve_alone(opened)


def _greet_while_importing(opened: Opened) -> None:
    done, tell = os.pipe()

    def load() -> None:
        try:
            with imports_that_stay():
                import mq9.server.server  # noqa: F401
        finally:
            os.close(tell)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(_IMPORTING_SWITCH_S)
    try:
        # What it fails with, the import behind it fails with, too.
        threading.Thread(target=load, daemon=True).start()
        accept_until(done, opened.sockets, opened.admission.enter, opened.running.log)
    finally:
        sys.setswitchinterval(interval)
        os.close(done)
