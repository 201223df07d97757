"""Names in a client's certificate, in the order in which nats-server looks for a user.

Knows nothing of users.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from mq9._core import Certificate

Rdn: TypeAlias = tuple[tuple[str, str], ...]

_SPECIAL = re.compile(r'([,+"\\<>;])')
_PART = re.compile(r"((?:\\.|[^,+\\])*)([,+]|$)", re.DOTALL)


def alternative_names(names: Certificate) -> list[str]:
    """Email addresses, then DNS names, then URIs."""
    return [*names.emails, *names.dns_names, *names.uris]


def distinguished_name(names: Certificate) -> str:
    """The subject as RFC 2253 writes it: the most specific part first."""
    return ",".join(
        "+".join(f"{name}={_escape(value)}" for name, value in rdn)
        for rdn in reversed(names.subject)
    )


def names_subject(text: str, names: Certificate) -> bool:
    """Whether `text` is a distinguished name with the parts of the subject, in any order."""
    parts = parse_name(text)
    return bool(parts) and Counter(parts) == Counter(map(_fold, names.subject))


def parse_name(text: str) -> list[Rdn]:
    """The parts of a distinguished name; empty if the text is not one."""
    name: list[Rdn] = []
    rdn: list[tuple[str, str]] = []
    position = 0
    while position <= len(text):
        match = _PART.match(text, position)
        if match is None or "=" not in match[1]:
            return []
        key, value = match[1].split("=", 1)
        rdn.append((key.strip().upper(), _unescape(value)))
        if match[2] != "+":
            name.append(_fold(rdn))
            rdn = []
        if not match[2]:
            return name
        position = match.end()
    return []


def _fold(rdn: Iterable[tuple[str, str]]) -> Rdn:
    return tuple(sorted((name.upper(), value) for name, value in rdn))


def _escape(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and len(escaped) > 1 else escaped


def _unescape(value: str) -> str:
    # An escaped space at the end counts, a plain one does not.
    kept = value.strip(" ")
    if kept.endswith("\\") and kept != value.lstrip(" "):
        # The first of the spaces behind it is escaped.
        kept += " "
    return re.sub(r"\\(.)", r"\1", kept, flags=re.DOTALL)
