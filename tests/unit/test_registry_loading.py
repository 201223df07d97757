"""Agents that could not be loaded are as registered as before, and the next request tries again."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from mq9.errors import StoreError
from mq9.registry.registry import AGENTS, Registry
from mq9.server.logs import Log
from mq9.store import Message, Store


class Failing:
    """A store that cannot be read from its beginning while `fails`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fails = True

    def query(
        self,
        mailbox: str,
        *,
        key: str | None = None,
        after_id: int | None = None,
        limit: int,
        max_bytes: int = 1 << 20,
    ) -> list[Message]:
        if self.fails and mailbox == AGENTS and after_id is not None:
            raise StoreError("input/output error")
        return self._store.query(
            mailbox, key=key, after_id=after_id, limit=limit, max_bytes=max_bytes
        )

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def fill(folder: Path) -> None:
    async def register() -> None:
        with Store(folder, sync="none") as store:
            registry = Registry(store, Log(), "none")
            for number in range(1000):
                registry.register(f"a{number}", b"{}", 0, (), owner="ann")
            registry.close()

    asyncio.run(register())


def test_after_a_failed_load_agents_and_their_owners_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)

    async def check() -> None:
        with Store(tmp_path, sync="none") as store:
            failing = Failing(store)
            registry = Registry(cast("Store", failing), Log(), "none")
            # Nothing is searched for.
            monkeypatch.setattr(registry.link, "start", lambda: None)
            try:
                registry.start()
                assert registry.loading
                with pytest.raises(StoreError):
                    await registry.loading
                assert registry.loading is None
                known = registry.known("a999")
                assert known
                assert known.owner == "ann"
                assert registry.count == 1000
                assert registry.known("a1000") is None
                failing.fails = False
                registry.wake()
                assert registry.loading
                await registry.loading
                assert len(registry.roster) == registry.count == registry.count_of("ann") == 1000
            finally:
                registry.close()

    asyncio.run(check())
