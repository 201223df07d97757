"""Reading the configuration again under a running server."""

from pathlib import Path

import pytest

from mq9.config import ConfigError, Options, from_arguments, load, reload


def test_users_and_limits_change(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text("max_payload: 1k\nauthorization { token: old }")
    old = from_arguments(["-c", str(file), "-p", "5"], {})
    file.write_text("max_payload: 2k\nauthorization { token: new }\nport: 6")
    new = reload(old)
    assert (new.max_payload, new.authorization.token) == (2000, "new")
    # The flag of the start still overrides the file.
    assert (new.port, new.warnings, new.flags) == (5, (), old.flags)


def test_what_needs_a_restart_keeps_its_value_and_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text("port: 5\nmq9 { data: here }")
    old = load(file, {})
    file.write_text("port: 6\nmq9 { data: there }\nping_max: 7\njetstream: on")
    new = reload(old)
    assert (new.port, new.data_dir, new.ping_max) == (5, Path("here"), 7)
    port, data, jetstream = new.warnings
    assert "jetstream changed" in jetstream
    assert not new.jetstream
    assert port == f"{file}: port changed: restart the server for it to take effect"
    assert "data_dir changed" in data
    assert reload(new).warnings == new.warnings


def test_nodes_of_a_cluster_keep_the_size_their_nats_servers_were_asked_for(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.conf"
    node = 'node: 1, nodes: ["a:1"], servers: ["nats://a:2"], monitors: ["http://a:3"]'
    cluster = f"mq9 {{ replication {{ {node} }} }}"
    file.write_text(f"max_payload: 1k\n{cluster}")
    old = load(file, {})
    file.write_text(f"max_payload: 8MB\n{cluster}")
    new = reload(old)
    assert new.max_payload == 1000
    assert "max_payload changed: restart the server" in new.warnings[-1]


def test_variables_are_looked_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.conf"
    file.write_text("max_payload: $SIZE")
    monkeypatch.setenv("SIZE", "5k")
    assert reload(load(file, {"SIZE": "4k"})).max_payload == 5000


def test_broken_file_raises_and_says_where(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text("max_payload: 1k")
    old = load(file, {})
    file.write_text("max_payload: 1k\n}")
    with pytest.raises(ConfigError, match=r"a\.conf:2:1: this } closes nothing"):
        reload(old)


def test_without_a_file_there_is_nothing_to_reload() -> None:
    with pytest.raises(ConfigError, match="started without -c"):
        reload(Options())
