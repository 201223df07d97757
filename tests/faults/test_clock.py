"""A wall clock that jumps: lifetimes and delays follow it, leases and waits do not.

A lifetime ends, and a delay is over, at an instant of the wall clock. So a clock that is put
forward ends those that are over by then and no others; a clock that is put back makes what was sent
before wait for that instant, and changes nothing for what is sent after.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.faults import shim
from tests.faults.report import Row, record
from tests.faults.shim import Shim
from tests.faults.supervisor import Supervisor
from tests.mail import Mail, payloads
from tests.peers import until

HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S
JUMPS = {
    "an hour forward": HOUR_S,
    "an hour back": -HOUR_S,
    "ten years forward": 10 * YEAR_S,
    "ten years back": -10 * YEAR_S,
}
EXACT_S = 0.1
# How much longer than promised a busy machine may make it.
PATIENCE_S = 5.0

# Lifetime and delay of each message.
SENT = {
    "ever": (0, 0),
    "minute": (60, 0),
    "hours": (2 * HOUR_S, 0),
    "nine years": (9 * YEAR_S, 0),
    "eleven years": (11 * YEAR_S, 0),
    "in a minute": (0, 60),
    "in two hours": (0, 2 * HOUR_S),
    "in nine years": (0, 9 * YEAR_S),
    "in eleven years": (0, 11 * YEAR_S),
    "from a minute to two hours": (2 * HOUR_S, 60),
    "never": (60, 120),
}
MORTAL_S = 90


def visible(jump_s: int) -> set[str]:
    """What the wall clock says is to be seen right after a jump."""
    return {
        name
        for name, (ttl_s, delay_s) in SENT.items()
        if (ttl_s == 0 or ttl_s > jump_s) and delay_s <= max(jump_s, 0)
    }


class Clocked:
    """A broker whose wall clock can be put forward and back."""

    def __init__(self, folder: Path) -> None:
        self.shim = Shim(folder / "shim", folder / "data", clock=True)
        self.supervisor = Supervisor(folder, "always", self.shim.around)
        self.supervisor.start()

    @property
    def url(self) -> str:
        return self.supervisor.running.url

    def jump(self, jump_s: int) -> None:
        """Puts the clock that far off the true time."""
        self.shim.set("clock_offset_ns", jump_s * 1_000_000_000)

    def restart(self) -> None:
        self.supervisor.kill()
        self.supervisor.start()


@contextmanager
def running(folder: Path) -> Iterator[Clocked]:
    if reason := shim.missing():
        pytest.skip(reason)
    broker = Clocked(folder)
    try:
        yield broker
    finally:
        broker.supervisor.stop()


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[Clocked]:
    with running(tmp_path) as broker:
        yield broker


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clocked]:
    """A broker for several tests, whose clock has jumped before and jumps again."""
    with running(tmp_path_factory.mktemp("clock")) as broker:
        yield broker


def fill(mail: Mail, box: str = "box") -> None:
    mail.done("MAILBOX.CREATE", {"name": box})
    mail.done("MAILBOX.CREATE", {"name": "mortal", "ttl": MORTAL_S})
    for name, (ttl_s, delay_s) in SENT.items():
        mail.deliver(box, name.encode(), ttl=ttl_s, delay=delay_s)


def seen(mail: Mail, box: str = "box") -> set[str]:
    return set(payloads(mail.fetch(box)))


def lives(mail: Mail, box: str) -> bool:
    error: str = mail.ask(f"MSG.QUERY.{box}")["error"]
    assert error in ("", f"mailbox {box} does not exist")
    return not error


@pytest.mark.parametrize("jump", JUMPS)
def test_lifetimes_and_delays_follow_the_wall_clock(clocked: Clocked, jump: str) -> None:
    jump_s = JUMPS[jump]
    with Mail(clocked.url) as mail:
        fill(mail)
        assert seen(mail) == visible(0)
        # Control: the same would be wrong had the clock not moved.
        assert jump_s < 0 or visible(jump_s) != visible(0)
        clocked.jump(jump_s)
        assert seen(mail) == visible(jump_s), "no message may end early, and none live on"
        assert lives(mail, "mortal") is (jump_s < MORTAL_S)
        mail.deliver("box", b"new")
        [new] = [entry for entry in mail.fetch("box") if entry["payload"] == "new"]
        assert abs(new["create_time"] - time.time() - jump_s) < 60, "the clock did not move"
    # What has ended has ended for good; what has not survives a restart at the wrong time.
    clocked.restart()
    with Mail(clocked.url) as mail:
        assert seen(mail) == visible(jump_s) | {"new"}
        clocked.jump(0)
        after = visible(max(jump_s, 0)) | {"new"}
        assert seen(mail) == after
        clocked.jump(12 * YEAR_S)
        rest = {name for name, (ttl_s, _) in SENT.items() if ttl_s == 0}
        assert seen(mail) == rest | {"new"}, "a message outlived its lifetime"
        assert not lives(mail, "mortal")
    times = clocked.supervisor.times
    ready, fetch = times.ready_s[1:], times.fetch_s[1:]
    record(Row("clock", jump, 1, len(SENT) + 1, ready_s=ready, fetch_s=fetch))


@pytest.mark.parametrize("jump", JUMPS)
def test_what_is_sent_after_a_jump_lives_and_waits_as_long_as_it_should(
    shared: Clocked, jump: str
) -> None:
    """Also after a step back, where timers that had run ahead would fire at once."""
    shared.jump(0)
    with Mail(shared.url) as mail:
        box = mail.done("MAILBOX.CREATE")["mail_address"]
        mail.deliver(box, b"first", ttl=2 * 20 * YEAR_S)
        assert seen(mail, box) == {"first"}
        shared.jump(JUMPS[jump])
        started = time.monotonic()
        mail.deliver(box, b"short", ttl=1)
        mail.deliver(box, b"late", delay=1)
        sent = time.monotonic()
        while "short" in (found := seen(mail, box)) or "late" not in found:
            answered = time.monotonic()
            assert answered < sent + 1 + PATIENCE_S, f"still {found}"
            if answered < started + 1 - EXACT_S:
                assert found == {"first", "short"}, "too early"
        assert time.monotonic() > started + 1 - EXACT_S, "too early"
        assert seen(mail, box) == {"first", "late"}


@pytest.mark.parametrize("jump", JUMPS)
def test_leases_and_waits_do_not_follow_the_wall_clock(shared: Clocked, jump: str) -> None:
    shared.jump(0)
    with Mail(shared.url) as mail:
        box = mail.done("MAILBOX.CREATE")["mail_address"]
        mail.deliver(box, b"job")
        # The lease begins after this, however late its holder hears of it.
        leased = time.monotonic()
        assert payloads(mail.fetch(box, "g", member="ada", ack_wait_ms=1500)) == ["job"]
        shared.jump(JUMPS[jump])
        assert mail.fetch(box, "g", member="bob") == []
        config = {"max_wait_ms": 1000, "num_msgs": 1}
        waiting = {"group_name": "g", "member": "bob", "config": config}
        asked = time.monotonic()
        early = mail.done(f"MSG.FETCH.{box}", waiting)["messages"]
        answered = time.monotonic()
        if answered < leased + 1.4:
            assert early == []
            assert answered > asked + 1 - EXACT_S, "the wait ended early"
        again = early or until(
            lambda: mail.fetch(box, "g", member="bob"), "the lease was over", 1.5 + PATIENCE_S
        )
        assert payloads(again) == ["job"]
        assert again[0]["deliveries"] == 2
        assert time.monotonic() > leased + 1.5 - EXACT_S, "the lease ended early"
        record(Row("clock", f"{jump}: leases, long polls", 1))


def test_control_a_clock_that_does_not_jump_shows_the_difference(shared: Clocked) -> None:
    """What the test above expects after a jump is wrong without one."""
    shared.jump(0)
    with Mail(shared.url) as mail:
        box = "control"
        fill(mail, box)
        assert seen(mail, box) == visible(0)
        for jump_s in (HOUR_S, 10 * YEAR_S):
            assert seen(mail, box) != visible(jump_s)
        assert lives(mail, "mortal")
    note = "not what is expected after a jump, as it must be"
    record(Row("clock", "control: a clock that does not jump", 1, note=note))
