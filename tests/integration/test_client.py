"""`mq9.Client` against a running broker: every command, and every way in which one can fail."""

import asyncio
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import nkeys  # type: ignore[import-untyped]
import pytest
from nats.aio.client import Client as Nats
from tests.integration.conftest import Certificates, Connect, settled
from tests.peers import NATS_SERVER, Serve, Server, start

import mq9
from mq9 import errors


def payloads(messages: list[mq9.Message]) -> list[bytes]:
    return [message.payload for message in messages]


async def test_a_message_comes_back_with_all_that_it_was_sent_with(
    client: mq9.Client, inbox: str
) -> None:
    before = int(time.time())
    msg_id = await client.send(
        inbox,
        '{"n": 1}',
        priority="urgent",
        key="status",
        tags=["billing", "vip"],
        ttl=300,
        headers={"Trace": "a1 b2"},
    )
    assert msg_id == 0
    raw = await client.fetch(inbox, deliver="earliest")
    as_json = await client.fetch(inbox, deliver="earliest", format="json")
    queried = await client.query(inbox)
    assert raw == as_json == queried
    [message] = raw
    assert (message.address, message.msg_id, message.payload) == (inbox, 0, b'{"n": 1}')
    assert (message.text, message.json()) == ('{"n": 1}', {"n": 1})
    assert (message.priority, message.level) == ("urgent", 3)
    assert (message.key, message.tags, dict(message.headers)) == (
        "status",
        ("billing", "vip"),
        {"Trace": "a1 b2"},
    )
    assert before <= message.create_time <= time.time()
    assert message.expires_at is not None
    assert before + 300 <= message.expires_at <= time.time() + 301
    assert (message.deliveries, message.group) == (0, None)
    with pytest.raises(AttributeError):
        message.payload = b""  # type: ignore[misc]
    assert len({message}) == 1


@pytest.mark.parametrize("payload", [b"", bytes(range(256)), "grüße".encode(), b"x" * 500_000])
async def test_bytes_arrive_as_they_were(client: mq9.Client, inbox: str, payload: bytes) -> None:
    await client.send(inbox, payload)
    assert payloads(await client.fetch(inbox, deliver="earliest")) == [payload]
    assert payloads(await client.fetch(inbox, deliver="earliest", format="json")) == [payload]
    assert payloads(await client.query(inbox)) == [payload]


async def test_keys_tags_and_headers_may_be_in_any_script(client: mq9.Client, inbox: str) -> None:
    await client.send(inbox, "x", key="größe", tags=["日本", "b"], headers={"Von": "Zoë: x"})
    [message] = await client.fetch(inbox, deliver="earliest")
    assert (message.key, message.tags) == ("größe", ("日本", "b"))
    assert dict(message.headers) == {"Von": "Zoë: x"}
    assert await client.query(inbox) == [message]


async def test_levels_without_a_name_are_numbers(client: mq9.Client, inbox: str) -> None:
    await client.send(inbox, "low", priority=8)
    await client.send(inbox, "high", priority="critical")
    messages = await client.fetch(inbox, deliver="earliest")
    assert [(m.text, m.priority, m.level) for m in messages] == [
        ("high", "critical", 1),
        ("low", "8", 8),
    ]
    [high] = await client.fetch(inbox, deliver="earliest", min_priority="urgent")
    assert high.text == "high"


async def test_a_delayed_message_has_no_id_yet(client: mq9.Client, inbox: str) -> None:
    assert await client.send(inbox, "later", delay=1) is None
    assert await client.query(inbox) == []
    [message] = await client.fetch(inbox, deliver="earliest", max_wait=10)
    assert message.text == "later"


async def test_a_header_named_like_a_status_is_a_header(client: mq9.Client, inbox: str) -> None:
    await client.send(inbox, "", headers={"Status": "404", "Description": "No Messages"})
    [message] = await client.fetch(inbox, deliver="earliest")
    assert message.headers["Status"] == "404"


