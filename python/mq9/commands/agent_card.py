"""The bodies of AGENT commands: any JSON object with `mailbox`, checked and otherwise left alone.

Owns what is refused. What a card means is for the registry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mq9._core import json_select
from mq9.commands.address import check_address
from mq9.commands.request import MAX_DEPTH, MAX_SECONDS, Refusal, parsed, shown
from mq9.registry.roster import MAX_NAME_CHARS

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SKILLS = 1000
MAX_TAGS = 256
MAX_TAG_CHARS = 128
_MAX_TAG_BYTES = 32 << 10
# Those of all skills together, where the same one may come again and again.
_MAX_GIVEN_TAGS = 4096

_KNOWN = ("mailbox", "name", "description", "ttl", "tags", "skills")
_MAILBOX = re.compile(r"mq9://[^/\s]+/(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AgentCard:
    """A card that can be registered."""

    address: str
    ttl_s: int
    tags: tuple[str, ...]
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Who:
    """An agent that is meant: by its address, or where that is None by its name."""

    address: str | None
    name: str = ""


def read_card(payload: bytes) -> AgentCard:
    """The card in a REGISTER."""
    body, card = _read(payload, _KNOWN)
    for name in ("name", "description"):
        if card.get(name) is not None and not isinstance(card[name], str):
            raise Refusal(f"invalid {name}: expected a string, found {shown(card[name])}")
    return AgentCard(_address(card), _ttl_s(card), _tags(card), card.get("name") or "", body)


def read_report(payload: bytes) -> tuple[Who, bytes]:
    """Who reports, and what."""
    body, report = _read(payload, ("mailbox", "name"))
    return _who(report), body


def read_who(payload: bytes) -> Who:
    """Who is meant."""
    return _who(_read(payload, ("mailbox", "name"))[1])


def _who(fields: dict[str, Any]) -> Who:
    name = fields.get("name")
    if fields.get("mailbox") is not None or name is None:
        return Who(_address(fields))
    if not isinstance(name, str):
        raise Refusal(f"invalid name: expected a string, found {shown(name)}")
    if not 0 < len(name) <= MAX_NAME_CHARS:
        raise Refusal(f"invalid name: it must have 1 to {MAX_NAME_CHARS} characters; give mailbox")
    return Who(None, name)


def _read(payload: bytes, known: Sequence[str]) -> tuple[bytes, dict[str, Any]]:
    """The body as it is to be kept, and its fields of these names."""
    body = payload.strip(b" \t\r\n")
    try:
        picked = json_select(body or b"{}", known, max_depth=MAX_DEPTH, unique=True)
    except ValueError as error:
        raise Refusal(str(error)) from None
    return body, parsed(picked)


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
    if isinstance(skills, list) and len(skills) > MAX_SKILLS:
        raise Refusal(f"there are {len(skills)} skills: at most {MAX_SKILLS} are allowed")
    given = 0
    for at, skill in enumerate(skills if isinstance(skills, list) else ()):
        if isinstance(skill, dict):
            tags = _strings(skill, "tags", f"skills[{at}].")
            given += len(tags)
            if given > _MAX_GIVEN_TAGS:
                raise Refusal(f"skills have more than {_MAX_GIVEN_TAGS} tags")
            found.update(dict.fromkeys(tags))
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
    if len(tags) > MAX_TAGS:
        raise Refusal(f"there are {len(tags)} {where}{name}: at most {MAX_TAGS} are allowed")
    for at, tag in enumerate(tags):
        if not isinstance(tag, str):
            raise Refusal(f"invalid {where}{name}[{at}]: expected a string, found {shown(tag)}")
        if len(tag) > MAX_TAG_CHARS:
            raise Refusal(f"{where}{name}[{at}] is too long: at most {MAX_TAG_CHARS} characters")
    return tags


def with_fields(body: bytes, fields: Sequence[str]) -> bytes:
    """The card with these fields only, each as it was written."""
    return json_select(body, fields, max_depth=MAX_DEPTH, unique=False)
