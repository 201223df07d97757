"""The pages for operators: what they print is typed in, with a broker and its management."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from tests.manage.conftest import Managed, free_port, managed, needed
from tests.pages import ROOT, blocks, environment_in, run_as_printed
from tests.peers import Serve

pytest.importorskip("uvicorn", reason="needs the extra manage")
RULES = ROOT / "deploy" / "prometheus" / "mq9.rules.yml"


def patient(command: str) -> str:
    """Management follows within a second or two: what a page looks for is looked for until it is
    there."""
    if "| grep" not in command:
        return command
    again = 'for i in $(seq 600); do out=$({}) && break; sleep 0.1; done; echo "$out"'
    if "replay-all" in command:
        return command
    return again.format(command)


def run(page: str, folder: Path, found: Managed) -> int:
    ports = {"4222": str(found.server.port), "8055": found.url.rpartition(":")[2]}
    assert found.server.monitor_url is not None
    ports["8222"] = found.server.monitor_url.rpartition(":")[2]

    def rewritten(command: str) -> str:
        for shown, real in ports.items():
            command = command.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{real}")
        return patient(command)

    # The reply ends where the prompt of a terminal would stand.
    (folder / ".curlrc").write_text('write-out = "\\n"\n')
    environment = environment_in(folder, found.server.url) | {"CURL_HOME": str(folder)}
    return run_as_printed(page, folder, environment, rewritten=rewritten)


@pytest.mark.parametrize(
    ("page", "commands"),
    [
        ("docs/operate/alert.md", 2),
        ("docs/operate/dead-letters.md", 9),
        ("docs/operate/monitor.md", 7),
        ("docs/operate/scale.md", 6),
    ],
)
def test_a_page_for_operators_works_as_printed(
    page: str, commands: int, serve: Serve, tmp_path: Path
) -> None:
    assert run(page, tmp_path, managed(serve, tmp_path)) == commands


@pytest.mark.parametrize("page", ["docs/operate/configure.md", "docs/operate/upgrade.md"])
def test_a_broker_is_started_and_changed_as_printed(page: str, tmp_path: Path) -> None:
    """With the configuration of the one page, on ports of this test."""
    (config,) = blocks("docs/operate/configure.md", "hocon")
    port = free_port()
    for shown, real in {"4222": port, "8222": free_port(), "8055": free_port()}.items():
        config = config.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{real}")
    (tmp_path / "mq9.conf").write_text(config)
    environment = environment_in(tmp_path, f"nats://127.0.0.1:{port}")
    assert run_as_printed(page, tmp_path, environment) >= 8


def test_every_alert_is_on_the_page() -> None:
    text = (ROOT / "docs/operate/alert.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    rules = yaml.safe_load(RULES.read_text("utf-8"))
    assert listed == [rule["alert"] for group in rules["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("page", ["docs/operate/alert.md", "docs/operate/monitor.md"])
def test_prometheus_takes_what_pages_show(page: str, tmp_path: Path) -> None:
    (tmp_path / RULES.name).write_text(RULES.read_text("utf-8"))
    shown = blocks(page, "yaml")
    assert shown
    for number, block in enumerate(shown):
        file = tmp_path / f"{number}.yml"
        file.write_text(block)
        kind = "rules" if "groups" in yaml.safe_load(block) else "config"
        syntax = ["--syntax-only"] if kind == "config" else []
        done = subprocess.run(
            [needed("promtool"), "check", kind, *syntax, str(file)],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_scale_page_says_what_keda_does() -> None:
    text = (ROOT / "docs/operate/scale.md").read_text("utf-8")
    rows = re.findall(r"^\| (?:inference|fine-tuning|a JetStream consumer) \| (\d+) \| (\d+) \|",
                      text, re.MULTILINE)  # fmt: skip
    scaled = [each for each in yaml.safe_load_all((ROOT / "deploy/keda.yaml").read_text()) if each]
    specs = [each["spec"] for each in scaled]
    assert rows == [(str(s["minReplicaCount"]), str(s["maxReplicaCount"])) for s in specs]
