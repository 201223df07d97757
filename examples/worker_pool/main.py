"""A pool of worker processes with the plain, blocking client; one of them is killed at its work.

`python examples/worker_pool/main.py` starts a broker of its own unless MQ9_URL says where one is,
three workers and twenty jobs. The first worker is killed (SIGKILL) while it holds jobs: the others
get them when their time is over, and every job is done.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator

import mq9.sync
from mq9.testing import Broker

JOBS = 20
WORKERS = 3
HOLD_S = 2
"""How long a worker may keep a job without a sign of life."""


def work(url: str, jobs: str, results: str, name: str, slow: bool) -> None:
    """A worker: takes jobs, a few at a time, until it is stopped."""
    with mq9.sync.Client(url, name=name) as client:
        while True:
            for job in client.fetch(jobs, group="pool", member=name, max_msgs=4, max_wait=5):
                # A slow one has not finished its first job when it is killed.
                time.sleep(60 if slow else 0.05)
                number = int(job.text)
                client.send(results, f"{name}: {number} squared is {number * number}")
                client.ack(job, only=True)


def run(url: str) -> None:
    """Jobs, workers, a crash, and all results."""
    with mq9.sync.Client(url) as client:
        # Mailboxes of this run, with names that nobody else has.
        jobs = client.create_mailbox(ttl=600, ack_wait=HOLD_S)
        results = client.create_mailbox(ttl=600)
        # The group begins here: whatever is sent from now on is for the pool.
        client.fetch(jobs, group="pool", max_wait=0)
        client.send_many(jobs, [str(number) for number in range(JOBS)])

        spawn = multiprocessing.get_context("spawn")
        first = spawn.Process(target=work, args=(url, jobs, results, "worker-0", True), daemon=True)
        first.start()
        while not client.show_mailbox(jobs).groups[0].pending:
            time.sleep(0.05)
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        print("worker-0 was killed with jobs in its hands")

        pool = [
            spawn.Process(target=work, args=(url, jobs, results, f"worker-{n}", False), daemon=True)
            for n in range(1, WORKERS)
        ]
        for worker in pool:
            worker.start()
        done = 0
        with client.consume(results, group="main", deliver="earliest") as answers:
            for result in answers:
                print(result.text)
                client.ack(result)
                done += 1
                if done == JOBS:
                    break
        for worker in pool:
            worker.terminate()
            worker.join()
        print(f"{done} jobs done, none lost")


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """Where a broker is."""
    if url := os.environ.get("MQ9_URL"):
        yield url
    else:
        with Broker() as own:
            yield own.url


if __name__ == "__main__":
    with broker() as address:
        run(address)
