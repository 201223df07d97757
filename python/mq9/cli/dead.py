"""`mq9 dead`: messages that nobody could work on, in the mailbox where they went."""

import argparse
import hashlib
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK, REFUSED, USAGE, Failure
from mq9.cli.output import entry, one_line, pairs, print_json, print_payload, table, when

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq9.client import Client, Message

_DEAD = "mq9-dead-"
_REPLAY_EVERY = 100
_HEADS = ("ID", "REASON", "FROM", "ORIGINAL", "GROUP", "TRIES", "DIED", "PAYLOAD")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    kinds = broker.add_family(
        *(commands, "dead"),
        help="look at dead letters and send them again",
        example="mq9 dead list tasks.dead",
    )

    listing = broker.add_command(
        *(kinds, "dead list", _list),
        help="list the dead letters in a mailbox, with the reason of each",
        example="mq9 dead list tasks.dead",
    )
    listing.add_argument("address", help="the mailbox that dead letters go to")
    listing.add_argument("-n", "--limit", type=int, metavar="N", help="only the newest N")

    show = broker.add_command(
        *(kinds, "dead show", _show),
        help="show one dead letter with all that is known of it",
        example="mq9 dead show tasks.dead 3",
    )
    show.add_argument("address", help="the mailbox that dead letters go to")
    show.add_argument("msg_id", metavar="ID", type=int, help="its number there")

    replay = broker.add_command(
        *(kinds, "dead replay", _replay),
        help="send dead letters back to where they came from, and remove them here",
        example="mq9 dead replay tasks.dead 3 4\nmq9 dead replay tasks.dead --all",
    )
    replay.add_argument("address", help="the mailbox that dead letters go to")
    replay.add_argument("msg_ids", metavar="ID", nargs="*", type=int, help="their numbers there")
    replay.add_argument("--all", action="store_true", help="every dead letter in the mailbox")


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    found = _dead(await client.query(arguments.address, limit=arguments.limit))
    if arguments.json:
        print_json([entry(message) for message in found])
    elif found:
        table(_HEADS, map(_row, found))
    else:
        print("no dead letters", file=sys.stderr)
    return OK if found else NOTHING


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    [message] = await _named(client, arguments.address, [arguments.msg_id])
    if arguments.json:
        print_json(entry(message))
        return OK
    told: dict[str, object] = {"id": message.msg_id, "died": when(message.create_time)}
    told |= {name.removeprefix(_DEAD): value for name, value in _about(message).items()}
    told |= {"priority": message.priority, "tags": ",".join(message.tags) or "-"}
    told |= {f"header {name}": value for name, value in _own_headers(message).items()}
    pairs(told)
    print()
    print_payload(message.payload)
    return OK


async def _replay(client: "Client", arguments: argparse.Namespace) -> int:
    if bool(arguments.msg_ids) == arguments.all:
        raise Failure("name the messages to replay, or --all", USAGE)
    if arguments.all:
        messages = _dead(await client.query(arguments.address))
    else:
        messages = await _named(client, arguments.address, arguments.msg_ids)
    replayed: list[dict[str, Any]] = []
    failed: list[str] = []
    for message in messages:
        await _replay_one(client, message, replayed, failed)
        if sys.stderr.isatty() and len(replayed) % _REPLAY_EVERY == 0:
            print(f"\r{len(replayed)} of {len(messages)}", end="", file=sys.stderr, flush=True)
    if arguments.json:
        print_json({"replayed": replayed, "failed": failed})
    elif replayed:
        print(f"replayed {len(replayed)}")
    elif not failed:
        print("no dead letters", file=sys.stderr)
    for problem in failed:
        print(f"mq9 dead replay: {problem}", file=sys.stderr)
    if failed:
        return REFUSED
    return OK if replayed else NOTHING


async def _replay_one(
    client: "Client", message: "Message", replayed: list[dict[str, Any]], failed: list[str]
) -> None:
    from mq9.errors import AccessDenied, MessageNotFound, Mq9Error

    try:
        try:
            msg_id = await client.replay_dead_letter(message.address, message.msg_id)
        except AccessDenied:
            # Who is no operator does what they may: if this ends between the two steps, the next
            # try does not send it again.
            msg_id = await _send_again(client, message)
            with suppress(MessageNotFound):
                await client.delete(message.address, message.msg_id)
    except Mq9Error as error:
        failed.append(f"message {message.msg_id}: {one_line(str(error).encode())}")
        return
    source = _about(message)[f"{_DEAD}mailbox"]
    replayed.append({"msg_id": message.msg_id, "to": source, "as": msg_id})


async def _send_again(client: "Client", message: "Message") -> int | None:
    about = _about(message)
    return await client.send(
        about[f"{_DEAD}mailbox"],
        message.payload,
        priority=message.priority,
        key=about.get(f"{_DEAD}key"),
        tags=message.tags,
        headers=_own_headers(message),
        id=_id_of_replay(message),
    )


def _id_of_replay(message: "Message") -> str:
    """The same for every sending of one letter, and for no other letter.

    The address and number alone are those of another letter as well, if the mailbox was removed and
    made again.
    """
    about = sorted(message.headers.items())
    content = repr((message.create_time, about, message.priority, message.tags, message.payload))
    place = f"{message.address}.{message.msg_id}"
    return f"replay.{place}.{hashlib.sha256(content.encode('utf-8', 'replace')).hexdigest()[:32]}"


async def _named(client: "Client", address: str, msg_ids: "Sequence[int]") -> "list[Message]":
    found: list[Message] = []
    for msg_id in msg_ids:
        after = msg_id - 1 if msg_id else None
        batch = await client.query(address, after_id=after, since=0, limit=1)
        if not batch or batch[0].msg_id != msg_id:
            raise Failure(f"message {msg_id} is not in {address}")
        if not _dead(batch):
            raise Failure(f"message {msg_id} is no dead letter: it does not say where it came from")
        found += batch
    return found


def _dead(messages: "Sequence[Message]") -> "list[Message]":
    return [message for message in messages if f"{_DEAD}mailbox" in message.headers]


def _about(message: "Message") -> dict[str, str]:
    return {name: value for name, value in message.headers.items() if name.startswith(_DEAD)}


def _own_headers(message: "Message") -> dict[str, str]:
    """What its sender gave it; the id of the first sending is not that of the next."""
    ours = (_DEAD, "mq9-id")
    return {name: value for name, value in message.headers.items() if not name.startswith(ours)}


def _row(message: "Message") -> tuple[object, ...]:
    about = _about(message)

    def told(name: str) -> str:
        return about.get(f"{_DEAD}{name}", "")

    return (
        message.msg_id,
        *(told(name) for name in ("reason", "mailbox", "msg-id", "group", "deliveries")),
        when(message.create_time),
        one_line(message.payload),
    )
