"""The page about the ladder names every header that forwarded mail has."""

import re

from tests.pages import ROOT

PAGE = "docs/ladder.md"


def test_every_header_is_on_the_page() -> None:
    source = (ROOT / "python/mq9/local/forwarding.py").read_text("utf-8")
    page = (ROOT / PAGE).read_text("utf-8")
    headers = set(re.findall(r'"(agent-[a-z-]+)"', source))
    assert len(headers) == 7
    assert {header for header in headers if f"`{header}`" not in page} == set()
