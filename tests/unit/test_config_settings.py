"""The settings of a file: what each sets, what is refused, what is named in a warning."""

import re
from pathlib import Path

import pytest
from tests.options import changed as options_changed

from mq9.config import ConfigError, Options, load, loads

DATA = Path(__file__).parent / "data"


def changed(text: str) -> dict[str, object]:
    """The options that differ from the defaults."""
    return options_changed(loads(text, {}), without={"warnings"})


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("port: 1234", {"port": 1234}),
        ("PORT: -1", {"port": -1}),
        ("port: 0", {}),
        ("host: localhost", {"host": "localhost"}),
        ("net: 127.0.0.1", {"host": "127.0.0.1"}),
        ("host: ''", {}),
        ("listen: 5", {"port": 5}),
        ("listen: 127.0.0.1:5", {"host": "127.0.0.1", "port": 5}),
        ("listen: '[::1]:5'", {"host": "::1", "port": 5}),
        ("listen: ':5'", {"port": 5}),
        ("listen: localhost:-1", {"host": "localhost", "port": -1}),
        ("server_name: a", {"server_name": "a"}),
        ("client_advertise: 'a.example:5'", {"client_advertise": "a.example:5"}),
        ("client_advertise: a.example", {"client_advertise": "a.example"}),
        ("max_payload: 2MB", {"max_payload": 2 * 2**20}),
        ("max_payload: 0", {}),
        ("max_connections: 5", {"max_connections": 5}),
        ("max_conn: -1", {"max_connections": 0}),
        ("max_connections: 0", {"max_connections": 0}),
        ("max_subscriptions: 5", {"max_subscriptions": 5}),
        ("max_subs: -1", {"max_subscriptions": 0}),
        ("max_control_line: 1k", {"max_control_line": 1000}),
        ("max_pending: 1GB", {"max_pending": 2**30}),
        ("ping_interval: '30s'", {"ping_interval_ms": 30_000}),
        ("ping_interval: 1h30m", {"ping_interval_ms": 5_400_000}),
        ("ping_interval: 30", {"ping_interval_ms": 30_000}),
        ("ping_interval: '0s'", {}),
        ("ping_max: 5", {"ping_max": 5}),
        ("write_deadline: '1.5s'", {"write_deadline_ms": 1500}),
        ("write_deadline: 500us", {"write_deadline_ms": 1}),
        ("lame_duck_duration: '30s'", {"lame_duck_duration_ms": 30_000}),
        ("lame_duck_grace_period: '1s'", {"lame_duck_grace_period_ms": 1000}),
        ("http: 8222", {"http_port": 8222}),
        ("http: '127.0.0.1:-1'", {"http_host": "127.0.0.1", "http_port": -1}),
        ("http_port: 8222", {"http_port": 8222}),
        ("monitor_port: 8222", {"http_port": 8222}),
        ("http_base_path: a", {"http_base_path": "/a"}),
        ("http_base_path: /a/b/", {"http_base_path": "/a/b"}),
        ("debug: yes\ntrace: on\nlogtime: off", {"debug": True, "trace": True, "logtime": False}),
        ("logtime_utc: true", {"logtime_utc": True}),
        ("log_file: a.log", {"log_file": Path("a.log")}),
        ("logfile: a.log", {"log_file": Path("a.log")}),
        ("pid_file: a.pid", {"pid_file": Path("a.pid")}),
        ("pidfile: a.pid", {"pid_file": Path("a.pid")}),
        ("ports_file_dir: /d", {"ports_file_dir": Path("/d")}),
        ("allow_non_tls: true", {"allow_non_tls": True}),
        ("mq9 { payload_encoding: Base64 }", {"payload_encoding": "base64"}),
        ("mq9 { default_ttl: '90s' }", {"default_ttl_ms": 90_000}),
        ("mq9 { max_request: 8KiB, max_card: 512KiB }", {"max_request": 8192, "max_card": 524_288}),
        (
            "mq9 { max_agents: 7, max_agents_per_user: 2 }",
            {"max_agents": 7, "max_agents_per_user": 2},
        ),
        ("mq9 { max_agents: 0 }", {"max_agents": 0}),
        (
            "mq9 { max_agent_bytes: 1MiB, max_agent_bytes_per_user: 2k }",
            {"max_agent_bytes": 1 << 20, "max_agent_bytes_per_user": 2000},
        ),
        (
            "mq9 { max_mailboxes: 5, max_mailboxes_per_user: 2, max_groups: 9 }",
            {"max_mailboxes": 5, "max_mailboxes_per_user": 2, "max_groups": 9},
        ),
        (
            "mq9 { max_store_bytes: 1G, max_bytes_per_user: 1M }",
            {"max_store_bytes": 10**9, "max_bytes_per_user": 10**6},
        ),
        (
            "mq9 { max_waiting_fetches: 5, max_waiting_fetches_per_connection: 2 }",
            {"max_waiting_fetches": 5, "max_waiting_fetches_per_connection": 2},
        ),
        (
            "mq9 { max_waiting_fetches_per_user: 3 }",
            {"max_waiting_fetches_per_user": 3},
        ),
        ("mq9 { group_ttl: '30m' }", {"group_ttl_ms": 1_800_000}),
        (
            "mq9 { max_broadcasts: 5, max_broadcast_bytes: 1MiB, broadcast_ttl: '36h' }",
            {
                "max_broadcasts": 5,
                "max_broadcast_bytes": 1 << 20,
                "broadcast_ttl_ms": 36 * 3_600_000,
            },
        ),
        ("mq9 { embedder: none }", {"embedder": "none"}),
        ("mq9 { embedder: Light }", {"embedder": "light"}),
        ("mq9 { data: /d, sync: interval }", {"data_dir": Path("/d"), "sync": "interval"}),
        (
            "mq9 { sync: none, sync_interval: '250ms', drain_time: '1m' }",
            {"sync": "none", "sync_interval_ms": 250, "drain_ms": 60_000},
        ),
        (
            "mq9 { segment_size: 1MiB, checkpoint_size: 2MiB, upkeep_interval: '50ms' }",
            {"segment_bytes": 1 << 20, "checkpoint_bytes": 2 << 20, "upkeep_ms": 50},
        ),
        ("p: 77\nport: $p", {"port": 77}),
    ],
)
def test_setting_sets(text: str, options: dict[str, object]) -> None:
    assert changed(text) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text:1:1: the configuration holds no settings"),
        ("prot: 1", "text:1:1: unknown setting 'prot' in the configuration; did you mean 'port'?"),
        ("zzzzz: 1", "text:1:1: unknown setting 'zzzzz' in the configuration"),
        ("users: []", "unknown setting 'users'"),
        ("p: 77", "unknown setting 'p'"),
        ("mq9 { dta: x }", "text:1:7: unknown setting 'dta' in mq9; did you mean 'data'?"),
        ("mq9 { jetstream: x }", "unknown setting 'jetstream' in mq9"),
        ("mq9: 1", "text:1:6: expected a block { } for mq9, found a whole number"),
        ("mq9 { payload_encoding: hex }", "expected auto or base64, found 'hex'"),
        ("mq9 { sync: sometimes }", "expected always, interval or none, found 'sometimes'"),
        ("mq9 { sync_interval: '0s' }", "at least 1ms"),
        ("mq9 { data: '' }", "expected a string, found an empty one"),
        ("port: '5'", "text:1:7: expected a port, a number without quotes, found a string"),
        ("port: true", "found true or false"),
        ("port: 65536", "expected a port from 1 to 65535 (-1: any free one), found 65536"),
        ("port: -2", "found -2"),
        ("listen: a", "expected port or host:port (IPv6 in [ ]), found 'a'"),
        ("listen: '::1:5'", "(IPv6 in [ ])"),
        ("listen: a:b", "found 'a:b'"),
        ("listen: a:99999", "found 99999"),
        ("listen: true", "expected a port or a string host:port"),
        ("host: 5", "expected a string, found a whole number; put it in quotes"),
        ("host: [a]", "expected a string, found a list"),
        ("server_name: 'a b'", "cannot hold spaces"),
        ("client_advertise: a:b", "expected host or host:port, found 'a:b'"),
        ("max_payload: 3GB", "at most 2147483647, found 3221225472"),
        ("max_payload: -1", "at least 1, found -1"),
        ("max_payload: '1MB'", "without quotes, found a string"),
        ("max_payload: 1.5", "found a number with a fraction"),
        ("max_payload: 65MB", "is more than max_pending (67108864)"),
        ("max_pending: 1k", "text:1:1: max_payload (1048576) is more than max_pending (1000)"),
        ("ping_interval: 2m", 'a duration in quotes such as "2m", found the number 2000000'),
        ("ping_interval: '2'", "found '2'"),
        ("ping_interval: 5d", "found '5d'"),
        ("ping_interval: '-1s'", "at least 0ms"),
        ("ping_interval: 1.5", "found a number with a fraction"),
        ("lame_duck_duration: '29s'", "at least 30s"),
        ("lame_duck_duration: 60", "a duration in quotes"),
        ("lame_duck_grace_period: '2m'", "must be shorter than lame_duck_duration (120000 ms)"),
        ("debug: 1", "expected true or false, found a whole number"),
        ("debug: 'true'", "expected true or false, found a string"),
        ("log_file: ''", "found an empty one"),
    ],
)
def test_setting_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loads(text, {})
    assert message in str(raised.value)


