"""Every page is in the contents of the site and says for whom it is."""

import re

from tests.pages import ROOT

DOCS = ROOT / "docs"


def pages() -> list[str]:
    return sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_every_page_has_its_reader_and_a_question() -> None:
    table = (DOCS / "pages.md").read_text("utf-8")
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \| [^|]+ \| [^|]+\? \|$", table, re.MULTILINE)
    shown = [page for page in pages() if not page.startswith("decisions/") and page != "pages.md"]
    assert sorted(listed) == shown


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    named = re.findall(r"\S+\.md$", contents, re.MULTILINE)
    assert sorted(named) == [page for page in pages() if not page.startswith("decisions/")]


def test_numbers_of_the_readme_were_measured() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\|.*?\| (\S+ k/s) \| (\S+ k/s) \| (\S+ k/s) \|$", readme, re.MULTILINE)
    measured = (DOCS / "benchmarks.md").read_text("utf-8").splitlines()
    assert len(rows) == 4
    for row in rows:
        cells = [f"| {number} (" for number in row]
        assert [line for line in measured if all(cell in line for cell in cells)], row
