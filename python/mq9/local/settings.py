"""Settings of a queue: names, topics, lifetimes, and the environment's variables.

Owns what is allowed. Must not know files.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeGuard

from mq9.local.errors import TopicError

TOPICS = frozenset({"ask", "answer", "broadcast", "spawn-request", "status"})
"""Everything a message can be about. A new topic is a change of this line."""

EVERYONE = frozenset({None, "all", "broadcast"})
"""Recipients that mean every consumer."""

DEFAULT_BODY_THRESHOLD = 3584
"""Longer bodies, in bytes of UTF-8, go to a file of their own."""

LEVELS: Mapping[str, int] = MappingProxyType({"critical": 1, "urgent": 3, "normal": 5, "notify": 9})
"""The priorities that have names; 1 is the highest and 10 the lowest."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# The name of a file, with what is put around it, has at most 255 bytes.
_MAX_NAME = 200
_MAX_TTL_S = 10**12


def root_folder(root: str | os.PathLike[str] | None) -> Path:
    """Where the queue lies: the argument, `ZOS_MQ_ROOT`, or below `ZOS_HOME` (`~/.zos`)."""
    if root is not None:
        if not os.fspath(root):
            raise ValueError("root is empty: it must name a folder")
        chosen = Path(root)
    elif given := os.environ.get("ZOS_MQ_ROOT"):
        chosen = Path(given)
    else:
        chosen = Path(os.environ.get("ZOS_HOME") or "~/.zos") / "agent-mq"
    # A process that changes its folder keeps its queue.
    return chosen.expanduser().absolute()


def body_threshold() -> int:
    """`ZOS_MQ_BODY_THRESHOLD`, or the default."""
    written = os.environ.get("ZOS_MQ_BODY_THRESHOLD")
    if not written:
        return DEFAULT_BODY_THRESHOLD
    if not (written.isascii() and written.isdecimal() and len(written) < 16):
        raise ValueError(f"ZOS_MQ_BODY_THRESHOLD is {written!r}: it must be a number of bytes")
    return int(written)


def disabled() -> bool:
    """Whether the kill-switch is on."""
    return os.environ.get("ZOS_MQ_DISABLED") == "1"


def session_name(session: str | None) -> str:
    """A session's name: the argument, `ZOS_MQ_SESSION`, or `default`."""
    if session is None:
        session = os.environ.get("ZOS_MQ_SESSION") or "default"
    return checked_name("session", session)


def sender_name(sender: str | None) -> str:
    """A sender's name: the argument, `ZOS_MQ_AGENT_ID`, or `anonymous`."""
    if sender is None:
        sender = os.environ.get("ZOS_MQ_AGENT_ID") or "anonymous"
    return checked_name("sender", sender)


def is_name(text: object) -> TypeGuard[str]:
    """Whether this can be the name of a session or an agent."""
    return isinstance(text, str) and len(text) <= _MAX_NAME and bool(_NAME.fullmatch(text))


def checked_name(what: str, name: object) -> str:
    """A name that is safe as the name of a file."""
    if not isinstance(name, str) or not is_name(name):
        raise ValueError(
            f"{what} is {name!r}: a name has letters, digits, dots, dashes and underscores, begins "
            f"with a letter or digit, and has at most {_MAX_NAME} characters"
        )
    return name


def checked_topic(topic: object) -> str:
    """A topic out of the closed set."""
    if not isinstance(topic, str) or topic not in TOPICS:
        raise TopicError(f"topic is {topic!r}: it must be one of {', '.join(sorted(TOPICS))}")
    return topic


def checked_topics(topics: str | Iterable[str] | None) -> frozenset[str] | None:
    """The filter of a poll; None lets everything pass."""
    if topics is None:
        return None
    chosen = frozenset(map(checked_topic, [topics] if isinstance(topics, str) else topics))
    if not chosen:
        # It would consume everything and return nothing.
        raise TopicError("topics is empty: leave it out to poll for all topics")
    return chosen


def checked_ttl(ttl_s: object) -> int | float | None:
    """A lifetime in seconds; None is for ever."""
    if ttl_s is None:
        return None
    number = isinstance(ttl_s, int | float) and not isinstance(ttl_s, bool)
    if not (number and 0 <= ttl_s <= _MAX_TTL_S):  # type: ignore[operator]
        raise ValueError(f"ttl_s is {ttl_s!r}: it must be a number of seconds >= 0, or None")
    return ttl_s  # type: ignore[return-value]


def checked_level(priority: object) -> int | None:
    """A priority as its level from 1, the highest, to 10."""
    if priority is None:
        return None
    level = LEVELS.get(priority) if isinstance(priority, str) else priority
    if not isinstance(level, int) or isinstance(level, bool) or not 1 <= level <= 10:
        names = ", ".join(LEVELS)
        raise ValueError(f"priority is {priority!r}: it must be {names}, or a level from 1 to 10")
    return level
