"""Token budgets: a short line of each message or card, and bodies while tokens last.

Whoever sends decides how long a body, a header or a card is, so all of it counts. Tokens are
estimated, a little high for most texts: a model's own count is not known here.
"""

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mq9.client import Message

HEADLINE_CHARACTERS = 100
INBOX_TOKENS = 2000
_ASCII_PER_TOKEN = 4
_REPLY_TO = "mq9-reply-to"
_LONGEST_ADDRESS = 256
_NAME_CHARACTERS = 100
_SAID_BY_BROKER = {"mailbox", "address", "alive"}


def tokens(text: str) -> int:
    """About how many tokens a text takes: four ASCII characters, or one other, are one."""
    ascii_count = len(text.encode("ascii", "ignore"))
    return -(-ascii_count // _ASCII_PER_TOKEN) + len(text) - ascii_count


def cut(text: str, most_tokens: int) -> str:
    """The longest beginning of a text that takes at most so many tokens."""
    if tokens(text) <= most_tokens:
        return text
    low, high = 0, min(len(text), most_tokens * _ASCII_PER_TOKEN)
    text = text[:high]
    while low < high:
        middle = (low + high + 1) // 2
        if tokens(text[:middle]) <= most_tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def shortened(text: str, most_tokens: int) -> str:
    """A text that says so if it is cut."""
    short = cut(text, most_tokens)
    return short if len(short) == len(text) else f"{short}..."


def shown(messages: Iterable[Message], most_tokens: int) -> list[dict[str, Any]]:
    """Messages for a model: each has a headline, and a body as long as there are tokens for it.

    A body that does not fit is cut, and says so by `rest_from`; those after it have none. Keys,
    tags and headers that do not fit are named by `left_out`.
    """
    entries = []
    for message in messages:
        text = _text(message)
        entry, most_tokens = _about(message, most_tokens)
        size = tokens(text)
        entry["tokens"] = size
        if size <= most_tokens:
            entry["body"] = text
            most_tokens -= size
        else:
            entry["headline"] = _headline(text)
            if part := cut(text, most_tokens):
                entry["body"] = part
            entry["rest_from"] = len(part)
            most_tokens = 0
        entries.append(entry)
    return entries


def headlines(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Messages without bodies."""
    entries, left = [], INBOX_TOKENS
    for message in messages:
        text = _text(message)
        entry, left = _about(message, left)
        entries.append(entry | {"tokens": tokens(text), "headline": _headline(text)})
    return entries


def part(message: Message, start: int, most_tokens: int) -> dict[str, Any]:
    """One message from a character of its body on."""
    text = _text(message)
    entry, most_tokens = _about(message, most_tokens)
    body = cut(text[start:], most_tokens)
    entry |= {"tokens": tokens(text), "body": body}
    if start + len(body) < len(text):
        entry["rest_from"] = start + len(body)
    return entry


def cards(
    found: Sequence[tuple[str, Mapping[str, Any], bool | None]], most_tokens: int
) -> list[dict[str, Any]]:
    """Agents for a model, each an address, a card and whether it is alive.

    Each has its share of the tokens: a description that is longer is cut, other fields that do
    not fit are named by `left_out`.
    """
    return [
        _card(address, card, alive, most_tokens // len(found)) for address, card, alive in found
    ]


def _card(
    address: str, card: Mapping[str, Any], alive: bool | None, most_tokens: int
) -> dict[str, Any]:
    entry: dict[str, Any] = {"address": address[:_LONGEST_ADDRESS]}
    # A card says what it likes, but not where its agent is reached and whether it is alive.
    rest = {name: value for name, value in card.items() if name not in _SAID_BY_BROKER}
    if isinstance(name := rest.get("name"), str):
        entry["name"] = name[:_NAME_CHARACTERS]
        del rest["name"]
    if isinstance(text := rest.get("description"), str):
        entry["description"] = shortened(text, most_tokens)
        most_tokens -= tokens(entry["description"])
        del rest["description"]
    taken, _ = _fitting(rest, most_tokens)
    return entry | taken | {"alive": alive}


def _about(message: Message, most_tokens: int) -> tuple[dict[str, Any], int]:
    """What is known of a message besides its body, and the tokens that are left for that."""
    sent = datetime.datetime.fromtimestamp(message.create_time, datetime.UTC)
    entry: dict[str, Any] = {
        "msg_id": message.msg_id,
        "priority": message.priority,
        "sent": sent.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    entry |= {"deliveries": message.deliveries} if message.deliveries > 1 else {}
    headers = dict(message.headers)
    answer_to = headers.get(_REPLY_TO, "")
    # Without it nobody can answer: it is given whatever there is, as long as it can be an address.
    always = {_REPLY_TO: answer_to} if 0 < len(answer_to) <= _LONGEST_ADDRESS else {}
    wanted: dict[str, Any] = {}
    wanted |= {"key": message.key} if message.key else {}
    wanted |= {"tags": list(message.tags)} if message.tags else {}
    wanted |= {"headers": headers} if headers and headers != always else {}
    taken, most_tokens = _fitting(wanted, most_tokens)
    entry |= taken
    if always:
        entry.setdefault("headers", always)
    return entry, most_tokens


def _fitting(fields: Mapping[str, Any], most_tokens: int) -> tuple[dict[str, Any], int]:
    """The fields that fit, how many there are of the others, and the tokens that are left."""
    taken: dict[str, Any] = {}
    for name, value in fields.items():
        size = tokens(json.dumps({name: value}, ensure_ascii=False))
        if size <= most_tokens:
            taken[name] = value
            most_tokens -= size
    left_out = [name[:_NAME_CHARACTERS] for name in fields if name not in taken]
    if left_out:
        most = 10
        taken["left_out"] = left_out[:most] + (["..."] if len(left_out) > most else [])
    return taken, most_tokens


def _text(message: Message) -> str:
    try:
        return message.text
    except UnicodeDecodeError:
        return f"<{len(message.payload)} bytes that are not text>"


def _headline(text: str) -> str:
    line = text[: HEADLINE_CHARACTERS * 2].strip().partition("\n")[0]
    short = line[:HEADLINE_CHARACTERS]
    return short if len(text.strip()) <= len(short) else f"{short}..."
