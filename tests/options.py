"""Options as a test compares them."""

from collections.abc import Collection
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def changed(options: object, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults, those inside of it as well."""
    assert is_dataclass(options)
    found = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in without or (field.default is not MISSING and value == field.default):
            continue
        found[field.name] = plain(value)
    return found


def plain(value: object) -> object:
    if is_dataclass(value):
        return changed(value)
    return tuple(map(plain, value)) if isinstance(value, tuple) else value
