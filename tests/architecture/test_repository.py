"""Rules for every file of the repository that git does not ignore."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 600

REGISTRY_HOSTS = (r"pypi\.", r"pythonhosted\.", r"crates\.io", r"npmjs\.", "artifactory")
REGISTRY = re.compile(rf"https?://[^\s\"']*(?:{'|'.join(REGISTRY_HOSTS)})")
CARGO_SOURCE = re.compile(
    r'^source = "registry\+https://github\.com/rust-lang/crates\.io-index"$', re.MULTILINE
)


def ignored_folders() -> set[str]:
    lines = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    return {line.strip("/") for line in lines if line.endswith("/")} | {".git"}


def repository_files() -> Iterator[Path]:
    # Not `git ls-files`: the checks also run on an unpacked archive.
    ignored = ignored_folders()
    for folder, subfolders, names in os.walk(ROOT):
        here = Path(folder)
        subfolders[:] = [
            name
            for name in subfolders
            if name not in ignored and (here / name).relative_to(ROOT).as_posix() not in ignored
        ]
        yield from (here / name for name in names)


def test_no_source_file_is_too_long_to_read() -> None:
    lengths = {
        file.relative_to(ROOT).as_posix(): len(file.read_text("utf-8").splitlines())
        for file in repository_files()
        if file.suffix in {".py", ".rs"}
    }
    assert "rust_core/src/lib.rs" in lengths
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_tests_inside_the_crates_of_the_core_are_run() -> None:
    """Their libraries are built without tests: those in `tests` must include the file."""
    crates = [file for file in repository_files() if file.is_relative_to(ROOT / "rust_core")]
    sources = {file: file.read_text("utf-8") for file in crates if file.suffix == ".rs"}
    inside = {file for file, text in sources.items() if "#[cfg(test)]" in text}
    included = {
        (file.parent / path).resolve()
        for file, text in sources.items()
        for path in re.findall(r'#\[path = "(.+)"\]', text)
    }
    assert inside
    assert inside - included == set()


def test_no_file_names_a_package_registry() -> None:
    found = {}
    for file in repository_files():
        text = file.read_text("utf-8", errors="replace")
        if file.name == "Cargo.lock":
            text = CARGO_SOURCE.sub("", text)
        if match := REGISTRY.search(text):
            found[file.relative_to(ROOT).as_posix()] = match[0]
    assert found == {}


LOCKS = ("requirements.lock", "requirements-dev.lock")


@pytest.mark.parametrize("lock", LOCKS)
def test_python_lock_holds_only_pinned_versions_and_hashes(lock: str) -> None:
    entry = re.compile(r"#.*|[\w.\[\],-]+==\S+( ; .+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    lines = (ROOT / lock).read_text("utf-8").splitlines()
    assert [line for line in lines if not entry.fullmatch(line)] == []


def test_who_only_serves_installs_the_same_versions_and_little_else() -> None:
    """`make serve` installs the first lock, `make test` both: neither replaces the other's."""
    serving, developing = (
        set(re.findall(r"^([\w.-]+==\S+)", (ROOT / lock).read_text("utf-8"), re.MULTILINE))
        for lock in LOCKS
    )
    assert serving <= developing
    assert "maturin" in {pin.split("==")[0] for pin in serving}
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["dependencies"]
    # What those need in turn is little: nothing of Spark, nothing of development.
    assert len(serving) <= 2 * len(wanted)


def test_a_module_begins_with_what_it_is() -> None:
    """Not with a riddle: "How rows travel" is `Rows between tasks`."""
    riddle = re.compile(r'(?:"""|//! )(?:What|Who|Which|How|Where|When|Whether) ')
    modules = [
        file
        for file in repository_files()
        if (file.suffix == ".py" and file.is_relative_to(ROOT / "python"))
        or (file.suffix == ".rs" and file.is_relative_to(ROOT / "rust_core"))
    ]
    assert len(modules) > 500
    found = [file for file in modules if riddle.match(file.read_text("utf-8"))]
    assert [file.relative_to(ROOT).as_posix() for file in found] == []
