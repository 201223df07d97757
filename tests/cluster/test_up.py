"""`mq9 cluster up` and `status`: what they print, and that everything ends in order."""

import asyncio
import contextlib
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import nats
import pytest
from tests.cluster.test_nodes import ask_until_done, stored

MQ9 = (sys.executable, "-m", "mq9")


def free_port(count: int) -> int:
    """The first of so many ports in a row that are free now; others hardly draw the same."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(10_000, 30_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for each in range(port, port + count):
                taken = stack.enter_context(socket.socket())
                taken.bind(("127.0.0.1", each))
            return port
    raise AssertionError("no ports are free")


def up(count: int, folder: Path, port: int) -> tuple[subprocess.Popen[str], list[str]]:
    """A cluster that is ready, and what it said until then."""
    words = ("cluster", "up", "--local", str(count), "--data", str(folder), "--port", str(port))
    process = subprocess.Popen([*MQ9, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    # Nothing else ends the wait for a line that does not come.
    timer = threading.Timer(90, process.kill)
    timer.start()
    said = []
    for line in process.stdout:
        said.append(line)
        if "Ctrl-C" in line:
            break
    timer.cancel()
    assert said[-1:], "it ended"
    return process, said


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """One command."""
    return subprocess.run([*MQ9, *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_cluster_to_try_starts_again_with_its_files(tmp_path: Path, count: int) -> None:
    port = free_port(5 * count)
    for wanted in (["once"], ["once", "again"]):
        process, said = up(count, tmp_path, port)
        try:
            url = said[0].removeprefix("Connect to ").strip()
            assert len(url.split(",")) == count
            client = await nats.connect(url.split(","), connect_timeout=10)
            if wanted == ["once"]:
                await ask_until_done(client, "MAILBOX.CREATE", b'{"name": "box"}')
            await ask_until_done(client, "MSG.SEND.box", wanted[-1].encode())
            assert await stored(client, "box") == wanted
            await client.close()
            words = re.sub(r"^.*: mq9 ", "", said[1].strip()).split()
            status = await asyncio.to_thread(command, *words)
            assert status.stdout.split()[:4] == ["node", "role", "term", "leader"]
            listed = await asyncio.to_thread(command, *words[:2], "--json", *words[2:])
            roles = sorted(node["role"] for node in json.loads(listed.stdout))
            assert roles == ["following"] * (count - 1) + ["leading"]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert process.stdout is not None
            process.stdout.close()
    unreachable = await asyncio.to_thread(command, *words)
    assert unreachable.returncode == 3
    assert "unreachable" in unreachable.stdout
