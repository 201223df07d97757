"""JetStream as nats-server speaks it: recorded exchanges hold, but for those that are listed."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RECORDED = HERE / "data" / "jetstream.jsonl"
DIFFERENT = {
    "consumer create: push with deliver_subject",
    "deliver: by start sequence beyond the end",
    "pull: on a push consumer",
    "pull: interest gone by unsubscribe",
    "mixed: life of a workqueue",
    "mixed: max_msgs drops what waits for an ack",
}
"""Scenarios that differ on purpose or not yet; decision 26 says why."""


def replay(*options: str) -> tuple[set[str], str]:
    """The names of the scenarios that went otherwise than recorded, and all that was said."""
    serve = f"{Path(sys.executable).with_name('mq9')} serve -a 127.0.0.1"
    command = f"{serve} -p {{port}} -m {{http}} -js -sd {{dir}}"
    script = str(HERE / "jetstream_replay.py")
    replayed = subprocess.run(
        [sys.executable, script, "--start", command, str(RECORDED), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    said = replayed.stdout + replayed.stderr
    lines = [line for line in said.splitlines() if line.startswith("DIFF ")]
    return {line[5:].split(": step ")[0] for line in lines}, said


def test_clients_of_jetstream_are_answered_as_recorded() -> None:
    different, said = replay("-j", "4", "--slow", "3")
    assert "of 273 scenarios as recorded" in said, said
    # What a busy machine made late is asked once more, alone.
    again = {
        name for name in different - DIFFERENT if name in replay("-k", name, "--slow", "10")[0]
    }
    assert not again, said
