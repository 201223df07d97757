"""A line for everything that somebody changed, or tried to."""

import json
import logging
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("mq9.manage.audit")
_KEPT = 500
# As the log: names and addresses are not for everybody on the machine.
_RIGHTS = 0o640
_MOST_WAITING = 1 << 20


class Audit:
    """Writes lines of JSON to a file, and to the log.

    A file that cannot be written ends nothing: whoever purges makes room on a full disk. The log
    has the line, and the file gets it as soon as it can be written.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = _open(file) if file is not None else None
        self._waiting = b""
        self._is_failing = False
        self.newest: deque[dict[str, Any]] = deque(maxlen=_KEPT)

    @property
    def waiting(self) -> int:
        """How many bytes of lines wait until the file can be written."""
        return len(self._waiting)

    def note(
        self, *, user: str, address: str, action: str, target: str, result: str, **more: object
    ) -> None:
        """Somebody did something."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "user": user,
            "address": address,
            "action": action,
            "target": target,
            "result": result,
            **more,
        }
        self.newest.append(line)
        # JSON keeps names with line ends in them on one line.
        text = json.dumps(line)
        _LOG.info("%s", text)
        if self._file is None:
            return
        if len(self._waiting) < _MOST_WAITING:
            self._waiting += text.encode() + b"\n"
        self._write(self._file)

    def _write(self, file: int) -> None:
        """Write what waits, or as much of it as there is room for."""
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(file, self._waiting) :]
        except OSError as error:
            if not self._is_failing:
                _LOG.error("the audit file cannot be written, the log has its lines: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._write(self._file)
            os.close(self._file)
            self._file = None


def _open(file: Path) -> int:
    rights = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.open(file, rights, _RIGHTS)