async def test_headers_named_like_the_brokers_are_refused(
    client: mq9.Client, inbox: str, server: Server, connect: Connect
) -> None:
    stranger = await connect(server)
    for name in ("mq9-msg-id", "MQ9-Create-Time", "mq9-deliveries", "mq9-dead-anything"):
        subject, headers = f"$mq9.AI.MSG.SEND.{inbox}", {name: "7"}
        reply = await stranger.request(subject, b"x", timeout=10, headers=headers)
        assert b"is a header that only the broker writes" in reply.data
    assert await client.fetch(inbox, group="g", deliver="earliest", max_wait=0) == []


async def test_other_headers_of_that_kind_travel(client: mq9.Client, inbox: str) -> None:
    headers = {"mq9-reply-to": "planner", "mq9-a2a-task": "7"}
    await client.send(inbox, "", headers=headers)
    [message] = await client.fetch(inbox, deliver="earliest")
    assert message.headers == headers
    [message] = await client.fetch(inbox, group="g", deliver="earliest")
    assert message.headers == headers


async def test_a_large_batch_arrives_whole(client: mq9.Client, inbox: str) -> None:
    await client.send_many(inbox, [b"x" * 100_000] * 40)
    messages = await client.fetch(inbox, deliver="earliest", max_bytes=16 << 20)
    assert [m.msg_id for m in messages] == list(range(40))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"headers": {"MQ9-Key": "k"}}, "use the argument key"),
        ({"headers": {"MQ9-Delay-ms": "1"}}, "use the argument delay"),
        ({"headers": {"A": "1\r\n2"}}, "text in one line"),
        ({"headers": {"A B": "1"}}, "without spaces and colons"),
        ({"tags": ["a,b"]}, "cannot hold a comma"),
        ({"tags": "ab"}, "must be a list"),
        ({"delay": "soon"}, "must be a number of seconds"),
        ({"ttl": -1}, "must not be negative"),
        ({"key": ""}, "neither empty"),
    ],
)
async def test_what_could_not_travel_is_refused_at_once(
    client: mq9.Client, inbox: str, wrong: dict[str, object], words: str
) -> None:
    with pytest.raises(errors.InvalidField, match=words):
        await client.send(inbox, "x", **wrong)  # type: ignore[arg-type]
    assert await client.query(inbox) == []


async def test_many_messages_keep_their_order(client: mq9.Client, inbox: str) -> None:
    count = 3000
    ids = await client.send_many(inbox, (f"{n}" for n in range(count)), window=100)
    assert ids == list(range(count))
    queried = await client.query(inbox)
    assert [message.text for message in queried] == [f"{n}" for n in range(count)]


async def test_a_query_goes_on_where_a_reply_was_cut(client: mq9.Client, inbox: str) -> None:
    await client.send_many(inbox, [b"x" * 300_000] * 8)
    assert [m.msg_id for m in await client.query(inbox)] == list(range(8))
    assert [m.msg_id for m in await client.query(inbox, after_id=1, limit=5)] == [2, 3, 4, 5, 6]
    assert [m.msg_id for m in await client.query(inbox, limit=2)] == [6, 7]


async def test_of_many_messages_each_failure_is_told(client: mq9.Client) -> None:
    address = "client.two"
    await client.create_mailbox(address, max_msgs=2, discard="new")
    wrong = [mq9.NewMessage("b", priority="soon"), mq9.NewMessage("c", key="")]
    batch: list[str | mq9.NewMessage] = ["a", *wrong, "d", "e"]
    with pytest.raises(
        errors.PartlySent, match="3 of 5 messages failed; the first is number 1: mq9-priority"
    ) as failed:
        await client.send_many(address, batch)
    assert failed.value.msg_ids == [0, None, None, 1, None]
    assert {index: type(error) for index, error in failed.value.errors.items()} == {
        1: errors.InvalidRequest,
        2: errors.InvalidField,
        4: errors.MailboxFull,
    }


