"""What the server says about itself: INFO, times, addresses, the log, and its files."""

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from mq9.config import Options, Tls
from mq9.server import clock, ports_file
from mq9.server.info import Identity, Peer, info_fields, info_line, plain_ip, split_address
from mq9.server.logs import Log


def info(
    options: Options,
    *,
    auth_required: bool = False,
    peer: Peer | None = None,
    lame_duck: bool = False,
) -> dict[str, Any]:
    identity = Identity()
    identity.listens(options, 4333)
    fields = info_fields(
        identity, options, auth_required=auth_required, peer=peer, lame_duck=lame_duck
    )
    line = info_line(fields)
    assert line.startswith(b"INFO {")
    assert line.endswith(b"} \r\n")
    assert json.loads(line[5:]) == fields
    return fields


def test_info_has_the_fields_clients_read() -> None:
    fields = info(Options(), peer=Peer(7, "10.0.0.1"))
    assert fields["server_name"] == fields["server_id"]
    assert (fields["host"], fields["port"]) == ("0.0.0.0", 4333)
    assert (fields["client_id"], fields["client_ip"]) == (7, "10.0.0.1")
    assert (fields["proto"], fields["headers"], fields["max_payload"]) == (1, True, 1048576)
    # Clients switch features on by these: there is no JetStream, whatever the version has.
    assert (fields["version"], fields["api_lvl"]) == ("2.15.1", 0)
    assert "jetstream" not in fields
    absent = {"auth_required", "tls_required", "tls_verify", "tls_available", "nonce", "ldm"}
    assert not absent & fields.keys()


def test_info_says_what_is_required() -> None:
    tls = Tls(cert_file=Path("c"), key_file=Path("k"), verify=True)
    fields = info(Options(tls=tls), auth_required=True, peer=Peer(1, "::1", "abc"), lame_duck=True)
    names = ("auth_required", "tls_required", "tls_verify", "ldm")
    assert [fields[name] for name in names] == [True] * 4
    assert fields["nonce"] == "abc"
    both = info(Options(tls=tls, allow_non_tls=True))
    assert both["tls_available"] is True
    assert "tls_required" not in both


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h.example:99", ("h.example", 99)),
        ("h.example", ("h.example", 4333)),
        ("[::1]:99", ("::1", 99)),
        ("[::1]", ("::1", 4333)),
        ("fe80::1", ("fe80::1", 4333)),
    ],
)
def test_the_advertised_address_is_the_one_clients_are_told(
    text: str, expected: tuple[str, int]
) -> None:
    assert split_address(text, 4333) == expected
    fields = info(Options(client_advertise=text))
    assert (fields["host"], fields["port"]) == expected


def test_ipv4_over_an_ipv6_socket_is_shown_as_ipv4() -> None:
    assert plain_ip("::ffff:192.0.2.1") == "192.0.2.1"
    assert plain_ip("::ffff:0:1") == "::ffff:0:1"
    assert plain_ip("fe80::1%eth0") == "fe80::1"
    assert plain_ip("192.0.2.1") == "192.0.2.1"


def test_times_are_written_as_go_does() -> None:
    assert clock.timestamp(1_700_000_000_000) == "2023-11-14T22:13:20Z"
    assert clock.timestamp(1_700_000_000_120) == "2023-11-14T22:13:20.12Z"
    assert [clock.uptime(s * 1000) for s in (0, 59, 60, 3661, 90_061)] == [
        "0s",
        "59s",
        "1m0s",
        "1h1m1s",
        "1d1h1m1s",
    ]
    assert clock.uptime(366 * 86_400_000) == "1y1d0h0m0s"
    spans = (0, 754, 8997, 1_500_000, 61_000_000, 3_600_000_000)
    assert [clock.duration(us) for us in spans] == [
        "0s",
        "754µs",
        "8.997ms",
        "1.5s",
        "1m1s",
        "1h0m0s",
    ]


def test_a_line_of_the_log_has_nats_servers_form(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.info("Server is ready", cid=5, client="127.0.0.1:4", name='a "b"\n[ERR] forged')
    log.debug("not shown")
    log.trace("not shown")
    line = capsys.readouterr().err
    form = r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[INF\] Server is ready cid=5 client=\S+"
    assert re.match(form, line)
    assert line.count("\n") == 1
    assert r'name="a \"b\"\n[ERR] forged"' in line


def test_the_log_shows_as_much_as_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(debug=True, time=False)
    log.debug("one")
    log.trace("two")
    log.configure(debug=False, trace=True, time=False, utc=False)
    log.trace("three")
    log.configure(debug=False, trace=False, time=False, utc=True)
    log.debug("four")
    log.warn("five\nsix")
    pid = os.getpid()
    assert capsys.readouterr().err.splitlines() == [
        f"[{pid}] [DBG] one",
        f"[{pid}] [TRC] three",
        f"[{pid}] [WRN] five\\nsix",
    ]


def test_a_log_file_can_be_moved_away(tmp_path: Path) -> None:
    file, old = tmp_path / "log", tmp_path / "log.1"
    log = Log(file=file, time=False)
    log.info("one")
    file.rename(old)
    log.info("two")
    log.reopen()
    log.error("three")
    log.close()
    assert [line.split("] ", 1)[1] for line in old.read_text().splitlines()] == [
        "[INF] one",
        "[INF] two",
    ]
    assert file.read_text().endswith("[ERR] three\n")


def test_a_log_nobody_reads_does_not_stop_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    Log().info("lost")


def test_the_ports_file_names_the_urls(tmp_path: Path) -> None:
    path = tmp_path / "mq9_1.ports"
    ports_file.write_ports_file(
        path, ports_file.urls("nats", "127.0.0.1", 4333), ports_file.urls("http", "::1", 8333)
    )
    assert json.loads(path.read_text()) == {
        "nats": ["nats://127.0.0.1:4333"],
        "monitoring": ["http://[::1]:8333"],
    }
    assert list(tmp_path.iterdir()) == [path]


def test_the_ports_file_has_the_name_that_programs_for_nats_server_expect_as_well() -> None:
    names = {path.name for path in ports_file.ports_files(Path("somewhere"))}
    assert names == {f"mq9_{os.getpid()}.ports", f"nats-server_{os.getpid()}.ports"}


def test_a_server_on_all_addresses_names_those_of_this_machine() -> None:
    for everywhere in ("0.0.0.0", "::"):
        assert "nats://127.0.0.1:1" in ports_file.urls("nats", everywhere, 1)


def test_the_pid_file_holds_the_pid(tmp_path: Path) -> None:
    ports_file.write_pid_file(tmp_path / "pid")
    assert (tmp_path / "pid").read_text() == str(os.getpid())
