"""Files that tell other programs about a running server: its process id and its addresses.

Both are written whole under another name first, so that nobody reads half of one. Their rights are
nats-server's: everybody may know the ports.
"""

import json
import os
import socket
from collections.abc import Iterable
from pathlib import Path


def write_pid_file(path: Path) -> None:
    """Write the id of this process."""
    _write(path, str(os.getpid()), 0o600)


def ports_files(directory: Path) -> list[Path]:
    """The file under mq9's name, and under the one that programs made for nats-server look for."""
    return [directory / f"{name}_{os.getpid()}.ports" for name in ("nats-server", "mq9")]


def write_ports_file(path: Path, nats: Iterable[str], monitoring: Iterable[str]) -> None:
    """Write the URLs of each service, as nats-server does."""
    services = {"nats": list(nats), "monitoring": list(monitoring)}
    text = json.dumps({name: urls for name, urls in services.items() if urls})
    _write(path, text, 0o644)


def urls(scheme: str, host: str, port: int) -> list[str]:
    """Where a listener on `host` can be reached from this machine."""
    hosts = [host]
    if host in {"", "0.0.0.0", "::"}:
        hosts = ["127.0.0.1", *(["::1"] if socket.has_ipv6 else []), *_own_addresses()]
    return [f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}" for name in hosts]


def _own_addresses() -> list[str]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    return [a for a in addresses if not a.startswith("127.") and a != "::1"]


def _write(path: Path, text: str, rights: int) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    # One that was left by a process of the same number would keep its rights.
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights), "w") as out:
        out.write(text)
    draft.replace(path)