@pytest.mark.parametrize("form", ["raw", "json"])
async def test_what_a_member_holds_can_be_left_out(
    client: mq9.Client, inbox: str, form: Literal["raw", "json"]
) -> None:
    await client.send_many(inbox, ["a", "b", "c"])

    async def fetch(held: bool) -> list[str]:
        some = await client.fetch(
            inbox, group="g", deliver="earliest", max_msgs=2, max_wait=0, held=held, format=form
        )
        return [message.text for message in some]

    assert await fetch(held=True) == ["a", "b"]
    assert await fetch(held=True) == ["a", "b"]
    assert await fetch(held=False) == ["c"]
    assert await fetch(held=False) == []


async def test_a_group_goes_on_behind_what_was_acknowledged(client: mq9.Client, inbox: str) -> None:
    await client.send_many(inbox, ["a", "b", "c"])
    first = await client.fetch(inbox, group="g", deliver="earliest", max_msgs=2)
    assert [(m.text, m.deliveries, m.group) for m in first] == [("a", 1, "g"), ("b", 1, "g")]
    await client.ack(first[-1])
    assert payloads(await client.fetch(inbox, group="g")) == [b"c"]
    await client.ack(address=inbox, group="g", msg_ids=[2])
    assert await client.fetch(inbox, group="g", max_wait=0) == []


async def test_messages_can_be_returned_kept_and_given_up(client: mq9.Client, inbox: str) -> None:
    await client.send_many(inbox, ["a", "b"])
    a, b = await client.fetch(inbox, group="g", deliver="earliest", ack_wait=0.5, member="one")
    await client.nak(a)
    await client.term(b)
    [again] = await client.fetch(inbox, group="g", member="two")
    assert (again.text, again.deliveries) == ("a", 2)
    await client.progress(again)
    await client.nak(again, delay=60)
    assert await client.fetch(inbox, group="g", member="two", max_wait=0) == []
    with pytest.raises(errors.InvalidField, match="fetched with a group"):
        await client.ack(*await client.fetch(inbox, deliver="earliest"))
    await client.ack(address=inbox, group="g")


async def test_deleted_messages_are_gone(client: mq9.Client, inbox: str) -> None:
    await client.send_many(inbox, ["a", "b"])
    await client.delete(inbox, 0)
    assert payloads(await client.query(inbox)) == [b"b"]
    with pytest.raises(errors.MessageNotFound, match="message not found"):
        await client.delete(inbox, 0)


async def test_refusals_have_their_class(client: mq9.Client, inbox: str) -> None:
    with pytest.raises(errors.MailboxExists, match=f"mailbox {inbox} already exists"):
        await client.create_mailbox(inbox)
    assert await client.create_mailbox(inbox, exist_ok=True) == inbox
    with pytest.raises(errors.MailboxExists, match=r"its max_msgs is 0, not 3$"):
        await client.create_mailbox(inbox, exist_ok=True, max_msgs=3)
    missing = "mailbox no.such does not exist"
    for request in (
        client.send("no.such", "x"),
        client.fetch("no.such"),
        client.fetch("no.such", format="json"),
        client.query("no.such"),
        client.ack(address="no.such", group="g", msg_ids=[1]),
    ):
        with pytest.raises(errors.MailboxNotFound, match=missing):
            await request
    for address in ("UPPER", "a..b", "a b", "a.*", ""):
        with pytest.raises(errors.InvalidAddress, match="invalid mail_address"):
            await client.send(address, "x")
    with pytest.raises(errors.NotGiven, match="has not been given msg_id 7"):
        await client.ack(address=inbox, group="g", msg_ids=[7])
    forms: tuple[Literal["raw", "json"], ...] = ("raw", "json")
    for form in forms:
        with pytest.raises(errors.InvalidRequest, match=r"config\.min_priority is"):
            await client.fetch(inbox, min_priority="soon", format=form)
    with pytest.raises(errors.MessageTooLarge, match="larger than the limit of 1048576"):
        await client.send(inbox, b"x" * 1_048_577)
    assert issubclass(errors.MessageTooLarge, errors.Mq9Error)
    # The connection is as good as before.
    assert await client.send(inbox, "x") == 0


async def test_a_generated_address_cannot_be_guessed(client: mq9.Client) -> None:
    one, two = await client.create_mailbox(), await client.create_mailbox(ttl=60)
    assert one != two
    assert min(len(one), len(two)) >= 26


