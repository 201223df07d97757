"""Many senders, many workers, and deaths: nothing is lost, and order holds within a priority."""

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from tests.faults.order_worker import connected
from tests.mail import Json, Mail
from tests.peers import until
from tests.restarts import Restarting

ROOT = Path(__file__).parents[2]

SENDERS = 8
WORKERS = 8
MESSAGES_EACH = 300
PRIORITIES = ("critical", "urgent", "normal", "notify", "7")
WORKER_KILLS = 24
BROKER_KILLS = 3
DEADLINE_S = 60.0
BOX = "work"
GROUP = "workers"
ALONE = "alone"


@dataclass
class Sent:
    """What the senders know to be stored, in the order in which they sent it."""

    by_sender: dict[int, list[tuple[int, str, str]]] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)

    def all(self) -> dict[int, str]:
        """Payloads by `msg_id`."""
        return {msg_id: text for sent in self.by_sender.values() for msg_id, text, _ in sent}


def send_all(url: str, sender: int, sent: Sent, seed: int) -> None:
    """Sends in small windows; what was under way when the broker died is sent under a new name."""
    choose = random.Random(seed)
    known = sent.by_sender.setdefault(sender, [])
    mail = connected(url)
    number = attempt = 0
    while number < MESSAGES_EACH:
        window = []
        try:
            for each in range(number, min(number + choose.randint(1, 8), MESSAGES_EACH)):
                text, priority = f"{sender}.{each}.{attempt}", choose.choice(PRIORITIES)
                headers = {"mq9-priority": priority}
                window.append(
                    (mail.begin(f"MSG.SEND.{BOX}", text.encode(), headers), text, priority)
                )
            for reply, text, priority in window:
                answer = mail.answer(reply)
                assert answer["error"] == "", answer
                known.append((answer["msg_id"], text, priority))
                number += 1
        except OSError:
            attempt += 1
            mail.close()
            mail = connected(url)
    mail.close()


def consume_alone(url: str, seen: list[Json], stop: Callable[[], bool]) -> None:
    """A group with a single worker, which reads while all the others are at it."""
    mail = connected(url)
    request = {"group_name": ALONE, "deliver": "earliest", "config": {"max_wait_ms": 100}}
    while True:
        finished = stop()
        try:
            batch = mail.done(f"MSG.FETCH.{BOX}", request)["messages"]
            seen += batch
            if batch:
                mail.ack(BOX, ALONE, batch[-1]["msg_id"])
        except OSError:
            mail.close()
            mail = connected(url)
            continue
        if finished and not batch:
            break
    mail.close()


