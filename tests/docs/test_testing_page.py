"""The examples of docs/testing.md are test files, and pytest passes them as they are."""

import subprocess
import sys
from pathlib import Path

from tests.pages import blocks


def test_examples_pass(tmp_path: Path) -> None:
    examples = [block for block in blocks("docs/testing.md", "python") if block.startswith("# ")]
    for example in examples:
        name, _, _ = example.removeprefix("# ").partition("\n")
        (tmp_path / name).write_text(example, "utf-8")
    options = ["-p", "no:cacheprovider", "-W", "error", "-o", "asyncio_mode=auto"]
    options += ["-o", "asyncio_default_fixture_loop_scope=function"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert f"{len(examples)} passed" in done.stdout, done.stdout + done.stderr
    assert len(examples) == 3
