"""Many messages at once: requests go out without waiting for the replies of those before them."""

import asyncio
from collections.abc import Iterable

from nats.aio.msg import Msg

from mq9.client.message import NewMessage
from mq9.client.wire import Wire, answer_of
from mq9.errors import (
    AccessDenied,
    BrokerUnavailable,
    ClientClosed,
    Mq9Error,
    PartlySent,
    RequestTimeout,
)

_GONE = (AccessDenied, BrokerUnavailable, ClientClosed, RequestTimeout)


def stored_id(reply: list[Msg]) -> int | None:
    """The `msg_id` of a SEND's reply; None for a delayed message, which has none yet."""
    msg_id: int = answer_of(reply)["msg_id"]
    return None if msg_id < 0 else msg_id


async def send_all(
    wire: Wire,
    subject: str,
    messages: Iterable[NewMessage],
    *,
    window: int,
    timeout: float,
) -> list[int | None]:
    """Sends with at most `window` replies outstanding; raises `PartlySent` if any failed.

    Once the broker is gone the rest is not sent: what is stored has no gaps behind its end.
    """
    room = asyncio.Semaphore(window)
    under_way: list[asyncio.Future[list[Msg]] | Mq9Error] = []
    gone: BaseException | None = None

    def answered(reply: asyncio.Future[list[Msg]]) -> None:
        nonlocal gone
        room.release()
        if not reply.cancelled() and isinstance(error := reply.exception(), _GONE):
            gone = error

    for message in messages:
        await room.acquire()
        try:
            if gone is not None:
                raise BrokerUnavailable(f"not sent: {gone}")
            payload, headers = message.encoded()
            reply = await wire.start(subject, payload, headers, timeout=timeout)
        except Mq9Error as error:
            if isinstance(error, _GONE):
                gone = gone or error
            under_way.append(error)
            room.release()
        else:
            reply.add_done_callback(answered)
            under_way.append(reply)
    msg_ids: list[int | None] = []
    errors: dict[int, Mq9Error] = {}
    for index, reply_or_error in enumerate(under_way):
        msg_ids.append(None)
        try:
            if isinstance(reply_or_error, Mq9Error):
                raise reply_or_error
            msg_ids[index] = stored_id(await reply_or_error)
        except Mq9Error as error:
            errors[index] = error
    if errors:
        first = next(iter(errors))
        raise PartlySent(
            f"{len(errors)} of {len(msg_ids)} messages failed; "
            f"the first is number {first}: {errors[first]}",
            msg_ids,
            errors,
        )
    return msg_ids
