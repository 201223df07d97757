"""Builds the tree of a configuration: maps, lists, includes and `$references`.

Owns the grammar of NATS's configuration files. Knows no setting.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mq9.config.errors import ConfigError, quoted
from mq9.config.scanner import Reference, Scanner
from mq9.config.tree import Entry, Map, Place, Value

MAX_DEPTH = 100
"""Maps and lists inside each other, and files that include each other."""
MAX_BYTES = 4 * 1024 * 1024
"""Of all files of one configuration together; one that is included twice counts twice."""


@dataclass(slots=True)
class Parsed:
    """What was read, and what should be said about it."""

    root: Map
    warnings: list[str] = field(default_factory=list)


def parse_file(path: Path, environment: Mapping[str, str]) -> Parsed:
    """Read a file and what it includes."""
    return _Parser(environment).file(path, None)


def parse_text(text: str | bytes, environment: Mapping[str, str], file: str = "text") -> Parsed:
    """Read a text; what it includes is looked for in the current folder."""
    return _Parser(environment).text(_decoded(text, file), file, Path())


@dataclass(slots=True)
class _Open:
    """A map or list whose end was not seen yet."""

    container: Map | list[Value]
    place: Place
    name: str = ""
    """The name that waits for its value, in a map."""
    name_place: Place | None = None


class _ReferenceError(ConfigError):
    """A reference that leads nowhere; the reason holds names only, never values."""

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.reason = reason


class _Parser:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._files: list[Path] = []
        self._variables: list[str] = []
        self._bytes_left = MAX_BYTES
        self._warnings: list[str] = []

    def file(self, path: Path, included_at: Place | None) -> Parsed:
        at = f"{included_at}: " if included_at else ""
        try:
            resolved = Path(os.path.realpath(path))
        except ValueError as error:
            raise ConfigError(f"{at}cannot read {str(path)!r}: {error}") from None
        if resolved in self._files:
            chain = " -> ".join(file.name for file in [*self._files, resolved])
            raise ConfigError(f"{at}files include each other in a circle: {chain}")
        if len(self._files) == MAX_DEPTH:
            raise ConfigError(f"{at}more than {MAX_DEPTH} files include each other")
        try:
            with path.open("rb") as source:
                content = source.read(self._bytes_left + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"{at}cannot read {path}: {reason}") from None
        if len(content) > self._bytes_left:
            raise ConfigError(f"{at}{path}: the configuration is larger than {MAX_BYTES} bytes")
        self._bytes_left -= len(content)
        self._files.append(resolved)
        parsed = self.text(_decoded(content, str(path)), str(path), path.parent)
        self._files.pop()
        return parsed

    def text(self, text: str, file: str, folder: Path) -> Parsed:
        scanner = Scanner(text, file)
        root = _Document(self, scanner, folder).read()
        return Parsed(root, self._warnings)

    def warn(self, message: str) -> None:
        self._warnings.append(message)

    def variable(self, reference: Reference) -> Value:
        """The value of an environment variable, read as a value of a file would be."""
        name, place = reference.name, reference.place
        if name in self._variables:
            chain = " -> ".join(f"${name}" for name in [*self._variables, name])
            raise _ReferenceError(place, f"variables refer to each other in a circle: {chain}")
        if len(self._variables) == MAX_DEPTH:
            raise _ReferenceError(place, f"more than {MAX_DEPTH} variables refer to each other")
        text = self._environment.get(name)
        if text is None:
            raise _ReferenceError(
                place,
                f"${name} is set neither above in the file nor in the environment "
                "(a string that starts with $ needs quotes)",
            )
        if not text:
            return Value("", place)
        self._variables.append(name)
        try:
            root = self.text(f"value={text}", f"${name}", Path()).root
        except _ReferenceError as error:
            raise _ReferenceError(place, error.reason) from None
        except ConfigError:
            # Not the inner message: it may quote a secret.
            raise ConfigError(
                f"{place}: the environment's ${name} cannot be read as one value; "
                "put quotes around it, inside the variable"
            ) from None
        self._variables.pop()
        if list(root.entries) != ["value"]:
            raise ConfigError(f"{place}: the environment's ${name} holds more than one value")
        return Value(root.entries["value"].value.data, place)


class _Document:
    """The text of one file on its way to a map."""

    def __init__(self, parser: _Parser, scanner: Scanner, folder: Path) -> None:
        self._parser = parser
        self._scanner = scanner
        self._folder = folder
        self._open: list[_Open] = []

    def read(self) -> Map:
        scanner, root = self._scanner, Map()
        scanner.skip_lines()
        self._open.append(_Open(root, scanner.place()))
        in_braces = scanner.take("{")
        while True:
            scanner.skip_lines()
            current = self._open[-1]
            if not scanner.char:
                if len(self._open) == 1 and not in_braces:
                    return root
                closing = "}" if isinstance(current.container, Map) else "]"
                raise ConfigError(f"{current.place}: what opens here has no closing {closing}")
            if isinstance(current.container, list):
                if scanner.take("]"):
                    self._close()
                else:
                    self._value()
            elif scanner.char == "}":
                if len(self._open) == 1 and not in_braces:
                    raise scanner.error("this } closes nothing")
                scanner.offset += 1
                if len(self._open) == 1:
                    return self._ended(root)
                self._close()
            else:
                self._setting(current)

    def _ended(self, root: Map) -> Map:
        self._scanner.skip_lines()
        if self._scanner.char:
            raise self._scanner.error(
                f"expected the end of the file after the closing }}, found {self._scanner.shown()}"
            )
        return root

    def _setting(self, current: _Open) -> None:
        scanner = self._scanner
        start, in_quotes = scanner.offset, scanner.char in {"'", '"'}
        current.name_place = scanner.place()
        current.name = scanner.name()
        name_end = scanner.offset
        scanner.skip_spaces()
        if not (scanner.take(":") or scanner.take("=")):
            if current.name.lower() == "include" and not in_quotes and scanner.offset > name_end:
                self._include(current)
                return
        elif len(self._open) > 1:
            scanner.skip_spaces()
        else:
            scanner.skip_blanks()
        if not scanner.char or scanner.char in "\r\n,;}]":
            raise scanner.error(f"{quoted(current.name)} has no value", start)
        self._value()

    def _value(self) -> None:
        scanner = self._scanner
        place = scanner.place()
        if scanner.char in {"{", "["}:
            if len(self._open) > MAX_DEPTH:
                raise scanner.error(f"more than {MAX_DEPTH} blocks and lists inside each other")
            container: Map | list[Value] = Map() if scanner.char == "{" else []
            scanner.offset += 1
            self._open.append(_Open(container, place))
            return
        found = scanner.scalar()
        self._add(self._resolved(found) if isinstance(found, Reference) else found)

    def _close(self) -> None:
        closed = self._open.pop()
        self._add(Value(closed.container, closed.place))

    def _add(self, value: Value) -> None:
        current = self._open[-1]
        if isinstance(current.container, list):
            current.container.append(value)
        else:
            place = current.name_place or value.place
            self._put(current.container, Entry(current.name, place, value))
        self._after_value(isinstance(current.container, list))

    def _put(self, into: Map, entry: Entry) -> None:
        earlier = into.entries.pop(entry.name, None)
        # Over an included file the later one is meant to win.
        if earlier and earlier.place.file == entry.place.file:
            self._parser.warn(
                f"{entry.place}: {quoted(entry.name)} was set before, "
                f"in line {earlier.place.line}; this later value counts"
            )
        into.entries[entry.name] = entry

    def _after_value(self, in_list: bool) -> None:
        scanner = self._scanner
        scanner.skip_blanks()
        scanner.skip_comment()
        if not scanner.char or scanner.char in "\r\n":
            return
        if scanner.take(",") or (not in_list and scanner.take(";")):
            scanner.skip_lines()
            if scanner.char and scanner.char in ",;":
                raise scanner.error(
                    f"expected a value or an end after the separator, found {scanner.shown()}"
                )
            return
        if scanner.char != ("]" if in_list else "}"):
            expected = "',', ']' or a new line" if in_list else "',', ';', '}' or a new line"
            raise scanner.error(
                f"expected {expected} after a value, found {scanner.shown()}; "
                "a value with spaces needs quotes"
            )

    def _resolved(self, reference: Reference) -> Value:
        for level in reversed(self._open):
            if isinstance(level.container, Map):
                entry = level.container.entries.get(reference.name)
                if entry is not None:
                    entry.used = True
                    return Value(entry.value.data, reference.place)
        return self._parser.variable(reference)

    def _include(self, current: _Open) -> None:
        assert isinstance(current.container, Map)
        place = self._scanner.place()
        name = self._scanner.included_file()
        included = self._parser.file(self._folder / name, place)
        for entry in included.root.entries.values():
            self._put(current.container, entry)
        self._after_value(in_list=False)


def _decoded(content: str | bytes, file: str) -> str:
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = error.object[: error.start].decode("utf-8")
        line, column = good.count("\n") + 1, len(good) - good.rfind("\n")
        raise ConfigError(
            f"{Place(file, line, column)}: not UTF-8; a configuration is UTF-8 text"
        ) from None
