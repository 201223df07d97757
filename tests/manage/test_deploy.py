"""Files for deployment: they are what the tools that read them take, and alerts fire when they
should."""

import copy
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]
from tests.manage.conftest import OPERATORS, Manage, Managed, free_port, needed, wait_healthy
from tests.manage.test_api import bury
from tests.peers import Serve, until

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
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


def test_each_alert_is_tested_with_series_that_fire_and_series_that_do_not() -> None:
    rules = yaml.safe_load((FOLDER / "mq9.rules.yml").read_text())
    cases = yaml.safe_load((FOLDER / "mq9.rules.test.yml").read_text())["tests"]
    tried = [case for each in cases for case in each["alert_rule_test"]]
    fires = {case["alertname"] for case in tried if case.get("exp_alerts")}
    silent = {case["alertname"] for case in tried if not case.get("exp_alerts")}
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    # Beside the series of one that fires there is always one of another queue, which does not.
    assert (fires, names - silent) == (names, {"DeadLetterAccumulating"})


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


def manifests(file: str) -> list[Any]:
    return [each for each in yaml.safe_load_all((ROOT / "deploy" / file).read_text()) if each]


def of_kind(kind: str) -> list[Any]:
    return [each for each in manifests("kubernetes/mq9.yaml") if each["kind"] == kind]


