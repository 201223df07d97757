"""Takes settings out of a parsed tree: one reader per kind of value, one way to walk a block.

Owns what a size, a duration, an address or a path looks like, and how a wrong one is reported.
Knows no setting by name.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from mq9.config.errors import ConfigError, quoted
from mq9.config.tree import Entry, Map, Place, Value

Reader = Callable[[Value, "Notes"], object]

_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
# No more digits than anybody writes: a search for it stays quick in any text.
_PART = re.compile(r"([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_DURATION = re.compile(rf"([+-]?)((?:{_PART.pattern})+|0)")
_MAX_DURATION_NS = 2**63 - 1
MAX_PORT = 65_535


@dataclass(slots=True)
class Notes:
    """What the operator should be told although the configuration can be used."""

    warnings: list[str] = field(default_factory=list)

    def warn(self, place: Place, message: str) -> None:
        """Note something about a place."""
        self.warnings.append(f"{place}: {message}")


@dataclass(slots=True)
class Fields:
    """The options that a block sets, and where."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """A name in a block: how its value is read and which option it sets.

    A reader that gives several options, as `Fields`, has no option of its own.
    """

    option: str
    read: Reader


class Default(Enum):
    """What a reader returns for a value that stands for the default."""

    DEFAULT = "default"


DEFAULT: Final = Default.DEFAULT


def at(place: Place, message: str) -> ConfigError:
    """An error at a place."""
    return ConfigError(f"{place}: {message}")


def mismatch(value: Value, expected: str) -> ConfigError:
    """The error for a value of the wrong kind; never shows the value, which may be a secret."""
    hint = (
        "; put it in quotes" if isinstance(value.data, int | float) and "string" in expected else ""
    )
    return at(value.place, f"expected {expected}, found {value.kind}{hint}")


def entries(value: Value, what: str) -> list[Entry]:
    """The names of a block, in their order."""
    if not isinstance(value.data, Map):
        raise mismatch(value, f"a block {{ }} for {what}")
    return list(value.data.entries.values())


def items(value: Value, what: str) -> list[Value]:
    """The values of a list."""
    if not isinstance(value.data, list):
        raise mismatch(value, f"a list [ ] of {what}")
    return value.data


def unknown(entry: Entry, where: str, known: Mapping[str, object]) -> ConfigError:
    """The error for a name that nobody knows, with the nearest that is known."""
    # Imported here: a server that starts has no use for it.
    from difflib import get_close_matches

    name = entry.name.lower()
    # Letters in the wrong order are likelier than other letters.
    near = sorted(get_close_matches(name, known), key=lambda other: sorted(other) != sorted(name))
    hint = f"; did you mean {quoted(near[0])}?" if near else ""
    return at(entry.place, f"unknown setting {quoted(entry.name)} in {where}{hint}")


def read_block(
    value: Value,
    where: str,
    settings: Mapping[str, Setting],
    ignored: Mapping[str, str],
    notes: Notes,
) -> Fields:
    """Read a block by its settings; `ignored` says why a name of nats-server does not apply.

    All wrong settings of the block are reported together.
    """
    fields, wrong = Fields(), []
    for entry in entries(value, where):
        name = entry.name.lower()
        try:
            if setting := settings.get(name):
                _read_setting(entry, setting, fields, notes)
            elif why := ignored.get(name):
                notes.warn(entry.place, f"{quoted(entry.name)} is ignored: {why}")
            elif not entry.used:
                raise unknown(entry, where, dict(settings) | dict(ignored))
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigError("\n".join(wrong))
    return fields


def _read_setting(entry: Entry, setting: Setting, fields: Fields, notes: Notes) -> None:
    found = setting.read(entry.value, notes)
    if isinstance(found, Default):
        return
    if isinstance(found, Fields) and not setting.option:
        options = found.values
    else:
        options = {setting.option: found}
    for option, content in options.items():
        if option in fields.values:
            before = fields.places[option].line
            notes.warn(
                entry.place,
                f"{quoted(entry.name)} replaces what line {before} says; this later value counts",
            )
        fields.values[option] = content
        fields.places[option] = entry.place


def text(value: Value, _notes: Notes) -> str:
    """A string."""
    if not isinstance(value.data, str):
        raise mismatch(value, "a string")
    return value.data


def filled(value: Value, notes: Notes) -> str:
    """A string that is not empty."""
    if not (found := text(value, notes)):
        raise at(value.place, "expected a string, found an empty one")
    return found


def optional_text(value: Value, notes: Notes) -> str | Default:
    """A string; an empty one stands for the default."""
    return text(value, notes) or DEFAULT


def path(value: Value, notes: Notes) -> Path:
    """A file or folder; a relative one is looked for in the folder the server runs in."""
    return Path(filled(value, notes))


def boolean(value: Value, _notes: Notes) -> bool:
    """True or false."""
    if not isinstance(value.data, bool):
        raise mismatch(value, "true or false")
    return value.data


def integer(
    low: int, high: int = 2**63 - 1, zero_is_default: bool = False
) -> Callable[[Value, Notes], int | Default]:
    """A whole number between two bounds."""

    def read(value: Value, _notes: Notes) -> int | Default:
        if isinstance(value.data, bool) or not isinstance(value.data, int):
            raise mismatch(value, "a whole number such as 4096 or 64KB, without quotes")
        if value.data == 0 and zero_is_default:
            return DEFAULT
        if not low <= value.data <= high:
            bound = f"at least {low}" if value.data < low else f"at most {high}"
            raise at(value.place, f"expected {bound}, found {value.data}")
        return value.data

    return read


def limit(value: Value, notes: Notes) -> int:
    """A whole number, where 0 and negative numbers mean no limit."""
    found = integer(-(2**63))(value, notes)
    return 0 if found is DEFAULT else max(0, found)


def port(value: Value, _notes: Notes) -> int | Default:
    """A port; -1 for any free one, 0 for the default."""
    if isinstance(value.data, bool) or not isinstance(value.data, int):
        raise mismatch(value, "a port, a number without quotes")
    _check_port(value, value.data)
    return value.data or DEFAULT


def address(value: Value, _notes: Notes) -> tuple[str | None, int]:
    """`port` or `host:port`; without a host None."""
    if isinstance(value.data, int) and not isinstance(value.data, bool):
        _check_port(value, value.data)
        return None, value.data
    if not isinstance(value.data, str):
        raise mismatch(value, "a port or a string host:port")
    host, port_text = split_address(value.data)
    if not re.fullmatch(r"-?[0-9]{1,9}", port_text):
        raise at(
            value.place, f"expected port or host:port (IPv6 in [ ]), found {quoted(value.data)}"
        )
    _check_port(value, int(port_text))
    return host or None, int(port_text)


def split_address(written: str) -> tuple[str, str]:
    """Host and port of `host:port`; the port is empty where it is missing or cannot be told."""
    host, colon, port_text = written.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], port_text
    return (host, port_text) if colon and ":" not in host else (written, "")


def _check_port(value: Value, number: int) -> None:
    if not -1 <= number <= MAX_PORT:
        raise at(
            value.place, f"expected a port from 1 to {MAX_PORT} (-1: any free one), found {number}"
        )


def parse_duration_ms(written: str) -> int | None:
    """Milliseconds of a duration as Go writes them, rounded up; None if it is none."""
    found = _DURATION.fullmatch(written)
    if found is None:
        return None
    total_ns = 0
    for number, unit in _PART.findall(found[2]):
        whole, _, fraction = number.partition(".")
        if len(whole) > 20:
            return None
        # As much of the fraction as an hour in nanoseconds can show.
        fraction = fraction[:13]
        total_ns += int(whole or "0") * _UNITS_NS[unit]
        total_ns += int(fraction or "0") * _UNITS_NS[unit] // 10 ** len(fraction)
    if total_ns > _MAX_DURATION_NS:
        return None
    ms = -(-total_ns // 10**6)
    return -ms if found[1] == "-" else ms


def duration(
    *, low_ms: int = 0, bare_seconds: bool = False, zero_is_default: bool = False
) -> Callable[[Value, Notes], int | Default]:
    """A duration such as "2m", in ms; `bare_seconds`: an old-style number of seconds will do."""

    def read(value: Value, notes: Notes) -> int | Default:
        ms = _duration_ms(value, bare_seconds, notes)
        if ms == 0 and zero_is_default:
            return DEFAULT
        if ms < low_ms:
            least = f"{low_ms // 1000}s" if low_ms >= 1000 else f"{low_ms}ms"
            raise at(value.place, f"expected a duration of at least {least}")
        return ms

    return read


def _duration_ms(value: Value, bare_seconds: bool, notes: Notes) -> int:
    if isinstance(value.data, str):
        ms = parse_duration_ms(value.data)
        if ms is None:
            raise at(
                value.place,
                f'expected a duration such as "2m", "500ms" or "1h30m", found {quoted(value.data)}',
            )
        return ms
    if isinstance(value.data, bool) or not isinstance(value.data, int):
        raise mismatch(value, 'a duration such as "2m"')
    # 2m without quotes is the number 2,000,000 to this syntax.
    if not bare_seconds or value.data >= 1_000_000:
        raise at(
            value.place,
            f'expected a duration in quotes such as "2m", found the number {value.data}',
        )
    notes.warn(value.place, f'a number is read as seconds; better write "{value.data}s"')
    return value.data * 1000


def seconds(value: Value, notes: Notes) -> int | Default:
    """A number of seconds or a duration, in ms; 0 stands for the default."""
    if isinstance(value.data, int | float) and not isinstance(value.data, bool):
        ms = round(min(value.data, 1e9) * 1000)
    else:
        ms = _duration_ms(value, False, notes)
    if ms < 0:
        raise at(value.place, "expected a time that is not negative")
    return ms or DEFAULT


def guard(why: str) -> Setting:
    """A setting of nats-server that keeps somebody out: ignoring it would let them in."""

    def read(value: Value, _notes: Notes) -> Fields:
        if value.data is not False and value.data != []:
            raise at(value.place, f"{why}; remove the setting if the server may do without")
        return Fields()

    return Setting("", read)
