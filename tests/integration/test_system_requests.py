"""What the server itself answers: about the user, and that there is no JetStream."""

import json

import nats.errors
import nats.js.errors
import pytest
from tests.integration.conftest import Connect, settled
from tests.peers import Serve, Server

DEADLINE_S = 10
USER_INFO = "$SYS.REQ.USER.INFO"

CONFIG = """
authorization { users = [
  { user: ada, password: p, permissions {
      publish { allow: ["a.>", "$SYS.REQ.USER.INFO"], deny: ["a.secret"] }
      subscribe { allow: ["b", "_INBOX.>"] }
      allow_responses: { max: 3, expires: "1m" }
  } }
  { user: free, password: p }
] }
"""


async def test_an_anonymous_client_asks_who_it_is(server: Server, connect: Connect) -> None:
    client = await connect(server)
    answer = json.loads((await client.request(USER_INFO, timeout=DEADLINE_S)).data)
    assert answer["data"] == {"user": "", "account": "$G", "account_name": "$G"}
    about = answer["server"]
    assert about["id"] == client._server_info["server_id"]
    assert about["name"] == client._server_info["server_name"]
    assert about["ver"] == client._server_info["version"]
    assert isinstance(about["seq"], int)
    assert about["jetstream"] is False
    assert about["host"] == "127.0.0.1"
    assert about["time"].endswith("Z")


async def test_a_user_asks_what_it_may_do(serve: Serve, connect: Connect) -> None:
    server = serve(CONFIG)
    ada = await connect(server, user="ada", password="p")
    answer = json.loads((await ada.request(USER_INFO, timeout=DEADLINE_S)).data)["data"]
    assert (answer["user"], answer["account"]) == ("ada", "$G")
    assert answer["permissions"]["publish"] == {
        "allow": ["a.>", USER_INFO],
        "deny": ["a.secret"],
    }
    assert answer["permissions"]["subscribe"]["allow"] == ["b", "_INBOX.>"]
    free = await connect(server, user="free", password="p")
    answer = json.loads((await free.request(USER_INFO, timeout=DEADLINE_S)).data)["data"]
    assert answer["user"] == "free"
    assert "permissions" not in answer


async def test_system_subjects_are_not_for_listening(server: Server, connect: Connect) -> None:
    listener, client = await connect(server), await connect(server)
    heard = await listener.subscribe("$SYS.>")
    everything = await listener.subscribe(">")
    await settled(listener)
    await client.request(USER_INFO, timeout=DEADLINE_S)
    await client.publish("the.end")
    subjects: list[str] = []
    while not subjects or subjects[-1] != "the.end":
        subjects.append((await everything.next_msg(DEADLINE_S)).subject)
    # A request is seen as any other message is; what the server says among itself is not.
    assert {subject for subject in subjects if subject.startswith("$")} <= {USER_INFO}
    assert heard.pending_msgs <= 1


@pytest.mark.parametrize("subject", ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.NEVER"])
async def test_there_is_no_jetstream(server: Server, connect: Connect, subject: str) -> None:
    client = await connect(server)
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request(subject, timeout=DEADLINE_S)


async def test_a_jetstream_client_is_told_so(server: Server, connect: Connect) -> None:
    client = await connect(server)
    with pytest.raises(nats.js.errors.ServiceUnavailableError):
        await client.jetstream(timeout=DEADLINE_S).account_info()


async def test_info_says_what_the_server_is(server: Server, connect: Connect) -> None:
    client = await connect(server)
    info = client._server_info
    types = {
        "server_id": str,
        "server_name": str,
        "version": str,
        "go": str,
        "host": str,
        "port": int,
        "headers": bool,
        "max_payload": int,
        "proto": int,
        "client_id": int,
        "client_ip": str,
    }
    assert {key: type(info.get(key)) for key in types} == types
    assert (info["headers"], info["proto"], info["client_ip"]) == (True, 1, "127.0.0.1")
    assert (info["port"], info["max_payload"]) == (server.port, 1 << 20)
    assert "jetstream" not in info
    assert "cluster" not in info
    major, minor, _patch = info["version"].split("-")[0].split(".")
    # Clients read from it which features there are.
    assert (int(major), int(minor)) >= (2, 10)
