"""What a user has after installing mq9: the command, the native module and its types.

Runs against the interpreter in MQ9_TEST_PYTHON, which need not have pytest; without the variable,
against the one that runs the tests. Everything happens in other processes, in an empty folder, so
that nothing of the source tree is importable by accident.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

PYTHON = Path(os.environ.get("MQ9_TEST_PYTHON", sys.executable))
# What was installed besides, where it is known.
EXTRAS = os.environ.get("MQ9_TEST_EXTRAS")
COMMAND = PYTHON.with_name("mq9")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


def evaluate(expression: str) -> str:
    done = run(PYTHON, "-W", "error", "-c", f"import mq9, mq9._core; print({expression})")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_native_module_is_built_for_the_stable_abi() -> None:
    assert evaluate("mq9._core.__file__").endswith("_core.abi3.so")


def test_version_is_the_same_everywhere() -> None:
    version = evaluate("mq9.__version__")
    assert version[0].isdigit()
    assert evaluate("mq9._core.__version__") == version
    assert evaluate("__import__('importlib.metadata').metadata.version('mq9')") == version
    for command in ([COMMAND], [PYTHON, "-m", "mq9"]):
        done = run(*command, "version")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"mq9 {version}\n", "")


@pytest.mark.parametrize("name", ["py.typed", "_core.pyi"])
def test_types_are_installed(name: str) -> None:
    assert (Path(evaluate("mq9.__path__[0]")) / name).is_file()


def test_spark_finds_the_data_source_by_its_name() -> None:
    # Without Spark it must be importable all the same: whatever looks for plugins imports it.
    assert evaluate("__import__('pyspark_mq9').__name__") == "pyspark_mq9"


def test_mail_in_plain_files_comes_along() -> None:
    sent = run(
        PYTHON.with_name("zos-mq"), "--root", "mail", "send", "--topic", "ask", "--body", "x"
    )
    assert (sent.returncode, sent.stderr) == (0, "")
    assert evaluate("__import__('zos_agent_mq').Queue('mail').poll('a')[0]['body']") == "x"


def test_help_lists_the_commands() -> None:
    done = run(COMMAND, "--help")
    assert done.returncode == 0
    assert {"serve", "version"} <= set(done.stdout.split())


def test_serve_runs_until_it_is_told_to_stop() -> None:
    flags = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", "."]
    with subprocess.Popen(
        [COMMAND, "serve", *flags], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            log = [server.stderr.readline()]
            while log[-1] and "Server is ready" not in log[-1]:
                log.append(server.stderr.readline())
            assert log[-1], "".join(log)
            assert len(list(Path().glob("mq9_*.ports"))) == 1
            server.terminate()
            assert server.wait(30) == 0
        finally:
            server.kill()
    assert list(Path().glob("mq9_*.ports")) == []
    assert Path("mq9-data").is_dir()


def test_the_page_is_served_where_its_extra_is_installed() -> None:
    """As the README has it, `mq9 serve` and nothing else, but on ports of this test."""
    if EXTRAS is None:
        pytest.skip("this environment has whatever tests need")
    port, page_port = free_port(), free_port()
    address = f"127.0.0.1:{page_port}"
    Path("mq9.conf").write_text(f'mq9 {{ management {{ listen: "{address}" }} }}')
    flags = ["-a", "127.0.0.1", "-p", str(port), "-c", "mq9.conf"]
    log, page = Path("serve.log"), b""
    with (
        log.open("wb") as stderr,
        subprocess.Popen([COMMAND, "serve", *flags], stderr=stderr) as server,
    ):
        try:
            end = time.monotonic() + 60
            while "manage" in EXTRAS and not page:
                assert time.monotonic() < end, log.read_text("utf-8")
                with contextlib.suppress(OSError):
                    page = urllib.request.urlopen(f"http://{address}").read()
            while "Server is ready" not in log.read_text("utf-8"):
                assert time.monotonic() < end, log.read_text("utf-8")
                time.sleep(0.05)
        finally:
            server.terminate()
    missing = "No management page: pip install 'mq9[manage]'"
    assert (missing in log.read_text("utf-8")) == ("manage" not in EXTRAS)
    assert (b"<title>mq9" in page) == ("manage" in EXTRAS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_serve_says_in_one_line_why_it_cannot_start() -> None:
    done = run(COMMAND, "serve", "-c", "missing.conf")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("mq9 serve: ")
    assert "missing.conf" in done.stderr
    assert done.stderr.count("\n") == 1


def test_agents_are_found_by_meaning_with_what_is_installed() -> None:
    flags = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", "."]
    with subprocess.Popen(
        [COMMAND, "serve", *flags], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            end = time.monotonic() + 60
            while not (urls := [json.loads(f.read_text()) for f in Path().glob("mq9_*.ports")]):
                assert time.monotonic() < end
                time.sleep(0.05)
            at = ("--server", urls[0]["nats"][0], "--timeout", "30")
            for mailbox, job in (("sky", "says whether it will rain"), ("till", "writes bills")):
                card = json.dumps({"mailbox": mailbox, "description": job})
                assert run(COMMAND, "agent", "register", card, *at).returncode == 0
            search = (COMMAND, "agent", "find", "--semantic", "do I need an umbrella")
            while "not looked at" in (found := run(*search, "--json", *at)).stderr or (
                found.returncode == 5
            ):
                assert time.monotonic() < end + 60, found
            assert json.loads(found.stdout)[0]["mailbox"] == "sky"
            server.terminate()
            assert server.wait(30) == 0
        finally:
            server.kill()
