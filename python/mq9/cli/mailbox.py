"""`mq9 mailbox`: create, list, show, update, purge, delete."""

import argparse
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK, USAGE, Failure
from mq9.cli.output import pairs, print_json, size, table, visible, when

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mq9.client import Client, GroupDetails, GroupSummary, MailboxDetails, MailboxSummary

_POLICY_NUMBERS = {
    "ack-wait": "seconds a worker has before a message is given to another",
    "max-deliver": "deliveries before a message goes to the dead-letter mailbox",
    "max-ack-pending": "messages of a group that may be unacknowledged",
    "max-msgs": "messages it holds at most",
    "max-bytes": "bytes it holds at most",
    "max-age": "seconds it keeps a message",
    "max-msg-size": "bytes a message may have",
}
_SPANS = ("ack-wait", "max-age")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    kinds = broker.add_family(
        *(commands, "mailbox"),
        help="create, list, show, update, purge and delete mailboxes",
        example="mq9 mailbox create tasks",
    )
    create = broker.add_command(
        *(kinds, "mailbox create", _create),
        help="create a mailbox and print its address",
        example="mq9 mailbox create tasks --work-queue --max-deliver 3 --dead-letter tasks.dead",
    )
    create.add_argument(
        "name", nargs="?", help="its address; without one the broker makes one up that is a secret"
    )
    _add_policy(create)
    create.add_argument(
        "--if-missing", action="store_true", help="do nothing if it is there already"
    )
    create.add_argument(
        "--show-token", action="store_true", help="print its token too: whoever has it is its owner"
    )

    listing = broker.add_command(
        *(kinds, "mailbox list", _list),
        help="list mailboxes; for operators, or with --public for all",
        example="mq9 mailbox list --public",
    )
    listing.add_argument("--public", action="store_true", help="those that everyone may find")

    show = broker.add_command(
        *(kinds, "mailbox show", _show),
        help="show a mailbox and its groups; for operators",
        example="mq9 mailbox show tasks",
    )
    show.add_argument("address", help="address of the mailbox")

    update = broker.add_command(
        *(kinds, "mailbox update", _update),
        help="change the policy of a mailbox; what is not named stays as it is",
        example="mq9 mailbox update tasks --max-msgs 10000",
    )
    update.add_argument("address", help="address of the mailbox")
    _add_policy(update)
    add_mailbox_token(update)

    purge = broker.add_command(
        *(kinds, "mailbox purge", _purge),
        help="remove all messages of a mailbox; it stays, and so do its groups",
        example="mq9 mailbox purge tasks --yes",
    )
    delete = broker.add_command(
        *(kinds, "mailbox delete", _delete),
        help="remove a mailbox with all that is in it",
        example="mq9 mailbox delete tasks --yes",
        aliases=("remove",),
    )
    for parser in (purge, delete):
        parser.add_argument("address", help="address of the mailbox")
        parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
        add_mailbox_token(parser)


def add_mailbox_token(parser: argparse.ArgumentParser) -> None:
    """For what only the owner of a mailbox may do, and operators."""
    parser.add_argument(
        "--mailbox-token",
        metavar="TEXT",
        default=os.environ.get("MQ9_MAILBOX_TOKEN"),
        help="shows that the mailbox is yours; operators need none (default: $MQ9_MAILBOX_TOKEN)",
    )


def _add_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ttl", type=broker.span, metavar="SECONDS", help="how long it lives (0: forever)"
    )
    parser.add_argument("--desc", metavar="TEXT", help="what it is for")
    on_or_off = argparse.BooleanOptionalAction
    parser.add_argument("--latest", action=on_or_off, help="keep the newest message only")
    parser.add_argument("--public", action=on_or_off, help="let everyone find it in the list")
    parser.add_argument(
        "--work-queue", action=on_or_off, help="remove messages once they are acknowledged"
    )
    parser.add_argument(
        "--dead-letter", metavar="ADDRESS", help="where messages go that nobody could work on"
    )
    parser.add_argument(
        "--discard", choices=("old", "new"), help="what a full mailbox does without"
    )
    parser.add_argument(
        "--message-ttl",
        action="append",
        type=_priority_and_span,
        metavar="PRIORITY=SECONDS",
        help="life of messages of this priority that say nothing of it; may be repeated",
    )
    for name, text in _POLICY_NUMBERS.items():
        kind = broker.span if name in _SPANS else int
        parser.add_argument(f"--{name}", type=kind, metavar="N", help=text)


def _priority_and_span(written: str) -> tuple[str, int]:
    priority, _, seconds = written.partition("=")
    if not (priority and seconds.isascii() and seconds.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"expected a priority and seconds, such as urgent=3600, found {written!r}"
        )
    return priority, int(seconds)


