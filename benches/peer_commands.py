"""Finds the servers that are compared: given by an option, on PATH, or got by `make peers`."""

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

import nats_runs
from nats_core import progress
from nats_runs import ROOT, BenchError

PEERS_FOLDER = ROOT / ".build/peers"


def mq9_command(options: argparse.Namespace) -> list[str]:
    """Our own command: the one that was given, or the one beside."""
    return shlex.split(options.mq9_cmd or "") or [sys.executable, "-m", "mq9", "serve"]


def find_servers(options: argparse.Namespace) -> dict[str, list[str]]:
    """The commands of the servers that are there; who is not is named."""
    servers = {"mq9": mq9_command(options)}
    try:
        servers["JetStream"] = shlex.split(options.nats_cmd or "") or [nats_runs.find_peer()]
    except BenchError as error:
        progress(f"JetStream is left out: {error}")
    if redis := shlex.split(options.redis_cmd or "") or find_redis():
        servers["Redis"] = redis
    else:
        progress("Redis is left out: no redis-server; `make peers` gets one from Debian's packages")
    only = set(filter(None, options.servers.split(",")))
    if unknown := only - servers.keys():
        raise BenchError(f"--servers {','.join(unknown)}: there are {', '.join(servers)}")
    return {name: command for name, command in servers.items() if not only or name in only}


def find_redis() -> list[str]:
    """The redis-server on PATH, or else that of `make peers`."""
    ours = PEERS_FOLDER / "bin/redis-server"
    found = shutil.which("redis-server") or (str(ours) if ours.exists() else "")
    return [found] if found else []


def versions(servers: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What each server says of itself, shortly."""
    asked = {"mq9": [*servers.get("mq9", [])[:-1], "version"]}
    found = {}
    for name, command in servers.items():
        run = subprocess.run(
            asked.get(name, [*command, "--version"]),
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        found[name] = (run.stdout or run.stderr).strip()
    return found
