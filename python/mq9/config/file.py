"""Options from a configuration file.

Owns the names at the top of a file: what each sets, which do not apply to mq9, and which
contradict each other.
"""

from collections.abc import Mapping
from pathlib import Path

from mq9.config.authorization import authorization, read_accounts, read_authorization
from mq9.config.errors import ConfigError, quoted
from mq9.config.export import read_export
from mq9.config.jetstream import read_jetstream
from mq9.config.management import read_dead_letters, read_management
from mq9.config.monitoring import read_monitoring
from mq9.config.options import Authorization, Options, Replication, Tls
from mq9.config.parser import Parsed, parse_file, parse_text
from mq9.config.reading import (
    DEFAULT,
    Default,
    Fields,
    Notes,
    Setting,
    address,
    at,
    boolean,
    duration,
    filled,
    integer,
    limit,
    optional_text,
    path,
    port,
    read_block,
    split_address,
)
from mq9.config.replication import conflict, read_replication
from mq9.config.schedules import read_schedules
from mq9.config.streams import declared, read_consumers, read_queues, read_streams
from mq9.config.tls import read_tls
from mq9.config.tree import Place, Value

_INT32 = 2**31 - 1
_MIN_REQUEST = 1024
# With what a reply puts around it, a card still is a message.
_MAX_CARD = (1 << 20) - (1 << 12)


def load(path: Path, environment: Mapping[str, str]) -> Options:
    """Read a configuration file; `environment` gives the `$VARIABLES` that it does not set."""
    return _options(parse_file(path, environment), str(path), path)


def loads(text: str | bytes, environment: Mapping[str, str], name: str = "text") -> Options:
    """Read a configuration from a text; `name` stands for the file in messages."""
    return _options(parse_text(text, environment, name), name, None)


def _options(parsed: Parsed, name: str, file: Path | None) -> Options:
    if not parsed.root.entries:
        raise ConfigError(f"{name}:1:1: the configuration holds no settings")
    notes = Notes(parsed.warnings)
    root = Value(parsed.root, Place(name, 1, 1))
    fields = read_block(root, "the configuration", SETTINGS, IGNORED, notes)
    fields.values["authorization"] = _authorization(fields, notes)
    store_dir = fields.values.pop("store_dir", None)
    if store_dir is not None:
        # Where both are said, mq9's own word counts.
        fields.values.setdefault("data_dir", store_dir)
    replication = fields.values.get("replication")
    if isinstance(replication, Replication) and replication.syncs_elsewhere:
        fields.values.setdefault("sync", "interval")
    _declare(fields)
    options = Options(**fields.values, config_file=file, warnings=tuple(notes.warnings))
    _check(options, fields.places)
    return options


def _declare(fields: Fields) -> None:
    """What is declared goes together, and is served."""
    values = fields.values
    streams, consumers = values.get("streams", ()), values.get("consumers", ())
    consumers += values.pop("queues", ())
    if not streams and not consumers:
        return
    if not values.setdefault("jetstream", True):
        name = next(name for name in ("streams", "consumers", "queues") if name in fields.places)
        raise at(fields.places[name], "JetStream is disabled, and so are streams and consumers")
    values["consumers"] = declared(streams, consumers)


def _authorization(fields: Fields, notes: Notes) -> Authorization:
    values, places = fields.values, fields.places
    block = values.pop("authorization", None) or Fields()
    accounts, system = values.pop("accounts", None), values.pop("system_account", None)
    no_auth_user = values.pop("no_auth_user", None)
    operator_at = values.pop("operator", None)
    tls = values.get("tls")
    assert isinstance(block, Fields)
    dropped_at = None
    if isinstance(accounts, Value):
        read = read_accounts(accounts, system if isinstance(system, str) else None, notes)
        dropped_at = read.dropped_users_at
        block = _merged(block, read.account, accounts.place)
    by_certificate = isinstance(tls, Tls) and tls.verify_and_map
    found = authorization(
        block,
        (no_auth_user, places["no_auth_user"]) if isinstance(no_auth_user, str) else None,
        by_certificate=by_certificate,
        notes=notes,
    )
    for closed_at, what in ((operator_at, "users of an operator"), (dropped_at, "system users")):
        if isinstance(closed_at, Place) and not found.required:
            raise at(
                closed_at,
                f"mq9 has no {what}, and nothing else says who may connect: everybody could; "
                "give an authorization block",
            )
    if isinstance(operator_at, Place):
        notes.warn(operator_at, "mq9 has no users of an operator: they cannot connect")
    return found


