"""The load generator on a mailbox takes everything, in either format, and sees what is missing."""

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.peers import Serve, Server
from tests.requester import Requester

ROOT = Path(__file__).parents[2]
COUNT = 50


def run_load(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "mq9-load", "--"]
    address = f"{server.host}:{server.port}"
    return subprocess.run(
        [*command, *arguments, "--server", address, "--warmup", "0", "--patience", "5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def fill(server: Server, mailbox: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = ["request", "--responders", "0", "--subject", f"$mq9.AI.MSG.SEND.{mailbox}"]
    words += ["--expect", '{"error":"","msg_id":', "--window", "8", "--count", str(COUNT)]
    return run_load(server, *words, *more)


def drain(
    server: Server, mailbox: str, source: str, *more: str
) -> subprocess.CompletedProcess[str]:
    words = ["drain", "--from", source, "--name", mailbox, "--group", source, "--batch", "20"]
    return run_load(server, *words, "--stored", str(COUNT), *more)


@pytest.mark.parametrize("source", ["mailbox-json", "mailbox-raw"])
def test_everything_that_was_sent_is_taken_and_acknowledged(serve: Serve, source: str) -> None:
    server = serve()
    with closing(Requester(server.port)) as requester:
        requester.create("bench")
        sent = fill(server, "bench")
        assert sent.returncode == 0, sent.stderr
        taken = drain(server, "bench", source)
        assert taken.returncode == 0, taken.stderr
        assert json.loads(taken.stdout)["messages"] == COUNT

        again = {"group_name": source, "config": {"max_wait_ms": 0}}
        assert requester.ask_json("MSG.FETCH.bench", **again)["messages"] == []


def test_answer_that_was_not_expected_is_shown(serve: Serve) -> None:
    run = fill(serve(), "nobody")
    assert run.returncode == 1
    assert "mailbox nobody does not exist" in run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize("source", ["mailbox-json", "mailbox-raw"])
def test_missing_message_is_an_error(serve: Serve, source: str) -> None:
    server = serve()
    with closing(Requester(server.port)) as requester:
        requester.create("bench")
        assert fill(server, "bench").returncode == 0
        assert requester.ask_json("MSG.DELETE.bench.7")["deleted"] is True
    run = drain(server, "bench", source)
    assert run.returncode == 1
    assert 'delivered message "000000000008" where "000000000007" is next' in run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize("source", ["mailbox-json", "mailbox-raw"])
def test_priorities_are_taken_one_after_the_other(serve: Serve, source: str) -> None:
    server = serve()
    with closing(Requester(server.port)) as requester:
        requester.create("bench")
    assert fill(server, "bench", "--priorities", "1359").returncode == 0
    taken = drain(server, "bench", source, "--priorities", "4")
    assert taken.returncode == 0, taken.stderr
    assert json.loads(taken.stdout)["messages"] == COUNT
    run = drain(server, "bench", source, "--group", "another")
    assert 'delivered message "000000000004" where "000000000001" is next' in run.stderr


@pytest.mark.parametrize("size", [12, 65536])
def test_all_sizes_are_carried(serve: Serve, size: int) -> None:
    server = serve()
    with closing(Requester(server.port)) as requester:
        requester.create("bench")
    sent = fill(server, "bench", "--size", str(size), "--connections", "3")
    assert sent.returncode == 0, sent.stderr
    assert json.loads(sent.stdout)["messages"] == COUNT


def test_clients_that_wait_are_woken_by_their_message(serve: Serve) -> None:
    server = serve()
    created = run_load(server, "create", "--what", "mailbox", "--count", "30", "--window", "7")
    assert created.returncode == 0, created.stderr
    assert json.loads(created.stdout)["messages"] == 30
    again = run_load(server, "create", "--what", "mailbox", "--count", "1")
    assert "mailbox m000000000000 already exists" in again.stderr

    words = ["wait", "--from", "mailbox", "--connections", "30", "--wake", "20"]
    waited = run_load(server, *words, "--seconds", "0.1")
    assert waited.returncode == 0, waited.stderr
    report = json.loads(waited.stdout)
    assert (report["connections"], report["messages"]) == (30, 20)
    assert 0 < report["latency_us"]["p50"] <= report["latency_us"]["p99"]

    # What is there already wakes a client too soon.
    with closing(Requester(server.port)) as requester:
        requester.ask_json("MSG.SEND.m00000000001d")
    waited = run_load(server, *words, "--seconds", "5")
    assert "answered a poll with nothing to give" in waited.stderr
