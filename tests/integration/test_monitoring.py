"""The monitoring port speaks as that of nats-server does, so that its tooling reads it.

The tables name the keys of nats-server 2.15 that mean something for mq9, with their JSON types;
clusters, gateways, leaf nodes, MQTT, web sockets, JetStream and the Go runtime do not apply.
"""

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.peers import Serve, Server, until
from tests.wire import Wire

NUMBER = (int, float)
Types = dict[str, type | tuple[type, ...]]

VARZ: Types = {
    "server_id": str,
    "server_name": str,
    "version": str,
    "proto": int,
    "host": str,
    "port": int,
    "auth_required": bool,
    "max_connections": int,
    "ping_interval": int,
    "ping_max": int,
    "http_host": str,
    "http_port": int,
    "http_base_path": str,
    "https_port": int,
    "auth_timeout": NUMBER,
    "max_control_line": int,
    "max_payload": int,
    "max_pending": int,
    "tls_timeout": NUMBER,
    "write_deadline": int,
    "start": str,
    "now": str,
    "uptime": str,
    "mem": int,
    "cores": int,
    "cpu": NUMBER,
    "connections": int,
    "total_connections": int,
    "routes": int,
    "remotes": int,
    "leafnodes": int,
    "in_msgs": int,
    "in_bytes": int,
    "out_msgs": int,
    "out_bytes": int,
    "slow_consumers": int,
    "subscriptions": int,
    "http_req_stats": dict,
    "config_load_time": str,
    "slow_consumer_stats": dict,
}
CONNZ: Types = {
    "server_id": str,
    "now": str,
    "num_connections": int,
    "total": int,
    "offset": int,
    "limit": int,
    "connections": list,
}
CONNECTION: Types = {
    "cid": int,
    "kind": str,
    "type": str,
    "ip": str,
    "port": int,
    "start": str,
    "last_activity": str,
    "rtt": str,
    "uptime": str,
    "idle": str,
    "pending_bytes": int,
    "in_msgs": int,
    "out_msgs": int,
    "in_bytes": int,
    "out_bytes": int,
    "subscriptions": int,
    "name": str,
    "lang": str,
    "version": str,
}
SUBSZ: Types = {
    "server_id": str,
    "now": str,
    "num_subscriptions": int,
    "num_cache": int,
    "num_inserts": int,
    "num_removes": int,
    "num_matches": int,
    "cache_hit_rate": NUMBER,
    "max_fanout": int,
    "avg_fanout": NUMBER,
    "total": int,
    "offset": int,
    "limit": int,
}

CONFIG = """
server_name: watched
max_connections: 100
max_payload: 5000
ping_interval: "60s"
write_deadline: "5s"
authorization { users = [{ user: ada, password: p }] }
"""


@pytest.fixture(scope="module")
def watched(serve_for_session: Serve) -> Server:
    return serve_for_session(CONFIG)


def assert_types(found: dict[str, Any], expected: Types) -> None:
    missing = expected.keys() - found.keys()
    assert not missing
    wrong = {
        key: found[key]
        for key, kind in expected.items()
        if not isinstance(found[key], kind) or (kind is not bool and found[key] is True)
    }
    assert wrong == {}


def assert_now(text: str) -> None:
    assert text.endswith("Z")
    # Go writes up to nine digits of a second.
    moment = datetime.fromisoformat(text[:19]).replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - moment) < timedelta(seconds=30)


def ada(server: Server, **options: object) -> Wire:
    named = {"name": "n1", "lang": "python", "version": "1.2"}
    return Wire(server.port).connect(user="ada", **{"pass": "p"}, **(named | options))


def test_varz(watched: Server) -> None:
    before = watched.monitor("/varz")
    assert_types(before, VARZ)
    assert before["server_name"] == "watched"
    assert before["port"] == watched.port
    assert before["host"] == "127.0.0.1"
    assert before["max_connections"] == 100
    assert before["max_payload"] == 5000
    assert before["ping_interval"] == 60_000_000_000
    assert before["write_deadline"] == 5_000_000_000
    assert before["auth_required"] is True
    assert before["mem"] > 1 << 20
    assert_now(before["now"])
    assert_now(before["start"])
    with Wire(watched.port) as other, ada(watched) as wire:
        assert other.info["server_id"] == before["server_id"]
        assert other.info["server_name"] == "watched"
        wire.ask(b"SUB v.a 1\r\nSUB v.* 2\r\nPUB v.a 5\r\nhello\r\nPUB v.b 3\r\nhey\r\n")
        after = watched.monitor("/varz")
        # One of them has not said CONNECT; it counts as well.
        assert after["connections"] - before["connections"] == 2
    gained = {
        key: after[key] - before[key]
        for key in after
        if key in before and key[-4:] in {"msgs", "ytes"}
    }
    assert (gained["in_msgs"], gained["in_bytes"]) == (2, 8)
    assert (gained["out_msgs"], gained["out_bytes"]) == (3, 13)
    assert after["total_connections"] - before["total_connections"] == 2
    assert after["subscriptions"] - before["subscriptions"] == 2
    assert after["http_req_stats"]["/varz"] > before["http_req_stats"]["/varz"]
    assert after["slow_consumer_stats"]["clients"] == after["slow_consumers"] == 0


