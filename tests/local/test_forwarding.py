"""Between files and a broker: each message crosses once, whenever anything is killed."""

import asyncio
import itertools
import json
import os
import random
import signal
import string
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.local.conftest import Folder
from tests.peers import Serve, Server, until

from mq9 import Client
from mq9.errors import MailboxNotFound
from mq9.local import Queue, QueueError
from mq9.local.forwarding import CURSOR, Forwarder, address

_sessions = (f"s{number}" for number in itertools.count())


@pytest.fixture
def session() -> str:
    """A session whose mailboxes no other test uses."""
    return f"{next(_sessions)}x{os.getpid()}"


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.url) as client:
        yield client


async def carried(client: Client, queue: Queue, session: str, *agents: str) -> tuple[int, int]:
    forwarder = Forwarder(client, queue, session, agents)
    with forwarder.alone():
        return await forwarder.up(), await forwarder.down()


async def texts(client: Client, session: str, agent: str) -> list[str]:
    return [m.text for m in await client.query(address(session, agent), since=0)]


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def test_addresses_are_addresses_and_no_two_agents_share_one() -> None:
    assert address("build", "boss") == "build.mail.boss"
    assert address("build", "worker-7") == "build.mail.worker.x2d.7"
    choose = random.Random(7)
    letters = "abx2d4.-_AX" + string.digits
    names = {"x2d", "a-", "A", "x41", "mail", "a.mail.b", "mail.x", "a--b", "aB", "a", "Bc", "c"}
    while len(names) < 400:
        names.add(choose.choice("abxA2") + "".join(choose.choices(letters, k=choose.randrange(4))))
    made = {address(s, a) for s, a in itertools.product(sorted(names)[:60], sorted(names))}
    assert len(made) == 60 * len(names)
    assert all(a.replace(".", "").isalnum() and a == a.lower() and ".." not in a for a in made)
    with pytest.raises(ValueError, match="takes 128"):
        address("s" * 100, "a" * 100)


async def test_messages_go_up_and_answers_come_down(
    client: Client, queue: Queue, session: str
) -> None:
    queue.poll("boss", session=session)
    asked = queue.send(
        "ask", "x" * 5000, "worker-7", 600, session, sender="boss", priority="urgent"
    )
    queue.send("ask", "stays here", "boss", session=session)
    queue.send("ask", "over", "worker-7", ttl_s=0, session=session)
    queue.send("broadcast", "all hands", session=session, sender="boss")
    assert await carried(client, queue, session) == (2, 0)
    assert await carried(client, queue, session) == (0, 0)
    [message] = await client.query(address(session, "worker-7"), since=0)
    assert (message.text, message.priority) == ("x" * 5000, "urgent")
    assert message.expires_at is not None
    # Told in whole seconds.
    assert 590 <= message.expires_at - message.create_time <= 601
    headers = dict(message.headers)
    assert headers.pop("agent-site")
    assert headers.pop("mq9-id") == asked
    assert headers == {
        "agent-msg-id": asked,
        "agent-from": "boss",
        "agent-to": "worker-7",
        "agent-topic": "ask",
        "agent-reply-mailbox": address(session, "boss"),
    }
    assert await texts(client, session, "all") == ["all hands"]
    answer = {"agent-from": "worker-7", "agent-topic": "answer", "agent-in-reply-to": asked}
    reply_to = message.headers["agent-reply-mailbox"]
    await client.send(reply_to, "done", headers=answer, ttl=60, priority=2)
    await client.send(reply_to, b"\xff")
    assert await carried(client, queue, session) == (0, 2)
    local, done, odd = queue.poll("boss", session=session)[1:]
    assert local["body"] == "all hands"
    assert {name: done[name] for name in ("from", "to", "topic", "body", "in_reply_to")} == {
        "from": "worker-7",
        "to": "boss",
        "topic": "answer",
        "body": "done",
        "in_reply_to": asked,
    }
    assert (done["ttl_s"] in {60, 61}, done["priority"]) == (True, 2)
    assert (odd["from"], odd["body"], odd["encoding"]) == ("broker", "/w==", "base64")
    assert await carried(client, queue, session) == (0, 0)
    assert queue.poll("boss", session=session) == []


async def test_two_places_with_files_talk_over_a_broker(
    client: Client, tmp_path: Path, session: str
) -> None:
    here, there = Queue(tmp_path / "here"), Queue(tmp_path / "there")
    asked = here.send("ask", "hello", "b", session=session, sender="a")
    here.send("broadcast", "everyone", session=session, sender="a")

    async def cross() -> None:
        await carried(client, here, session, "a")
        await carried(client, there, session, "b")

    await cross()
    hello, everyone = there.poll("b", session=session)
    assert (hello["msg_id"], everyone["body"]) == (asked, "everyone")
    there.send("answer", "hi", "a", session=session, sender="b", reply_to=hello["msg_id"])
    for _ in range(3):
        await cross()
    assert bodies(there.poll("b", session=session)) == []
    mine, answer = here.poll("a", session=session)
    # What it told everyone itself did not come back as a second message.
    assert (mine["body"], answer["body"], answer["in_reply_to"]) == ("everyone", "hi", asked)


