"""Management and clusters, started and used as their pages print it."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.test_up import free_port
from tests.pages import blocks, comparable, environment_in, run_as_printed, run_steps, steps
from tests.peers import Serve, until

CLUSTER = "docs/guides/cluster.md"
OPERATOR = """
authorization {
  users: [
    { user: operator, password: secret, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
    { user: agent, password: public }
  ]
}
no_auth_user: agent
mq9 { management: false }
"""


def test_management_works_as_printed(serve: Serve, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra manage")
    server = serve(OPERATOR)
    listen = f"127.0.0.1:{free_port(1)}"
    environment = environment_in(tmp_path, server.url)
    # The reply ends where the prompt of a terminal would stand.
    (tmp_path / ".curlrc").write_text('write-out = "\\n"\n')

    def rewritten(command: str) -> str:
        return command.replace("nats://127.0.0.1:4222", server.url).replace(
            "127.0.0.1:8055", listen
        )

    shown = [*blocks("docs/management.md", "console"), "$ kill $(jobs -p)\n"]
    ran = run_as_printed(
        "docs/management.md", tmp_path, environment, rewritten=rewritten, sessions=shown
    )
    assert ran == 8


@contextmanager
def up(command: str, folder: Path, environment: dict[str, str], port: int) -> Iterator[str]:
    """A cluster that a command of a page starts; what it prints."""
    words = ["bash", "-c", f"exec {command} --port {port}"]
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        # Nothing else ends the wait for a line that does not come.
        timer = threading.Timer(90, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            timer.cancel()
            yield "".join(lines)
        finally:
            timer.cancel()
            process.terminate()
            assert process.wait(60) == 0


def moved(text: str, port: int) -> str:
    """The ports of a page, each by as much as the first."""
    return re.sub(r"(?<=127\.0\.0\.1:)(42\d\d)", lambda at: str(int(at[1]) - 4222 + port), text)


def test_a_cluster_works_as_printed(tmp_path: Path) -> None:
    start, use = blocks(CLUSTER, "console")
    environment = environment_in(tmp_path)
    port = free_port(12)
    (first,) = steps(start)
    with up(first.command, tmp_path, environment, port) as printed:
        made_up = r"/tmp\S*/mq9-cluster-\w+"
        shown = moved(first.output, port)
        assert re.sub(made_up, "DIR", printed) == re.sub(made_up, "DIR", shown)
        # What the second line says to do.
        status = printed.splitlines()[1].partition(": ")[2]
        wanted = list(steps(use))
        done = run_steps([moved(step.command, port) for step in wanted], tmp_path, environment)
        for step, output in zip(wanted, done, strict=True):
            numbers = r"(?<=ode |erm )\d+"
            expected = re.sub(numbers, "N", comparable(step.output))
            assert re.sub(numbers, "N", comparable(output)) == expected, step.command

        def roles() -> list[str]:
            (table,) = run_steps([status], tmp_path, environment)
            return sorted(row.split()[1] for row in table.splitlines()[1:])

        # The last may still be starting on a busy machine.
        until(lambda: roles() == ["following", "following", "leading"], "all are there", 60)


def test_folders_move_into_and_out_of_a_cluster_as_printed(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    server.stop()
    first = server.log_file.parent / "data"
    environment = environment_in(tmp_path)
    folders = [block for block in blocks(CLUSTER, "sh") if "cluster status" not in block]
    shown = [line for block in folders for line in block.splitlines()]
    kinds = [" ".join(line.split()[1:3]) for line in shown]
    assert kinds == [
        *("cluster seed", "cluster join"),
        *("cluster leave",),
        *("cluster reseed", "cluster join"),
    ]
    # The folder that goes on alone is a copy: the order is not that of one story.
    alone = tmp_path / "alone"
    second = iter([tmp_path / "second", tmp_path / "third"])
    for line, kind in zip(shown, kinds, strict=True):
        command = re.sub(r"/mnt/(?:first|longest)/mq9", str(first), line)
        place = {"cluster join": lambda: next(second), "cluster leave": lambda: alone}.get(kind)
        command = command.replace("/var/lib/mq9", str(place() if place else first))
        if kind == "cluster leave":
            copied = [sys.executable, "-m", "mq9", "cluster", "backup", str(first), str(alone)]
            subprocess.run(copied, check=True, capture_output=True)
        (printed,) = run_steps([f"{command}\necho status $?"], tmp_path, environment)
        assert printed.endswith("status 0\n"), printed
        assert "It holds the log up to" in printed
