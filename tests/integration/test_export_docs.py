"""The page about exports: session and example do what it says, its tables are the schema."""

import asyncio
import re
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow.dataset
from tests.pages import ROOT, Session, blocks, environment_in, run_as_printed
from tests.peers import Serve

from mq9.client import Client
from mq9.config import loads
from mq9.config.export import EXPORT_SETTINGS

PAGE = (ROOT / "docs/export.md").read_text("utf-8")


async def _talk(url: str) -> None:
    async with Client(url) as client:
        await client.create_mailbox("inbox")
        for text in ("zero", "one", "two"):
            await client.send("inbox", text, priority="urgent" if text == "one" else None)
        (message,) = await client.fetch("inbox", group="g", deliver="earliest", max_msgs=1)
        await client.ack(message)


def test_the_session_and_the_example(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    asyncio.run(_talk(server.url))
    environment = environment_in(tmp_path) | {"DATA": str(server.log_file.parent / "data")}
    assert run_as_printed("docs/export.md", tmp_path, environment) == 1
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("docs/export.md", "python")
    asyncio.run(Session({}).run(example))
    for dataset in ("messages", "events"):
        schema = pyarrow.dataset.dataset(tmp_path / "export" / dataset).schema
        table = re.search(rf"\*\*{dataset}\*\*.*?\n\n((?:\|.*\n)+)", PAGE)
        assert table
        rows = [line.strip("| ").split(" | ") for line in table[1].splitlines()[2:]]
        named = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
        assert sorted(named) == sorted(schema.names)


def test_the_block_of_the_configuration_is_as_documented() -> None:
    (example,) = blocks("docs/export.md", "conf")
    options = loads(example, {}).export
    assert options
    assert (str(options.dir), options.every_ms, options.payloads) == (
        "/var/lib/mq9-export",
        60_000,
        True,
    )
    page = (ROOT / "docs/configuration.md").read_text("utf-8")
    section = page[page.index("### Export") :].split("\n### ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == EXPORT_SETTINGS.keys()
