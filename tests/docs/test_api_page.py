"""The page of the Python API has all that can be imported, and nothing that is for inside."""

import importlib
import re

import pytest
from tests.pages import ROOT

from mq9.sync import Client

PAGE = (ROOT / "docs/api.md").read_text("utf-8")


def modules() -> list[str]:
    """All that pages and examples import from."""
    shown = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.py")]
    text = "".join(file.read_text("utf-8") for file in shown)
    return sorted(set(re.findall(r"^ *(?:from|import) (mq9(?:\.\w+)?)\b", text, re.MULTILINE)))


def documented() -> list[object]:
    """What the page names, found by its path."""
    found = []
    for path in re.findall(r"^::: (\S+)$", PAGE, re.MULTILINE):
        module, _, name = path.rpartition(".")
        found.append(getattr(importlib.import_module(module), name))
    return found


def test_everything_that_can_be_imported_is_on_the_page() -> None:
    for extra in ("langchain_core", "pyspark"):
        pytest.importorskip(extra)
    known = documented()
    assert {"mq9", "mq9.sync", "mq9.queues", "mq9.spark", "mq9.compat"} < set(modules())
    for name in modules():
        module = importlib.import_module(name)
        exported = module.__all__
        values = {each: getattr(module, each) for each in exported}
        wanted = {each: value for each, value in values.items() if callable(value)}
        assert [each for each, value in wanted.items() if value not in known] == [], name
        assert f"\n## {name}\n" in PAGE
    assert len(known) == len(set(map(id, known)))


def test_methods_without_asyncio_are_named() -> None:
    section = PAGE.partition("\n## mq9.sync\n")[2].partition("\n:::")[0]
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert {name for name in methods if f"`{name}`" not in section} == set()