def test_all_wrong_settings_are_reported_together() -> None:
    with pytest.raises(ConfigError) as raised:
        loads("port: x\nprot: 1\nmq9 { a: 1, b: 2 }", {})
    places = [line.split(": ")[0] for line in str(raised.value).splitlines()]
    assert places == ["text:1:7", "text:2:1", "text:3:7", "text:3:13"]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("port: 1\njetstream { max_mem: 1GB }", "text:2:13: 'max_mem' is ignored: streams say"),
        ("jetstream: on\njetstream: off", "'jetstream' was set before, in line 1"),
        ("cluster { name: x }", "'cluster' is ignored: an mq9 server stands alone"),
        ("https: 8443", "'https' is ignored: monitoring is plain HTTP"),
        ("websocket { port: 1 }", "'websocket' is ignored"),
        ("resolver: MEMORY", "'resolver' is ignored"),
        ("system_account: SYS", "the system account is ignored"),
        ("ping_interval: 30", 'a number is read as seconds; better write "30s"'),
        ("port: 1\nlisten: 2", "text:2:1: 'listen' replaces what line 1 says"),
        ("max_conn: 1\nmax_connections: 2", "'max_connections' replaces what line 1 says"),
        ("port: 1\nport: 2", "text:2:1: 'port' was set before, in line 1"),
    ],
)
def test_setting_is_named_in_a_warning(text: str, warning: str) -> None:
    (found,) = loads(text, {}).warnings
    assert warning in found