def test_connz(watched: Server) -> None:
    with ada(watched) as wire:
        wire.ask(b"SUB c.r 1\r\nSUB c.q grp 2\r\nSUB c.m 3\r\nUNSUB 3 5\r\nPUB c.m 5\r\nhello\r\n")
        found = watched.monitor("/connz")
        assert_types(found, CONNZ)
        assert_now(found["now"])
        [connection] = [
            each for each in found["connections"] if each["cid"] == wire.info["client_id"]
        ]
        assert_types(connection, CONNECTION)
        assert connection["port"] == wire.socket.getsockname()[1]
        assert connection["ip"] == "127.0.0.1"
        assert (connection["kind"], connection["type"]) == ("Client", "nats")
        names = [connection[key] for key in ("name", "lang", "version")]
        assert names == ["n1", "python", "1.2"]
        counts = [
            connection[f"{way}_{what}"] for what in ("msgs", "bytes") for way in ("in", "out")
        ]
        assert counts == [1, 1, 5, 5]
        assert connection["subscriptions"] == 3
        assert "subscriptions_list" not in connection
        assert "authorized_user" not in connection

        [connection] = watched.monitor(f"/connz?cid={connection['cid']}&subs=1&auth=1")[
            "connections"
        ]
        assert sorted(connection["subscriptions_list"]) == ["c.m", "c.q", "c.r"]
        assert connection["authorized_user"] == "ada"
        [connection] = watched.monitor(f"/connz?cid={connection['cid']}&subs=detail")["connections"]
        details = sorted(connection["subscriptions_list_detail"], key=lambda each: str(each["sid"]))
        cid = connection["cid"]
        assert details == [
            {"subject": "c.r", "sid": "1", "msgs": 0, "cid": cid},
            {"subject": "c.q", "qgroup": "grp", "sid": "2", "msgs": 0, "cid": cid},
            {"subject": "c.m", "sid": "3", "msgs": 1, "max": 5, "cid": cid},
        ]


def test_connz_in_pages_and_sorted(watched: Server) -> None:
    with ada(watched) as quiet, ada(watched) as busy, ada(watched) as third:
        busy.ask(b"SUB p.a 1\r\n" + b"PUB p.a 5\r\nhello\r\n" * 10)
        wires = {wire.info["client_id"] for wire in (quiet, busy, third)}
        everyone = watched.monitor("/connz")
        assert wires <= {each["cid"] for each in everyone["connections"]}
        cids = [each["cid"] for each in everyone["connections"]]
        assert cids == sorted(cids)
        page = watched.monitor("/connz?limit=1&offset=1")
        assert (page["limit"], page["offset"], page["num_connections"]) == (1, 1, 1)
        assert page["total"] == everyone["total"]
        assert [each["cid"] for each in page["connections"]] == cids[1:2]
        for key in ("msgs_to", "bytes_to", "msgs_from", "bytes_from", "subs"):
            first = watched.monitor(f"/connz?sort={key}")["connections"][0]
            assert first["cid"] == busy.info["client_id"], key
    with pytest.raises(urllib.error.HTTPError) as caught:
        watched.monitor("/connz?sort=nonsense")
    assert caught.value.code == 400
    caught.value.close()


def test_connz_of_closed_connections(watched: Server) -> None:
    wire, rude = ada(watched), ada(watched)
    wire.finish()
    rude.send(b"FOO\r\n")
    rude.until_closed()
    rude.close()
    wanted = {wire.info["client_id"]: "Client Closed", rude.info["client_id"]: "Protocol Violation"}

    def closed() -> dict[int, dict[str, Any]]:
        found = watched.monitor("/connz?state=closed")["connections"]
        return {each["cid"]: each for each in found if each["cid"] in wanted}

    until(lambda: len(closed()) == 2, "both are listed as closed")
    for cid, connection in closed().items():
        assert connection["reason"] == wanted[cid]
        assert_now(connection["stop"])
    open_now = {each["cid"] for each in watched.monitor("/connz")["connections"]}
    assert not open_now & wanted.keys()


def test_subsz(watched: Server) -> None:
    with ada(watched) as wire:
        wire.ask(b"SUB s.a 1\r\nSUB s.* grp 2\r\nSUB s.m 3\r\nUNSUB 3 9\r\n")
        for path in ("/subsz", "/subscriptionsz"):
            found = watched.monitor(path)
            assert_types(found, SUBSZ)
            assert "subscriptions_list" not in found
        found = watched.monitor("/subsz?subs=1")
        cid = wire.info["client_id"]
        listed = [
            {key: each[key] for key in ("subject", "qgroup", "sid", "msgs", "max") if key in each}
            for each in found["subscriptions_list"]
            if each["cid"] == cid
        ]
        assert sorted(listed, key=lambda each: str(each["sid"])) == [
            {"subject": "s.a", "sid": "1", "msgs": 0},
            {"subject": "s.*", "qgroup": "grp", "sid": "2", "msgs": 0},
            {"subject": "s.m", "sid": "3", "msgs": 0, "max": 9},
        ]
        tested = watched.monitor("/subsz?subs=1&test=s.x")["subscriptions_list"]
        assert [each["subject"] for each in tested if each["cid"] == cid] == ["s.*"]