def _policy(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the command line says of a mailbox; None where it says nothing."""

    def chosen(value: bool | None, yes: object, no: object) -> object:
        return None if value is None else yes if value else no

    numbers = {name.replace("-", "_") for name in _POLICY_NUMBERS}
    return {
        "ttl": arguments.ttl,
        "desc": arguments.desc,
        "type": chosen(arguments.latest, "latest", "standard"),
        "public": arguments.public,
        "retention": chosen(arguments.work_queue, "work_queue", "limits"),
        "dead_letter": arguments.dead_letter,
        "discard": arguments.discard,
        "message_ttls": dict(arguments.message_ttl) if arguments.message_ttl else None,
        **{name: getattr(arguments, name) for name in numbers},
    }


async def _create(client: "Client", arguments: argparse.Namespace) -> int:
    policy = _policy(arguments)
    if arguments.show_token:
        if arguments.if_missing:
            raise Failure("--show-token and --if-missing: only who creates is told a token", USAGE)
        address, token = await client.create_mailbox_and_token(arguments.name, **policy)
        if arguments.json:
            print_json({"mail_address": address, "token": token})
        else:
            pairs({"address": address, "token": token})
        return OK
    address = await client.create_mailbox(arguments.name, exist_ok=arguments.if_missing, **policy)
    if arguments.json:
        print_json({"mail_address": address})
    else:
        print(visible(address))
    return OK


async def _update(client: "Client", arguments: argparse.Namespace) -> int:
    policy = _policy(arguments)
    if all(value is None for value in policy.values()):
        raise Failure("nothing to change is named", USAGE)
    await client.update_mailbox(arguments.address, token=arguments.mailbox_token, **policy)
    return _say(arguments, "updated")


async def _purge(client: "Client", arguments: argparse.Namespace) -> int:
    _confirm(arguments, "Remove all messages of")
    count = await client.purge_mailbox(arguments.address, token=arguments.mailbox_token)
    if arguments.json:
        print_json({"purged": count})
    else:
        print(f"purged {count} messages of {visible(arguments.address)}")
    return OK


async def _delete(client: "Client", arguments: argparse.Namespace) -> int:
    _confirm(arguments, "Remove, with all its messages,")
    await client.remove_mailbox(arguments.address, token=arguments.mailbox_token)
    return _say(arguments, "deleted")


def _confirm(arguments: argparse.Namespace, what: str) -> None:
    """Asks a person; a script has to say --yes."""
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise Failure("say --yes if it is meant: it cannot be undone", USAGE)
    answer = input(f"{what} {visible(arguments.address)}? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure("nothing was changed")


def _say(arguments: argparse.Namespace, what: str) -> int:
    if arguments.json:
        print_json({what: arguments.address})
    else:
        print(f"{what} {visible(arguments.address)}")
    return OK


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    listing = client.list_public_mailboxes if arguments.public else client.list_mailboxes
    mailboxes = sorted(await listing(), key=lambda mailbox: mailbox.address)
    if arguments.json:
        print_json([_summary(mailbox) for mailbox in mailboxes])
    elif not mailboxes:
        print("no mailboxes")
    elif arguments.public:
        table(
            ("ADDRESS", "MESSAGES", "CREATED", "EXPIRES", "DESCRIPTION"),
            ((m.address, m.messages, when(m.created), when(m.expires), m.desc) for m in mailboxes),
        )
    else:
        table(
            ("ADDRESS", "MESSAGES", "SIZE", "GROUPS", "CREATED", "EXPIRES", "DESCRIPTION"),
            (
                (
                    *(m.address, m.messages, size(m.bytes), m.groups),
                    *(when(m.created), when(m.expires), m.desc),
                )
                for m in mailboxes
            ),
        )
    return OK if mailboxes else NOTHING


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    mailbox = await client.show_mailbox(arguments.address)
    if arguments.json:
        print_json(_details(mailbox))
        return OK
    told: dict[str, object] = {
        "address": mailbox.address,
        "description": mailbox.desc or "-",
        "created": when(mailbox.created),
        "expires": when(mailbox.expires),
        "messages": f"{mailbox.messages} ({size(mailbox.bytes)}), {mailbox.delayed} delayed",
        "next id": mailbox.next_id,
    }
    policy = dict(mailbox.policy)
    ttls = policy.pop("message_ttls", {})
    policy["message_ttls"] = ", ".join(f"{name} {seconds} s" for name, seconds in ttls.items())
    told |= {name.replace("_", " "): value for name, value in policy.items() if value}
    pairs(told)
    if mailbox.groups:
        print()
        print_groups(mailbox.groups)
    return OK


def print_groups(groups: "Iterable[GroupDetails | GroupSummary]") -> None:
    """Groups as a table."""
    columns = {"name": "GROUP", "pending": "UNACKNOWLEDGED", "lag": "WAITING"}
    rows = [asdict(group) for group in groups]
    known = [name for name in columns if name in rows[0]]
    table([columns[name] for name in known], ([row[name] for name in known] for row in rows))


def _summary(mailbox: "MailboxSummary") -> dict[str, Any]:
    fields = asdict(mailbox)
    return {"mail_address": fields.pop("address"), **fields, "expires": mailbox.expires or 0}


def _details(mailbox: "MailboxDetails") -> dict[str, Any]:
    return {
        "mail_address": mailbox.address,
        "desc": mailbox.desc,
        "created": mailbox.created,
        "expires": mailbox.expires or 0,
        "messages": mailbox.messages,
        "delayed": mailbox.delayed,
        "bytes": mailbox.bytes,
        "next_id": mailbox.next_id,
        "policy": dict(mailbox.policy),
        "groups": [asdict(group) for group in mailbox.groups],
    }