def _merged(block: Fields, account: Fields, place: Place) -> Fields:
    if not account.values.get("users"):
        return block
    if {"user", "password", "token"} & block.values.keys() or block.values.get("users"):
        raise at(
            place,
            "users in accounts and in authorization are in different accounts, and mq9 has one; "
            "put all of them into authorization",
        )
    return Fields({**block.values, **account.values}, {**block.places, **account.places})


def _check(options: Options, places: Mapping[str, Place]) -> None:
    wrong = []

    def refuse(name: str, other: str, message: str) -> None:
        place = places.get(name) or places[other]
        wrong.append(f"{place}: {message}")

    if options.max_payload > options.max_pending:
        refuse(
            "max_payload",
            "max_pending",
            f"max_payload ({options.max_payload}) is more than max_pending "
            f"({options.max_pending}): such a message could never be delivered",
        )
    if options.lame_duck_grace_period_ms >= options.lame_duck_duration_ms:
        refuse(
            "lame_duck_grace_period_ms",
            "lame_duck_duration_ms",
            f"lame_duck_grace_period ({options.lame_duck_grace_period_ms} ms) must be shorter "
            f"than lame_duck_duration ({options.lame_duck_duration_ms} ms)",
        )
    if options.replication is not None and (found := conflict(options)):
        name, why = found
        refuse(name, "replication", why)
    if wrong:
        raise ConfigError("\n".join(wrong))


def _listen(value: Value, notes: Notes) -> Fields:
    host, number = address(value, notes)
    return Fields({k: v for k, v in (("host", host), ("port", number)) if v})


def _http(value: Value, notes: Notes) -> Fields:
    host, number = address(value, notes)
    return Fields({k: v for k, v in (("http_host", host), ("http_port", number)) if v})


def _server_name(value: Value, notes: Notes) -> str | Default:
    name = optional_text(value, notes)
    if name is not DEFAULT and " " in name:
        raise at(value.place, "the name of a server cannot hold spaces")
    return name


def check_advertise(written: str) -> str | None:
    """What is wrong with an address to advertise; None if nothing."""
    host, number = split_address(written)
    if number and not (number.isascii() and number.isdigit() and 0 < int(number[:6]) <= 65_535):
        return f"expected host or host:port, found {quoted(written)}"
    return None if host or number else "expected host or host:port, found nothing"


def _client_advertise(value: Value, notes: Notes) -> str | Default:
    written = optional_text(value, notes)
    if written is not DEFAULT and (wrong := check_advertise(written)):
        raise at(value.place, wrong)
    return written


def _base_path(value: Value, notes: Notes) -> str | Default:
    written = optional_text(value, notes)
    return written if written is DEFAULT else "/" + written.strip("/")


def _system_account(value: Value, notes: Notes) -> str:
    name = filled(value, notes)
    notes.warn(value.place, "the system account is ignored: mq9 has none")
    return name


def _operator(value: Value, _notes: Notes) -> Place | Default:
    return DEFAULT if value.data == [] else value.place


def _sync(value: Value, notes: Notes) -> str:
    found = filled(value, notes).lower()
    if found not in {"always", "interval", "none"}:
        raise at(value.place, f"expected always, interval or none, found {quoted(found)}")
    return found


def _payload_encoding(value: Value, notes: Notes) -> str:
    found = filled(value, notes).lower()
    if found not in {"auto", "base64"}:
        raise at(value.place, f"expected auto or base64, found {quoted(found)}")
    return found


def _embedder(value: Value, notes: Notes) -> str:
    found = filled(value, notes).lower()
    if found not in {"auto", "blend", "light", "minilm", "none"}:
        raise at(value.place, f"expected auto, blend, light, minilm or none, found {quoted(found)}")
    return found


