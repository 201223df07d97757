"""`mq9 group`: the groups of a mailbox."""

import argparse
from typing import TYPE_CHECKING

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK
from mq9.cli.mailbox import add_mailbox_token, print_groups
from mq9.cli.output import print_json, visible

if TYPE_CHECKING:
    from mq9.client import Client


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    kinds = broker.add_family(
        *(commands, "group"),
        help="list and remove the groups of a mailbox",
        example="mq9 group list tasks",
    )

    listing = broker.add_command(
        *(kinds, "group list", _list),
        help="list the groups of a mailbox; for operators",
        example="mq9 group list tasks",
    )
    listing.add_argument("address", help="address of the mailbox")

    remove = broker.add_command(
        *(kinds, "group remove", _remove),
        help="remove a group: its place is forgotten, the messages stay",
        example="mq9 group remove tasks workers",
    )
    remove.add_argument("address", help="address of the mailbox")
    remove.add_argument("group", help="name of the group")
    add_mailbox_token(remove)


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    mailbox = await client.show_mailbox(arguments.address)
    if arguments.json:
        print_json([asdict(group) for group in mailbox.groups])
    elif mailbox.groups:
        print_groups(mailbox.groups)
    else:
        print("no groups")
    return OK if mailbox.groups else NOTHING


async def _remove(client: "Client", arguments: argparse.Namespace) -> int:
    await client.remove_group(arguments.address, arguments.group, token=arguments.mailbox_token)
    if arguments.json:
        print_json({"removed": arguments.group})
    else:
        print(f"removed {visible(arguments.group)}")
    return OK
