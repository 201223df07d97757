"""Streams as queues: looking at their messages, sending and removing some, removing all of it.

Owns what is asked of the broker for that. It asks over the connection of the user, so the broker
decides who may.
"""

from typing import Any

from mq9.manage.link import Link, RefusedError
from mq9.manage.problems import Problem

_BEHIND_ALL = 2**62


async def config(link: Link, name: str) -> dict[str, Any]:
    """Its subjects, its retention, and what of it the broker's own configuration has.

    Empty if the broker is an older one, or the user may not look into streams.
    """
    fields = {"first": _BEHIND_ALL, "limit": 1, "config": True}
    try:
        told = await link.request(f"ADMIN.STREAM.QUERY.{name}", fields)
    except RefusedError:
        return {}
    found: dict[str, Any] = told.get("config") or {}
    return found


async def messages(
    link: Link, name: str, *, limit: int, after: int | None, oldest: bool
) -> tuple[list[dict[str, Any]], bool]:
    """The newest, the oldest, or those after one; and whether some had no room in the reply."""
    fields: dict[str, Any] = {"limit": limit}
    if after is not None:
        fields["first"] = after + 1
    elif not oldest:
        fields["newest"] = True
    told = await link.request(f"ADMIN.STREAM.QUERY.{name}", fields)
    return told["messages"], told["next"] is not None and len(told["messages"]) < limit


async def message(link: Link, name: str, number: int) -> dict[str, Any]:
    """One message, with all of its payload."""
    fields = {"first": number, "before": number + 1, "limit": 1}
    found: list[dict[str, Any]] = (await link.request(f"ADMIN.STREAM.QUERY.{name}", fields))[
        "messages"
    ]
    if not found:
        raise Problem(404, f"there is no message {number} in {name}", kind="message_not_found")
    return found[0]


async def send(
    link: Link, name: str, subject: str, payload: bytes, headers: dict[str, str]
) -> tuple[int, bool]:
    """Store a message in this stream: its number, 0 for a delayed one, and whether it was there
    already."""
    told = (await link.jetstream(f"STREAM.INFO.{name}"))["config"]
    subjects = told.get("subjects") or []
    if not any(_takes(each, subject) for each in subjects):
        text = f"stream {name} does not store the subject {subject}: it stores {_listed(subjects)}"
        raise Problem(422, text, kind="wrong_subject")
    if told.get("no_ack"):
        text = f"stream {name} answers nobody (no_ack), so it cannot be told what becomes of this"
        raise Problem(422, text)
    ack = await link.publish(subject, payload, headers)
    if ack.get("stream") != name:
        # It gave the subject away between both requests.
        raise Problem(409, f"stream {ack.get('stream')} has this subject by now, and the message")
    return int(ack["seq"]), bool(ack.get("duplicate"))


async def delete_message(link: Link, name: str, number: int) -> None:
    """Remove one message."""
    await link.jetstream(f"STREAM.MSG.DELETE.{name}", {"seq": number})


async def purge(link: Link, name: str, expected: int | None) -> int:
    """Remove all messages that are there, if there are no more than expected; how many that were.

    What comes meanwhile stays.
    """
    state = (await link.jetstream(f"STREAM.INFO.{name}"))["state"]
    _check(int(state["messages"]), expected)
    last = int(state["last_seq"])
    return int((await link.jetstream(f"STREAM.PURGE.{name}", {"seq": last + 1}))["purged"])


async def remove(link: Link, name: str, expected: int | None) -> None:
    """Remove a stream with all that is in it, if there are no more messages than expected."""
    if expected is not None:
        state = (await link.jetstream(f"STREAM.INFO.{name}"))["state"]
        _check(int(state["messages"]) + int(state.get("num_delayed", 0)), expected)
    await link.jetstream(f"STREAM.DELETE.{name}")


async def remove_consumer(link: Link, name: str, consumer: str) -> None:
    """Remove a consumer; its stream stays."""
    await link.jetstream(f"CONSUMER.DELETE.{name}.{consumer}")


def _check(found: int, expected: int | None) -> None:
    if expected is not None and found > expected:
        text = f"there are {found} messages by now, not {expected}"
        raise Problem(409, text, kind="more_messages", found=found)


def _takes(pattern: str, subject: str) -> bool:
    """Whether a subject of a stream, which may have wildcards, covers that of a message."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if "" in tokens:
        return False
    if wanted[-1] == ">" and len(tokens) >= len(wanted):
        wanted.pop()
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(
        one in ("*", other) for one, other in zip(wanted, tokens, strict=True)
    )


def _listed(subjects: list[str]) -> str:
    more = len(subjects) - 5
    return ", ".join(subjects[:5]) + (f" and {more} more" if more > 0 else "") or "none"