async def test_requests_of_the_registry(serve: Serve, connect: Connect) -> None:
    """Against a server that is no broker, which shows what is asked."""
    plain = serve(peer=NATS_SERVER)
    asked: list[tuple[str, bytes]] = []

    async with mq9.Client(plain.url, timeout=2) as client:
        with pytest.raises(errors.NoResponders, match=r"answers AGENT\.DISCOVER"):
            await client.discover()
        registry = await connect(plain)

        async def answer(msg: object) -> None:
            assert isinstance(msg, Nats.msg_class)
            asked.append((msg.subject.removeprefix("$mq9.AI.AGENT."), msg.data))
            agents = b',"agents":[{"mailbox":"a"}],"total":4,"pending":3,"more":true}'
            await msg.respond(b'{"error":""' + (agents if "DISCOVER" in msg.subject else b"}"))

        await registry.subscribe("$mq9.AI.AGENT.*", cb=answer)
        await settled(registry)
        await client.register({"mailbox": "a", "skills": None})
        await client.report({"mailbox": "a", "load": 0.5})
        found = await client.discover("pay", semantic="process a payment", limit=5, page=2)
        await client.discover(tags=["x"], alive=True, fields=["name"])
        await client.unregister("a")
        with pytest.raises(errors.InvalidField, match="mailbox"):
            await client.register({"name": "nobody"})
    assert found == [{"mailbox": "a"}]
    # What was not looked at yet is told, not hidden.
    assert (found.total, found.pending, found.more) == (4, 3, True)
    assert asked == [
        ("REGISTER", b'{"mailbox": "a", "skills": null}'),
        ("REPORT", b'{"mailbox": "a", "load": 0.5}'),
        ("DISCOVER", b'{"text":"pay","semantic":"process a payment","limit":5,"page":2}'),
        ("DISCOVER", b'{"tags":["x"],"alive":true,"fields":["name"]}'),
        ("UNREGISTER", b'{"mailbox":"a"}'),
    ]


async def test_agents_are_registered_found_and_removed(client: mq9.Client) -> None:
    mailbox = "agent." + secrets.token_hex(8)
    tag = secrets.token_hex(8)
    await client.register({"mailbox": mailbox, "name": f"Scribe {tag}", "tags": [tag], "ttl": 600})
    await client.report({"mailbox": mailbox, "load": 0.5})
    page = await client.discover_page(tag, alive=True, status=True)
    assert [card["mailbox"] for card in page.cards] == [mailbox]
    assert (page.total, page.pending, page.more) == (1, 0, False)
    assert page.statuses[0].alive
    assert page.statuses[0].report == {"mailbox": mailbox, "load": 0.5}
    assert await client.discover(tags=[tag], fields=["name"]) == [
        {"mailbox": mailbox, "name": f"Scribe {tag}"}
    ]
    await client.report({"name": f"Scribe {tag}", "load": 0.6})
    cards = await client.discover(tags=[tag])
    assert (cards.total, cards.pending, cards.more) == (1, 0, False)
    scored = await client.discover_page(f"Scribe {tag}", tags=[tag], scores=True)
    assert len(scored.scores) == 1
    assert scored.scores[0] > 0
    await client.unregister(mailbox)
    assert await client.discover(tags=[tag]) == []
    with pytest.raises(errors.AgentNotFound, match="is not registered"):
        await client.report({"mailbox": mailbox})
    with pytest.raises(errors.InvalidRequest, match="only a-z"):
        await client.register({"mailbox": "not-valid"})


async def test_a_plain_nats_server_is_told_from_a_broker(real_server: Server) -> None:
    async with mq9.Client(real_server.url) as client:
        with pytest.raises(errors.NoResponders, match="it is no mq9 broker"):
            await client.send("inbox", "x")
        with pytest.raises(errors.NoResponders):
            await client.fetch("inbox")


async def test_nobody_listens() -> None:
    with pytest.raises(errors.BrokerUnavailable, match=r"connect to nats://127\.0\.0\.1:1: "):
        await mq9.connect("nats://someone:secret@127.0.0.1:1")
    with pytest.raises(errors.ClientClosed, match="not connected"):
        await mq9.Client().send("inbox", "x")


