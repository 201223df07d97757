"""Files for deployment: they are what the tools that read them take, and alerts fire when they
should."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.manage.conftest import OPERATORS, free_port, needed
from tests.peers import Serve

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "mq9.rules.yml"),
        ("test", "rules", "mq9.rules.test.yml"),
        ("check", "config", "prometheus.yml"),
    ],
)
def test_alerts_fire_when_they_should(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [needed("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def health_check(port: int) -> int:
    """Run what the container file says to tell whether the broker is well."""
    text = (ROOT / "Containerfile").read_text()
    found = re.search(r"HEALTHCHECK[^\n]*\\\n\s*CMD (\[.*\])\n", text)
    assert found is not None
    program, *arguments = json.loads(found[1])
    assert program == "python"
    command = [sys.executable, *(each.replace("4222", str(port)) for each in arguments)]
    return subprocess.run(command, check=False, timeout=30, stderr=subprocess.DEVNULL).returncode


def test_the_health_check_of_the_container_needs_no_credentials(serve: Serve) -> None:
    server = serve(OPERATORS)
    assert health_check(server.port) == 0
    server.signal(signal.SIGSTOP)
    try:
        assert health_check(server.port) != 0, "it hangs"
    finally:
        server.signal(signal.SIGCONT)
    assert health_check(free_port()) != 0, "nobody is there"