def _mq9(value: Value, notes: Notes) -> Fields:
    return read_block(value, "mq9", MQ9_SETTINGS, {}, notes)


def _as_is(value: Value, _notes: Notes) -> Value:
    return value


_MAX_GROUPS = 1_000_000

MQ9_SETTINGS = {
    "data": Setting("data_dir", path),
    "sync": Setting("sync", _sync),
    "sync_interval": Setting("sync_interval_ms", duration(low_ms=1)),
    "segment_size": Setting("segment_bytes", integer(65_536, 1 << 30)),
    "checkpoint_size": Setting("checkpoint_bytes", integer(65_536)),
    "upkeep_interval": Setting("upkeep_ms", duration(low_ms=1)),
    "drain_time": Setting("drain_ms", duration()),
    "payload_encoding": Setting("payload_encoding", _payload_encoding),
    "default_ttl": Setting("default_ttl_ms", duration()),
    "max_request": Setting("max_request", integer(_MIN_REQUEST)),
    "max_card": Setting("max_card", integer(_MIN_REQUEST, _MAX_CARD)),
    "max_agents": Setting("max_agents", limit),
    "max_agents_per_user": Setting("max_agents_per_user", limit),
    "max_agent_bytes": Setting("max_agent_bytes", limit),
    "max_agent_bytes_per_user": Setting("max_agent_bytes_per_user", limit),
    "max_mailboxes": Setting("max_mailboxes", limit),
    "max_mailboxes_per_user": Setting("max_mailboxes_per_user", limit),
    "max_store_bytes": Setting("max_store_bytes", limit),
    "max_bytes_per_user": Setting("max_bytes_per_user", limit),
    "max_groups": Setting("max_groups", integer(1, _MAX_GROUPS)),
    "max_waiting_fetches": Setting("max_waiting_fetches", limit),
    "max_waiting_fetches_per_user": Setting("max_waiting_fetches_per_user", limit),
    "max_waiting_fetches_per_connection": Setting("max_waiting_fetches_per_connection", limit),
    "group_ttl": Setting("group_ttl_ms", duration()),
    "max_broadcasts": Setting("max_broadcasts", limit),
    "max_broadcast_bytes": Setting("max_broadcast_bytes", limit),
    "broadcast_ttl": Setting("broadcast_ttl_ms", duration()),
    "embedder": Setting("embedder", _embedder),
    "export": Setting("export", read_export),
    "monitoring": Setting("monitoring", read_monitoring),
    "management": Setting("management", read_management),
    "dead_letters": Setting("dead_letters", read_dead_letters),
    **dict.fromkeys(("schedules", "scheduled_jobs"), Setting("schedules", read_schedules)),
    "streams": Setting("streams", read_streams),
    "consumers": Setting("consumers", read_consumers),
    "queues": Setting("queues", read_queues),
    "replication": Setting("replication", read_replication),
}

_size = integer(1, _INT32, zero_is_default=True)
_time = duration(bare_seconds=True, zero_is_default=True)

