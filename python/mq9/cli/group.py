"""`mq9 group`: the groups of a mailbox."""

import argparse
from typing import TYPE_CHECKING

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK
from mq9.cli.mailbox import add_mailbox_token, print_groups
from mq9.cli.output import print_json, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq9.client import Client, GroupDetails, GroupSummary


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    kinds = broker.add_family(
        *(commands, "group"),
        help="list and remove the groups of a mailbox",
        example="mq9 group list tasks",
    )

    listing = broker.add_command(
        *(kinds, "group list", _list),
        help="list the groups of a mailbox; what waits for each is told to operators",
        example="mq9 group list tasks",
    )
    listing.add_argument("address", help="address of the mailbox")
    add_mailbox_token(listing)

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

    groups: Sequence[GroupDetails | GroupSummary]
    if token := arguments.mailbox_token:
        groups = await client.groups(arguments.address, token=token)
    else:
        groups = (await client.show_mailbox(arguments.address)).groups
    if arguments.json:
        print_json([asdict(group) for group in groups])
    elif groups:
        print_groups(groups)
    else:
        print("no groups")
    return OK if groups else NOTHING


async def _remove(client: "Client", arguments: argparse.Namespace) -> int:
    await client.remove_group(arguments.address, arguments.group, token=arguments.mailbox_token)
    if arguments.json:
        print_json({"removed": arguments.group})
    else:
        print(f"removed {visible(arguments.group)}")
    return OK
