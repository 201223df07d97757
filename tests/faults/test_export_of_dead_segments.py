"""A start of the broker gives back no part of the log that has not been exported.

Found by the kill test: upkeep began with the store, and the export, which has it keep segments,
only when the server was nearly ready. On a busy machine a segment that was dead when the broker was
killed was gone by then.
"""

import json
from pathlib import Path

from tests.exported import read
from tests.peers import MQ9, start, until

from mq9.store import Store

MESSAGES = 200


def test_what_was_dead_before_the_start_is_exported(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    with Store(data, segment_bytes=1 << 18, maintain_every_ms=0) as store:
        store.create_mailbox("box", work_queue=True)
        for _ in range(MESSAGES):
            store.send("box", bytes(8000))
        given = store.fetch(
            "box", group="g", deliver="earliest", max_msgs=MESSAGES, max_bytes=1 << 30
        )
        store.ack("box", "g", [message.msg_id for message in given])
        # Neither of the two checkpoints needs the dead segments.
        for _ in range(2):
            store.send("box", b"stays")
            store.checkpoint()
    assert len(list(data.glob("segment-*.log"))) > 4
    sizes = "segment_size: 256KiB, checkpoint_size: 256KiB"
    config = f'{sizes}, upkeep_interval: "2ms", export {{ dir: "{out}", every: "100ms" }}'
    server = start(tmp_path, f"mq9 {{ {config} }}", peer=MQ9)
    try:
        until(lambda: len(list(data.glob("segment-*.log"))) < 3, "the dead segments were gone")
    finally:
        assert server.stop() == 0
    assert len(read(out, "messages")) == MESSAGES + 2
    assert json.loads((out / "manifest.json").read_text("utf-8"))["gaps"] == 0
