"""Payloads as JSON documents for a column of type JSONB, which takes nothing else."""

import base64
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """A payload as JSON, beside what it was."""

    text: str
    source: bytes


def as_document(payload: bytes) -> Document:
    """JSON stays as it is, text becomes a JSON string, the rest an object with its base64."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return Document(wrapped(payload), payload)
    if "\0" in text:
        return Document(wrapped(payload), payload)
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        text = json.dumps(text, ensure_ascii=False)
    return Document(text, payload)


def wrapped(payload: bytes) -> str:
    """An object that any payload fits in."""
    encoded = base64.b64encode(payload).decode()
    return json.dumps({"encoding": "base64", "payload": encoded})


def _refuse(name: str) -> None:
    raise ValueError(name)
