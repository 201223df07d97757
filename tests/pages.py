"""Examples in the documentation: takes them out of a page, runs them, compares what they give."""

import ast
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Where `make nats-cli` puts the real `nats`.
NATS_CLI = ROOT / ".build" / "go" / "bin"

# Only what hangs takes so long: forty commands and Spark need minutes on a busy machine.
HANGS_S = 800

_GIVES = "  # -> "
_MARK = "@@@ next command @@@"


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a language, in order."""
    text = (ROOT / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@dataclass
class Session:
    """Blocks of Python that share their names, with `await` outside of functions."""

    names: dict[str, Any]

    async def run(self, block: str) -> None:
        for statement in ast.parse(block).body:
            source = "\n".join(block.splitlines()[statement.lineno - 1 : statement.end_lineno])
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            if isinstance(statement, ast.Expr) and _GIVES in source:
                expression, _, expected = source.rpartition(_GIVES)
                given = await self._evaluate(compile(expression, "example", "eval", flags))
                assert repr(given) == expected, expression
            else:
                await self._evaluate(compile(source, "example", "exec", flags))

    async def _evaluate(self, code: Any) -> Any:  # noqa: ANN401
        given = eval(code, self.names)
        return await given if hasattr(given, "__await__") else given


@dataclass(frozen=True)
class Step:
    """A command of a shell session and what it prints."""

    command: str
    output: str


def steps(block: str) -> Iterator[Step]:
    """The commands of a block of `console`."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Step(command, output)


def run_steps(commands: list[str], folder: Path, environment: dict[str, str]) -> list[str]:
    """Runs commands in one shell; what each printed, errors included."""
    # The status of a command must still be there for the next.
    lines = [f"status=$?; echo '{_MARK}'; (exit $status)\n{command}" for command in commands]
    with subprocess.Popen(
        ["bash", "-c", "exec 2>&1\n" + "\n".join(lines)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(timeout=HANGS_S)
        except subprocess.TimeoutExpired as error:
            so_far = (error.stdout or b"").decode().split(_MARK)[1:]
            command = commands[max(0, len(so_far) - 1)]
            raise AssertionError(f"after {HANGS_S} s at {command!r}: {so_far}") from None
        finally:
            # What goes on in the background, and holds the pipe open.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    return [part.removeprefix("\n") for part in printed.split(_MARK)[1:]]


def install(folder: Path) -> None:
    """`mq9`, `zos-mq` and `python` as pages call them, with the interpreter of the tests."""
    folder.mkdir(exist_ok=True)
    for name, runs in {"mq9": "-m mq9", "zos-mq": "-m zos_agent_mq", "python": ""}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {runs} "$@"\n')
        (folder / name).chmod(0o755)


def environment_in(folder: Path, url: str | None = None) -> dict[str, str]:
    """Nothing of the user's own, the tools of pages first, and the broker that is meant."""
    install(folder / "bin")
    own = ("ZOS_", "MQ9_", "NATS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    kept |= {"PATH": f"{folder / 'bin'}:{NATS_CLI}:{os.environ['PATH']}", "TZ": "UTC"}
    kept |= {"XDG_CONFIG_HOME": str(folder)}
    return kept | ({"MQ9_URL": url, "NATS_URL": url} if url else {})


_NEVER_THE_SAME = {
    r"[0-9a-f]{12}-[0-9a-f]{16}": "ID",
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?[+]00:?00)?": "TIME",
    r"^\d\d:\d\d:\d\d ": "CLOCK ",
    r'"create_time":\d{10}': '"create_time":TIME',
    r"[\d.]+ m?s\b": "SPAN",
    r"[\d.]+ (B|KiB|MiB)\b": "SIZE",
    r"^(server|url|mq9 version|segments|checkpoints|reclaimable)  .*": r"\1",
    # What the shell says of a job that was killed names the process.
    r"^bash: line .*\n": "",
}


def comparable(text: str) -> str:
    """Without ids, instants and sizes, which are never the same."""
    for pattern, name in _NEVER_THE_SAME.items():
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def as_printed(command: str) -> str:
    return command


def run_as_printed(
    page: str,
    folder: Path,
    environment: Mapping[str, str],
    *,
    rewritten: Callable[[str], str] = as_printed,
    sessions: Sequence[str] | None = None,
) -> int:
    """Does what `console` blocks of a page say, in one shell, and compares what they print.

    Python whose first line is a comment with a file's name is saved first. How many commands ran
    is returned.
    """
    for block in blocks(page, "python"):
        name, _, _ = block.removeprefix("# ").partition("\n")
        if re.fullmatch(r"# [\w/]+\.py\n", block.partition("\n")[0] + "\n"):
            (folder / name).write_text(block, "utf-8")
    shown = blocks(page, "console") if sessions is None else sessions
    wanted = [step for block in shown for step in steps(block)]
    commands = [rewritten(step.command) for step in wanted]
    printed = run_steps(commands, folder, dict(environment))
    for step, output in zip(wanted, printed, strict=True):
        everything = "".join(printed)
        assert comparable(output) == comparable(step.output), f"{step.command}\n{everything}"
    return len(wanted)
