"""Clients of NATS in other languages work with streams as with nats-server.

Each is a program of its own. All do the same and must see the same. Those whose tools are missing
are skipped.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.peers import Serve, skip_without_npm_tools

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILT = ROOT / ".build" / "clients"
NPM = ROOT / ".build" / "npm"
DEADLINE_S = 240
STORED = 12
JNATS = "2.20.5"

MUST_SEE = {
    "published": list(range(1, STORED + 1)),
    "duplicate": True,
    "wrong_sequence": 10071,
    "missing": 10059,
    "got": "job 1",
    "fetched": ["job 0", "job 1", "job 2"],
    # Returned twice, the second time for 50 ms.
    "returned": "job 3",
    "deliveries": [2, 3],
    "terminated": "job 4",
    "consumed": [f"job {number}" for number in range(5, STORED)],
    "empty": 0,
    "pending": 0,
    "ack_pending": 0,
    "ack_floor": STORED,
    "stored": STORED,
    "streams": ["JOBS"],
    "consumers": ["workers"],
}


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def go() -> list[str]:
    """The program in Go, built."""
    if shutil.which("go") is None:
        pytest.skip("needs go")
    program = BUILT / "go-jobs"
    # Not optimised, which is compiled sooner.
    flags = ["-trimpath", "-buildvcs=false", "-gcflags=all=-N -l"]
    run(["go", "build", *flags, "-o", str(program), "."], HERE / "go")
    return [str(program)]


def javascript() -> list[str]:
    if shutil.which("node") is None:
        pytest.skip("needs node")
    if not (NPM / "node_modules/@nats-io/jetstream").exists():
        skip_without_npm_tools()
    # A module finds its packages beside itself.
    program = NPM / "jobs.mjs"
    shutil.copyfile(HERE / "jobs.mjs", program)
    return ["node", str(program)]


def java() -> list[str]:
    """The program in Java, compiled with the jars that Maven gets."""
    if not all(shutil.which(tool) for tool in ("java", "javac", "mvn")):
        pytest.skip("needs a JDK and Maven")
    jars = BUILT / f"jnats-{JNATS}"
    (BUILT / "pom.xml").write_text(
        f"""<project><modelVersion>4.0.0</modelVersion>
        <groupId>jobs</groupId><artifactId>jobs</artifactId><version>1</version><dependencies>
        <dependency><groupId>io.nats</groupId><artifactId>jnats</artifactId>
        <version>{JNATS}</version></dependency></dependencies></project>""",
        "utf-8",
    )
    got = subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
        cwd=BUILT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if got.returncode:
        pytest.skip(f"Maven does not get jnats {JNATS}: {got.stdout.splitlines()[:1]}")
    classes = f"{jars}/*"
    run(["javac", "-cp", classes, "-d", str(BUILT), str(HERE / "java/Jobs.java")], HERE)
    return ["java", "-cp", f"{classes}:{BUILT}", "Jobs"]


@pytest.mark.parametrize("built", [go, javascript, java])
def test_a_worker_in(built: object, serve: Serve) -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    command = built()  # type: ignore[operator]
    server = serve("jetstream { }")
    seen = json.loads(run(command, ROOT, NATS_URL=server.url))
    assert {name: seen.get(name, 0) for name in MUST_SEE} == MUST_SEE
