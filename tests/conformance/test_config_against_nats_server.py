"""Configurations that nats-server takes or refuses, and whether mq9 says the same.

Runs the real nats-server on every one of them: with `-t`, or started where it only looks then.
Where both take one they must also understand the same: `-t` prints a digest of what was read.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from mq9.config import ConfigError, load
from mq9.config.parser import parse_text
from mq9.config.tree import Map, Value

NATS_SERVER = Path(sys.executable).parent / "nats-server"
ENVIRONMENT = {"NUMBER": "77", "WORD": "word", "WORDS": "two words"}
DEADLINE_S = 20

pytestmark = pytest.mark.skipif(
    not NATS_SERVER.exists(), reason=f"no nats-server beside {sys.executable}"
)

NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
PAIR = "cert_file: cert.pem, key_file: key.pem"
A = "{user: a, password: x}"

TAKEN = [
    # The syntax.
    *("port: 1", "port = 1", "port 1", "port:1", "port : 1", "port= 1", "port\n1", "PORT: 1"),
    *("'port': 1", '"port" 1', '{"port": 1}', '{"port": 1,}', "{port: 1}\n", "port\v1"),
    *("port: 1; host: a", "port: 1, host: a", "port: 1\r\nhost: a\r\n", "port: 1\rhost: a"),
    *("# c\nport: 1", "// c\nport: 1", "port: 1 # c", "port: 1 // c", "host: a#c", "host: a//c"),
    *("host: 'a\nb'", 'host: "a\nb"', 'host: "\\x41\\t\\n\\r\\"\\\\"', "host: 'a\\q'", "host: ''"),
    *("host: a\\tb", "host: a\\x41b", "host: \\xc3\\xa9", "host: \u00e9", "host: (\nabc\n)\n"),
    *("host: 1a", "host: 5s", "host: 2ms", "host: 1kx", "host: 1_a", "host: 1:2", "host: 1/2"),
    *("host: 1.2.3.4", "host: 1.2.3.4:5", "host: 1.2.3.4-5", "host: +5"),
    *("port: 1k", "port: 1K", "port: 1kB", "port: 1KIB", "max_payload: 1Mi", "max_payload: 1m"),
    *(f"max_pending: 1{suffix}" for letter in "GTPE" for suffix in (letter, f"{letter}b")),
    *("max_pending: 1gi", "max_pending: 1tib", "max_pending: 1pI", "max_pending: 1ei"),
    *("debug: true", "debug: TRUE", "debug: yes", "debug: On", "debug: off"),
    *("server_tags: [a, b]", "server_tags: [a\nb]", "server_tags: [a,]", "server_tags: []"),
    *("server_tags [a]", "server_tags\n[a]", "server_tags: [ # c\n a // d\n b ]"),
    "server_tags: [(\na\n)\n]",
    *("y: 12\nport: $y", "port: $NUMBER", "host: $WORD"),
    "authorization { n: word, user: $n, password: $n }",
    "port: 1\nport: 2",
    # Settings.
    *("port: -1", "port: 0", "listen: 5", "listen: 127.0.0.1:5", "listen: '[::1]:5'"),
    *("listen: ':5'", "listen: -1", "net: localhost", "host: ''", "http: 8222", "http_port: -1"),
    *("monitor_port: 1", "https: 1", "http_base_path: /a", "server_name: ''", "server_name: a"),
    *("max_connections: -1", "max_conn: 0", "max_subs: -1", "max_payload: 0", "max_payload: 64MB"),
    *("max_control_line: 0", "max_pending: 0", "ping_max: 0", "ping_interval: '0s'"),
    *("ping_interval: 1h30m", "ping_interval: 500ms", "ping_interval: '.5s'"),
    *("ping_interval: '1.s'", "ping_interval: '1\u00b5s'", "ping_interval: '+1s'"),
    *("write_deadline: '5s'", "lame_duck_duration: '30s'", "lame_duck_grace_period: '20s'"),
    *("logfile: a", "log_file: a", "pidfile: a", "pid_file: a", "ports_file_dir: a"),
    *("logtime: false\nlogtime_utc: true\ntrace: on", "allow_non_tls: true", "jetstream: enabled"),
    *("client_advertise: a", "client_advertise: 'a:1'", "client_advertise: ':1'"),
    *("jetstream {store_dir: x}", "cluster {}", "websocket {port: 1}", "write_timeout: close"),
    *("leafnodes {port: -1}", "mqtt {port: 1}", "system_account: SYS", "server_tags: a"),
    # Who may connect.
    "authorization { users: [{user: a}] }",
    *("authorization {}", "authorization { user: a, password: b }", "authorization { token: t }"),
    *("authorization { USER: a; PASS: b }", "authorization {user: a\npassword: b\n}"),
    *("authorization\n{user:\na\npassword:\nb}", "authorization {'user' 'a', \"password\" 'b'}"),
    *("authorization { timeout: 1 }", "authorization { timeout: 0.5 }"),
    *("authorization { timeout: '2s' }", "authorization { users: [] }"),
    f"authorization {{ users: [{A}] }}\nno_auth_user: a",
    f"authorization {{ users: [{{nkey: {NKEY}}}] }}",
    "authorization { users: [{user: a, password: $2a$11$xxxxxxxxxxxx}] }",
    "authorization { users: [{user: a, password: x, allowed_connection_types: [STANDARD]}] }",
    f"authorization {{ users: [{A}], default_permissions: {{publish: a}} }}",
    f"accounts {{ A {{ users: [{A}], jetstream: enabled, exports: [], imports: [] }} }}",
    f"accounts {{ S {{ users: [{A}] }}, B {{ users: [{{user: b, password: x}}] }} }}\nsystem: S",
    *("tls { " + PAIR + extra + " }" for extra in ("", ", verify: true", ", timeout: 0.5")),
    *("tls { " + PAIR + f", handshake_first: {how} }}" for how in ("true", "auto", "300ms")),
    "tls { " + PAIR + ", ca_file: cert.pem, verify_and_map: true, min_version: '1.3' }",
    "tls { " + PAIR + ", cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256] }",
]

REFUSED = [
    # The syntax.
    *("", "{", "}", "[", "{}", "port", "port:", "port:\n1", "{port:\n1}", "port;1", "port,1"),
    *("port: 1 2", "host: a b", ": 1", "=1", "port==1", "port::1", "port = = 1", "/ c\nport: 1"),
    *("port: 1;;", "port: 1,,host: a", ";port: 1", ",port: 1", "{port: 1", "port {1}", "host: a;b"),
    *("host: 'a", 'host: "a', "host: 'a''b'", "host: 'a'b", "host: a'b", 'host: "a\\q"'),
    *('host: "\\x4"', 'host: "\\xzz"', "host: a\\", "host: a\\ b", "host: (abc)", "host: (\nabc\n"),
    *("host: .5", "port: -", "port: -a", "port: -.5", "port: 1.", "port: 1.5.", "host: 1.2a"),
    *("host: 1.2.3.4a", "host: 1-2", "host: 2016-05-04", "host: 2016-13-99T99:99:99Z"),
    *("max_payload: 1.5m", "max_payload: 1 MB", "max_pending: 1kbb", "max_pending: 1ib"),
    *("max_pending: 9999999999999999999", "host: -1a", "port: 0x10", "port: 1e5", "port: +5"),
    *("server_tags: [a b]", "server_tags: [a,,b]", "server_tags: [,]", "server_tags: [a;b]"),
    *("server_tags: [a", "server_tags: [a}", "server_tags:\n[a]", "server_tags: ['a' 'b']"),
    *("host: [", "host: a]", "host: {", "authorization {user: a, password: b", "authorization {]}"),
    *("authorization { user: a password: b }", "authorization {user}", "authorization {user: ,}"),
    *("authorization {,user: a}", "authorization {user: a, , password: b}"),
    *("authorization {user: a, password: b;;}", "authorization {'user: a}"),
    *("authorization {user: a, password: b} port: 1", "host: a\0b", 'host: "a\0b"'),
    *("x: $NOT_SET", "port: $port", "port: $WORDS", 'port: "$NUMBER"', "include 'gone.conf'"),
    *("include: a", "include [a]", "y: 12", "y: $NUMBER"),
    # Settings.
    *("foo: 1", "users: []", "max_pending_size: 1", "leafnode {}", "name: a", "permissions {}"),
    *("port: '12'", "port: true", "port: 1.5", "port: 12a", "host: 5", "host: {a: 1}", "host: on"),
    *("listen: '5'", "listen: a", "listen: a:x", "listen: [::1]:5", "listen: true", "http: a"),
    *("listen: 1.2.3.4", "http_port: a", "server_name: 'a b'", "pid_file: 1", "debug: 1"),
    *("debug: 'true'", "debug: t", "max_payload: '1MB'", "max_payload: 3GB", "max_payload: 1t"),
    *("max_control_line: 3GB", "max_pending: 2ms", "ping_interval: 2m", "ping_interval: 1.5"),
    *("ping_interval: 2x", "ping_interval: ''", "ping_interval: '2'", "ping_interval: '1d'"),
    *("ping_interval: '1S'", "ping_interval: ' 1s'", "ping_interval: '9999999h'"),
    *("lame_duck_duration: 5s", "lame_duck_duration: 60", "lame_duck_grace_period: -1s"),
    # Who may connect.
    *("authorization: 1", "authorization {foo: 1}", "authorization {user: 1, password: b}"),
    *("authorization { token: t, user: a, password: b }", "authorization { token: 1 }"),
    *(f"authorization {{ token: t, users: [{A}] }}", "authorization { users: [a] }"),
    f"authorization {{ user: c, password: d, users: [{A}] }}",
    *(f"authorization {{ users: [{A}, {A}] }}", f"authorization {{ users: {A} }}"),
    *("authorization { users: [{password: x}] }", "authorization { users: [{nkey: foo}] }"),
    "authorization { users: [{user: a, password: 123}] }",
    "authorization { users: [{user: a, password: x, foo: 1}] }",
    f"authorization {{ users: [{{nkey: {NKEY}, user: a}}] }}",
    "authorization { users: [{user: a, password: x, connection_types: [foo]}] }",
    *("authorization { timeout: true }", "authorization { timeout: x }", "accounts {A {foo: 1}}"),
    f"accounts {{ A {{ users: [{A}] }} }}\nauthorization {{ user: x, password: y }}",
    *("tls: 1", "tls { cert_file: cert.pem }", "tls { key_file: key.pem }"),
    "tls { cert_file: gone.pem, key_file: gone.pem }",
    *(
        "tls { " + PAIR + f", {extra} }}"
        for extra in (
            *("foo: 1", "verify: 1", "handshake_first: 5", "handshake_first: soon", "timeout: x"),
            *("min_version: 1.3", "min_version: '1.1'", "cipher_suites: []", "cipher_suites: [x]"),
            *("ca_file: gone.pem", "pinned_certs: [aa]"),
        )
    ),
]

PERMISSIONS_TAKEN = [
    *("{}", "{publish: a}", "{pub: [a, b]}", "{publish: {allow: [a], deny: b}}", "{sub: 'a q'}"),
    *("{subscribe: ['a q', 'b *', 'c  x.>']}", "{subscribe: {deny: 'a q'}}", "{publish: 'a*'}"),
    *("{allow_responses: true}", "{allow_responses: false}", "{import: a, export: b}"),
    *("{allow_responses: {max: 5, expires: '1m'}}", "{allow_responses: {max_msgs: 0, ttl: '1s'}}"),
    *("{allow_responses: {max: -1, expiration: '-1s'}}", "{publish_allow_responses: true}"),
    *("{publish: []}", "{subscribe: []}"),
]
PERMISSIONS_REFUSED = [
    *("1", "{foo: 1}", "{allow: a}", "{publish: {foo: b}}", "{publish: 'a q'}", "{publish: a..b}"),
    *("{publish: ''}", "{publish: '>.a'}", "{publish: true}", "{publish: 1}", "{subscribe: ' a'}"),
    *("{subscribe: 'a b c'}", "{subscribe: 'a '}", "{subscribe: 'a q..x'}"),
    *("{allow_responses: 5}", "{allow_responses: {expires: 60}}", "{allow_responses: {foo: 1}}"),
]

REFUSED_AT_START = [
    *("max_payload: 65MB", "max_payload: 2MB\nmax_pending: 1MB", "max_pending: -1"),
    "lame_duck_duration: '30s'\nlame_duck_grace_period: '30s'",
    *("lame_duck_grace_period: '3m'", "no_auth_user: z", "client_advertise: 'a:b'"),
    f"authorization {{ users: [{A}] }}\nno_auth_user: z",
    "authorization { user: a, password: b }\nno_auth_user: a",
]

# mq9 refuses what cannot have been meant, or would let somebody in; each with the reason.
ONLY_NATS_SERVER_TAKES = [
    ("port: 1 }\n", "a brace that closes nothing"),
    ("port: 1 / \n", "a stray character"),
    ("host: a'", "a stray quote"),
    ("port: 1\0", "a NUL character"),
    ("max_pending: 10eb", "it does not fit in 64 bits, and wraps around"),
    ("port: 65536", "no such port"),
    ("listen: '0.0.0.0:99999'", "no such port"),
    ("max_payload: -5", "nothing could be sent"),
    ("ping_interval: '-1s'", "time does not run backwards"),
    ("authorization { user: a }", "a password is missing"),
    ("authorization { password: b }", "everybody could connect"),
    ("authorization { token: '' }", "everybody could connect"),
    ("authorization { users: [{user: a, password: ''}] }", "a password is missing"),
    ("tls {}", "no TLS although the block is there"),
    ("accounts: 1", "not a block"),
    (
        "accounts { A { users: [{user: a, password: x}] }, B { users: [{user: b, password: x}] } }",
        "accounts would read each other's messages",
    ),
    ("accounts { $SYS { users: [{user: a, password: b}] } }", "everybody could connect"),
]
# What nats-server refuses for no reason that an operator could see.
ONLY_MQ9_TAKES = [
    ("mq9 { data: x }", "mq9's own settings"),
    ("\ufeffport: 1", "a byte order mark"),
    ("server_tags: [a, 1]", "a number before a closing bracket"),
    ("authorization { users: [{user: a, password: $2b$11$xxxxxxxxxxxx}] }", "a bcrypt hash"),
    ("ping_interval: 120", "only -t refuses: the server starts and warns, as mq9 does"),
    ("cluster { foo: 1 }", "blocks that do not apply are not looked into"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conf")
    issued = trustme.CA().issue_cert("localhost")
    issued.private_key_pem.write_to_path(path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(path / "cert.pem")
    return path


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def run_nats_server(text: str, *how: str) -> subprocess.CompletedProcess[bytes]:
    file = Path("main.conf")
    file.write_bytes(text.encode())
    return subprocess.run(
        [NATS_SERVER, "-c", file, *how],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )


def nats_server_takes(text: str, *, start: bool = False) -> bool:
    how = ["-a", "127.0.0.1", "-p", "-1"] if start else ["-t"]
    return run_nats_server(text, *how).returncode == 0


def plain(value: Value | Map) -> object:
    data = value if isinstance(value, Map) else value.data
    if isinstance(data, Map):
        return {name: plain(entry.value) for name, entry in data.entries.items()}
    return [plain(item) for item in data] if isinstance(data, list) else data


def digest(text: str) -> str:
    tree = plain(parse_text(text, ENVIRONMENT).root)
    written = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&":
        written = written.replace(char, f"\\u{ord(char):04x}")
    return hashlib.sha256(written.encode() + b"\n").hexdigest()


def mq9_takes(text: str) -> bool:
    file = Path("main.conf")
    file.write_bytes(text.encode())
    try:
        load(file, ENVIRONMENT)
    except ConfigError:
        return False
    return True


def with_permissions(permissions: str) -> str:
    return f"authorization {{ users: [{{user: a, password: x, permissions: {permissions}}}] }}"


@pytest.mark.parametrize("text", [*TAKEN, *map(with_permissions, PERMISSIONS_TAKEN)])
def test_both_take_and_understand_the_same(text: str) -> None:
    finished = run_nats_server(text, "-t")
    assert finished.returncode == 0
    read = re.search(rb"sha256:([0-9a-f]{64})", finished.stdout + finished.stderr)
    assert read
    assert digest(text) == read[1].decode()
    assert mq9_takes(text)


@pytest.mark.parametrize("text", [*REFUSED, *map(with_permissions, PERMISSIONS_REFUSED)])
def test_both_refuse(text: str) -> None:
    assert not nats_server_takes(text)
    assert not mq9_takes(text)


@pytest.mark.parametrize("text", REFUSED_AT_START)
def test_both_refuse_to_start(text: str) -> None:
    assert not nats_server_takes(text, start=True)
    assert not mq9_takes(text)


@pytest.mark.parametrize(("text", "reason"), ONLY_NATS_SERVER_TAKES)
def test_mq9_is_stricter(text: str, reason: str) -> None:
    assert nats_server_takes(text), reason
    assert not mq9_takes(text), reason


@pytest.mark.parametrize(("text", "reason"), ONLY_MQ9_TAKES)
def test_mq9_is_more_lenient(text: str, reason: str) -> None:
    assert not nats_server_takes(text), reason
    assert mq9_takes(text), reason
