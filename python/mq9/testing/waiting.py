"""Looks at mail and waits for it, without taking it from its readers.

Uses commands that move no group, over a client that is given. Knows nothing of processes.
"""

import asyncio
import time
from collections.abc import Callable

from mq9.client import Client, Message
from mq9.errors import MailboxNotFound

Predicate = Callable[[Message], object]

_LOOK_AGAIN_S = 0.01
_LONGEST_POLL_S = 1.0
_SHOWN = 5
_SHOWN_CHARACTERS = 60


class NotInTime(AssertionError):  # noqa: N818
    """What a test waited for did not happen; the text says what is there instead."""


async def mail(client: Client, address: str) -> list[Message]:
    """What a mailbox holds, oldest first; nobody else notices. A missing mailbox holds nothing."""
    try:
        return await client.query(address)
    except MailboxNotFound:
        return []


async def wait_for_mail(
    client: Client,
    address: str,
    *,
    count: int = 1,
    where: Predicate | None = None,
    timeout: float = 5.0,  # noqa: ASYNC109
) -> list[Message]:
    """Wait until a mailbox holds `count` messages that `where` likes, and return all of these.

    Messages stay where they are. The mailbox may be created meanwhile. `NotInTime` says what is
    there instead.
    """
    end = time.monotonic() + timeout

    def liked(messages: list[Message]) -> list[Message]:
        return [message for message in messages if where is None or where(message)]

    held = await mail(client, address)
    found, whole = liked(held), True
    while True:
        # What was counted as it came may have been replaced or removed since.
        if not whole and (len(found) >= count or time.monotonic() >= end):
            held = await mail(client, address)
            found, whole = liked(held), True
        if len(found) >= count:
            return found
        if (left_s := end - time.monotonic()) <= 0 and whole:
            wanted = "messages" if where is None else "messages like these"
            raise NotInTime(
                f"{address} has {len(found)} of {count} {wanted} after {timeout:g} s; {_told(held)}"
            )
        if await _arrived(client, address, held, min(max(left_s, 0), _LONGEST_POLL_S)):
            # Only what is new is read: to wait for thousands costs thousands.
            new = await _newer(client, address, held)
            held += new
            found += liked(new)
            whole = False
        else:
            held = await mail(client, address)
            found, whole = liked(held), True


async def wait_until_done(
    client: Client,
    address: str,
    group: str,
    *,
    timeout: float = 5.0,  # noqa: ASYNC109
) -> None:
    """Wait until a group has acknowledged all that its mailbox holds. Needs an operator.

    Delayed messages that are not due yet do not count. `NotInTime` says what is left.
    """
    end = time.monotonic() + timeout
    # The broker does not tell by itself that a group is done: it is asked again and again.
    while left := await _left(client, address, group):
        if time.monotonic() >= end:
            raise NotInTime(f"{address}, group {group}: {left} after {timeout:g} s")
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _left(client: Client, address: str, group: str) -> str:
    try:
        details = await client.show_mailbox(address)
    except MailboxNotFound:
        return "there is no such mailbox"
    for one in details.groups:
        if one.name == group:
            waiting, working = one.lag, one.pending
            break
    else:
        return "nobody has fetched for this group"
    if not waiting and not working:
        return ""
    return f"{waiting} not fetched and {working} not acknowledged"


async def _arrived(client: Client, address: str, held: list[Message], longest_s: float) -> bool:
    """Whether something new has come; waits for it up to `longest_s`."""
    try:
        return bool(
            await client.fetch(address, from_id=_last(held) + 1, max_msgs=1, max_wait=longest_s)
        )
    except MailboxNotFound:
        await asyncio.sleep(min(longest_s, _LOOK_AGAIN_S))
        return False


async def _newer(client: Client, address: str, held: list[Message]) -> list[Message]:
    if not held:
        return await mail(client, address)
    try:
        return await client.query(address, after_id=_last(held))
    except MailboxNotFound:
        return []


def _last(held: list[Message]) -> int:
    return held[-1].msg_id if held else -1


def _told(held: list[Message]) -> str:
    if not held:
        return "it holds nothing"
    shown = [
        f"{message.msg_id} ({message.priority}): {_shortened(message.payload)}"
        for message in held[-_SHOWN:]
    ]
    if (rest := len(held) - len(shown)) > 0:
        shown.insert(0, f"{rest} older ones")
    return "it holds\n  " + "\n  ".join(shown)


def _shortened(payload: bytes) -> str:
    text = payload.decode(errors="replace")
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")