SETTINGS = {
    "listen": Setting("", _listen),
    "port": Setting("port", port),
    **dict.fromkeys(("host", "net"), Setting("host", optional_text)),
    "server_name": Setting("server_name", _server_name),
    "client_advertise": Setting("client_advertise", _client_advertise),
    "authorization": Setting("authorization", read_authorization),
    "accounts": Setting("accounts", _as_is),
    "no_auth_user": Setting("no_auth_user", optional_text),
    "tls": Setting("tls", read_tls),
    "allow_non_tls": Setting("allow_non_tls", boolean),
    "max_payload": Setting("max_payload", _size),
    **dict.fromkeys(("max_connections", "max_conn"), Setting("max_connections", limit)),
    **dict.fromkeys(("max_subscriptions", "max_subs"), Setting("max_subscriptions", limit)),
    "max_control_line": Setting("max_control_line", _size),
    "max_pending": Setting("max_pending", integer(1, zero_is_default=True)),
    "ping_interval": Setting("ping_interval_ms", _time),
    "ping_max": Setting("ping_max", integer(1, _INT32, zero_is_default=True)),
    "write_deadline": Setting("write_deadline_ms", _time),
    "lame_duck_duration": Setting("lame_duck_duration_ms", duration(low_ms=30_000)),
    "lame_duck_grace_period": Setting("lame_duck_grace_period_ms", duration()),
    "http": Setting("", _http),
    **dict.fromkeys(("http_port", "monitor_port"), Setting("http_port", port)),
    "http_base_path": Setting("http_base_path", _base_path),
    "debug": Setting("debug", boolean),
    "trace": Setting("trace", boolean),
    "logtime": Setting("logtime", boolean),
    "logtime_utc": Setting("logtime_utc", boolean),
    **dict.fromkeys(("log_file", "logfile"), Setting("log_file", path)),
    **dict.fromkeys(("pid_file", "pidfile"), Setting("pid_file", path)),
    "ports_file_dir": Setting("ports_file_dir", path),
    **dict.fromkeys(("system_account", "system"), Setting("system_account", _system_account)),
    **dict.fromkeys(
        (
            *("operator", "operators", "root", "roots", "root_operator", "root_operators"),
            *("trusted", "trusted_keys"),
        ),
        Setting("operator", _operator),
    ),
    "jetstream": Setting("", read_jetstream),
    **dict.fromkeys(("store_dir", "storedir"), Setting("store_dir", path)),
    "mq9": Setting("", _mq9),
}
"""Every name at the top of a file that sets an option."""

_OWN_LOG = "mq9 writes one log, to the standard error output or to log_file"
_ONE_SERVER = "an mq9 server stands alone"
_NO_JWT = "mq9 knows its users from this file only"
_NO_MONITORING_TLS = "monitoring is plain HTTP: use http, and no port is opened for this one"

IGNORED = {
    **dict.fromkeys(
        ("default_js_domain",),
        "mq9 has no domains",
    ),
    **dict.fromkeys(("cluster", "gateway", "leaf", "leafnodes"), _ONE_SERVER),
    **dict.fromkeys(("connect_error_reports", "reconnect_error_reports"), _ONE_SERVER),
    **dict.fromkeys(("websocket", "ws", "mqtt"), "mq9 speaks the NATS client protocol only"),
    **dict.fromkeys(
        (
            *("resolver", "account_resolver", "accounts_resolver", "resolver_tls"),
            *("resolver_preload", "resolver_pinned_accounts", "default_sentinel"),
        ),
        _NO_JWT,
    ),
    **dict.fromkeys(("no_system_account", "no_system", "no_sys_acc"), "mq9 has none"),
    **dict.fromkeys(("https", "https_port"), _NO_MONITORING_TLS),
    **dict.fromkeys(("mappings", "maps"), "mq9 does not rename subjects"),
    **dict.fromkeys(("ocsp", "ocsp_cache"), "mq9 does not staple OCSP answers"),
    **dict.fromkeys(("proxies", "proxy_protocol"), "mq9 takes clients for what they connect from"),
    **dict.fromkeys(("syslog", "remote_syslog"), _OWN_LOG),
    **dict.fromkeys(
        ("logfile_size_limit", "log_size_limit", "logfile_max_num", "log_max_num"),
        "mq9 does not rotate its log",
    ),
    **dict.fromkeys(
        ("trace_verbose", "trace_headers", "max_traced_msg_len"), "trace is all there is"
    ),
    **dict.fromkeys(("prof_port", "prof_block_rate"), "mq9 has no profiling port"),
    **dict.fromkeys(("server_tags", "server_metadata"), "nobody asks mq9 for them"),
    **dict.fromkeys(
        ("max_sub_tokens", "max_subscription_tokens"), "the length of a subject is bound instead"
    ),
    "no_header_support": "mq9 always supports headers",
    "disable_sublist_cache": "mq9 has no such cache",
    "max_closed_clients": "mq9 does not keep closed connections",
    "no_fast_producer_stall": "mq9 does not stall fast producers",
    "write_timeout": "a client that misses write_deadline is closed",
    "feature_flags": "they are nats-server's own",
}
"""The settings of nats-server that do not apply, each with the reason."""
