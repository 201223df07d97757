"""Clients that misbehave: the others hardly notice, memory has a bound, and nothing is left behind.

Each attack runs in a process of its own while a bystander sends messages at fixed instants. How
long its replies take is compared with a quiet run of the same broker just before, and with those of
a second broker at the same time: what slows both down is the machine.
"""

import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import pytest
from tests.agents import MEANING_DEADLINE_S, card, register, settled
from tests.faults.attackers import IDLE, KINDS
from tests.faults.report import Row, record
from tests.mail import Mail
from tests.peers import MQ9, Serve, Server, start, until

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[2]
MIB = 1 << 20

SECONDS = float(os.environ.get("MQ9_FAULTS_CLIENT_S", "2"))
FUZZ_SECONDS = float(os.environ.get("MQ9_FAULTS_FUZZ_S", "3"))
QUIET_S = 0.7
SAMPLE_S = 0.002
# The p99 of others may double. Below this many seconds nobody minds, and a machine with two cores
# has to run the attacker as well.
FLOOR_S = 0.020
# What stalls only now and then is the machine, not the broker.
ATTEMPTS = 3

MAX_PENDING = 2 * MIB
CONFIG = f"""
max_pending: {MAX_PENDING}
max_payload: {MIB}
max_connections: {IDLE + 200}
write_deadline: "1s"
mq9 {{ sync: interval, embedder: light }}
"""
# Ten clients that may each have so much unread, the code of idle connections, and what an allocator
# keeps.
# What keeps Python busy, which messages do not need.
TO_PYTHON = [kind for kind in KINDS if "fields" in kind or "cards" in kind]
WITH_AGENTS = {"fuzzed protocol", *TO_PYTHON}
MEMORY_BYTES = {"10,000 idle": IDLE * 16 * 1024 + 48 * MIB}
MOST_BYTES = 10 * MAX_PENDING + 64 * MIB


class Bystander:
    """Sends at fixed instants, so that a stall counts for every message that it delays."""

    sample_s = SAMPLE_S
    floor_s = FLOOR_S

    def __init__(self, url: str) -> None:
        self.mail = Mail(url)
        self.box: str = self.mail.done("MAILBOX.CREATE", {"max_msgs": 10})["mail_address"]

    def begin(self) -> str:
        """Asks for something; the reply subject."""
        return self.mail.begin(f"MSG.SEND.{self.box}", b"x" * 100)

    def p99_s(self, enough: "threading.Event | float") -> float:
        """Measures until told, or for so long."""
        start = time.monotonic()
        waits: list[float] = []
        sent: list[tuple[str, float]] = []
        while not self._over(enough, start):
            due = start + self.sample_s * (len(waits) + len(sent))
            now = time.monotonic()
            if now >= due:
                sent.append((self.begin(), due))
            elif select.select([self.mail.socket], [], [], due - now)[0]:
                self.mail.pump(now + 10)
                arrived = time.monotonic()
                while sent and sent[0][0] in self.mail.arrived:
                    reply, meant = sent.pop(0)
                    assert b'"error":""' in self.mail.arrived.pop(reply)[0].payload
                    waits.append(arrived - meant)
        for reply, meant in sent:
            self.mail.answer(reply)
            waits.append(time.monotonic() - meant)
        return p99(waits)

    def _over(self, enough: "threading.Event | float", start: float) -> bool:
        if isinstance(enough, float):
            return time.monotonic() > start + enough
        return enough.is_set()

    def close(self) -> None:
        self.mail.close()


class Asking(Bystander):
    """Asks what Python answers, where requests of others are before it."""

    sample_s = 0.01
    floor_s = 0.060

    def begin(self) -> str:
        return self.mail.begin(f"MSG.QUERY.{self.box}", {"limit": 1})


class Finding(Bystander):
    """Searches for agents, beside what others have the search do."""

    sample_s = 0.02
    # What was registered before a search is read first: some cards of 200 KB.
    floor_s = 0.5

    def __init__(self, url: str) -> None:
        super().__init__(url)
        register(self.mail, [card("agent.found", name="rain")])
        settled(self.mail, text="rain")

    def begin(self) -> str:
        return self.mail.begin("AGENT.DISCOVER", {"text": "rain", "limit": 1})


class Entering(Bystander):
    """Connects at fixed instants: who it is, Python decides."""

    sample_s = 0.02
    floor_s = 0.060

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def p99_s(self, enough: "threading.Event | float") -> float:
        start, waits = time.monotonic(), list[float]()
        while not self._over(enough, start):
            due = start + self.sample_s * len(waits)
            time.sleep(max(0.0, due - time.monotonic()))
            Mail(self.url, deadline_s=60).close()
            waits.append(time.monotonic() - due)
        return p99(waits)