async def test_the_second_server_of_a_list_will_do(server: Server) -> None:
    async with mq9.Client(["nats://127.0.0.1:1", server.url]) as client:
        assert client.connected


async def test_credentials(serve: Serve) -> None:
    locked = serve("authorization { user: me, password: secret }")
    with pytest.raises(errors.AccessDenied, match="Authorization Violation"):
        await mq9.connect(locked.url)
    async with mq9.Client(locked.url, user="me", password="secret") as client:
        await client.create_mailbox("a")
    async with mq9.Client(locked.url.replace("//", "//me:secret@")) as client:
        assert await client.query("a") == []


async def test_an_nkey_as_text_or_in_a_file(serve: Serve, tmp_path: Path) -> None:
    seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
    key = nkeys.from_seed(bytearray(seed.encode())).public_key.decode()
    server = serve(f"authorization {{ users = [{{ nkey: {key} }}] }}")
    file = tmp_path / "seed"
    file.write_text(seed)
    for given in (seed, str(file)):
        async with mq9.Client(server.url, nkey_seed=given) as client:
            assert client.connected
    with pytest.raises(errors.AccessDenied, match="must be a seed"):
        await mq9.connect(server.url, nkey_seed="no/such/file")


async def test_what_a_user_may_not_publish_is_denied_at_once(serve: Serve) -> None:
    limited = serve(
        "authorization { users = [{ user: me, password: secret, permissions: "
        '{ publish: { deny: "$mq9.AI.MAILBOX.>" } } }] }'
    )
    async with mq9.Client(limited.url, user="me", password="secret", timeout=30) as client:
        started = time.monotonic()
        with pytest.raises(errors.AccessDenied, match=r"may not publish to \$mq9\.AI\.MAILBOX"):
            await client.create_mailbox("a")
        assert time.monotonic() - started < 10
        with pytest.raises(errors.MailboxNotFound):
            await client.send("a", "x")


async def test_replies_come_in_where_the_user_may_listen(serve: Serve) -> None:
    limited = serve(
        "authorization { users = [{ user: me, password: secret, permissions: "
        '{ publish: ">", subscribe: "_MINE.>" } }] }'
    )
    async with mq9.Client(
        limited.url, user="me", password="secret", inbox_prefix="_MINE"
    ) as client:
        assert await client.create_mailbox("a") == "a"
    async with mq9.Client(limited.url, user="me", password="secret", timeout=30) as client:
        for _ in range(2):
            with pytest.raises(errors.AccessDenied, match="inbox_prefix names another place"):
                await client.query("a")


async def test_tls(serve: Serve, certificates: Certificates) -> None:
    secure = serve(certificates.config())
    async with mq9.Client(
        secure.url.replace("nats://", "tls://"), tls=certificates.trusting()
    ) as client:
        assert await client.create_mailbox("a") == "a"


async def test_a_broker_that_does_not_answer_is_a_timeout(serve: Serve) -> None:
    server = serve()
    async with mq9.Client(server.url) as client:
        await client.create_mailbox("a")
        server.signal(signal.SIGSTOP)
        try:
            with pytest.raises(errors.RequestTimeout, match=r"in 0\.2 s"):
                await client.send("a", "x", timeout=0.2)
            with pytest.raises(TimeoutError):
                await client.fetch("a", max_wait=0, timeout=0.2)
            with pytest.raises(errors.BrokerUnavailable, match=r"no answer in 0\.2 s"):
                await mq9.connect(server.url, connect_timeout=0.2)
        finally:
            server.signal(signal.SIGCONT)
        assert await client.send("a", "x") is not None


