"""The audit log: what it has of a change when its file cannot be written."""

import json
import logging
import resource
from pathlib import Path

import httpx
import pytest
from tests.manage.conftest import OPERATORS, Managed, free_port, wait_healthy
from tests.peers import Serve, until

from mq9.manage.audit import Audit


def test_a_full_disk_keeps_nobody_from_steering(serve: Serve, tmp_path: Path) -> None:
    """Who purges makes room: what is done is told as done, and the log has the line."""
    listen = free_port()
    block = f'management {{ listen: "127.0.0.1:{listen}", audit_file: "/dev/full" }}'
    server = serve(f"{OPERATORS}\nmq9 {{ {block} }}\n")
    managed = Managed(server, f"http://127.0.0.1:{listen}", tmp_path)
    wait_healthy(managed)
    with managed.mail("boss") as mail:
        mail.done("MAILBOX.CREATE", {"name": "desk", "dead_letter": "desk.dead"})
        for number in range(3):
            mail.deliver("desk", b"%d" % number)
        mail.fetch("desk", "g", num_msgs=1)
        mail.ack("desk", "g", 0, kind="term")
    given = {"user": "boss", "password": "boss-pw"}
    with httpx.Client(base_url=managed.url, timeout=20) as client:
        session = client.post("/v1/session", json=given)
        assert session.status_code == 200, session.text
        client.headers["x-csrf-token"] = session.json()["csrf"]
        until(lambda: client.get("/v1/dead-letters").json()["total"], "the letter is listed")
        job = client.post("/v1/dead-letters/replay-all", json={"wait": True})
        assert (job.status_code, job.json()["done"]) == (200, True), job.text
        purged = client.post("/v1/queues/desk/purge")
        assert (purged.status_code, purged.json()) == (200, {"purged": 4})
        assert client.delete("/v1/session").status_code == 200
        lines = client.get("/v1/audit", auth=("boss", "boss-pw")).json()["lines"]
    actions = [line["action"] for line in lines if line["result"].startswith("done")]
    assert "purge" in actions
    log = server.log
    assert log.count('"action": "purge"') == 1
    assert log.count("the audit file cannot be written") == 1, "told once, not with every line"
    assert "Traceback" not in log


def test_lines_that_did_not_fit_come_when_there_is_room(tmp_path: Path) -> None:
    """Each once and whole, though the disk was full in the middle of one."""
    file = tmp_path / "audit"
    audit = Audit(file)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Not a number of whole lines: a part of one is written, and the rest is refused.
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        for number in range(100):
            note(audit, number)
        assert file.stat().st_size == 10_000
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    note(audit, 100)
    audit.close()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["target"] for line in lines] == [f"n{number}" for number in range(101)]


def test_lines_that_wait_for_room_take_no_memory_without_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audit = Audit(Path("/dev/full"))
    with caplog.at_level(logging.INFO):
        for number in range(3000):
            note(audit, number)
    assert audit.waiting < 2 << 20
    assert "n2999" in caplog.text, "the log has those that are left out"
    audit.close()


def note(audit: Audit, number: int) -> None:
    text = "x" * 1000
    audit.note(user="u", address=text, action="a", target=f"n{number}", result="done")
