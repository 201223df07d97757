"""The site's pages, as far as they differ from those read in the repository."""

import posixpath
import re
from pathlib import Path
from typing import Any

_PICTURE = re.compile(r"^!\[([^\]]+)\]\(([^)]+\.png)\)$", re.MULTILINE)
_LISTED = re.compile(
    r"^\| (?:\[[^]]+\]\(([^)]+)\)|`(\w+/)`) \| ([^|]+) \| ([^|]+\?) \|$", re.MULTILINE
)
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


def asked(listed: str, page: str) -> str:
    """Who a page is for and what it answers, by the list of all pages."""
    for name, folder, reader, question in _LISTED.findall(listed):
        if page == name or (folder and page.startswith(folder)):
            return f"For {reader}: *{question}*"
    return ""


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:  # noqa: ANN401
    """Pages say who they are for, files that are no pages are named, pictures open in full size."""

    def named(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", page.file.src_uri, "..", link[2]))
        return link[0] if target.startswith("docs/") else f"{link[1]} (`{target}`)"

    listed = Path(config.docs_dir, "pages.md").read_text("utf-8")
    says = asked(listed, page.file.src_uri)
    if says and page.file.src_uri != "index.md":
        title, _, rest = markdown.partition("\n")
        markdown = f"{title}\n\n{says}\n{{: .asked }}\n{rest}"
    return _PICTURE.sub(r"[![\1](\2)](\2)", _LINK.sub(named, markdown))
