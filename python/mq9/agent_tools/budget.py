"""How much of a mailbox a model is shown: headlines of all messages, bodies while tokens last.

Tokens are estimated, a little high for most texts: a model's own count is not known here.
"""

import datetime
from collections.abc import Iterable
from typing import Any

from mq9.client import Message

HEADLINE_CHARACTERS = 100
_ASCII_PER_TOKEN = 4


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


def shown(messages: Iterable[Message], most_tokens: int) -> list[dict[str, Any]]:
    """Messages for a model: each has a headline, and a body as long as there are tokens for it.

    A body that does not fit is cut, and says so by `rest_from`; those after it have none.
    """
    entries = []
    for message in messages:
        text, entry = _text(message), _about(message)
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
    return [
        _about(message) | {"tokens": tokens(text), "headline": _headline(text)}
        for message in messages
        for text in (_text(message),)
    ]


def part(message: Message, start: int, most_tokens: int) -> dict[str, Any]:
    """One message from a character of its body on."""
    text = _text(message)
    body = cut(text[start:], most_tokens)
    entry = _about(message) | {"tokens": tokens(text), "body": body}
    if start + len(body) < len(text):
        entry["rest_from"] = start + len(body)
    return entry


def _about(message: Message) -> dict[str, Any]:
    sent = datetime.datetime.fromtimestamp(message.create_time, datetime.UTC)
    entry: dict[str, Any] = {
        "msg_id": message.msg_id,
        "priority": message.priority,
        "sent": sent.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    entry |= {"key": message.key} if message.key else {}
    entry |= {"tags": list(message.tags)} if message.tags else {}
    entry |= {"headers": dict(message.headers)} if message.headers else {}
    entry |= {"deliveries": message.deliveries} if message.deliveries > 1 else {}
    return entry


def _text(message: Message) -> str:
    try:
        return message.text
    except UnicodeDecodeError:
        return f"<{len(message.payload)} bytes that are not text>"


def _headline(text: str) -> str:
    line = text[: HEADLINE_CHARACTERS * 2].strip().partition("\n")[0]
    short = line[:HEADLINE_CHARACTERS]
    return short if len(text.strip()) <= len(short) else f"{short}..."
