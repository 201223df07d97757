"""`mq9.sync`: the same methods as `mq9.Client`, waited for, from any thread, to a clean end."""

import contextvars
import gc
import inspect
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.peers import Serve, Server, until

import mq9
import mq9.sync
from mq9 import errors

DEADLINE_S = 30
PROMPT_S = 10.0

# A connection of nats-py is for its own event loop.
ASYNC_ONLY = {"nats"}

_numbers = itertools.count()


def public(of: type) -> dict[str, object]:
    members = [vars(kind) for kind in reversed(of.__mro__) if kind.__module__.startswith("mq9")]
    everything = {name: value for kind in members for name, value in kind.items()}
    return {name: value for name, value in everything.items() if not name.startswith("_")}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (mq9.Client, mq9.sync.Client),
        (mq9.Consumer, mq9.sync.Consumer),
        (mq9.Subscription, mq9.sync.Subscription),
    ],
)
def test_both_clients_have_the_same_methods(theirs: type, ours: type) -> None:
    missing = public(theirs).keys() - public(ours).keys()
    # What the asynchronous one sets in its constructor is a property here.
    extra = {
        mq9.sync.Client: {"timeout"},
        mq9.sync.Consumer: {"address", "group", "member"},
        mq9.sync.Subscription: set(),
    }
    # The broker's messages come to it from the asynchronous connection.
    inner = {"on_message", "on_ping"} if ours is mq9.sync.Subscription else set()
    assert missing == (ASYNC_ONLY | inner) & public(theirs).keys()
    assert public(ours).keys() - public(theirs).keys() == extra[ours]


@pytest.mark.parametrize("name", sorted(public(mq9.Client).keys() - ASYNC_ONLY))
def test_a_method_has_the_same_arguments_and_text(name: str) -> None:
    theirs, ours = public(mq9.Client)[name], public(mq9.sync.Client)[name]
    assert theirs.__doc__ == ours.__doc__
    if callable(theirs) and callable(ours):
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
        assert not inspect.iscoroutinefunction(ours)


def test_both_clients_are_made_with_the_same_options() -> None:
    options = set(inspect.signature(mq9.Client).parameters) - {"url"}
    given = inspect.signature(mq9.sync.Client).parameters["options"].annotation
    assert set(given.__args__[0].__annotations__) == options


@pytest.fixture
def client(server: Server) -> Iterator[mq9.sync.Client]:
    with mq9.sync.Client(server.url) as client:
        yield client


@pytest.fixture
def box(client: mq9.sync.Client) -> str:
    return client.create_mailbox(f"sync.{os.getpid()}.{next(_numbers)}")


def test_messages_go_out_and_come_back(client: mq9.sync.Client, box: str) -> None:
    assert client.connected
    assert client.send(box, "hello", priority="urgent") == 0
    assert client.send_many(box, [b"a", mq9.NewMessage("b")]) == [1, 2]
    messages = client.fetch(box, group="g", deliver="earliest")
    assert [message.text for message in messages] == ["hello", "a", "b"]
    client.ack(messages[-1])
    assert client.fetch(box, group="g", max_wait=0) == []


def test_exceptions_are_those_of_the_client(client: mq9.sync.Client) -> None:
    with pytest.raises(errors.MailboxNotFound, match=r"no\.such\.box"):
        client.send("no.such.box", "hello")
    with pytest.raises(errors.InvalidAddress):
        client.send("", "hello")
    with pytest.raises(TypeError):
        client.send()  # type: ignore[call-arg]


def test_a_broker_that_is_not_there_is_told_at_once_and_leaves_no_thread() -> None:
    with pytest.raises(errors.BrokerUnavailable):
        mq9.sync.connect("nats://127.0.0.1:1", connect_timeout=2)
    until(lambda: "mq9-sync" not in [t.name for t in threading.enumerate()], "the thread ended")


def test_a_request_has_a_deadline(client: mq9.sync.Client, server: Server, box: str) -> None:
    server.signal(signal.SIGSTOP)
    try:
        with pytest.raises(errors.RequestTimeout):
            client.send(box, "hello", timeout=0.2)
    finally:
        server.signal(signal.SIGCONT)


def test_many_threads_share_a_client(client: mq9.sync.Client, box: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        ids = [*threads.map(lambda number: client.send(box, str(number)), range(200))]
    assert sorted(ids, key=str) == sorted(range(200), key=str)


def test_handlers_run_in_threads_and_may_use_the_client(client: mq9.sync.Client, box: str) -> None:
    client.send_many(box, ["a", "b", "c"])
    answers = client.create_mailbox()
    seen = []
    place = contextvars.ContextVar("place", default="")
    place.set("the caller's")

    def handle(message: mq9.Message) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.append((message.text, place.get()))
        client.send(answers, message.text.upper())
        if len(seen) == 3:
            consumer.stop()

    consumer = client.consume(box, group="g", concurrency=2)
    consumer.run(handle)
    assert sorted(seen) == [(text, "the caller's") for text in "abc"]
    assert sorted(message.text for message in client.query(answers)) == ["A", "B", "C"]
    assert client.fetch(box, group="g", max_wait=0) == []


def test_a_loop_acknowledges_what_it_has_done(client: mq9.sync.Client, box: str) -> None:
    client.send_many(box, ["a", "b", "c"])
    with client.consume(box, group="g") as consumer:
        for message in consumer:
            if message.text == "b":
                break
    assert [message.text for message in client.fetch(box, group="g")] == ["c"]


def test_another_thread_stops_a_worker(client: mq9.sync.Client, box: str) -> None:
    consumer = client.consume(box, group="g")
    threading.Timer(0.1, consumer.stop).start()
    consumer.run(print)
    with pytest.raises(errors.InvalidField):
        consumer.run("no function")  # type: ignore[arg-type]


def test_an_async_handler_cannot_wait_for_its_own_loop(client: mq9.sync.Client, box: str) -> None:
    client.send(box, "hello")
    told: list[str] = []

    async def handle(_message: mq9.Message) -> None:
        calls: list[Callable[[], object]] = [lambda: client.send(box, "again"), client.close]
        for call in calls:
            with pytest.raises(RuntimeError) as caught:
                call()
            told.append(str(caught.value))
        threading.Thread(target=consumer.stop).start()

    consumer = client.consume(box, group="g")
    consumer.run(handle)
    assert [("event loop" in text) for text in told] == [True, True]


def test_whoever_waits_when_the_client_is_closed_is_told(server: Server) -> None:
    client = mq9.sync.connect(server.url)
    box = client.create_mailbox()
    with ThreadPoolExecutor(3) as threads:
        waiting: list[Future[Any]] = [
            threads.submit(client.fetch, box, max_wait=60, timeout=60),
            threads.submit(client.consume(box, group="g").run, print),
        ]
        time.sleep(0.2)
        client.close()
        for each in waiting:
            with pytest.raises(errors.ClientClosed):
                each.result(PROMPT_S)
    client.close()
    with pytest.raises(errors.ClientClosed, match="create another"):
        client.send(box, "hello")


def test_a_forked_process_is_told_and_its_parent_goes_on(client: mq9.sync.Client, box: str) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.send(box, "from the child")
        except errors.ClientClosed as error:
            code = 0 if "forked" in str(error) else 2
        client.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.send(box, "from the parent") == 0


def test_a_client_that_nobody_closes_ends_with_its_last_reference(server: Server) -> None:
    client = mq9.sync.connect(server.url)
    thread = client._portal._thread
    del client
    gc.collect()
    thread.join(PROMPT_S)
    assert not thread.is_alive()


def script(server: Server, code: str) -> subprocess.Popen[str]:
    """A program with a connected `client`; it prints a line when it is ready."""
    before = "import mq9.sync, mq9, threading\nclient = mq9.sync.connect()\n"
    return subprocess.Popen(
        [sys.executable, "-u", "-c", before + code],
        env={**os.environ, "MQ9_URL": server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_program_may_end_without_closing(server: Server) -> None:
    done = script(server, "client.create_mailbox()")
    printed, _ = done.communicate(timeout=DEADLINE_S)
    assert (printed, done.returncode) == ("", 0)


def test_ctrl_c_ends_a_wait(server: Server) -> None:
    code = (
        "box = client.create_mailbox()\nprint('ready')\nclient.fetch(box, max_wait=60, timeout=60)"
    )
    running = script(server, code)
    assert running.stdout is not None
    with running.stdout:
        assert running.stdout.readline() == "ready\n"
        time.sleep(0.2)
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in running.stdout.read()
    running.wait(DEADLINE_S)
    assert time.monotonic() - began < PROMPT_S


def test_ctrl_c_gives_back_what_a_worker_has_in_hand(
    client: mq9.sync.Client, server: Server, box: str
) -> None:
    client.send(box, "work")
    code = f"""
def handle(message):
    print(message.text)
    threading.Event().wait(3)
with client:
    client.consume("{box}", group="g", ack_wait=60).run(handle)
"""
    running = script(server, code)
    assert running.stdout is not None
    with running.stdout:
        assert running.stdout.readline() == "work\n"
        running.send_signal(signal.SIGINT)
        # At once, not when the lease is over, nor when the handler has ended.
        began = time.monotonic()
        [message] = client.fetch(box, group="g", max_wait=DEADLINE_S, timeout=DEADLINE_S + 5)
        assert time.monotonic() - began < PROMPT_S
        assert message.deliveries == 2
        running.stdout.read()
    running.wait(DEADLINE_S)


def test_a_client_reconnects(serve: Serve) -> None:
    server = serve()
    with mq9.sync.Client(server.url) as client:
        box = client.create_mailbox()
        server.process.kill()
        server.process.wait()
        until(lambda: not client.connected, "the loss was noticed")
        again = serve("", port=server.port)
        until(lambda: client.connected, "it is connected again")
        assert again.port == server.port
        with pytest.raises(errors.MailboxNotFound):
            client.send(box, "another broker")