def test_variables_of_the_environment_set_options() -> None:
    options = loads("port: $PORT\nserver_name: $NAME", {"PORT": "77", "NAME": "n1"})
    assert (options.port, options.server_name) == (77, "n1")


def test_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.conf: No such file"):
        load(DATA / "gone.conf", {})


def test_configuration_of_hip_0055_loads_as_it_is() -> None:
    file = DATA / "hip-0055.conf"
    options = load(file, {})
    assert options.config_file == file
    assert (options.host, options.port, options.server_name) == ("0.0.0.0", 4222, "nats-mq-0")
    assert (options.http_host, options.http_port) == ("0.0.0.0", 8222)
    rules = {
        user.name: (user.permissions.publish_allow, user.permissions.subscribe_allow)
        for user in options.authorization.users
        if user.permissions
    }
    assert rules == {
        "cloud-api": (("mq.>",), ("_INBOX.>",)),
        "llm-gateway": (("mq.inference.>",), ("_INBOX.>",)),
        "inference-worker": (("_INBOX.>",), ("mq.inference.>",)),
        "batch-worker": (("_INBOX.>",), ("mq.batch.>",)),
        "scheduler": (("mq.>",), ("mq.scheduled.>",)),
        "monitor": (None, ("$SYS.>",)),
    }
    # In quotes a $NAME is a string, not a variable.
    assert options.authorization.users[0].password == "$CLOUD_API_NATS_PASS"
    assert (options.jetstream, options.data_dir) == (True, Path("/data/jetstream"))
    memory, disk, *passwords = sorted(options.warnings, key=lambda line: "max_" not in line)
    assert memory.startswith(f"{file}:7:3: 'max_mem' is ignored")
    assert disk.startswith(f"{file}:8:3: 'max_file' is ignored")
    assert len(passwords) == 6
    assert all("in quotes this is no variable" in warning for warning in passwords)


