"""How long a server takes from its start to greet and to answer a client, in alternating rounds.

    python benches/start.py --rounds 20 "mq9 serve" nats-server

Each command is a server with nats-server's flags. A client connects as soon as it can, reads the
first byte of INFO (greeted), says CONNECT and PING, and reads PONG (answered). Wall time is what
users wait; processor time is what can be compared on a machine that does other work as well.
Python finds its bytecode, as it does after an installation: each command is started once before the
first round, and what the environment says about bytecode does not count.
"""

import argparse
import os
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_DEADLINE_S = 30.0
_EVENTS = ("greeted", "answered")


@dataclass
class Taken:
    """Milliseconds from the start until something happened."""

    wall_ms: float
    processor_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("commands", nargs="+", help="a server, such as 'mq9 serve'")
    arguments = parser.parse_args()
    taken: dict[str, list[list[Taken]]] = {command: [] for command in arguments.commands}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        for round_number in range(arguments.rounds + 1):
            for command, results in taken.items():
                program, *flags = shlex.split(command)
                path = str(Path(shutil.which(program) or program).absolute())
                took = start([path, *flags], environment)
                if round_number:
                    results.append(took)
    for command, results in taken.items():
        sys.stdout.write(f"{command}\n")
        for event, times in zip(_EVENTS, zip(*results, strict=True), strict=True):
            wall = figures([each.wall_ms for each in times])
            processor = figures([each.processor_ms for each in times])
            sys.stdout.write(f"  {event:9} wall {wall}; processor {processor}\n")


def figures(times_ms: list[float]) -> str:
    return f"median {statistics.median(times_ms):.0f}, least {min(times_ms):.0f} ms"


def start(command: list[str], environment: dict[str, str]) -> list[Taken]:
    """What each of the events took."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        server = subprocess.Popen(
            [*command, "-a", "127.0.0.1", "-p", str(port)],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connected(server, port, began + _DEADLINE_S) as client:
                if client.recv(1) != b"I":
                    raise SystemExit(f"{command[0]} did not say INFO")
                greeted = taken_since(began, server.pid)
                client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                with client.makefile("rb") as lines:
                    if b"PONG\r\n" not in lines:
                        raise SystemExit(f"{command[0]} did not answer a PING")
                return [greeted, taken_since(began, server.pid)]
        finally:
            server.terminate()
            server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def connected(server: subprocess.Popen[bytes], port: int, deadline: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S)
        except ConnectionRefusedError:
            if server.poll() is not None or time.perf_counter() > deadline:
                raise SystemExit("the server does not listen") from None
            time.sleep(0.0005)


def taken_since(began: float, pid: int) -> Taken:
    return Taken((time.perf_counter() - began) * 1000, processor_ms(pid))


def processor_ms(pid: int) -> float:
    """What all threads of a process have used so far; 0 where the system does not say."""
    used = (Path(f"/proc/{pid}/task")).glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in used) / 1e6


if __name__ == "__main__":
    main()
