"""Examples in the documentation: takes them out of a page, runs them, compares what they give."""

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

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
    done = subprocess.run(
        ["bash", "-c", "exec 2>&1\n" + "\n".join(lines)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    return [part.removeprefix("\n") for part in done.stdout.split(_MARK)[1:]]
