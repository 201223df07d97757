"""Every page is in the contents of the site and says for whom it is."""

import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.pages import ROOT

DOCS = ROOT / "docs"


def pages() -> list[str]:
    return sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_every_page_has_its_reader_and_a_question() -> None:
    table = (DOCS / "pages.md").read_text("utf-8")
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \| [^|]+ \| [^|]+\? \|$", table, re.MULTILINE)
    shown = [page for page in pages() if not page.startswith("decisions/") and page != "pages.md"]
    assert sorted(listed) == shown


def test_the_site_says_on_every_page_for_whom_it_is() -> None:
    asked = runpy.run_path(str(ROOT / ".ci" / "site.py"))["asked"]
    listed = (DOCS / "pages.md").read_text("utf-8")
    unsaid = [page for page in pages() if not asked(listed, page)]
    assert unsaid == ["pages.md"]
    assert asked(listed, "guides/retries.md").startswith("For developers: *What happens")


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    named = re.findall(r"\S+\.md$", contents, re.MULTILINE)
    assert sorted(named) == [page for page in pages() if not page.startswith("decisions/")]


def test_numbers_of_the_readme_were_measured() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    rate = r"(\S+ [kM]/s)"
    rows = re.findall(rf"^\|.*?\| {rate} \| {rate} \| {rate} \|$", readme, re.MULTILINE)
    measured = (DOCS / "benchmarks.md").read_text("utf-8").splitlines()
    assert len(rows) == 4
    for row in rows:
        cells = [f"| {number} (" for number in row]
        assert [line for line in measured if all(cell in line for cell in cells)], row


def test_nobody_is_told_to_install_the_package_of_another_project() -> None:
    # The name on the package index is not ours: docs/packaging.md.
    other = re.compile(r"\bpipx? (?:install|run) (?:-\S+ )*['\"]?mq9\b(?!-)")
    for page in (ROOT / "README.md", ROOT / "examples" / "README.md", *DOCS.rglob("*.md")):
        code = re.findall(r"^```.*?^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        assert not [block for block in code if other.search(block)], page


def test_every_extra_is_in_the_table_of_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (DOCS / "packaging.md").read_text("utf-8")
    named = re.findall(r"^\| `mq9\[(\w+)\]` \|", page, re.MULTILINE)
    assert sorted(named) == sorted(project["optional-dependencies"])


def written() -> list[Path]:
    """Every page, those of the repository too."""
    named = (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "examples/README.md",
        "benches/README.md",
    )
    return [*(ROOT / name for name in named), *sorted(DOCS.rglob("*.md"))]


def test_prose_has_short_lines() -> None:
    # Tables, code and what `make bench` and `make faults` write are as wide as they are.
    for page in written():
        text = page.read_text("utf-8")
        for wide in (r"^ *```.*?^ *```$", r"^<!-- (\w+): written by .*?^<!-- end of \1 -->$"):
            text = re.sub(wide, "", text, flags=re.MULTILINE | re.DOTALL)
        long = [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]
        assert not long, page


# A sentence of more words than this is long. Of a hundred sentences of a page, so many may be.
LONG_WORDS = 20
LONG_PER_CENT = 15
# Pages that have more. The list only shrinks, and so do its numbers.
MORE_LONG = {
    "docs/benchmarks.md": 24,
}


def sentences(text: str) -> Iterator[int]:
    """How many words each sentence has, outside of tables, headings and code."""
    for wide in (r"^ *```.*?^ *```$", r"^<!-- (\w+): written by .*?^<!-- end of \1 -->$"):
        text = re.sub(wide, "\n\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`", "x", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^(?:[#<|].*|[-*] |\d+\. |> )", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.!?:])[\"*)]*\s+", paragraph):
            if words := re.findall(r"[\w'-]+", sentence):
                yield len(words)


def test_sentences_are_counted() -> None:
    page = "# A long heading\n\nOne two `three four`. Five\nsix:\n\n- [seven](x.md) eight\n- nine\n"
    assert list(sentences(page)) == [3, 2, 2, 1]


def test_most_sentences_are_short() -> None:
    found = {}
    for page in written():
        words = list(sentences(page.read_text("utf-8")))
        share = 100 * sum(count > LONG_WORDS for count in words) / max(len(words), 1)
        found[page.relative_to(ROOT).as_posix()] = round(share)
    allowed = {name: MORE_LONG.get(name, LONG_PER_CENT) for name in found}
    assert {name: share for name, share in found.items() if share > allowed[name]} == {}
    assert {name for name in MORE_LONG if found[name] <= LONG_PER_CENT} == set(), "take them out"


def test_a_block_that_nobody_has_measured_says_so() -> None:
    block_of = re.compile(
        r"^<!-- (\w+): written by .*? -->$(.*?)^<!-- end of \1 -->$", re.DOTALL | re.MULTILINE
    )
    found = 0
    for page in DOCS.rglob("*.md"):
        text = page.read_text("utf-8")
        for name, block in block_of.findall(text):
            found += 1
            assert block.strip(), f"{page.name}: {name} is empty; say that it is not measured yet"
    assert found > 20


def test_a_release_does_not_go_where_another_project_has_the_name() -> None:
    workflow = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    assert "pypi" not in workflow.lower()
    assert "gh release create" in workflow


def without_code(page: Path) -> str:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """What links into a page may name, as GitHub and the site make it of headings."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", re.sub(r"\]\([^)]*\)", "]", text), re.MULTILINE)
    words = {re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings}
    return {each.replace(" ", "-") for each in words} | set(re.findall(r'name="([^"]+)"', text))


def test_links_lead_somewhere() -> None:
    # The site checks those between its pages; these are also of files that are no part of it.
    wrong = []
    for page in written():
        links = re.findall(r'(?:\]\(\s*|src="|srcset=")([^)\s"]+)', without_code(page))
        for link in links:
            name, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", name):
                continue
            file = page.parent / name if name else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                wrong.append((page.name, link))
    assert wrong == []
    assert "how" in anchors(DOCS / "benchmarks.md")
