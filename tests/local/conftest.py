"""A queue in an empty folder, and an environment that says nothing of queues."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mq9.local import Queue


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ZOS_")]:
        monkeypatch.delenv(name)


class Folder:
    """The files of a queue, as `cat` shows them."""

    def __init__(self, root: Path, session: str = "default") -> None:
        self.root = root
        self.session = root / "sessions" / session
        self.messages = self.session / "messages.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.messages.read_text("utf-8").splitlines()]

    def audit(self) -> list[dict[str, Any]]:
        file = self.root / "audit.jsonl"
        if not file.exists():
            return []
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()]

    def cursor(self, agent: str) -> int:
        return int((self.session / "cursors" / f"{agent}.cursor").read_text())

    def bodies(self) -> set[str]:
        folder = self.session / "bodies"
        return {file.name for file in folder.iterdir()} if folder.exists() else set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mq"


@pytest.fixture
def queue(root: Path) -> Queue:
    return Queue(root)


@pytest.fixture
def folder(root: Path) -> Folder:
    return Folder(root)
