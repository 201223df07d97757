"""The pictures in the docs can be taken anew, and are those that pages show."""

import re
import struct
from pathlib import Path

import pytest
from tests.browser import site_pictures
from tests.browser.conftest import CHROMIUM
from tests.browser.pictures import take_all, views
from tests.manage.conftest import needed
from tests.pages import ROOT

SHOWN = ROOT / "docs" / "img"


def size(picture: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height


def test_pictures_are_taken_as_the_docs_have_them(tmp_path: Path) -> None:
    needed("chromium", CHROMIUM)
    taken = take_all(tmp_path, 5.0)
    assert [each.name for each in taken] == [f"page-{name}.png" for name in views()]
    for each in taken:
        assert each.stat().st_size > 20_000, each.name
        assert size(each) == size(SHOWN / each.name), "take them anew: make pictures"


def test_the_site_fits_wide_and_narrow_screens(tmp_path: Path) -> None:
    needed("chromium", CHROMIUM)
    if not (site_pictures.SITE / "index.html").exists():
        pytest.skip("make docs")
    taken = site_pictures.take_all(site_pictures.SITE, tmp_path)
    assert {each.name for each in taken} == {
        f"site-{page}-{screen}.png"
        for page in site_pictures.PAGES
        for screen in site_pictures.SIZES
    }
    for each in taken:
        assert each.stat().st_size > 20_000, each.name


def test_each_picture_is_on_a_page() -> None:
    """And each that a page shows is one of them."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {
        found
        for page in pages
        for found in re.findall(r"!\[[^]]+\]\([^)]*\b(page-[\w-]+\.png)\)", page.read_text("utf-8"))
    }
    assert shown == {f"page-{name}.png" for name in views()}
    assert shown == {each.name for each in SHOWN.glob("page-*.png")}
