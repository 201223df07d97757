"""Whatever a command does, its requests get one reply and the loop goes on."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mq9._core import Broker
from mq9.commands import Commands
from mq9.commands.dispatcher import Call, Command, Dispatcher, Steps
from mq9.commands.reply import Reply
from mq9.config import Options
from mq9.server.admission import Admission
from mq9.server.info import Identity
from mq9.server.listener import Listener, listen
from mq9.server.logs import Log
from mq9.server.passwords import Passwords
from mq9.server.running import Running, Settings
from mq9.store import Store


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Running]:
    """A server in this process, so that a test can add commands of its own."""
    options = Options(host="127.0.0.1", port=-1)
    passwords = Passwords()
    settings = Settings.of(options, passwords)
    with Store(folder / "data", sync="none") as store:
        broker = Broker(settings.limits, 1, store=store)
        running = Running(settings, Identity(), broker, store, Log(), passwords)
        sockets = listen(options.host, options.port)
        running.identity.listens(options, sockets[0].getsockname()[1])
        admission = Admission(running)
        broker.start(asyncio.get_running_loop())
        listener = Listener(sockets, admission.enter, running.log)
        try:
            async with asyncio.timeout(30):
                yield running
        finally:
            listener.close()
            for session in running.clients:
                session.abort()
            await running.clients.gone()
            broker.stop()
            passwords.close()


@contextlib.asynccontextmanager
async def client(
    running: Running, inbox: bytes = b"me"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.identity.port)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false}\r\nSUB %b 1\r\n' % inbox)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def reply(reader: asyncio.StreamReader) -> dict[str, Any]:
    while not (line := await reader.readline()).startswith(b"MSG "):
        assert line == b"PONG\r\n"
    found = json.loads(await reader.readexactly(int(line.split()[-1])))
    assert await reader.readexactly(2) == b"\r\n"
    assert isinstance(found, dict)
    return found


def broken(_call: Call) -> Reply:
    raise ZeroDivisionError


def too_deep(_call: Call) -> Reply:
    return too_deep(_call)


def broken_later(_call: Call) -> Steps:
    yield None
    raise MemoryError


@pytest.mark.parametrize("fault", [broken, too_deep, broken_later])
def test_a_fault_is_logged_and_answered_and_goes_no_further(
    tmp_path: Path, fault: Callable[[Call], Reply | Steps], capsys: pytest.CaptureFixture[str]
) -> None:
    uvloop.run(fail(tmp_path, fault))
    assert "Traceback" not in capsys.readouterr().err


async def fail(tmp_path: Path, fault: Callable[[Call], Reply | Steps]) -> None:
    async with serving(tmp_path) as running, client(running) as (reader, writer):
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, error: failures.append(error))
        written = io.StringIO()
        running.log._stream = written
        dispatcher = Dispatcher(running)
        dispatcher.serve(Command("ADMIN.DEAD.RESOLVE.>", fault))
        for _ in range(2):
            writer.write(b"PUB $mq9.AI.ADMIN.DEAD.RESOLVE.secret me 0\r\n\r\n")
            expected = {"error": "internal error: the log of the broker says more"}
            assert await reply(reader) == expected
        writer.write(b"PUB $mq9.AI.ADMIN.DEAD.RESOLVE.secret 0\r\n\r\nPING\r\n")
        assert await reader.readline() == b"PONG\r\n"
        assert failures == []
        assert written.getvalue().count("a command failed command=ADMIN.DEAD.RESOLVE.>") >= 2
        assert "$mq9.AI.ADMIN.DEAD.RESOLVE.secret" not in written.getvalue()


def test_a_store_that_takes_no_more_is_an_error_in_the_shape_of_the_reply(tmp_path: Path) -> None:
    uvloop.run(close_the_store(tmp_path))


async def close_the_store(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, client(running) as (reader, writer):
        Commands(running)
        request = b"PUB $mq9.AI.MAILBOX.CREATE me 0\r\n\r\n"
        writer.write(request)
        assert (await reply(reader))["error"] == ""
        running.store.close()
        for command, shape in (
            (b"MAILBOX.CREATE", {"mail_address": ""}),
            (b"MSG.QUERY.a", {"messages": []}),
            (b"MSG.DELETE.a.0", {"deleted": False}),
            (b"PUBLIC.LIST", {"mailboxes": []}),
        ):
            writer.write(b"PUB $mq9.AI.%b me 0\r\n\r\n" % command)
            assert await reply(reader) == {"error": "the store is closed", **shape}


def test_commands_that_are_still_loaded_are_waited_for(tmp_path: Path) -> None:
    uvloop.run(ask_early(tmp_path))


async def ask_early(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, client(running) as (reader, writer):
        running.broker.await_commands(True)
        writer.write(b'PUB $mq9.AI.MAILBOX.CREATE me 14\r\n{"name":"box"}\r\n')
        async with client(running, b"other") as (other_reader, other_writer):
            other_writer.write(b"PUB $mq9.AI.MSG.SEND.box other 2\r\nhi\r\n")
            early = await reply(other_reader)
            assert early == {"error": "mailbox box does not exist", "msg_id": -1}
            commands = Commands(running)
            running.broker.await_commands(False)
            assert (await reply(reader))["error"] == ""
            other_writer.write(b"PUB $mq9.AI.MSG.SEND.box other 2\r\nhi\r\n")
            assert await reply(other_reader) == {"error": "", "msg_id": 0}
        commands.close()


def test_what_takes_long_lets_others_in_between(tmp_path: Path) -> None:
    uvloop.run(take_long(tmp_path))


async def take_long(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, client(running) as (reader, writer):
        ticks: list[int] = []

        def long(_call: Call) -> Steps:
            for number in range(50):
                ticks.append(number)
                yield None
            return Reply(error="done")

        def short(_call: Call) -> Reply:
            return Reply(error=f"short after {len(ticks)}")

        dispatcher = Dispatcher(running)
        dispatcher.serve(Command("MAILBOX.CREATE", long))
        dispatcher.serve(Command("PUBLIC.LIST", short))
        async with client(running, b"other") as (other_reader, other_writer):
            writer.write(
                b"PUB $mq9.AI.MAILBOX.CREATE me 0\r\n\r\nPUB $mq9.AI.PUBLIC.LIST me 0\r\n\r\n"
            )
            other_writer.write(b"PUB $mq9.AI.PUBLIC.LIST other 0\r\n\r\n")
            assert (await reply(other_reader))["error"].startswith("short after ")
            # Those of one connection keep their order.
            assert await reply(reader) == {"error": "done"}
            assert await reply(reader) == {"error": "short after 50"}


def test_what_nobody_looks_at_is_not_kept(tmp_path: Path) -> None:
    uvloop.run(send_too_much(tmp_path))


async def send_too_much(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, client(running) as (reader, writer):
        kept: list[bytes] = []

        def wait(call: Call) -> Steps:
            kept.append(call.payload)
            yield None
            return Reply(error=str(call.size))

        dispatcher = Dispatcher(running)
        dispatcher.serve(Command("AGENT.REPORT", wait, limit=None))
        dispatcher.serve(Command("AGENT.REGISTER", wait))
        for command, size in (
            ("AGENT.REPORT", 1 << 20),
            ("AGENT.REPORT", 3),
            ("AGENT.REGISTER", 65536),
        ):
            writer.write(f"PUB $mq9.AI.{command} me {size}\r\n{'x' * size}\r\n".encode())
            assert await reply(reader) == {"error": str(size)}
        assert kept == [b"", b"", b"x" * 65536]
        writer.write(f"PUB $mq9.AI.AGENT.REGISTER me 65537\r\n{'x' * 65537}\r\n".encode())
        expected = "the request has 65537 bytes: at most 65536 are allowed (max_request)"
        assert await reply(reader) == {"error": expected}
        assert len(kept) == 3
