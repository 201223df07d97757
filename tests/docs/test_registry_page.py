"""The examples of docs/registry.md give what the page says, and the page names every embedder."""

from typing import get_args

import pytest
from tests.agents import LIGHT, settled
from tests.mail import Mail
from tests.pages import ROOT, Session, blocks
from tests.peers import MQ9, Serve

from mq9.commands.agent_card import MAX_SKILLS, MAX_TAG_CHARS, MAX_TAGS
from mq9.commands.request import MAX_DEPTH
from mq9.config.options import EmbedderName, Options

PAGE = (ROOT / "docs/registry.md").read_text("utf-8")


async def test_examples_of_the_registry(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(LIGHT, peer=MQ9)
    session = Session({})
    for block in blocks("docs/registry.md", "python"):
        if "semantic=" in block:
            # The first search loads the model; on a busy machine that takes longer than it waits.
            with Mail(server.url) as mail:
                settled(mail, semantic="anyone")
        await session.run(block.replace("nats://127.0.0.1:4222", server.url))
    assert capsys.readouterr().out == "agent agent.sky.inbox is not registered\n"


def test_the_page_names_every_embedder_and_limit() -> None:
    assert [name for name in get_args(EmbedderName) if f"| `{name}` |" not in PAGE] == []
    assert f"at most {Options().max_card >> 10} KiB" in PAGE
    assert f"{MAX_DEPTH} levels and {MAX_SKILLS:,} skills" in PAGE
    assert f"up to {MAX_TAGS}, of up to {MAX_TAG_CHARS} characters" in PAGE
