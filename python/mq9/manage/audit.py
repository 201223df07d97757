"""A line for everything that somebody changed, or tried to."""

import json
import logging
import time
from collections import deque
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("mq9.manage.audit")
_KEPT = 500


class Audit:
    """Writes lines of JSON to a file, and to the log."""

    def __init__(self, file: Path | None) -> None:
        self._file = file.open("a", encoding="utf-8") if file is not None else None
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