class Crew:
    """The workers, and what they wrote down."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        folder.mkdir()
        self.started = 0
        self.processes: list[subprocess.Popen[bytes]] = []
        self.read_bytes: dict[Path, int] = {}
        self.steps: list[tuple[str, Json]] = []

    def start(self, place: int) -> subprocess.Popen[bytes]:
        self.started += 1
        # Half of the places have a name that outlives their worker.
        member = f"member{place}" if place % 2 else ""
        journal = self.folder / f"{self.started:03}.jsonl"
        script = [sys.executable, "-m", "tests.faults.order_worker"]
        arguments = [self.url, BOX, GROUP, member, str(journal), str(self.started)]
        return subprocess.Popen([*script, *arguments], cwd=ROOT)

    def kill(self, place: int) -> None:
        self.processes[place].kill()
        self.processes[place].wait()

    def read(self) -> list[tuple[str, Json]]:
        """All steps so far, each with the worker that did it."""
        for journal in sorted(self.folder.glob("*.jsonl")):
            with journal.open("rb") as file:
                file.seek(self.read_bytes.get(journal, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self.read_bytes[journal] = self.read_bytes.get(journal, 0) + len(whole)
            self.steps += [(journal.stem, json.loads(line)) for line in whole.splitlines()]
        return self.steps

    def acknowledged(self) -> set[int]:
        steps = [step for _, step in self.read() if step["step"] == "acknowledged"]
        return {msg_id for step in steps for msg_id in step["msg_ids"]}

    def processed(self) -> set[int]:
        return {step["msg_id"] for _, step in self.read() if step["step"] == "processed"}

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)


@contextmanager
def crew(url: str, folder: Path) -> Iterator[Crew]:
    workers = Crew(url, folder)
    try:
        workers.processes = [workers.start(place) for place in range(WORKERS)]
        yield workers
    finally:
        for place in range(len(workers.processes)):
            workers.kill(place)


def run(broker: Restarting, folder: Path, seed: int, broker_kills: int) -> None:
    """Senders, workers and deaths all at once; then the books are checked."""
    choose = random.Random(seed)
    with broker.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": BOX})
    sent, alone = Sent(), list[Json]()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                sent.failures.append(error)

        return run

    def sending() -> bool:
        return any(thread.is_alive() for thread in senders)

    senders = [
        threading.Thread(
            target=guarded(lambda n=number: send_all(broker.url, n, sent, seed + n))  # type: ignore[misc]
        )
        for number in range(SENDERS)
    ]
    reader = threading.Thread(
        target=guarded(lambda: consume_alone(broker.url, alone, lambda: not sending()))
    )
    with crew(broker.url, folder / "journals") as workers:
        for thread in (*senders, reader):
            thread.start()
        deaths = ["worker"] * WORKER_KILLS + ["broker"] * broker_kills
        choose.shuffle(deaths)
        total = SENDERS * MESSAGES_EACH
        for turn, death in enumerate(deaths):
            # Deaths are spread over the work: each waits for its share to be done.
            share = total * turn // (len(deaths) + 1)
            until(
                lambda share=share: sent.failures or len(workers.acknowledged()) >= share,  # type: ignore[misc]
                f"{share} messages were acknowledged before death {turn}",
                DEADLINE_S,
            )
            if death == "broker":
                broker.restart(kill=True)
                continue
            place = choose.randrange(WORKERS)
            workers.kill(place)
            workers.processes[place] = workers.start(place)
        for thread in (*senders, reader):
            thread.join(DEADLINE_S)
        assert sent.failures == []
        until(
            lambda: sent.all().keys() <= workers.processed(),
            "every message was processed",
            DEADLINE_S,
        )
        assert workers.alive(), "a worker ended by itself"
    steps = workers.read()
    check_books(sent, steps)
    check_order_of_each_worker(steps)
    check_order_of_the_only_worker(sent, alone, broker_kills)
    with broker.connect() as mail:
        check_what_is_left(mail, workers.acknowledged())


def check_books(sent: Sent, steps: list[tuple[str, Json]]) -> None:
    """At least once, none lost; more than once only what was not acknowledged."""
    processed = [step for _, step in steps if step["step"] == "processed"]
    stored = sent.all()
    assert len(stored) == SENDERS * MESSAGES_EACH
    found = {step["msg_id"]: step["payload"] for step in processed}
    assert {msg_id: found.get(msg_id) for msg_id in stored} == stored
    acknowledged_ns: dict[int, int] = {}
    for _, step in steps:
        if step["step"] == "acknowledged":
            for msg_id in step["msg_ids"]:
                first = acknowledged_ns.get(msg_id, step["at_ns"])
                acknowledged_ns[msg_id] = min(first, step["at_ns"])
    too_late = [
        step for step in processed if step["asked_ns"] > acknowledged_ns.get(step["msg_id"], 2**63)
    ]
    assert too_late == [], "delivered again although an ACK of it had been confirmed"
    times = [step["deliveries"] for step in processed]
    assert max(times) > 1, "no delivery was repeated: the deaths hit nothing"


def check_order_of_each_worker(steps: list[tuple[str, Json]]) -> None:
    """Of what is new, each worker gets every priority in ascending order."""
    last: dict[tuple[str, str], int] = {}
    seen: set[tuple[str, int]] = set()
    for worker, step in steps:
        if step["step"] == "processed" and step["deliveries"] == 1:
            # What it did not acknowledge comes again over the same connection, uncounted.
            if (worker, step["msg_id"]) in seen:
                continue
            seen.add((worker, step["msg_id"]))
            lane = (worker, step["priority"])
            assert step["msg_id"] > last.get(lane, -1), (lane, step)
            last[lane] = step["msg_id"]


def check_order_of_the_only_worker(sent: Sent, alone: list[Json], broker_kills: int) -> None:
    """A single worker gets each priority in order, and each sender's messages as sent."""
    again = [entry for entry in alone if entry["deliveries"] > 1]
    assert broker_kills or again == []
    first: dict[int, Json] = {}
    for entry in alone:
        first.setdefault(entry["msg_id"], entry)
    assert sent.all().items() <= {msg_id: each["payload"] for msg_id, each in first.items()}.items()
    for priority in PRIORITIES:
        lane = [msg_id for msg_id, each in first.items() if each["priority"] == priority]
        assert lane == sorted(lane)
        place = {each["payload"]: at for at, each in enumerate(first.values())}
        for known in sent.by_sender.values():
            texts = [text for _, text, of in known if of == priority]
            assert all(place[one] < place[two] for one, two in pairwise(texts))


def check_what_is_left(mail: Mail, acknowledged: set[int]) -> None:
    """What the group would still give was not acknowledged by anybody."""
    members = [{"member": f"member{place}"} for place in range(1, WORKERS, 2)]
    for member in [*members, dict[str, str]()]:
        left = mail.fetch(BOX, GROUP, num_msgs=10_000, **member)
        assert {entry["msg_id"] for entry in left}.isdisjoint(acknowledged)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restarting]:
    running = Restarting(tmp_path / "broker")
    try:
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize("seed", [1])
def test_order_and_completeness_while_workers_die(
    broker: Restarting, tmp_path: Path, seed: int
) -> None:
    run(broker, tmp_path, seed, broker_kills=0)


@pytest.mark.parametrize("seed", [2])
def test_order_and_completeness_while_workers_and_the_broker_die(
    broker: Restarting, tmp_path: Path, seed: int
) -> None:
    run(broker, tmp_path, seed, broker_kills=BROKER_KILLS)
