"""Dependencies inside the Rust core point one way, and the core stays pure.

Reads the sources as text: comments and string literals are taken out, then paths that start at
the crate root are compared with the table below.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "rust_core"

# What each module of mq9-core may use besides itself. Lower layers come first. `error` is the one
# cycle: every layer returns it, and it carries types of the lower layers as causes.
ALLOWED: dict[str, set[str]] = {
    "time": {"error"},
    "disk": {"error"},
    "wire": {"error"},
    "error": {"time", "disk", "wire", "log"},
    "latency": set(),
    "log": {"error", "time", "disk", "wire", "latency"},
    "timer": set(),
    "json": set(),
    "mailbox": {"error", "time", "wire", "log", "timer", "nats"},
    "consumer": {"mailbox", "nats", "wire"},
    "group": {"error", "time", "wire", "log", "timer", "mailbox"},
    "nats": set(),
    "router": {"nats"},
    "commands": set(),
    "front": {"nats", "router", "timer", "commands"},
    "store": {
        *{"error", "time", "disk", "wire", "log", "timer", "mailbox", "group", "nats", "consumer"},
    },
    "protocol": {"error", "wire", "mailbox", "store", "nats", "commands"},
    "jetstream": {
        *{"error", "time", "log", "wire", "mailbox", "consumer", "store"},
        *{"nats", "router", "front", "protocol"},
    },
    "partition": {
        *{"error", "time", "log", "mailbox", "store", "protocol", "front", "commands", "jetstream"},
        "latency",
    },
    "engine": {
        *{"time", "latency", "log", "store", "protocol", "front", "partition", "commands"},
    },
}

FORBIDDEN_CRATES = {"chrono", "pyo3", "rand", "tokio"}

# Clocks and global state come in as arguments; files come through `disk::Disk`.
FORBIDDEN_CODE: dict[str, set[str]] = {
    r"\bSystemTime\s*::\s*now\b": set(),
    r"\bInstant\s*::\s*now\b": set(),
    r"\bstatic\s+mut\b": set(),
    r"\blazy_static\b": set(),
    r"\bthread_local\s*!": set(),
    r"\bstd\s*::\s*(?:fs\b|\{[^;]*\bfs\b)": {"disk/os.rs"},
}

NOT_CODE = re.compile(
    r"""
      //[^\n]*
    | /\*.*?\*/
    | \bb?r(?P<hashes>\#*)".*?"(?P=hashes)
    | "(?:\\.|[^"\\])*"
    | '(?:\\[^']+|[^'\\\n])'
    """,
    re.DOTALL | re.VERBOSE,
)
ROOT_PATH = re.compile(r"(?<![\w:])\$?crate\s*::\s*(\{|\w+|\*)")
SUPER_PATH = re.compile(r"(?<![\w:])(?:self\s*::\s*)?((?:super\s*::\s*)+)(\{|\w+)")


def code_of(source: str) -> str:
    """The source without comments and literals."""
    return NOT_CODE.sub(" ", source)


def module_path(file: Path) -> list[str]:
    """`log/lsn.rs` is `["log", "lsn"]`, `log/mod.rs` is `["log"]`, `lib.rs` is `[]`."""
    parts = list(file.with_suffix("").parts)
    return parts[:-1] if parts[-1] in {"mod", "lib"} else parts


def group_heads(code: str, start: int) -> Iterator[str]:
    """First names of the paths in the braces of `use crate::{...}`, from behind the brace."""
    depth, head = 0, ""
    for char in code[start:]:
        if char == "}" and depth == 0:
            break
        if depth == 0 and char == ",":
            yield head
            head = ""
        else:
            depth += (char == "{") - (char == "}")
            head += char
    yield head


def names_at(code: str, match: re.Match[str], name: str) -> Iterator[str]:
    heads: Iterable[str] = group_heads(code, match.end()) if name == "{" else [name]
    for head in heads:
        if first := re.match(r"\s*(\w+|\*)", head):
            yield first[1]


def root_names(path: list[str], code: str) -> set[str]:
    """Names directly under the crate root that the code of the module at `path` refers to."""
    names: set[str] = set()
    for match in ROOT_PATH.finditer(code):
        names.update(names_at(code, match, match[1]))
    for match in SUPER_PATH.finditer(code):
        # An inline module is one level deeper than its file: count only what names a module.
        if match[1].count("super") >= len(path):
            names.update(set(names_at(code, match, match[2])) & ALLOWED.keys())
    return names


def core_sources() -> dict[Path, str]:
    root = CORE / "src"
    sources = {
        file.relative_to(root): code_of(file.read_text("utf-8"))
        for file in sorted(root.rglob("*.rs"))
    }
    assert sources, f"no Rust sources under {root}"
    return sources


def test_modules_use_only_lower_modules() -> None:
    violations = []
    for file, code in core_sources().items():
        path = module_path(file)
        if not path:
            continue
        if path[0] not in ALLOWED:
            violations.append(f"{file}: give module `{path[0]}` a line in ALLOWED")
            continue
        violations += [
            f"{file}: `{path[0]}` may not use `crate::{name}`"
            for name in sorted(root_names(path, code) - ALLOWED[path[0]] - {path[0]})
        ]
    assert not violations, "\n".join(violations)


def test_core_reads_no_clock_and_no_files_and_has_no_global_state() -> None:
    violations = [
        f"{file}: {found[0]!r}"
        for file, code in core_sources().items()
        for pattern, exempt in FORBIDDEN_CODE.items()
        if file.as_posix() not in exempt
        for found in re.finditer(pattern, code)
    ]
    assert not violations, "\n".join(violations)


def test_core_depends_on_no_runtime_clock_or_random_crate() -> None:
    manifest = tomllib.loads((CORE / "Cargo.toml").read_text("utf-8"))
    tables = [manifest, *manifest.get("target", {}).values()]
    crates = {
        spec.get("package", name) if isinstance(spec, dict) else name
        for table in tables
        for kind in ("dependencies", "build-dependencies")
        for name, spec in table.get(kind, {}).items()
    }
    assert crates, "the dependencies of mq9-core were not found"
    assert not crates & FORBIDDEN_CRATES


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("log/mod.rs", "use crate::disk::Disk;", {"disk"}),
        ("log/mod.rs", "use crate::{disk::{Disk, File}, time, wire};", {"disk", "time", "wire"}),
        ("log/mod.rs", "pub(in crate::log) fn f() -> crate::store::X {}", {"log", "store"}),
        ("log/mod.rs", "use crate::Lsn; use crate::*;", {"Lsn", "*"}),
        ("log/mod.rs", "use super::store::Store;", {"store"}),
        ("log/lsn.rs", "use super::store; use super::super::{group, time};", {"group", "time"}),
        ("log/lsn.rs", "mod tests { use super::*; use super::Lsn; }", set()),
        ("log/lsn.rs", "// crate::a\n/* crate::b */ crate::c();", {"c"}),
        ("log/lsn.rs", """f("crate::a", r#"crate::b"#, '"'); crate::c();""", {"c"}),
        ("log/lsn.rs", "fn f<'a>(x: &'a str) { crate::x(); other_crate::y(); }", {"x"}),
    ],
)
def test_reader_finds_the_names_a_module_refers_to(
    file: str, source: str, expected: set[str]
) -> None:
    assert root_names(module_path(Path(file)), code_of(source)) == expected
