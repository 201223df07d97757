"""What is told of agents is durable, and does not wait for messages that are not yet."""

import asyncio
from pathlib import Path

import pytest

from mq9.registry.registry import Registry
from mq9.server.logs import Log
from mq9.store import Store


def check(registry: Registry, store: Store, ticket: int) -> None:
    """Never durable before the log is, up to the last change."""
    while not registry.is_durable:
        store.wait_durable(ticket)
    assert store.acknowledged() >= ticket


@pytest.mark.parametrize("change", ["register", "report", "unregister"])
def test_a_search_waits_for_changes_of_agents_and_not_for_messages(
    tmp_path: Path, change: str
) -> None:
    asyncio.run(search_after(tmp_path, change))


async def search_after(tmp_path: Path, change: str) -> None:
    with Store(tmp_path, sync="always") as store:
        registry = Registry(store, Log(), "none")
        try:
            registry.register("a", b"{}", 0, ())
            if change == "report":
                registry.report("a", b"{}")
            elif change == "unregister":
                registry.unregister("a")
            check(registry, store, store.end())
            store.create_mailbox("box")
            for _ in range(1000):
                store.send("box", b"x")
                assert registry.is_durable
        finally:
            registry.close()


def test_what_was_there_before_is_durable_before_it_is_told(tmp_path: Path) -> None:
    asyncio.run(search_after(tmp_path, "register"))
    with Store(tmp_path, sync="always") as store:
        check(Registry(store, Log(), "none"), store, store.end())
