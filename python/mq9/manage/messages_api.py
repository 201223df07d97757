"""Messages of queues over REST: looked at, sent, and removed, also with all of their queue.

Owns what is asked of mailboxes for that; of streams, `streams` does.
"""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from mq9.manage import models, streams
from mq9.manage.access import Person
from mq9.manage.asking import (
    PROBLEMS,
    Limit,
    Looker,
    Number,
    Preview,
    QueueName,
    Steerer,
    change,
    is_stream,
)
from mq9.manage.letter import payload_of, previewed
from mq9.manage.link import RefusedError
from mq9.manage.problems import Problem
from mq9.manage.rows import Kind

router = APIRouter(responses=PROBLEMS)
_HEADER = re.compile("[!-9;-~]{1,255}")


@router.get("/v1/queues/{name}/messages")
async def messages(
    request: Request,
    person: Looker,
    name: QueueName,
    limit: Limit = 50,
    after: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
    kind: Kind | None = None,
    *,
    delayed: bool = False,
    oldest: bool = False,
    preview: Preview = None,
) -> models.Messages:
    """Look at messages: the newest, the oldest, or those after one. Takes nothing."""
    if is_stream(request, name, kind):
        if delayed:
            raise Problem(422, "delayed messages of a stream cannot be looked at")
        page, more = await streams.messages(
            person.link, name, limit=limit, after=after, oldest=oldest
        )
        return models.Messages(messages=[previewed(each, preview) for each in page], more=more)
    fields: dict[str, Any] = {"limit": limit}
    if oldest:
        fields["since"] = 0
    if after is not None:
        fields["after_id"] = after
    if delayed:
        fields["delayed"] = True
    found = await person.link.request(f"MSG.QUERY.{name}", fields)
    shown = [previewed(entry, preview) for entry in found["messages"]]
    return models.Messages(messages=shown, more=found.get("more", False))


@router.get("/v1/queues/{name}/messages/{msg_id}")
async def message(
    request: Request,
    person: Looker,
    name: QueueName,
    msg_id: Number,
    kind: Kind | None = None,
    *,
    delayed: bool = False,
) -> dict[str, Any]:
    """One message, with all of its payload. Takes nothing."""
    if is_stream(request, name, kind):
        return await streams.message(person.link, name, msg_id)
    fields: dict[str, Any] = {"since": 0, "limit": 1}
    if msg_id:
        fields["after_id"] = msg_id - 1
    if delayed:
        fields["delayed"] = True
    found: list[dict[str, Any]] = (await person.link.request(f"MSG.QUERY.{name}", fields))[
        "messages"
    ]
    if not found or found[0]["msg_id"] != msg_id:
        raise Problem(404, f"there is no message {msg_id} in {name}", kind="message_not_found")
    return found[0]


@router.post("/v1/queues/{name}/messages", response_model_exclude_defaults=True)
async def send(
    request: Request,
    person: Steerer,
    name: QueueName,
    message: models.NewMessage,
    kind: Kind | None = None,
) -> models.Sent:
    """Send a message; to a stream, with a subject that it stores."""
    to_stream = is_stream(request, name, kind)
    if to_stream and not message.subject:
        raise Problem(422, "subject is missing: a message of a stream has one that it stores")
    if to_stream and (message.priority != "normal" or message.key or message.tags):
        text = "streams have no priority, key or tags here: send the header mq9-priority"
        raise Problem(422, text)
    if not to_stream and message.subject:
        raise Problem(422, f"{name} is a mailbox: its messages have no subject")
    headers = _headers(message, {} if to_stream else {"mq9-priority": message.priority})
    try:
        payload = payload_of({"payload": message.payload, "encoding": message.encoding})
    except (ValueError, UnicodeEncodeError):
        raise Problem(422, "the payload cannot be read") from None

    async def to_mailbox() -> models.Sent:
        sent = await person.link.request(f"MSG.SEND.{name}", payload=payload, headers=headers)
        return models.Sent(msg_id=sent["msg_id"])

    async def work() -> models.Sent:
        if not to_stream:
            return await to_mailbox()
        number, known = await streams.send(person.link, name, message.subject, payload, headers)
        return models.Sent(msg_id=number or -1, duplicate=known)

    target = f"{name}:{message.subject}" if to_stream else name
    return await change(request, person, "send", target, work)


def _headers(message: models.NewMessage, more: dict[str, str]) -> dict[str, str]:
    optional = {
        "mq9-key": message.key,
        "mq9-tags": ",".join(message.tags),
        "mq9-delay": str(message.delay_s or ""),
        "mq9-ttl": str(message.ttl_s or ""),
    }
    own = more | {key: value for key, value in optional.items() if value}
    headers = message.headers | own
    if any("\r" in value or "\n" in value for value in headers.values()):
        raise Problem(422, "a header cannot hold the end of a line")
    if wrong := [key for key in message.headers if not _HEADER.fullmatch(key)]:
        raise Problem(422, f"{wrong[0][:100]!r} cannot be the name of a header")
    return headers


@router.delete("/v1/queues/{name}/messages/{msg_id}")
async def delete_message(
    request: Request, person: Steerer, name: QueueName, msg_id: Number, kind: Kind | None = None
) -> models.Removed:
    """Delete one message."""
    of_stream = is_stream(request, name, kind)

    async def work() -> None:
        if of_stream:
            await streams.delete_message(person.link, name, msg_id)
        else:
            await person.link.request(f"MSG.DELETE.{name}.{msg_id}")

    await change(request, person, "delete message", f"{name}:{msg_id}", work)
    return models.Removed(removed=True)


@router.post("/v1/queues/{name}/purge")
async def purge(
    request: Request,
    person: Steerer,
    name: QueueName,
    given: models.Expected | None = None,
    kind: Kind | None = None,
) -> models.Purged:
    """Remove all messages of a queue; the queue, its groups and consumers stay."""
    expected = given.expected if given else None
    of_stream = is_stream(request, name, kind)

    async def work() -> int:
        if of_stream:
            return await streams.purge(person.link, name, expected)
        return int((await _go(person, "MAILBOX.PURGE", name, expected))["purged"])

    return models.Purged(purged=await change(request, person, "purge", name, work))


@router.delete("/v1/queues/{name}")
async def remove(
    request: Request,
    person: Steerer,
    name: QueueName,
    expected: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
    kind: Kind = "mailbox",
) -> models.Removed:
    """Remove a mailbox with all that is in it; with `kind`, a stream."""
    of_stream = is_stream(request, name, kind)

    async def work() -> None:
        if of_stream:
            await streams.remove(person.link, name, expected)
        else:
            await _go(person, "MAILBOX.REMOVE", name, expected)

    await change(request, person, "remove", name, work)
    return models.Removed(removed=True)


async def _go(person: Person, command: str, name: str, expected: int | None) -> dict[str, Any]:
    """Have the broker remove no more than the one who asks has seen."""
    try:
        return await person.link.request(f"{command}.{name}", {"expected": expected})
    except RefusedError as error:
        if error.kind != "more_messages":
            raise
        shown = (await person.link.request(f"ADMIN.MAILBOX.SHOW.{name}"))["mailbox"]
        found = shown["messages"] + shown["delayed"]
        raise Problem(409, str(error), kind=error.kind, found=found) from None