@pytest.mark.parametrize(
    ("text", "on", "folder"),
    [
        ("jetstream: enabled", True, "mq9-data"),
        ("jetstream: true", True, "mq9-data"),
        ("jetstream: disabled", False, "mq9-data"),
        ("jetstream {}", True, "mq9-data"),
        ("jetstream { enabled: false }", False, "mq9-data"),
        ("jetstream { store_dir: here }", True, "here"),
        ("store_dir: here\njetstream: on", True, "here"),
        ("jetstream { store_dir: here }\nmq9 { data: there }", True, "there"),
        ("port: 5", False, "mq9-data"),
    ],
)
def test_jetstream_is_served_where_it_is_asked_for(text: str, on: bool, folder: str) -> None:
    options = loads(text, {})
    assert (options.jetstream, options.data_dir) == (on, Path(folder))


def test_jetstream_is_a_block_or_a_word() -> None:
    with pytest.raises(ConfigError, match="expected a block, enabled or disabled"):
        loads("jetstream: 5", {})


def test_defaults_are_those_of_nats_server_but_for_subscriptions() -> None:
    options = Options()
    assert (options.host, options.port, options.http_port) == ("0.0.0.0", 4222, None)
    assert (options.max_payload, options.max_pending) == (2**20, 64 * 2**20)
    # There a client that leaves may hold up others for as long as it likes.
    assert (options.max_connections, options.max_subscriptions) == (65_536, 100_000)
    assert (options.ping_interval_ms, options.ping_max) == (120_000, 2)
    assert not options.authorization.required


CLUSTER = (
    'replication { node: 1, nodes: ["a:1"], servers: ["nats://a:2"], monitors: ["http://a:3"] }'
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"mq9 {{ {CLUSTER} }}\njetstream: enabled",
            "jetstream and replication do not go together",
        ),
        (f"mq9 {{ {CLUSTER}, segment_size: 1MB }}", "segment_size (1048576) is too small"),
        (f"max_payload: 64MB\nmq9 {{ {CLUSTER} }}", "raise segment_size or lower max_payload"),
        (
            f"mq9 {{ {CLUSTER.replace('http://a:3', 'x')} }}",
            "URLs such as",
        ),
        (f"mq9 {{ {CLUSTER.replace('monitors', 'sync: checked #')}\n}} }}", "no monitors"),
        (f"mq9 {{ {CLUSTER.replace('node: 1', 'sync: always, node: 1')} }}", '"unchecked"'),
        (
            f"mq9 {{ {CLUSTER.replace('a:1', '')} }}",
            "node 1 has no address: it was taken out",
        ),
    ],
)
def test_what_does_not_go_with_replication_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        loads(text, {})


def test_replication_goes_with_what_is_usual() -> None:
    assert loads(f"mq9 {{ {CLUSTER} }}", {}).replication is not None


@pytest.mark.parametrize(
    ("block", "sync"),
    [
        (CLUSTER, "interval"),
        (f"sync: always, {CLUSTER}", "always"),
        (f"sync: none, {CLUSTER}", "none"),
        (CLUSTER.replace("node: 1", "node: 1, replicas: 1"), "always"),
        (CLUSTER.replace("node: 1", "node: 1, sync: unchecked"), "always"),
    ],
)
def test_a_node_leaves_the_sync_to_nats_servers_that_do_it(block: str, sync: str) -> None:
    assert loads(f"mq9 {{ {block} }}", {}).sync == sync
