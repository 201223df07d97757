"""The log: one line per event, in nats-server's form with fields after the text.

Owns the form of a line and where lines go. Knows nothing of what is logged.
"""

import datetime
import json
import os
import re
import sys
from pathlib import Path
from typing import TextIO

# As nats-server: names and addresses of clients are not for everybody on the machine.
_RIGHTS = 0o640
_PLAIN = re.compile(r"[\w.:/@$*>+,\[\]#-]+")


class Log:
    """Writes events to standard error, or to a file that can be moved away and reopened."""

    def __init__(
        self,
        *,
        file: Path | None = None,
        debug: bool = False,
        trace: bool = False,
        time: bool = True,
        utc: bool = False,
    ) -> None:
        self._file = file
        self._stream = _open(file)
        self._pid = os.getpid()
        self.configure(debug=debug, trace=trace, time=time, utc=utc)

    def configure(self, *, debug: bool, trace: bool, time: bool, utc: bool) -> None:
        """Change what is logged and how, without changing where."""
        self.debugging = debug or trace
        self.tracing = trace
        self._time = time
        self._zone = datetime.UTC if utc else None

    def info(self, text: str, **fields: object) -> None:
        """Something an operator wants to know about a healthy server."""
        self._write("INF", text, fields)

    def warn(self, text: str, **fields: object) -> None:
        """Something that works, though perhaps not as wanted."""
        self._write("WRN", text, fields)

    def error(self, text: str, **fields: object) -> None:
        """Something that did not work."""
        self._write("ERR", text, fields)

    def debug(self, text: str, **fields: object) -> None:
        """Something that happened to one client."""
        if self.debugging:
            self._write("DBG", text, fields)

    def trace(self, text: str, **fields: object) -> None:
        """Something that one client said or was told."""
        if self.tracing:
            self._write("TRC", text, fields)

    def reopen(self) -> None:
        """Go on in a new file of the same name, after the old one was moved away."""
        if self._file is not None:
            old, self._stream = self._stream, _open(self._file)
            old.close()

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._stream.close()

    def _write(self, level: str, text: str, fields: dict[str, object]) -> None:
        time = ""
        if self._time:
            now = datetime.datetime.now(self._zone or datetime.UTC)
            now = now if self._zone else now.astimezone()
            time = now.strftime("%Y/%m/%d %H:%M:%S.%f ")
        words = [text.replace("\n", "\\n"), *(f"{key}={_value(v)}" for key, v in fields.items())]
        try:
            self._stream.write(f"[{self._pid}] {time}[{level}] {' '.join(words)}\n")
            self._stream.flush()
        except (OSError, ValueError):
            # A full disk or a closed pipe must not take the server down with it.
            pass


def _open(file: Path | None) -> TextIO:
    if file is None:
        return sys.stderr
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _RIGHTS)
    return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def _value(value: object) -> str:
    # Names come from clients: quotes keep spaces, line ends and escape codes inside their field.
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
