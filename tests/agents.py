"""Agents for tests: their cards, and what a broker finds of them."""

import json
import time
from collections.abc import Iterable, Sequence

from tests.mail import Json, Mail

# The faster model: which one it is makes no difference to these tests.
LIGHT = "mq9 { embedder: light }"

# A model has to be loaded, on a machine that may have other things to do.
MEANING_DEADLINE_S = 90.0


def card(address: str, **fields: object) -> Json:
    """A card."""
    return {"mailbox": address, **fields}


def register(mail: Mail, cards: Iterable[Json]) -> None:
    """Registers all, without waiting for each."""
    asked = [mail.begin("AGENT.REGISTER", each) for each in cards]
    for subject in asked:
        answer = mail.answer(subject, 60.0)
        assert answer == {"error": ""}, answer


def mailboxes(answer: Json) -> list[str]:
    """Who was found, in order."""
    return [agent["mailbox"] for agent in answer["agents"]]


def found(mail: Mail, **request: object) -> list[str]:
    """Who a DISCOVER that must succeed finds, in order."""
    return mailboxes(mail.done("AGENT.DISCOVER", request))


def settled(mail: Mail, **request: object) -> Json:
    """The answer to a DISCOVER once it has looked at every agent."""
    end = time.monotonic() + MEANING_DEADLINE_S
    while True:
        answer = mail.answer(mail.begin("AGENT.DISCOVER", request), 60.0)
        assert answer["error"] == "", answer
        if "pending" not in answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"{answer['pending']} agents are still not looked at")


def all_pages(mail: Mail, limit: int, **request: object) -> list[str]:
    """All pages of a search, one after the other."""
    pages: list[str] = []
    number = 1
    while page := found(mail, limit=limit, page=number, **request):
        pages += page
        number += 1
    return pages


def payload(fields: Sequence[tuple[str, str]]) -> bytes:
    """An object of fields as they are written, so that they can be wrong."""
    return b"{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in fields).encode() + b"}"
