"""Files for deployment: alerts fire and stay silent as they should, where promtool is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool: Debian's prometheus")
@pytest.mark.parametrize(
    "arguments", [("check", "rules", "mq9.rules.yml"), ("test", "rules", "mq9.rules.test.yml")]
)
def test_alerts_fire_when_they_should(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
