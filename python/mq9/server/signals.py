"""Maps signals to requests. Knows their names, not how they are met."""

import asyncio
import signal
from collections.abc import Callable


class Signals:
    """The signals of one server."""

    def __init__(
        self,
        *,
        stop: Callable[[str], None],
        lame_duck: Callable[[], None],
        reload: Callable[[], None],
        reopen_log: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: lambda: stop("SIGTERM"),
            signal.SIGINT: lambda: stop("SIGINT"),
            signal.SIGUSR2: lame_duck,
            signal.SIGHUP: reload,
            signal.SIGUSR1: reopen_log,
        }

    def listen(self) -> None:
        """Take the signals from here on, those that wait first."""
        for number, handler in self._handlers.items():
            self._loop.add_signal_handler(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._handlers)