def test_the_manifests_for_kubernetes_fit_together() -> None:
    """What names something else names something that is there."""
    [stateful] = of_kind("StatefulSet")
    template = stateful["spec"]["template"]
    labels, pod = template["metadata"]["labels"], template["spec"]
    [container] = pod["containers"]
    assert stateful["spec"]["selector"]["matchLabels"] == labels
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind("Service")}
    assert stateful["spec"]["serviceName"] in services
    for service in services.values():
        assert service["selector"] == labels
        for port in service["ports"]:
            assert ports[port["targetPort"]] == port["port"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        [how] = container[probe].keys() & {"httpGet", "tcpSocket"}
        assert container[probe][how]["port"] in ports
    claims = {each["metadata"]["name"] for each in stateful["spec"]["volumeClaimTemplates"]}
    volumes = claims | {each["name"] for each in pod["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    [secret], [config] = of_kind("Secret"), of_kind("ConfigMap")
    for variable in container["env"]:
        reference = variable["valueFrom"]["secretKeyRef"]
        assert reference["name"] == secret["metadata"]["name"]
        assert reference["key"] in secret["stringData"]
    assert {"configMap": {"name": config["metadata"]["name"]}}.items() <= pod["volumes"][0].items()
    [policy], [budget] = of_kind("NetworkPolicy"), of_kind("PodDisruptionBudget")
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert budget["spec"]["selector"]["matchLabels"] == labels
    allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert allowed == ports.keys()
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsUser"] == 909
    assert "--uid 909" in (ROOT / "Containerfile").read_text()


@pytest.mark.parametrize("version", ["1.30.0", kubernetes_validate.latest_version()])
def test_kubernetes_takes_the_manifests(version: str) -> None:
    """By the schemas of its releases, which come with the package; unknown fields are errors."""
    found = manifests("kubernetes/mq9.yaml")
    kinds = {each["kind"] for each in found}
    assert kinds >= {"StatefulSet", "Service", "NetworkPolicy", "Secret", "PodDisruptionBudget"}
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)
    broken = copy.deepcopy(next(each for each in found if each["kind"] == "StatefulSet"))
    broken["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_configuration_for_kubernetes_runs(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its secrets and ports of this machine; probes and scrapers ask by address."""
    [secret], [config] = of_kind("Secret"), of_kind("ConfigMap")
    [stateful] = of_kind("StatefulSet")
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    for variable in container["env"]:
        value = secret["stringData"][variable["valueFrom"]["secretKeyRef"]["key"]]
        monkeypatch.setenv(variable["name"], value)
    monitor, management = free_port(), free_port()
    text = config["data"]["mq9.conf"].replace("8222", str(monitor))
    server = serve(text.replace("0.0.0.0:8055", f"127.0.0.1:{management}"), "-m", str(monitor))
    path = container["readinessProbe"]["httpGet"]["path"]
    assert httpx.get(f"http://127.0.0.1:{monitor}{path}", timeout=20).status_code == 200
    url = f"http://127.0.0.1:{management}"
    wait_healthy(Managed(server, url, Path()))
    host, scraper = {"Host": "10.0.0.7:8055"}, ("scraper", secret["stringData"]["scraper"])
    assert httpx.get(f"{url}/healthz", headers=host, timeout=20).status_code == 200
    scraped = httpx.get(f"{url}/metrics", headers=host, auth=scraper, timeout=20)
    assert "mq9_up 1.0" in scraped.text
    purge = f"{url}/v1/queues/any/purge"
    assert httpx.post(purge, auth=scraper, timeout=20).status_code == 403
    operator = ("operator", secret["stringData"]["operator"])
    assert httpx.post(purge, auth=operator, timeout=20).status_code == 404


def expressions() -> Iterator[str]:
    """Every PromQL expression of the dashboard and of KEDA."""
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "mq9.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for scaled in manifests("keda.yaml"):
        for trigger in scaled["spec"]["triggers"]:
            if trigger["type"] == "prometheus":
                yield trigger["metadata"]["query"]


def test_expressions_are_promql_of_metrics_that_there_are(manage: Manage, tmp_path: Path) -> None:
    # Nobody is at that address: what is told of copies is that they do not arrive.
    letters = 'dead_letters { postgres: "postgres://mq9@127.0.0.1:1/mq9" }'
    schedules = 'schedules: [{ name: "s", mailbox: "for.metrics", cron: "0 2 * * *", data: {} }]'
    plain = manage(inside=f"{letters}\n{schedules}")
    found = list(expressions())
    assert len(found) > 20
    rules = [{"record": f"r{number}", "expr": expr} for number, expr in enumerate(found)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    command = [needed("promtool"), "check", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with plain.mail() as mail:
        mail.ask("MAILBOX.CREATE", {"name": "for.metrics", "dead_letter": "for.metrics.dead"})
        bury(mail, "for.metrics", b"x")
        mail.deliver("for.metrics", b"y")
        for entry in mail.fetch("for.metrics", "g"):
            mail.ack("for.metrics", "g", entry["msg_id"])
    alerts = yaml.safe_load((FOLDER / "mq9.rules.yml").read_text())
    found += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    wanted = {name for expr in found for name in re.findall(r"\b(?:hanzo_mq|mq9)_\w+", expr)}

    def missing() -> set[str]:
        text = httpx.get(f"{plain.url}/metrics", timeout=20).text
        return wanted - set(re.findall(r"^([a-z_0-9]+)[ {]", text, flags=re.MULTILINE))

    until(lambda: not missing(), "metrics have followed")
    assert missing() == set()


def test_who_may_scrape_and_scale_is_let_in() -> None:
    """KEDA's scaler for JetStream asks the monitoring port from its own namespace."""
    [policy] = of_kind("NetworkPolicy")
    admitted = {
        (peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], port["port"])
        for rule in policy["spec"]["ingress"]
        for peer in rule["from"]
        if "namespaceSelector" in peer
        for port in rule["ports"]
    }
    scrapers = {("monitoring", "management"), ("monitoring", "monitor")}
    assert admitted == scrapers | {("keda", "monitor")}


def test_the_container_has_what_its_settings_may_ask_for() -> None:
    text = (ROOT / "Containerfile").read_text()
    [extras] = re.findall(r"whl\)\[([a-z,]+)\]", text)
    assert {"manage", "postgres"} <= set(extras.split(","))


@pytest.mark.parametrize("name", [".containerignore", ".dockerignore"])
def test_the_container_is_built_without_mail_and_environments(name: str) -> None:
    """What README.md and `make` have users create in a clone, and git ignores."""
    left_out = (ROOT / name).read_text().split()
    assert {".git", ".venv", "env", "mq9-data", ".build", "dist", "target"} <= set(left_out)


def test_panels_of_the_dashboard_do_not_lie_on_each_other() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "mq9.json").read_text())
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)


def test_workers_scale_as_the_document_says() -> None:
    inference, finetune, orders = manifests("keda.yaml")
    for scaled, least, most, up_s, idle_s, cooldown_s in (
        (inference, 2, 16, 30, 300, 300),
        (finetune, 0, 4, 60, 900, 600),
    ):
        spec = scaled["spec"]
        assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (least, most)
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert behavior["scaleUp"]["policies"][0]["periodSeconds"] == up_s
        assert behavior["scaleDown"]["stabilizationWindowSeconds"] == idle_s
        assert behavior["scaleDown"]["policies"][0]["periodSeconds"] == cooldown_s
    assert finetune["spec"]["cooldownPeriod"] == 900, (
        "the last goes when nothing has waited so long"
    )
    assert orders["spec"]["triggers"][0]["type"] == "nats-jetstream"


def verified(program: str, unit: str, folder: Path) -> str:
    """What systemd finds wrong with a unit, but for a program that is not installed here."""
    file = folder / "mq9.service"
    file.write_text(unit.replace("/opt/mq9/bin/mq9 ", "/bin/true "))
    command = [program, "verify", "--man=no", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return "\n".join(line for line in done.stderr.splitlines() if "mq9.service" in line)


def test_the_unit_is_one_for_systemd(tmp_path: Path) -> None:
    unit = (ROOT / "deploy" / "systemd" / "mq9.service").read_text()
    assert "/opt/mq9/bin/mq9 serve" in unit
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze")
    assert verified(program, unit, tmp_path) == ""
    wrong = unit.replace("ProtectSystem=strict", "ProtectSystem=strictly\nProtekt=yes")
    assert "Protekt" in verified(program, wrong, tmp_path)


def strict(schema: Any) -> Any:  # noqa: ANN401
    """The schema, where fields that it does not name are wrong: Kubernetes drops them."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def test_what_scales_is_what_keda_takes() -> None:
    definition = yaml.safe_load((DATA / "keda_scaledobject.yaml").read_text())
    [version] = [each for each in definition["spec"]["versions"] if each["storage"]]
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    check = jsonschema.Draft7Validator(schema)
    for scaled in manifests("keda.yaml"):
        kind = definition["spec"]["names"]["kind"]
        assert (scaled["kind"], scaled["apiVersion"]) == (kind, f"keda.sh/{version['name']}")
        assert [error.message for error in check.iter_errors(scaled)] == []
        for wrong in ({"cooldown": 1}, {"triggers": [{"type": "prometheus"}]}, {"triggers": None}):
            broken = scaled | {"spec": scaled["spec"] | wrong}
            assert list(check.iter_errors(broken)), wrong
