"""Whoever waits for durability is told, whichever thread synced.

Found by the test of a full disk: with a single client, a SEND was never answered. Upkeep had synced
what the client waited for before the sync thread woke up; the sync thread then had nothing to do,
and rang no bell. The reply left with the next command of anybody.
"""

import select
from pathlib import Path

from mq9.store import Store

ROUNDS = 300
DEADLINE_S = 2.0


def test_the_bell_rings_when_another_thread_has_synced(tmp_path: Path) -> None:
    with Store(tmp_path, maintain_every_ms=0) as store:
        store.create_mailbox("box")
        store.wait_durable()
        bell = store.fileno()
        for number in range(ROUNDS):
            store.read_acknowledged()
            store.send("box", b"x")
            store.checkpoint()
            ready, _, _ = select.select([bell], [], [], DEADLINE_S)
            assert ready, f"message {number} is durable, and nobody was told"