async def test_the_connection_comes_back(serve: Serve) -> None:
    server = serve()
    async with mq9.Client(server.url) as client:
        await client.create_mailbox("a")
        poll = asyncio.create_task(client.fetch("a", deliver="earliest", max_wait=60))
        await client.send("a", "x")
        waiting = asyncio.create_task(client.fetch("a", max_wait=60))
        assert payloads(await poll) == [b"x"]
        server.process.kill()
        server.process.wait()
        with pytest.raises(errors.ConnectionLost, match="broke"):
            await waiting
        assert not client.connected
        with pytest.raises(errors.BrokerUnavailable, match=r"no connection for 0\.2 s"):
            await client.send("a", "y", timeout=0.2)
        pending = asyncio.create_task(client.send("a", "z", timeout=30))
        again = serve("", "--data", str(server.log_file.parent / "data"), port=server.port)
        assert again.port == server.port
        assert await pending == 1
        assert payloads(await client.query("a")) == [b"x", b"z"]


async def test_of_many_messages_the_rest_is_not_sent_once_the_broker_is_gone(serve: Serve) -> None:
    server = serve()
    async with mq9.Client(server.url) as client:
        await client.create_mailbox("a")
        sending = asyncio.create_task(client.send_many("a", map(str, range(50_000)), window=64))
        while not await client.query("a", limit=1):
            pass
        server.process.kill()
        server.process.wait()
        with pytest.raises(errors.PartlySent) as failed:
            await asyncio.wait_for(sending, 30)
        again = start(server.log_file.parent, port=server.port)
        try:
            stored = await client.query("a", timeout=30)
        finally:
            again.stop()
    told = [msg_id for msg_id in failed.value.msg_ids if msg_id is not None]
    assert len(told) + len(failed.value.errors) == 50_000
    assert [m.text for m in stored] == [str(number) for number in range(len(stored))]
    # What was under way may be stored, and no more.
    assert len(told) <= len(stored) <= len(told) + 64


async def test_requests_under_way_end_with_the_client(server: Server) -> None:
    client = await mq9.connect(server.url)
    address = await client.create_mailbox()
    waiting = asyncio.create_task(client.fetch(address, max_wait=60))
    await client.query(address)
    await client.close()
    with pytest.raises(errors.ClientClosed):
        await waiting
    with pytest.raises(errors.ClientClosed):
        await client.send(address, "x")
    await client.close()


def test_importing_mq9_does_not_import_the_client() -> None:
    code = (
        "import sys, mq9; assert 'nats' not in sys.modules and 'asyncio' not in sys.modules; "
        "assert mq9.Client and mq9.connect and 'nats' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_the_list_of_mailboxes_is_for_operators(serve: Serve) -> None:
    server = serve(
        "authorization { users = [ { user: me, password: secret }, { user: op, password: secret, "
        'permissions: { publish: ["$mq9.AI.>"] } }, { user: boss, password: secret, '
        'permissions: { publish: ["$mq9.AI.>", "$mq9.AI.ADMIN.>"] } } ] }'
    )
    async with mq9.Client(server.url, user="boss", password="secret") as boss:
        await boss.create_mailbox("a", desc="first", ttl=1000, max_msgs=3)
        await asyncio.gather(*(boss.create_mailbox(f"many.{n}", timeout=30) for n in range(1100)))
        await boss.create_mailbox("open", public=True)
        await boss.send_many("a", ["x", "y"])
        await boss.fetch("a", group="g", deliver="earliest", max_msgs=1)
        listed = {mailbox.address: mailbox for mailbox in await boss.list_mailboxes()}
        assert len(listed) == 1102
        a = listed["a"]
        assert (a.desc, a.messages, a.groups, a.public) == ("first", 2, 1, False)
        assert a.expires is not None
        assert a.expires - a.created == 1000
        assert listed["open"].expires is None
        shown = await boss.show_mailbox("a")
        assert (shown.address, shown.next_id, shown.policy["max_msgs"]) == ("a", 2, 3)
        [group] = shown.groups
        assert (group.name, group.pending, group.lag) == ("g", 1, 1)
        with pytest.raises(errors.MailboxNotFound):
            await boss.show_mailbox("no.such")
    async with mq9.Client(server.url, user="me", password="secret") as me:
        with pytest.raises(errors.AccessDenied, match="permission denied"):
            await me.list_mailboxes()
        [public] = await me.list_public_mailboxes()
        assert (public.address, public.public) == ("open", True)