def test_subscriptions_are_all_there_however_many_the_broker_is_asked_for_at_once(
    watched: Server,
) -> None:
    counts = [0, 300, 1, 150, 150, 0, 1000, 1, 2, *[5] * 80]
    wires = [ada(watched) for _ in counts]
    expected = {}
    for wire, count in zip(wires, counts, strict=True):
        subjects = [f"m{at}.s" for at in range(count)]
        subs = "".join(f"SUB {subject} {at}\r\n" for at, subject in enumerate(subjects))
        wire.ask(subs.encode())
        expected[wire.info["client_id"]] = sorted(subjects)
    connections = watched.monitor("/connz?subs=1")["connections"]
    found = {each["cid"]: sorted(each.get("subscriptions_list", [])) for each in connections}
    assert {cid: found[cid] for cid in expected} == expected
    listed = watched.monitor("/subsz?subs=1&limit=100000")["subscriptions_list"]
    for cid, subjects in expected.items():
        assert sorted(each["subject"] for each in listed if each["cid"] == cid) == subjects
    for wire in wires:
        wire.close()


def test_healthz_and_the_way_it_is_served(watched: Server) -> None:
    assert watched.monitor("/healthz") == {"status": "ok"}
    assert watched.monitor_url is not None
    with urllib.request.urlopen(watched.monitor_url + "/varz") as response:
        assert response.headers["Content-Type"] == "application/json"
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert json.load(response)["server_name"] == "watched"
    request = urllib.request.Request(watched.monitor_url + "/varz", method="HEAD")
    with urllib.request.urlopen(request) as response:
        assert (response.status, response.read()) == (200, b"")
    with urllib.request.urlopen(watched.monitor_url + "/") as response:
        assert b"varz" in response.read()
    with pytest.raises(urllib.error.HTTPError) as caught:
        watched.monitor("/never-heard")
    assert caught.value.code == 404
    caught.value.close()


# What nats-server 2.15 says about what it does not have; `server_id` and `now` are in all of them.
ALONE: dict[str, dict[str, Any]] = {
    "/jsz": {
        "memory": 0,
        "storage": 0,
        "reserved_memory": 0,
        "reserved_storage": 0,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": 0, "errors": 0},
        "disabled": True,
        "config": {"max_memory": 0, "max_storage": 0},
        "streams": 0,
        "consumers": 0,
        "messages": 0,
        "bytes": 0,
        "total": 0,
    },
    "/routez": {"server_name": "watched", "num_routes": 0, "routes": []},
    "/leafz": {"leafnodes": 0, "leafs": []},
    "/gatewayz": {"outbound_gateways": {}, "inbound_gateways": {}},
}


@pytest.mark.parametrize("path", ALONE)
def test_documents_of_what_a_server_that_stands_alone_does_not_have(
    watched: Server, path: str
) -> None:
    document = watched.monitor(path)
    assert_now(document.pop("now"))
    assert document.pop("server_id") == watched.monitor("/varz")["server_id"]
    assert document == ALONE[path]
    assert watched.monitor("/varz")["http_req_stats"][path] >= 1


def test_accountz_and_accstatz(watched: Server) -> None:
    listed = watched.monitor("/accountz")
    assert_now(listed["now"])
    assert listed["system_account"] == "$SYS"
    assert "$G" in listed["accounts"]
    with ada(watched) as wire:
        wire.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")
        wire.until(b"PONG\r\n")
        detail = watched.monitor("/accountz?acc=$G")["account_detail"]
        assert detail["account_name"] == detail["name_tag"] == "$G"
        assert detail["jetstream_enabled"] is False
        assert detail["client_connections"] >= 1
        assert detail["subscriptions"] >= 1
        (traffic,) = watched.monitor("/accstatz")["account_statz"]
        assert traffic["acc"] == traffic["name"] == "$G"
        assert traffic["conns"] >= 1
        for direction in ("sent", "received"):
            assert traffic[direction].keys() == {"msgs", "bytes", "gateways", "routes", "leafs"}
            assert traffic[direction]["msgs"] >= 1
    unused = watched.monitor("/accstatz?unused=1")["account_statz"]
    assert "$G" in [account["acc"] for account in unused]
    with pytest.raises(urllib.error.HTTPError) as caught:
        watched.monitor("/accountz?acc=nobody")
    assert caught.value.code == 400
    assert caught.value.read() == b"Account nobody does not exist"
