"""Streams as queues: looking at their messages, and removing some.

Owns what is asked of the broker for that. It asks over the connection of the user, so the broker
decides who may.
"""

from typing import Any

from mq9.manage.link import Link
from mq9.manage.problems import Problem


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


async def delete_message(link: Link, name: str, number: int) -> None:
    """Remove one message."""
    await link.jetstream(f"STREAM.MSG.DELETE.{name}", {"seq": number})


async def purge(link: Link, name: str, expected: int | None) -> int:
    """Remove all messages that are there, if there are no more than expected; how many that were.

    What comes meanwhile stays.
    """
    state = (await link.jetstream(f"STREAM.INFO.{name}"))["state"]
    found = int(state["messages"])
    if expected is not None and found > expected:
        text = f"there are {found} messages by now, not {expected}"
        raise Problem(409, text, kind="more_messages", found=found)
    last = int(state["last_seq"])
    return int((await link.jetstream(f"STREAM.PURGE.{name}", {"seq": last + 1}))["purged"])
