"""Settings of `mq9 manage`, from its command line and from the broker that starts it."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_LISTEN = "127.0.0.1:8055"
DEFAULT_SERVER = "nats://127.0.0.1:4222"
# Given by the environment, which other users of the machine cannot read.
PASSWORD_VARIABLE = "MQ9_MANAGE_PASSWORD"
POSTGRES_VARIABLE = "MQ9_MANAGE_POSTGRES"
SCHEDULES_VARIABLE = "MQ9_MANAGE_SCHEDULES"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of one process."""

    server: str = DEFAULT_SERVER
    user: str = ""
    password: str = field(default="", repr=False)
    host: str = "127.0.0.1"
    port: int = 8055
    metrics_port: int | None = None
    hosts: tuple[str, ...] = ()
    """Names that it answers to, besides the loopback interface's and the one it listens on."""
    probe_hosts: tuple[str, ...] = ()
    """Names for `/healthz` and `/metrics` alone; `*` is any."""
    series: tuple[str, ...] = ()
    """Queues and groups that always have series in `/metrics`."""
    audit_file: Path | None = None
    postgres: str = field(default="", repr=False)
    """The URL of a database that dead letters are copied to; empty: to none."""
    broker_name: str = ""
    """What tells this broker's letters from those of others in the same database; empty: its store
    does."""
    schedules: str = ""
    """What is sent at set times, as JSON; empty: nothing."""
    tls_ca: Path | None = None
    tls_pinned: bool = False
    """Whether `tls_ca` is the broker's own certificate, whatever names it has."""
    until_stdin_ends: bool = False
    """Whether it ends with the process that holds its input open."""


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; ValueError if it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not a host and a port, such as {DEFAULT_LISTEN}")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of `mq9 manage`."""
    parser.add_argument(
        "--nats-url",
        default=os.environ.get("MQ9_SERVER", DEFAULT_SERVER),
        metavar="URL",
        help="the broker (default: %(default)s)",
    )
    parser.add_argument("--nats-user", default="", metavar="USER", help="an operator of the broker")
    parser.add_argument("--nats-ca", type=Path, metavar="FILE", help="authorities that it trusts")
    parser.add_argument(
        "--nats-pin", action="store_true", help="--nats-ca is the broker's own certificate"
    )
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help="where to serve (default: %(default)s)",
    )
    parser.add_argument("--port", type=int, metavar="PORT", help="the port of --listen alone")
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve /metrics there as well"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name under which browsers reach it; may be repeated",
    )
    parser.add_argument(
        "--allow-probe-host",
        action="append",
        default=[],
        metavar="NAME",
        help="the same for /healthz and /metrics alone; * is any name; may be repeated",
    )
    parser.add_argument(
        "--series",
        action="append",
        default=[],
        metavar="NAME",
        help="a queue or group that has series in /metrics however little it does; may be repeated",
    )
    parser.add_argument(
        "--audit-file", type=Path, metavar="FILE", help="append a line there for each change"
    )
    parser.add_argument(
        "--postgres",
        action="store_true",
        help=f"copy dead letters to the database whose URL is in {POSTGRES_VARIABLE}",
    )
    parser.add_argument(
        "--broker-name",
        default="",
        metavar="NAME",
        help="the broker's name in such a database (default: one that no other broker has there)",
    )
    parser.add_argument("--until-stdin-ends", action="store_true", help=argparse.SUPPRESS)


def from_arguments(arguments: argparse.Namespace) -> Settings:
    """The settings; ValueError if one is not usable."""
    host, port = parse_listen(arguments.listen)
    postgres = os.environ.get(POSTGRES_VARIABLE, "") if arguments.postgres else ""
    if arguments.postgres and not postgres:
        raise ValueError(f"--postgres: set {POSTGRES_VARIABLE}, such as postgres://user@host/mq9")
    return Settings(
        server=arguments.nats_url,
        user=arguments.nats_user,
        password=os.environ.get(PASSWORD_VARIABLE, ""),
        host=host,
        port=arguments.port if arguments.port is not None else port,
        metrics_port=arguments.metrics_port,
        hosts=tuple(name.lower() for name in arguments.allow_host),
        probe_hosts=tuple(name.lower() for name in arguments.allow_probe_host),
        series=tuple(arguments.series),
        audit_file=arguments.audit_file,
        postgres=postgres,
        broker_name=arguments.broker_name,
        schedules=os.environ.get(SCHEDULES_VARIABLE, ""),
        tls_ca=arguments.nats_ca,
        tls_pinned=arguments.nats_pin,
        until_stdin_ends=arguments.until_stdin_ends,
    )


def parse(arguments: Sequence[str]) -> Settings:
    """The settings of a command line."""
    parser = argparse.ArgumentParser(prog="mq9 manage")
    add_arguments(parser)
    return from_arguments(parser.parse_args(arguments))
