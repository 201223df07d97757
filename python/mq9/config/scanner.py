"""Reads the pieces of NATS's configuration syntax: names, single values, comments and separators.

Owns characters and positions. What the pieces add up to is the parser's.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime

from mq9.config.errors import ConfigError, quoted
from mq9.config.tree import Place, Scalar, Value

_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_SPACES = re.compile(f"[{_SPACE}]*")
_BLANKS = re.compile(r"[ \t]*")
_COMMENT = re.compile(r"(?:#|//)[^\n\r]*")
_NAME = re.compile(rf"[^{_SPACE}:=,;{{}}\[\]]+")
_BARE = re.compile(r"[^\n\r \t;,\]}\\']*")
_QUOTED = re.compile(r'[^"\\]*')
_INCLUDED = re.compile(r"[^\n\r \t;}']+")
_BLOCK_END = re.compile(r"\n\)(?=\r?\n|\Z)")

_INTEGER = re.compile(r"(-?)([0-9]+)([A-Za-z]*)")
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_ADDRESS = re.compile(r"[0-9]+\.[0-9]+\.[0-9.:-]*")
# Where nats-server starts to read a number and then does not find one.
_NOT_A_NUMBER = re.compile(r"-|[0-9]+-|[0-9]+\.|[0-9]+[kmgtpe][bi]+$", re.IGNORECASE)
_BCRYPT = re.compile(r"\$2[aby]\$")

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_INT64 = range(-(2**63), 2**63)


def _sizes() -> dict[str, int]:
    sizes = {"": 1}
    for power, letter in enumerate("kmgtpe", start=1):
        sizes[letter] = 1000**power
        sizes |= dict.fromkeys((f"{letter}b", f"{letter}i", f"{letter}ib"), 1024**power)
    return sizes


_SIZES = _sizes()


@dataclass(frozen=True, slots=True)
class Reference:
    """A `$NAME` in place of a value."""

    name: str
    place: Place


class Scanner:
    """A position in a text, and what can be read there."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.offset = 0
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        if (nul := text.find("\0")) >= 0:
            raise self.error("a NUL character; a configuration is text", nul)

    def place(self, offset: int | None = None) -> Place:
        """The place of an offset, of the current one without."""
        at = self.offset if offset is None else offset
        line = bisect_right(self._lines, at)
        return Place(self.file, line, at - self._lines[line - 1] + 1)

    def error(self, message: str, offset: int | None = None) -> ConfigError:
        """An error at an offset, at the current one without."""
        return ConfigError(f"{self.place(offset)}: {message}")

    @property
    def char(self) -> str:
        """The character at the position; empty at the end."""
        return self.text[self.offset : self.offset + 1]

    def take(self, char: str) -> bool:
        """Steps over `char` if it comes next."""
        found = self.char == char
        self.offset += found
        return found

    def skip_blanks(self) -> None:
        """Steps over spaces and tabs of the line."""
        self._take(_BLANKS)

    def skip_spaces(self) -> None:
        """Steps over white space, line ends included."""
        self._take(_SPACES)

    def skip_comment(self) -> None:
        """Steps over a comment, up to the end of its line."""
        self._take(_COMMENT)

    def skip_lines(self) -> None:
        """Steps over white space, line ends and comments."""
        before = -1
        while before != self.offset:
            before = self.offset
            self._take(_SPACES)
            self._take(_COMMENT)

    def name(self) -> str:
        """The name of a setting, quoted or not; quotes hide nothing but their own kind."""
        start = self.offset
        if (quote := self.char) in {"'", '"'} and quote:
            end = self.text.find(quote, start + 1)
            if end < 0:
                raise self.error(f"the name that starts here has no closing {quote}", start)
            self.offset = end + 1
            return self.text[start + 1 : end]
        name = self._take(_NAME)
        if not name:
            raise self.error(f"expected the name of a setting, found {self.shown()}")
        if self.char and self.char in "{}[],;":
            raise self.error(
                f"expected a space, ':' or '=' after the name {quoted(name)}, found {self.shown()}"
            )
        return name

    def included_file(self) -> str:
        """The file named behind `include`."""
        if self.char and self.char in "'\"":
            return self.name()
        start = self.offset
        name = self._take(_INCLUDED)
        if not name or name[0] in "[{(\\":
            raise self.error("expected the name of a file after 'include'", start)
        return name

    def scalar(self) -> Value | Reference:
        """The single value at the position: a string, number, date, truth value or reference."""
        start, place = self.offset, self.place()
        if self.take("'"):
            return Value(self._up_to_quote(start), place)
        if self.take('"'):
            return Value(self._escaped(_QUOTED, '"', start), place)
        if self.take("("):
            return Value(self._block(start), place)
        if self.char == ".":
            raise self.error("a number starts with a digit; put other values in quotes")
        bare = self._escaped(_BARE, None, start)
        if self.char == "'":
            raise self.error("a quote inside a value; put the whole value in quotes")
        if self.offset == start:
            raise self.error(f"expected a value, found {self.shown()}")
        if "\\" in self.text[start : self.offset]:
            return Value(bare, place)
        if bare.startswith("$") and not _BCRYPT.match(bare):
            return Reference(bare[1:], place)
        return Value(self._meaning(bare, start), place)

    def shown(self) -> str:
        """What stands at the position, in words for a message."""
        if not self.char:
            return "the end of the file"
        return "the end of the line" if self.char in "\r\n" else repr(self.char)

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.offset)
        if found is None:
            return ""
        self.offset = found.end()
        return found[0]

    def _up_to_quote(self, start: int) -> str:
        end = self.text.find("'", self.offset)
        if end < 0:
            raise self.error("the string that starts here has no closing '", start)
        found = self.text[self.offset : end]
        self.offset = end + 1
        return found

    def _block(self, start: int) -> str:
        end = _BLOCK_END.search(self.text, self.offset)
        if end is None:
            raise self.error("the block that starts here needs a line with nothing but ')'", start)
        found = self.text[self.offset : end.start() + 1]
        self.offset = end.end()
        return found

    def _escaped(self, run: re.Pattern[str], end: str | None, start: int) -> str:
        parts: list[bytes] = []
        while True:
            parts.append(self._take(run).encode("utf-8", "surrogatepass"))
            if self.take("\\"):
                parts.append(self._escape())
            elif end is None or self.take(end):
                break
            else:
                raise self.error(f"the string that starts here has no closing {end}", start)
        try:
            return b"".join(parts).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise self.error("the \\x escapes of this string are not UTF-8", start) from None

    def _escape(self) -> bytes:
        start = self.offset - 1
        if self.take("x"):
            digits = self.text[self.offset : self.offset + 2]
            if not re.fullmatch("[0-9A-Fa-f]{2}", digits):
                raise self.error("expected two hexadecimal digits after \\x", start)
            self.offset += 2
            return bytes.fromhex(digits)
        if (found := _ESCAPES.get(self.char)) is None:
            raise self.error(
                'unknown escape; these exist: \\xHH, \\t, \\n, \\r, \\", \\\\'
                " (in single quotes a backslash is itself)",
                start,
            )
        self.offset += 1
        return found.encode()

    def _meaning(self, bare: str, start: int) -> Scalar:
        if (truth := _BOOLEANS.get(bare.lower())) is not None:
            return truth
        if number := _INTEGER.fullmatch(bare):
            sign, digits, suffix = number.groups()
            if size := _SIZES.get(suffix.lower()):
                return self._integer(sign, digits, size, start)
        if _FLOAT.fullmatch(bare):
            if abs(found := float(bare)) == float("inf"):
                raise self.error("the number is out of range", start)
            return found
        if _DATE.fullmatch(bare):
            try:
                return datetime.strptime(bare, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            except ValueError:
                raise self.error("there is no such date", start) from None
        if not _ADDRESS.fullmatch(bare) and _NOT_A_NUMBER.match(bare):
            raise self.error(
                "neither a number (10, 1.5, 64KB, 1MiB) nor a date (2024-01-31T10:00:00Z); "
                "put other values that start like one in quotes",
                start,
            )
        return bare

    def _integer(self, sign: str, digits: str, size: int, start: int) -> int:
        # Longer ones are out of range anyway, and slow to read.
        number = int(digits) * size if len(digits.lstrip("0")) < 20 else 2**64
        if sign:
            number = -number
        if number not in _INT64:
            raise self.error("the number is out of range: it must fit in 64 bits", start)
        return number
