"""The bodies of AGENT commands: any JSON object with `mailbox`, checked and otherwise left alone.

Owns what is refused. What a card means is for the registry.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from mq9.commands.address import check_address
from mq9.commands.request import MAX_SECONDS, Refusal, shown

MAX_BYTES = (1 << 20) - (1 << 12)
"""The largest card: with what a reply puts around it, it still is a message."""
MAX_DEPTH = 64
MAX_TAGS = 256
MAX_TAG_CHARS = 128
_MAX_TAG_BYTES = 32 << 10

_MAILBOX = re.compile(r"mq9://[^/\s]+/(.*)", re.DOTALL)
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True, slots=True)
class AgentCard:
    """A card that can be registered."""

    address: str
    ttl_s: int
    tags: tuple[str, ...]
    body: bytes


def read_card(payload: bytes) -> AgentCard:
    """The card in a REGISTER."""
    body, card = _read(payload)
    for name in ("name", "description"):
        if card.get(name) is not None and not isinstance(card[name], str):
            raise Refusal(f"invalid {name}: expected a string, found {shown(card[name])}")
    return AgentCard(_address(card), _ttl_s(card), _tags(card), body)


def read_report(payload: bytes) -> tuple[str, bytes]:
    """Who reports, and what."""
    body, report = _read(payload)
    return _address(report), body


def read_address(payload: bytes) -> str:
    """Who is meant."""
    return _address(_read(payload)[1])


def _read(payload: bytes) -> tuple[bytes, dict[str, Any]]:
    body = payload.strip(b" \t\r\n")
    if len(body) > MAX_BYTES:
        raise Refusal(f"the request has {len(body)} bytes: at most {MAX_BYTES} are allowed")
    if _is_deep(body):
        raise Refusal(f"the request is nested too deeply: at most {MAX_DEPTH} levels are allowed")
    try:
        card = from_json(body or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise Refusal(f"invalid request: {error}") from None
    if not isinstance(card, dict):
        raise Refusal("the request must be a JSON object")
    # What a number is, is not looked at: its digits are kept as they are.
    json.loads(body or b"{}", object_pairs_hook=_unique, parse_int=len, parse_float=len)
    return body, card


def _is_deep(body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    left = _TEXTS.sub(b"", body).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        left = left.replace(b"[]", b"")
        if b"[]" not in left:
            # What is left has no end or no beginning; the parser says so.
            return left.count(b"[") > MAX_DEPTH
    return True


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise Refusal(f"the field {shown(twice)} is given more than once")


def _address(card: dict[str, Any]) -> str:
    mailbox = card.get("mailbox")
    if mailbox is None:
        raise Refusal("mailbox is missing: the address the agent is reached at")
    if not isinstance(mailbox, str):
        raise Refusal(f"invalid mailbox: expected a string, found {shown(mailbox)}")
    match = _MAILBOX.fullmatch(mailbox)
    if match is None and "://" in mailbox:
        raise Refusal(
            f"invalid mailbox {shown(mailbox)}: it must be mq9://<broker>/<address> or an address"
        )
    address = mailbox if match is None else match[1]
    check_address(address, "mailbox")
    return address


def _ttl_s(card: dict[str, Any]) -> int:
    ttl = card.get("ttl")
    if ttl is None:
        return 0
    if not isinstance(ttl, int) or isinstance(ttl, bool):
        raise Refusal(f"invalid ttl: expected a whole number of seconds, found {shown(ttl)}")
    if not 0 <= ttl <= MAX_SECONDS:
        raise Refusal(f"ttl is {shown(ttl)}: it must be from 0 to {MAX_SECONDS}")
    return ttl


def _tags(card: dict[str, Any]) -> tuple[str, ...]:
    """The tags of the agent and those of its skills, each once."""
    found = dict.fromkeys(_strings(card, "tags"))
    skills = card.get("skills")
    for at, skill in enumerate(skills if isinstance(skills, list) else ()):
        if isinstance(skill, dict):
            found |= dict.fromkeys(_strings(skill, "tags", f"skills[{at}]."))
    if len(found) > MAX_TAGS:
        raise Refusal(f"there are {len(found)} tags: at most {MAX_TAGS} are allowed")
    if sum(len(tag.encode()) for tag in found) > _MAX_TAG_BYTES:
        raise Refusal(f"the tags are too long: at most {_MAX_TAG_BYTES} bytes in all are allowed")
    return tuple(found)


def _strings(holder: dict[str, Any], name: str, where: str = "") -> list[str]:
    tags = holder.get(name)
    if tags is None:
        return []
    if not isinstance(tags, list):
        raise Refusal(f"invalid {where}{name}: expected a list, found {shown(tags)}")
    for at, tag in enumerate(tags):
        if not isinstance(tag, str):
            raise Refusal(f"invalid {where}{name}[{at}]: expected a string, found {shown(tag)}")
        if len(tag) > MAX_TAG_CHARS:
            raise Refusal(f"{where}{name}[{at}] is too long: at most {MAX_TAG_CHARS} characters")
    return tags


def with_fields(body: bytes, fields: frozenset[str]) -> bytes:
    """The card with these fields only, each as it was written."""
    text = body.decode()
    kept = []
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        start = at
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        if name in fields:
            kept.append(text[start:end])
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return ("{" + ",".join(kept) + "}").encode()


_DECODER = json.JSONDecoder(parse_int=len, parse_float=len)
_SPACE = re.compile(r"[ \t\r\n]*")


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
