"""A real Prometheus scrapes a real broker: one alert of the rules fires, others stay silent."""

import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
from tests.manage.conftest import Manage, free_port, needed
from tests.peers import until

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "mq9.rules.yml"
WAITING = 30


def test_the_backlog_alert_fires(manage: Manage, tmp_path: Path) -> None:
    program = needed("prometheus")
    managed = manage()
    # The rules of the document, with numbers and times that a test can wait for.
    rules = RULES.read_text()
    assert "> 10000\n        for: 2m" in rules
    quick = rules.replace("> 10000\n        for: 2m", f"> {WAITING - 10}\n        for: 1s")
    (tmp_path / "rules.yml").write_text(quick)
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        "rule_files: [rules.yml]\n"
        "scrape_configs:\n"
        "  - job_name: mq9\n"
        "    static_configs:\n"
        f"      - targets: [{managed.url.removeprefix('http://')!r}]\n"
    )
    url = f"http://127.0.0.1:{free_port()}"
    command = [program, "--config.file=prometheus.yml", f"--storage.tsdb.path={tmp_path / 'data'}"]
    command += [f"--web.listen-address={url.removeprefix('http://')}", "--log.level=warn"]
    environment = {**os.environ, "GOMAXPROCS": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        try:
            with managed.mail() as mail:
                mail.done("MAILBOX.CREATE", {"name": "jobs"})
                mail.deliver("jobs", b"0")
                assert mail.fetch("jobs", "inference-workers", num_msgs=1)
                assert mail.fetch("jobs", "other-workers", num_msgs=1)
                until(lambda: up(url) == {"mq9": "up"}, "Prometheus has scraped the broker", 60)
                assert firing(url) == set(), "nothing waits yet"
                for number in range(1, WAITING):
                    mail.deliver("jobs", b"%d" % number)
            until(lambda: firing(url), "the alert fires", 60)
            assert firing(url) == {("QueueBacklogCritical", "inference-workers")}
            [value] = asked(url, 'hanzo_mq_pending_count{consumer="inference-workers"}')
            assert value["metric"]["stream"] == "jobs"
            assert value["value"][1] == str(WAITING)
            assert asked(url, "mq9_up")[0]["value"][1] == "1"
        finally:
            process.terminate()
            process.wait(30)


def told(url: str, path: str, **query: str) -> Any:  # noqa: ANN401
    try:
        response = httpx.get(f"{url}/api/v1/{path}", params=query, timeout=10)
    except httpx.TransportError:
        return {}
    return response.json().get("data", {}) if response.is_success else {}


def up(url: str) -> dict[str, str]:
    targets = told(url, "targets").get("activeTargets", ())
    return {target["labels"]["job"]: target["health"] for target in targets}


def firing(url: str) -> set[tuple[str, str]]:
    alerts = told(url, "alerts").get("alerts", ())
    return {
        (alert["labels"]["alertname"], alert["labels"].get("consumer", ""))
        for alert in alerts
        if alert["state"] == "firing"
    }


def asked(url: str, query: str) -> list[Any]:
    found: list[Any] = told(url, "query", query=query)["result"]
    return found