async def test_an_agent_that_appears_later_gets_nothing_twice(
    client: Client, queue: Queue, session: str
) -> None:
    queue.send("ask", "x", "late", session=session)
    assert await carried(client, queue, session) == (1, 0)
    assert bodies(queue.poll("late", session=session)) == ["x"]
    assert await carried(client, queue, session) == (0, 0)
    assert queue.poll("late", session=session) == []


async def test_what_cannot_cross_is_told(
    client: Client, queue: Queue, root: Path, session: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = queue.send("ask", "x" * 5000, "w", session=session)
    large = queue.send("ask", "x" * (2 << 20), "w", session=session)
    queue.send("ask", "fine", "w", session=session)
    folder = Folder(root, session)
    (folder.session / "bodies" / f"{lost}.txt").unlink()
    await client.create_mailbox(address(session, "a"))
    await client.send(address(session, "a"), "x", headers={"agent-topic": "gossip"})
    await client.send(address(session, "a"), "y", headers={"agent-topic": "status"})
    forwarder = Forwarder(client, queue, session, ("a",))
    with forwarder.alone():
        assert (await forwarder.up(), await forwarder.down()) == (1, 1)
    assert len(forwarder.refused) == 3
    told = capsys.readouterr().err
    assert lost in told
    assert large in told
    assert "gossip" in told
    assert await texts(client, session, "w") == ["fine"]
    assert await carried(client, queue, session, "a") == (0, 0)


async def test_nobody_can_claim_the_long_body_of_another(
    client: Client, queue: Queue, session: str
) -> None:
    secret = queue.send("ask", "secret" * 1000, "b", session=session)
    box = await client.create_mailbox(address(session, "a"))
    claims = {"agent-msg-id": secret}
    await client.send(box, f"@file:{secret}.txt", headers=claims)
    await client.send(box, "long" * 2000, headers=claims)
    await client.send(box, f"@file:{box}.2.txt")
    await carried(client, queue, session, "a", "b")
    found = queue.poll("a", session=session)
    assert bodies(found) == [f"@file:{secret}.txt", "long" * 2000, f"@file:{box}.2.txt"]
    assert bodies(queue.poll("b", session=session)) == ["secret" * 1000]


async def test_a_message_that_has_been_done_meanwhile_does_not_come_again(
    client: Client, queue: Queue, root: Path, session: str
) -> None:
    """It was sent, the forwarder died before it knew, and the worker has deleted it."""
    queue.send("ask", "x", "w", session=session)
    assert await carried(client, queue, session, "boss") == (1, 0)
    await client.delete(address(session, "w"), 0)
    (Folder(root, session).session / "cursors" / f"{CURSOR}.cursor").unlink()
    await carried(client, queue, session, "boss")
    assert await texts(client, session, "w") == []
    queue.send("ask", "y", "w", session=session)
    await carried(client, queue, session, "boss")
    assert await texts(client, session, "w") == ["y"]


async def test_a_mailbox_with_a_short_memory_is_looked_through(
    client: Client, queue: Queue, root: Path, session: str
) -> None:
    """Somebody else made it, and remembers no ids."""
    await client.create_mailbox(address(session, "w"), dedup_window=0)
    queue.send("ask", "x", "w", session=session)
    await carried(client, queue, session, "boss")
    (Folder(root, session).session / "cursors" / f"{CURSOR}.cursor").unlink()
    assert await carried(client, queue, session, "boss") == (0, 0)
    assert await texts(client, session, "w") == ["x"]


async def test_the_kill_switch_lets_nothing_cross(
    client: Client, queue: Queue, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send("ask", "x", "w", session=session)
    box = await client.create_mailbox(address(session, "boss"))
    await client.send(box, "y")
    monkeypatch.setenv("ZOS_MQ_DISABLED", "1")
    assert await carried(client, queue, session, "boss") == (0, 0)
    monkeypatch.delenv("ZOS_MQ_DISABLED")
    assert await carried(client, queue, session, "boss") == (1, 1)


async def test_what_comes_down_is_safe_before_it_is_acknowledged(
    client: Client, queue: Queue, root: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    real_sync, real_ack = os.fsync, client.ack

    def fsync(fd: int) -> None:
        happened.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real_sync(fd)

    async def ack(*messages: Any, **options: Any) -> None:  # noqa: ANN401
        happened.append("acknowledged")
        await real_ack(*messages, **options)

    box = await client.create_mailbox(address(session, "boss"))
    await client.send(box, "y")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(client, "ack", ack)
    await carried(client, queue, session, "boss")
    assert happened[-3:] == ["messages.jsonl", session, "acknowledged"]
    assert Folder(root, session).lines()[0]["body"] == "y"


async def test_one_forwarder_at_a_time(client: Client, queue: Queue, session: str) -> None:
    with (
        Forwarder(client, queue, session).alone(),
        pytest.raises(QueueError, match="somebody else"),
        Forwarder(client, queue, session).alone(),
    ):
        pass


async def test_expire_in_the_middle_of_a_crossing(
    client: Client, queue: Queue, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send("ask", "over", ttl_s=0, session=session)
    for number in range(5):
        queue.send("ask", f"{number}", "w", session=session)
    real = client.send_many
    expired: list[int] = []

    async def send_many(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        result = await real(*arguments, **options)
        if not expired:
            expired.append(queue.expire(session))
            queue.send("ask", "5", "w", session=session)
        return result

    monkeypatch.setattr(client, "send_many", send_many)
    await carried(client, queue, session, "boss")
    assert expired == [1]
    assert await texts(client, session, "w") == [f"{number}" for number in range(6)]
    size = queue.status(session)[session]
    assert size["cursors"][CURSOR] == size["queue_bytes"]


DIE = """
import os, sys
from mq9.client import Client
from mq9.cli import main
from mq9.local.queue import Queue

left = int(sys.argv[1])

def step():
    global left
    left -= 1
    if left < 0:
        os._exit(77)

def around(owner, name):
    real = getattr(owner, name)
    if name == "append_record":
        def call(*a, **o):
            step()
            real(*a, **o)
            step()
    else:
        async def call(*a, **o):
            step()
            result = await real(*a, **o)
            step()
            return result
    setattr(owner, name, call)

for name in ("send_many", "ack", "fetch", "query"):
    around(Client, name)
around(Queue, "append_record")
sys.exit(main(sys.argv[2:]))
"""


async def killed_on_the_way(server: Server, root: Path, session: str) -> int:
    """Stops the command before and behind everything that it does; how often that was."""
    crossing = ["local", "--root", str(root), "forward", "--session", session, "--agent", "boss"]
    for steps in itertools.count():
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", DIE, str(steps), *crossing, "--url", server.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode == 0:
            return steps
        assert done.returncode == 77, done.stderr
    raise AssertionError("it never ends")


async def test_what_dies_on_the_way_up_carries_each_once(
    server: Server, client: Client, queue: Queue, root: Path, session: str
) -> None:
    for number in range(6):
        queue.send("ask", f"{number}", f"w{number % 2}", session=session)
    queue.send("broadcast", "all", session=session)
    assert await killed_on_the_way(server, root, session) >= 6
    assert await texts(client, session, "w0") == ["0", "2", "4"]
    assert await texts(client, session, "w1") == ["1", "3", "5"]
    assert await texts(client, session, "all") == ["all"]


async def test_what_dies_on_the_way_down_carries_each_once(
    server: Server, client: Client, queue: Queue, root: Path, session: str
) -> None:
    boss = await client.create_mailbox(address(session, "boss"))
    for number in range(4):
        await client.send(boss, f"{number}")
    assert await killed_on_the_way(server, root, session) >= 6
    assert bodies(queue.poll("boss", session=session)) == ["0", "1", "2", "3"]


async def test_what_came_from_a_broker_does_not_go_back(
    client: Client, queue: Queue, session: str
) -> None:
    everyone = await client.create_mailbox(address(session, "all"))
    await client.send(everyone, "x")
    for _ in range(3):
        await carried(client, queue, session, "boss")
    assert await texts(client, session, "all") == ["x"]
    assert bodies(queue.poll("boss", session=session)) == ["x"]


def test_following_over_a_restart_of_the_broker(serve: Serve, queue: Queue, root: Path) -> None:
    """`-f` goes on when the broker comes back; Ctrl-C ends it."""
    server = serve()
    following = subprocess.Popen(
        [
            *(sys.executable, "-m", "mq9", "local", "--root", str(root), "forward", "-f"),
            *("--agent", "boss", "--url", server.url, "--timeout", "2"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        queue.send("ask", "one", "w")
        until(lambda: queries(server) == ["one"], "the first message is there", 60)
        server.process.kill()
        server.process.wait()
        queue.send("ask", "two", "w")
        from tests.peers import start

        again = start(server.log_file.parent, port=server.port)
        try:
            until(lambda: queries(again) == ["one", "two"], "the second message is there", 60)
            following.send_signal(signal.SIGINT)
            following.wait(30)
        finally:
            again.stop()
    finally:
        following.kill()
        following.communicate()
    assert following.returncode == 130


def queries(server: Server) -> list[str]:
    async def ask() -> list[str]:
        async with Client(server.url) as client:
            try:
                return await texts(client, "default", "w")
            except MailboxNotFound:
                return []

    return asyncio.run(ask())


def test_the_commands(server: Server, queue: Queue, root: Path, session: str) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "mq9", "local", "--root", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    queue.send("ask", "x", "w", session=session)
    at = ("--session", session, "--url", server.url)
    assert run("forward", *at) == "sent 1, received 0\n"
    again = json.loads(run("forward", *at, "--json"))
    assert again == {"sent": 0, "received": 0, "refused": []}
    assert run("receive", *at, "--agent", "w") == "sent 0, received 0\n"
    assert "a name has letters" in run("receive", *at, "--agent", "a/b", code=2)
    assert "cannot connect" in run("forward", "--url", "nats://127.0.0.1:1", code=3)
