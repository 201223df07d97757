"""What a broker exports is what its clients know, whenever anything is killed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("pyarrow")

from tests.exported import check, manifest, read
from tests.mail import Mail, ids
from tests.peers import Serve, until
from tests.restarts import Restarting
from tests.traffic import DEAD, Traffic


def command(data: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "mq9", "export", "--data", str(data), "--out", str(out), *more]


def export(data: Path, out: Path, *more: str) -> dict[str, int]:
    done = subprocess.run(
        command(data, out, "--json", *more), capture_output=True, timeout=60, check=True
    )
    summary: dict[str, int] = json.loads(done.stdout)
    return summary


def files(out: Path) -> dict[str, bytes]:
    return {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*.*")}


def export_all(data: Path, out: Path, traffic: Traffic, *more: str) -> None:
    """Exports until what was delayed is visible, and what has a TTL is gone."""

    def settled() -> bool:
        export(data, out, *more)
        messages, events = read(out, "messages"), read(out, "events")
        gone = {"ack", "delete", "dead_letter", "expire"}
        over = {(row["mailbox"], row["msg_id"]) for row in events if row["kind"] in gone}
        mortal = {(row["mailbox"], row["msg_id"]) for row in messages if row["expires"]}
        sent = [row for row in messages if row["mailbox"] != DEAD]
        return len(sent) >= len(traffic.answered) and mortal <= over

    until(settled, "everything was due", deadline_s=30)


def test_fetching_again_what_is_held_is_no_event(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    with Mail(server.url) as mail:
        mail.done("MAILBOX.CREATE", {"name": "box"})
        mail.deliver("box")
        mail.fetch("box", "g")
        mail.deliver("box", priority="urgent")
        assert ids(mail.fetch("box", "g")) == [1, 0]
        mail.ack("box", "g", 0, kind="nak")
        assert ids(mail.fetch("box", "g")) == [1, 0]
    export(server.log_file.parent / "data", tmp_path / "out")
    events = sorted(read(tmp_path / "out", "events"), key=lambda row: (row["offset"], row["seq"]))
    given = [(row["kind"], row["msg_id"], row["count"]) for row in events if row["count"]]
    assert given == [("deliver", 0, 1), ("deliver", 1, 1), ("redeliver", 0, 2)]


def test_an_export_is_what_the_clients_know(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    data, out = server.log_file.parent / "data", tmp_path / "out"
    traffic = Traffic(server.url)
    traffic.create()
    traffic.run()
    # While the broker runs, then more of it, then all when it is stopped.
    summary = export(data, out)
    assert summary["gaps"] == summary["damaged_bytes"] == summary["untimed"] == 0
    traffic.run()
    export_all(data, out, traffic)
    assert server.stop() == 0
    export(data, out)
    check(out, traffic)
    kinds = {row["kind"] for row in read(out, "events")}
    assert kinds == {
        *("create", "send", "deliver", "redeliver", "ack", "nak"),
        *("expire", "delete", "dead_letter"),
    }
    before = files(out)
    again = export(data, out)
    assert (again["messages"], again["events"], again["files"]) == (0, 0, 0)
    assert files(out) == before


def test_kills_of_broker_and_export_lose_and_double_nothing(tmp_path: Path) -> None:
    broker = Restarting(tmp_path / "broker")
    data, out = tmp_path / "broker" / "data", tmp_path / "out"
    traffic = Traffic(broker.url)
    try:
        traffic.create()
        for _ in range(3):
            exporting = subprocess.Popen(
                command(data, out, "--follow", "--every", "0.01"), stdout=subprocess.DEVNULL
            )
            before = len(traffic.answered)
            clients = Thread(target=traffic.run)
            clients.start()
            until(lambda: len(traffic.answered) > before + 50, "clients were at it")  # noqa: B023
            exporting.kill()
            exporting.wait()
            broker.restart(kill=True)
            clients.join()
    finally:
        broker.stop()
    assert traffic.in_doubt
    # In the middle of an export, at another moment each time.
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    started = time.monotonic()
    export(data, whole)
    took = time.monotonic() - started
    for part in range(1, 8):
        kill_after(took * part / 8, command(data, killed))
    for folder in (out, killed, whole):
        assert export(data, folder)["gaps"] == 0
        check(folder, traffic)
    of = [
        sorted(read(folder, "events"), key=lambda row: (row["segment"], row["offset"], row["seq"]))
        for folder in (out, killed, whole)
    ]
    assert of[0] == of[1] == of[2]


def kill_after(seconds: float, arguments: list[str]) -> None:
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def test_without_payloads_there_are_none(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    traffic = Traffic(server.url)
    traffic.create()
    traffic.run(senders=2, messages=5, workers=1)
    data, out = server.log_file.parent / "data", tmp_path / "out"
    export_all(data, out, traffic, "--no-payloads")
    check(out, traffic, payloads=False)
    assert all(row["size"] > 0 for row in read(out, "messages"))


def test_the_broker_exports_by_itself(serve: Serve, tmp_path: Path) -> None:
    out = tmp_path / "out"
    server = serve(f'mq9 {{ export {{ dir: "{out}", every: "100ms" }} }}')
    traffic = Traffic(server.url)
    traffic.create()
    traffic.run(senders=2, messages=20)
    until(
        lambda: server.monitor("/varz")["mq9"]["export"]["messages"] >= len(traffic.answered) - 5,
        "the messages were exported",
    )
    assert server.stop() == 0
    export(server.log_file.parent / "data", out)
    check(out, traffic)
    assert manifest(out)["gaps"] == 0


def test_two_exports_to_one_folder_are_refused(serve: Serve, tmp_path: Path) -> None:
    out = tmp_path / "out"
    server = serve(f'mq9 {{ export {{ dir: "{out}", every: "1h" }} }}')
    until((out / "manifest.json").exists, "the export had begun")
    done = subprocess.run(
        command(server.log_file.parent / "data", out), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "another process exports to this folder" in done.stderr


def test_an_export_that_fails_is_told_and_tried_again(serve: Serve, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("in the way")
    server = serve(f'mq9 {{ export {{ dir: "{out}", every: "100ms" }} }}')
    until(lambda: "the export failed and is tried again" in server.log, "the failure was told")
    assert server.monitor("/varz")["mq9"]["export"]["error"]
    out.unlink()
    until(lambda: "Export goes on" in server.log, "the export went on")
    until((out / "manifest.json").exists, "the export had begun")
    assert server.monitor("/varz")["mq9"]["export"]["error"] == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "nowhere"], "is no directory"),
        (["--data", "."], "holds no data of mq9"),
        (["--data", "data", "--since", "soon"], "--since is 'soon'"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "segment-0000000001.log").touch()
    done = subprocess.run(
        [sys.executable, "-m", "mq9", "export", "--out", "out", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr


def test_follow_goes_on_until_it_is_interrupted(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    data, out = server.log_file.parent / "data", tmp_path / "out"
    following = subprocess.Popen(
        command(data, out, "--follow", "--every", "0.05", "--json"),
        stdout=subprocess.PIPE,
        text=True,
    )
    until((out / "manifest.json").exists, "the export had begun")
    traffic = Traffic(server.url)
    traffic.create()
    traffic.run(senders=1, messages=5, workers=0)
    until(lambda: manifest(out)["messages"]["rows"] > 0, "more was exported")
    following.send_signal(signal.SIGINT)
    printed, _ = following.communicate(timeout=20)
    assert following.returncode == 130
    runs = [json.loads(line) for line in printed.splitlines()]
    assert sum(run["messages"] for run in runs) == manifest(out)["messages"]["rows"]


def test_since_leaves_out_what_is_older(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    traffic = Traffic(server.url)
    traffic.create()
    traffic.run(senders=1, messages=10, workers=0)
    data = server.log_file.parent / "data"
    all_of_it = export(data, tmp_path / "all", "--since", "2001-01-01T00:00")
    none = export(data, tmp_path / "none", "--since", "2101-01-01")
    assert (none["messages"], none["events"]) == (0, 0)
    assert all_of_it["messages"] > 0
    # Later runs go on with what the export was begun with.
    assert export(data, tmp_path / "none")["messages"] == 0
    done = subprocess.run(
        command(data, tmp_path / "none", "--since", "2020-01-01"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "this export was begun with since_ms 4133980800000" in done.stderr


def test_files_of_old_hours_are_removed(serve: Serve, tmp_path: Path) -> None:
    out = tmp_path / "out"
    server = serve(f'mq9 {{ export {{ dir: "{out}", every: "100ms", keep_days: 2 }} }}')
    with Mail(server.url) as mail:
        mail.done("MAILBOX.CREATE", {"name": "box"})
        mail.deliver("box")
        until(lambda: read(out, "messages"), "the message was exported")
        [new] = (out / "messages").rglob("*.parquet")
        old = (
            out / "messages" / "date=2001-02-03" / "hour=04" / "part-0000000001-0000000064.parquet"
        )
        old.parent.mkdir(parents=True)
        old.write_bytes(new.read_bytes())
        mail.deliver("box")
        until(lambda: not old.exists(), "the old file was removed")
        until(lambda: not old.parents[1].exists(), "the folders of its hour and day were removed")
        assert manifest(out)["forgotten"] == {"segment": 1, "offset": 64}
    assert server.stop() == 0
    assert new.exists()
    old.parent.mkdir(parents=True)
    old.write_bytes(new.read_bytes())
    export(server.log_file.parent / "data", out)
    assert old.exists(), "without keep_days nothing goes"
    export(server.log_file.parent / "data", out, "--keep-days", "2")
    assert not old.exists()
    assert len(read(out, "messages")) == 2
    assert manifest(out)["forgotten"] == {"segment": 1, "offset": 64}
