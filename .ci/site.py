"""The site's pages, as far as they differ from those read in the repository."""

import posixpath
import re
from pathlib import Path
from typing import Any

_PICTURE = re.compile(r"^!\[([^\]]+)\]\(([^)]+\.png)\)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(?:#[^)]*)?\)")


def on_config(config: Any) -> None:  # noqa: ANN401
    """The contents name the folder of decisions, and get its pages."""
    folder = Path(config.docs_dir, "decisions")
    pages = [f"decisions/{page.name}" for page in sorted(folder.glob("*.md"))]
    for tab in config.nav:
        for section in tab.values():
            for entry in section:
                if entry == {"Decisions": "decisions"}:
                    entry["Decisions"] = pages


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Files that are no pages are named, not linked; pictures open in full size."""

    def named(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", page.file.src_uri, "..", link[2]))
        return link[0] if target.startswith("docs/") else f"{link[1]} (`{target}`)"

    return _PICTURE.sub(r"[![\1](\2)](\2)", _LINK.sub(named, markdown))
