"""`mq9 mailbox`: create, list, show."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK
from mq9.cli.output import pairs, print_json, size, table, when

if TYPE_CHECKING:
    from mq9.client import Client, MailboxDetails, MailboxSummary

_POLICY_NUMBERS = {
    "ack-wait": "seconds a worker has before a message is given to another",
    "max-deliver": "deliveries before a message goes to the dead-letter mailbox",
    "max-ack-pending": "messages of a group that may be unacknowledged",
    "max-msgs": "messages it holds at most",
    "max-bytes": "bytes it holds at most",
    "max-age": "seconds it keeps a message",
    "max-msg-size": "bytes a message may have",
}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    mailbox = commands.add_parser("mailbox", help="create, list and show mailboxes")
    kinds = mailbox.add_subparsers(dest="kind", metavar="command", required=True)

    create = kinds.add_parser("create", help="create a mailbox and print its address")
    create.add_argument(
        "name", nargs="?", help="its address; without one the broker makes one up that is a secret"
    )
    create.add_argument("--ttl", type=int, metavar="SECONDS", help="how long it lives (0: forever)")
    create.add_argument("--desc", metavar="TEXT", help="what it is for")
    create.add_argument("--latest", action="store_true", help="keep the newest message only")
    create.add_argument("--public", action="store_true", help="let everyone find it in the list")
    create.add_argument(
        "--work-queue", action="store_true", help="remove messages once they are acknowledged"
    )
    create.add_argument(
        "--dead-letter", metavar="ADDRESS", help="where messages go that nobody could work on"
    )
    create.add_argument(
        "--discard", choices=("old", "new"), help="what a full mailbox does without"
    )
    for name, text in _POLICY_NUMBERS.items():
        create.add_argument(f"--{name}", type=int, metavar="N", help=text)
    create.add_argument(
        "--if-missing", action="store_true", help="do nothing if it is there already"
    )
    broker.add_options(create)
    create.set_defaults(run=lambda a: broker.run(_create, a), path="mailbox create")

    listing = kinds.add_parser("list", help="list mailboxes; needs an operator's permission")
    listing.add_argument("--public", action="store_true", help="those that everyone may find")
    broker.add_options(listing)
    listing.set_defaults(run=lambda a: broker.run(_list, a), path="mailbox list")

    show = kinds.add_parser("show", help="show a mailbox and its groups; for operators")
    show.add_argument("address", help="address of the mailbox")
    broker.add_options(show)
    show.set_defaults(run=lambda a: broker.run(_show, a), path="mailbox show")


async def _create(client: "Client", arguments: argparse.Namespace) -> int:
    numbers = {name.replace("-", "_") for name in _POLICY_NUMBERS}
    policy: dict[str, Any] = {name: getattr(arguments, name) for name in numbers}
    address = await client.create_mailbox(
        arguments.name,
        ttl=arguments.ttl,
        desc=arguments.desc,
        type="latest" if arguments.latest else None,
        public=arguments.public or None,
        retention="work_queue" if arguments.work_queue else None,
        dead_letter=arguments.dead_letter,
        discard=arguments.discard,
        exist_ok=arguments.if_missing,
        **policy,
    )
    if arguments.json:
        print_json({"mail_address": address})
    else:
        print(address)
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
    told |= {name.replace("_", " "): value for name, value in mailbox.policy.items() if value}
    pairs(told)
    if mailbox.groups:
        print()
        table(
            ("GROUP", "UNACKNOWLEDGED", "WAITING"),
            ((group.name, group.pending, group.lag) for group in mailbox.groups),
        )
    return OK


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
