"""With `-js` the server says everywhere that JetStream is served, and what it was asked."""

import json
from typing import Any

from nats.js.api import StreamConfig
from tests.integration.conftest import Connect
from tests.peers import Serve

DEADLINE_S = 10


async def test_documents_say_that_jetstream_is_served(serve: Serve, connect: Connect) -> None:
    server = serve("http: 127.0.0.1:-1\njetstream: on")
    client = await connect(server)
    assert client._server_info["jetstream"] is True
    jetstream = client.jetstream(timeout=DEADLINE_S)
    await jetstream.add_stream(StreamConfig(name="S", subjects=["s"]))
    await jetstream.publish("s", b"x" * 1000)
    missing = await client.request("$JS.API.STREAM.INFO.T", timeout=DEADLINE_S)
    assert json.loads(missing.data)["error"]["err_code"] == 10059

    about = json.loads((await client.request("$SYS.REQ.USER.INFO", timeout=DEADLINE_S)).data)
    assert about["server"]["jetstream"] is True
    account = server.monitor("/accountz?acc=$G")["account_detail"]
    assert account["jetstream_enabled"] is True
    shown = server.monitor("/varz")["jetstream"]
    assert shown["stats"]["storage"] > 1000
    assert shown["config"]["store_dir"]
    streams = server.monitor("/jsz?acc=$G&streams=1")
    for api in (shown["stats"]["api"], streams["api"], streams["account_details"][0]["api"]):
        assert_asked(api)


def assert_asked(api: dict[str, Any]) -> None:
    """One stream was made, one that is not there was asked for."""
    assert (api["level"], api["total"], api["errors"]) == (0, 2, 1)
