"""The table of faults, the page it goes to, and the links from promises to their tests."""

import re
from pathlib import Path

import pytest
from tests.faults.report import BEGIN, END, ROWS, Row, record, rows, table, write_page

ROOT = Path(__file__).parents[2]


def test_rows_come_back_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.jsonl"
    monkeypatch.setenv(ROWS, str(file))
    later, first = Row("clock", "an hour", 1), Row("kill", "SIGKILL", 20, 30_000, ready_s=[0.5])
    record(later)
    record(first)
    assert rows(file) == [first, later]
    with pytest.raises(ValueError, match="unknown part"):
        record(Row("weather", "rain", 1))


def test_the_table_shows_median_and_worst(tmp_path: Path) -> None:
    row = Row("kill", "SIGKILL", 3, 1_234_567, 0, 0, [0.25, 0.5, 2.0], [0.25, 0.5, 2.5], "fine")
    lines = table([row]).splitlines()
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells[:6] == ["Kill", "SIGKILL", "3", "1,234,567", "0", "0"]
    assert cells[6:] == ["0.50 / 2.00 s", "0.50 / 2.50 s", "fine"]
    assert len({len(line) for line in lines}) == 1
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        write_page(page, [row], "said")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.count("1,234,567") == 1
    assert "old" not in text
    page.write_text("no place")
    with pytest.raises(ValueError, match="no place for the table"):
        write_page(page, [row], "said")


@pytest.mark.parametrize("page", ["README.md", "docs/faults.md"])
def test_every_promise_is_linked_to_something_that_is_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    text = text[text.index("# What we promise, and how it is tested") :]
    links = re.findall(r"\]\(((?!http|#)[^)#]+)", text)
    assert len([link for link in links if "tests/" in link]) > 8
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []
