"""No text makes a pattern, or a function that reads it, take more time than its length.

Every regular expression in the package is found by reading its sources, so that a new one is held
to it without being named here.
"""

import ast
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import mq9
from mq9._core import Certificate, json_select
from mq9.commands.address import check_address
from mq9.commands.agent_card import read_card, read_report, with_fields
from mq9.commands.request import Refusal
from mq9.registry.card_text import card_text, spoken, without_blobs
from mq9.registry.embedders.wordpiece import words
from mq9.registry.words import indexed, name_key, parts, spaced
from mq9.server.certificates import names_subject

PACKAGE = Path(mq9.__file__).parent
ANYWHERE = ("search", "sub", "split", "findall", "finditer")
FUNCTIONS = {"compile", "match", "fullmatch", *ANYWHERE}

# Four times the text may take this many times as long: sixteen would be quadratic.
MOST = 9.0
# Below this a measurement is noise, and nobody minds.
FLOOR_S = 0.002
TRIES = 4

# Pieces that patterns are made of, repeated, and what makes a match fail at the end.
PIECES = (
    *("a", "1", " ", "-", ".", "@", "/", "\\", '"', '\\"', "[", "a@", "a.", "1.", "1-", "a-"),
    *("aA", "A", "ab-", "://", "a://", "data:", "www.", "\n", "\n)", "0a", ",", "+", "=", "$2a$"),
    *(
        "mq9://",
        "mailbox ",
        "12345678-",
        "deadbeef-dead-",
        "text/",
        "v1.",
        "\u7ffb",
        "a\u7ffb",
        "a+",
    ),
)
ENDS = ("", "\x00", "g")


@dataclass(frozen=True)
class Used:
    """A pattern, and whether it is looked for anywhere in a text or only at one place of it."""

    where: str
    pattern: re.Pattern[str] | re.Pattern[bytes]
    anywhere: bool


def patterns() -> Iterator[Used]:
    """Every literal pattern in the package, with where it stands."""
    for file in sorted(PACKAGE.rglob("*.py")):
        source = file.read_text("utf-8")
        tree = ast.parse(source)
        named = {
            id(node.value): node.targets[0].id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner, does = node.func.value, node.func.attr
            if isinstance(owner, ast.Name) and owner.id == "re" and does in FUNCTIONS:
                name = named.get(id(node), "")
                if does == "compile" and name:
                    anywhere = any(f"{name}.{other}(" in source for other in ANYWHERE)
                else:
                    anywhere = does in ("compile", *ANYWHERE)
                where = f"{file.relative_to(PACKAGE)}:{node.lineno}"
                for text in texts(node.args[0], file, name):
                    flags = re.DOTALL if "DOTALL" in ast.unparse(node) else re.NOFLAG
                    yield Used(where, re.compile(text, flags), anywhere)


def texts(argument: ast.expr, file: Path, variable: str) -> list[str | bytes]:
    """What a pattern may be: a literal, or what its module made of one."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str | bytes):
        return [argument.value]
    name = ".".join(("mq9", *file.relative_to(PACKAGE).with_suffix("").parts))
    module = __import__(name.removesuffix(".__init__"), fromlist=["*"])
    made = list(inside(list(vars(module).values()) if not variable else [vars(module)[variable]]))
    assert made, f"{name}: a pattern that is nowhere to be found"
    return [each.pattern for each in made]


def inside(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, tuple | list):
        for each in value:
            if isinstance(each, re.Pattern):
                yield each
            else:
                yield from inside(each)


PATTERNS = {(used.where, used.pattern.pattern): used for used in patterns()}


def cost_s(work: Callable[[str], object], text: str) -> float:
    """Processor time, the least of some runs."""
    best = float("inf")
    for _ in range(2):
        start = time.thread_time()
        with contextlib.suppress(Refusal, ValueError):
            work(text)
        best = min(best, time.thread_time() - start)
    return best


def check(work: Callable[[str], object], small: int) -> None:
    """Whatever is repeated, four times as much of it takes about four times as long."""
    for piece in PIECES:
        for end in ENDS:
            shown: list[tuple[float, float]] = []
            for _ in range(TRIES):
                texts = [piece * (size // len(piece)) + end for size in (small, 4 * small)]
                first, second = (cost_s(work, text) for text in texts)
                shown.append((first, second))
                if second < max(MOST * first, FLOOR_S):
                    break
            else:
                pytest.fail(f"{piece!r} with {end!r} at the end took {shown}")


@pytest.mark.parametrize("key", PATTERNS, ids=lambda key: f"{key[0]} {str(key[1])[:20]!r}")
def test_every_pattern_is_linear(key: tuple[str, str | bytes]) -> None:
    used = PATTERNS[key]
    pattern = used.pattern

    def work(text: str) -> None:
        given = text.encode() if isinstance(pattern.pattern, bytes) else text
        if used.anywhere:
            pattern.sub("" if isinstance(given, str) else b"", given)  # type: ignore[arg-type]
        pattern.match(given)  # type: ignore[arg-type]
        pattern.fullmatch(given)  # type: ignore[arg-type]

    check(work, 1500)


def json_of(text: str) -> bytes:
    return json.dumps({"mailbox": "a", "name": text, text: [text, {"tags": [text]}]}).encode()


READERS: dict[str, Callable[[str], object]] = {
    "card_text: name": lambda text: card_text({"name": text}),
    "card_text: description": lambda text: card_text({"description": text}),
    "card_text: skills": lambda text: card_text({"skills": [{"name": text, "tags": [text]}, text]}),
    "card_text: rest": lambda text: card_text({"x": {"y": [text, text]}}),
    "spoken": spoken,
    "without_blobs": without_blobs,
    "spaced": spaced,
    "indexed": indexed,
    "name_key": name_key,
    "parts of a query": parts,
    "words of a model": words,
    "address": check_address,
    "certificate": lambda text: names_subject(text, Certificate(subject=[[("CN", "x")]])),
    "card": lambda text: read_card(json_of(text)),
    "report": lambda text: read_report(json_of(text)),
    "broken card": lambda text: read_card(text.encode()),
    "card that is cut off": lambda text: read_card(b'{"mailbox":"a","x":[' + text.encode()),
    "fields": lambda text: with_fields(json_of(text), ["name"]),
    "request": lambda text: json_select(json_of(text), ["name"], max_depth=64, unique=False),
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_of_text_is_linear(name: str) -> None:
    check(READERS[name], 3000)


@pytest.mark.parametrize("written", ['"%d":0', '"%08d":0', '"prefix%d":0', '"\\u0061%d":0'])
def test_a_card_of_many_fields_is_linear(written: str) -> None:
    def work(count: str) -> None:
        fields = ",".join(written % number for number in range(int(count)))
        read_card(b'{"mailbox":"a",' + fields.encode() + b',"last":1,"last":2}')

    for _ in range(TRIES):
        first, second = (cost_s(work, count) for count in ("5000", "20000"))
        if second < max(MOST * first, FLOOR_S):
            return
    pytest.fail(f"took {first} and {second}")


def test_control_a_pattern_that_runs_away_is_noticed() -> None:
    runaway = re.compile(r"\S+@\S+\.\S+")
    with pytest.raises(pytest.fail.Exception, match="took"):
        check(lambda text: runaway.sub("", text), 400)