class LoggingIn(Entering):
    """Connects with a password whose hash takes some milliseconds."""

    sample_s = 0.1
    floor_s = 0.25


def p99(waits: list[float]) -> float:
    waits.sort()
    return waits[int(len(waits) * 0.99)]


@contextmanager
def attack(kind: str, server: Server, seconds: float) -> Iterator[threading.Event]:
    """Runs an attack; the event is set when it is over."""
    command = [sys.executable, "-m", "tests.faults.attackers"]
    arguments = [kind, str(server.port), str(seconds), "1"]
    process = subprocess.Popen([*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE)
    over = threading.Event()
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == b"ready\n"

            def wait() -> None:
                assert process.stdout is not None
                process.stdout.readline()
                over.set()

            waiting = threading.Thread(target=wait)
            waiting.start()
            yield over
            waiting.join(seconds + 30)
            assert process.wait(30) == 0, f"{kind} ended with {process.returncode}"
        finally:
            process.kill()


def files(server: Server) -> int:
    """How many descriptors the broker has, without those of its log: messages are to be kept."""
    found = 0
    for descriptor in Path(f"/proc/{server.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += not descriptor.readlink().name.startswith("segment-")
    return found


class Watch(threading.Thread):
    """Keeps an eye on the broker's memory."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.highest = 0
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.wait(0.05):
            self.highest = max(self.highest, self.server.rss_bytes())

    def stop(self) -> int:
        self.enough.set()
        self.join()
        return self.highest


@dataclass
class Measured:
    """What an attack did to others."""

    quiet_s: float
    """p99 before."""
    during_s: float
    elsewhere_s: float
    """p99 of a broker that was not attacked, at the same time."""
    grown_bytes: int
    floor_s: float = FLOOR_S

    @property
    def is_fine(self) -> bool:
        return self.during_s < max(2 * self.quiet_s, 2 * self.elsewhere_s, self.floor_s)

    def __str__(self) -> str:
        parts = {"quiet": self.quiet_s, "during": self.during_s, "elsewhere": self.elsewhere_s}
        shown = ", ".join(f"{value * 1000:.1f} ms {name}" for name, value in parts.items())
        return f"p99 {shown}; {self.grown_bytes / MIB:.0f} MiB more"


def measured(
    server: Server,
    elsewhere: Server,
    kind: str,
    seconds: float,
    who: type[Bystander] = Bystander,
) -> Measured:
    """p99 in quiet and during an attack, and by how much memory grew at most."""
    bystander, other = who(server.url), who(elsewhere.url)
    found: list[float] = []
    try:
        before = server.rss_bytes()
        watch = Watch(server)
        quiet = bystander.p99_s(QUIET_S)
        watch.start()
        with attack(kind, server, seconds) as over:
            compared = threading.Thread(target=lambda: found.append(other.p99_s(over)))
            compared.start()
            during = bystander.p99_s(over)
            compared.join()
        return Measured(quiet, during, found[0], watch.stop() - before, who.floor_s)
    finally:
        bystander.close()
        other.close()


@pytest.fixture(scope="module")
def target(serve_for_session: Serve) -> Server:
    return serve_for_session(CONFIG, peer=MQ9)


@pytest.fixture(scope="module")
def elsewhere(serve_for_session: Serve) -> Server:
    return serve_for_session(CONFIG, peer=MQ9)


@pytest.mark.parametrize("kind", KINDS)
def test_others_hardly_notice(target: Server, elsewhere: Server, kind: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if kind == "10,000 idle" and hard != resource.RLIM_INFINITY and hard < IDLE + 500:
        pytest.skip(f"needs {IDLE + 500} open files, and the limit is {hard}")
    if kind in WITH_AGENTS:
        # Agents are searched by a process that the broker starts for the first of them.
        with Mail(target.url, deadline_s=MEANING_DEADLINE_S) as mail:
            register(mail, [card("agent.fuzzed", name="rain")])
            settled(mail, semantic="umbrella")
    descriptors = files(target)
    shown: list[str] = []
    for _ in range(ATTEMPTS):
        seconds = FUZZ_SECONDS if kind == "fuzzed protocol" and not shown else SECONDS
        found = measured(target, elsewhere, kind, seconds)
        shown.append(str(found))
        assert found.grown_bytes < MEMORY_BYTES.get(kind, MOST_BYTES), shown
        if found.is_fine:
            break
    else:
        pytest.fail(f"in each of {ATTEMPTS} runs the p99 of others more than doubled: {shown}")
    until(lambda: files(target) <= descriptors, "no descriptor was left behind", 30)
    assert target.process.poll() is None
    assert "Traceback" not in target.log
    assert "unexpected" not in target.log
    record(Row("clients", kind, len(shown), note=shown[-1]))


@pytest.mark.parametrize("who", [Asking, Entering, Finding])
@pytest.mark.parametrize("kind", TO_PYTHON)
def test_others_who_need_python_hardly_notice(
    target: Server, elsewhere: Server, kind: str, who: type[Bystander]
) -> None:
    hardly_noticed(target, elsewhere, kind, who)


def hardly_noticed(target: Server, elsewhere: Server, kind: str, who: type[Bystander]) -> None:
    shown: list[str] = []
    for _ in range(ATTEMPTS):
        found = measured(target, elsewhere, kind, SECONDS, who)
        shown.append(str(found))
        if found.is_fine:
            break
    else:
        pytest.fail(f"in each of {ATTEMPTS} runs the p99 of others more than doubled: {shown}")
    record(Row("clients", f"{kind}, beside one {who.__name__.lower()}", len(shown), note=shown[-1]))


def with_users() -> str:
    """Two users with bcrypt hashes."""
    hashed = bcrypt.hashpw(b"x", bcrypt.gensalt(8)).decode()
    users = ", ".join(f'{{ user: {name}, password: "{hashed}" }}' for name in ("honest", "victim"))
    return f"{CONFIG}\nauthorization {{ users: [ {users} ] }}\n"


@pytest.mark.parametrize("who", [Bystander, Asking, LoggingIn])
def test_others_hardly_notice_wrong_passwords(serve: Serve, who: type[Bystander]) -> None:
    """Those who were let in, and one who comes with the right password."""
    config = with_users()
    target, elsewhere = (serve(config, peer=MQ9) for _ in range(2))
    for server in (target, elsewhere):
        server.url = server.url.replace("://", "://honest:x@")
    hardly_noticed(target, elsewhere, "wrong passwords", who)


@pytest.mark.parametrize("who", [Asking, Entering, Finding, Bystander])
def test_control_a_python_that_stalls_is_noticed_by_those_who_need_it(
    tmp_path: Path, who: type[Bystander]
) -> None:
    around = [sys.executable, str(ROOT / "tests/integration/sleeper.py"), str(tmp_path)]
    server = start(tmp_path / "broker", CONFIG, peer=MQ9, around=around)
    try:
        bystander = who(server.url)
        quiet = bystander.p99_s(QUIET_S)
        (tmp_path / "sleep").write_text("1.0")
        found = Measured(quiet, bystander.p99_s(1.5), quiet, 0, who.floor_s)
        bystander.close()
    finally:
        server.stop()
    assert (tmp_path / "awake").exists()
    # Messages pass all the same: who only sends is no measure of what Python is at.
    assert found.during_s > 0.5 if who is not Bystander else found.during_s < 0.5, found
    assert who is Bystander or not found.is_fine
    note = f"{found}, as it must be"
    record(Row("clients", f"control: a Python that stalls, {who.__name__}", 1, note=note))


def test_control_a_broker_that_stalls_is_noticed(target: Server) -> None:
    bystander = Bystander(target.url)
    over = threading.Event()

    def stall() -> None:
        for _ in range(5):
            target.signal(signal.SIGSTOP)
            time.sleep(0.1)
            target.signal(signal.SIGCONT)
            time.sleep(0.1)
        over.set()

    try:
        quiet = bystander.p99_s(QUIET_S)
        stalling = threading.Thread(target=stall)
        stalling.start()
        during = bystander.p99_s(over)
        stalling.join()
    finally:
        bystander.close()
    found = Measured(quiet, during, quiet, 0)
    assert not found.is_fine
    record(Row("clients", "control: a broker that stalls", 1, note=f"{found}, as it must be"))


def test_control_without_limits_memory_grows(serve: Serve, elsewhere: Server) -> None:
    server = serve('max_pending: 4GiB\nwrite_deadline: "1h"\n', peer=MQ9)
    # The attacker gives way to everybody: on a busy machine it needs longer.
    for seconds in (3.0, 30.0, 120.0):
        grown = measured(server, elsewhere, "never read", seconds).grown_bytes
        if grown > MOST_BYTES:
            break
    assert grown > MOST_BYTES, f"only {grown / MIB:.0f} MiB more"
    note = f"{grown / MIB:.0f} MiB more, as it must be"
    record(Row("clients", "control: never read, limits off", 1, note=note))


def test_control_connections_that_stay_are_noticed(target: Server) -> None:
    descriptors = files(target)
    held = [Mail(target.url) for _ in range(5)]
    assert files(target) > descriptors
    for mail in held:
        mail.close()
    until(lambda: files(target) <= descriptors, "all are gone")
    record(Row("clients", "control: connections that stay", 1, note="noticed, as they must be"))
