"""A line for everything that somebody changed, or tried to."""

import json
import logging
import os
import time
from collections import deque
from pathlib import Path
from typing import Any, TextIO

_LOG = logging.getLogger("mq9.manage.audit")
_KEPT = 500
# As the log: names and addresses are not for everybody on the machine.
_RIGHTS = 0o640


class Audit:
    """Writes lines of JSON to a file, and to the log."""

    def __init__(self, file: Path | None) -> None:
        self._file = _open(file) if file is not None else None
        self.newest: deque[dict[str, Any]] = deque(maxlen=_KEPT)

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
        if self._file is not None:
            self._file.write(text + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _open(file: Path) -> TextIO:
    rights = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(os.open(file, rights, _RIGHTS), "a", encoding="utf-8")
