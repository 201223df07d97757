"""JetStream as nats-server speaks it: recorded exchanges hold, but for those listed here."""

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RECORDED = HERE / "data" / "jetstream.jsonl"
NAMES = [json.loads(line)["name"] for line in RECORDED.read_text("utf-8").splitlines()]

DIFFERENT = {
    # Decision 26: push consumers are refused, not accepted and given nothing.
    "consumer create: push with deliver_subject": '.a[0].json.stream_name: missing, want "S"',
    "pull: on a push consumer": '.a[0].json.stream_name: missing, want "S"',
    # Decision 26: nothing is pending before a consumer's start.
    "deliver: by start sequence beyond the end": 'C.1.9.1.<ns>.5", got "$JS.ACK.S.C.1.9.1.<ns>.1"',
}
"""Scenarios that differ on purpose, each with what is seen to differ first."""


def serve_command(program: str) -> str:
    """What starts a server, as the replay takes it."""
    return f"{program} serve -a 127.0.0.1 -p {{port}} -m {{http}} -js -sd {{dir}}"


def replay(command: str, *options: str, recorded: Path = RECORDED) -> tuple[dict[str, str], str]:
    """The scenarios that went otherwise than recorded, with their first difference, and all said.

    Every scenario counts: AssertionError if some were not replayed.
    """
    script = str(HERE / "jetstream_replay.py")
    replayed = subprocess.run(
        [sys.executable, script, "--start", command, str(recorded), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    said = replayed.stdout + replayed.stderr
    total = re.search(r"^(\d+) of (\d+) scenarios as recorded$", replayed.stdout, re.MULTILINE)
    assert total, said
    differences: dict[str, str] = {}
    for part in re.split(r"^DIFF ", replayed.stdout, flags=re.MULTILINE)[1:]:
        names = [name for name in NAMES if part.startswith(f"{name}: ")]
        assert names, f"a difference of no scenario: {part}"
        name = max(names, key=len)
        differences[name] = part[len(name) + 2 :].rstrip()
    as_recorded, replayed_count = int(total[1]), int(total[2])
    assert as_recorded + len(differences) == replayed_count, said
    return differences, said


def test_clients_of_jetstream_are_answered_as_recorded() -> None:
    command = serve_command(str(Path(sys.executable).with_name("mq9")))
    differences, said = replay(command, "-j", "4", "--slow", "3")
    assert f"of {len(NAMES)} scenarios as recorded" in said, said
    for name in sorted(set(differences) - set(DIFFERENT)):
        # What a busy machine made late is asked once more, alone.
        again, _ = replay(command, "-k", name, "--slow", "10")
        if name not in again:
            del differences[name]
    unexpected = {name: differences[name] for name in differences if name not in DIFFERENT}
    assert not unexpected, said
    for name, seen in DIFFERENT.items():
        assert seen in differences.get(name, "as recorded"), (name, differences.get(name))


def test_a_server_that_does_not_start_is_no_success(tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    lines = RECORDED.read_text("utf-8").splitlines(keepends=True)
    few.write_text("".join(lines[:3]), "utf-8")
    differences, _ = replay("/bin/false", recorded=few)
    assert sorted(differences) == sorted(NAMES[:3])
    assert all("the server did not start" in said for said in differences.values())
