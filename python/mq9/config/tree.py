"""A configuration as it was written: values that remember their place.

Owns the shape of what the parser makes. Knows no setting.
"""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class Value:
    """One value and where it stands."""

    data: "Scalar | list[Value] | Map"
    place: Place

    @property
    def kind(self) -> str:
        """What the value is, in words for a message."""
        return _KINDS[type(self.data)]


@dataclass(slots=True)
class Entry:
    """One name of a map with its value."""

    name: str
    place: Place
    value: Value
    used: bool = False
    """A `$reference` took its value: it need not be a setting."""


@dataclass(slots=True)
class Map:
    """Names and values between braces, or of a whole file."""

    entries: dict[str, Entry] = field(default_factory=dict)


Scalar = str | int | float | bool | datetime

_KINDS: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number with a fraction",
    bool: "true or false",
    datetime: "a date",
    list: "a list",
    Map: "a block { }",
}
