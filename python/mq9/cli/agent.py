"""`mq9 agent`: the registry of agents."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.agent_import import read_a2a_card
from mq9.cli.exits import NOTHING, OK, USAGE, Failure
from mq9.cli.output import one_line, print_json, table, visible, when

if TYPE_CHECKING:
    from mq9.client import AgentPage, Client

_MAX_NAME = 40


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    kinds = broker.add_family(
        *(commands, "agent"),
        help="register agents and find them",
        example="mq9 agent list",
    )

    register = broker.add_command(
        *(kinds, "agent register", _run_register),
        help="enter an agent's card, or replace it",
        example='mq9 agent register \'{"mailbox": "agent.tongue", "name": "Tongue"}\'',
        connects=False,
    )
    _add_card(register, "the card: a JSON object with mailbox")

    listing = broker.add_command(
        *(kinds, "agent list", _find),
        help="list agents, newest last",
        example="mq9 agent list --alive",
    )
    _add_filters(listing)
    listing.set_defaults(text=None, semantic=None)

    find = broker.add_command(
        *(kinds, "agent find", _find),
        help="find agents, best match first",
        example='mq9 agent find "translate contracts"\n'
        'mq9 agent find --semantic "who can read Spanish?"',
        aliases=("discover",),
    )
    find.add_argument(
        "text", nargs="?", help='words to look for; "a phrase" and the beginning of a word* work'
    )
    find.add_argument("--semantic", metavar="TEXT", help="look for a meaning, not for words")
    _add_filters(find)

    report = broker.add_command(
        *(kinds, "agent report", _run_report),
        help="say that an agent is alive, and what it does",
        example='mq9 agent report \'{"mailbox": "agent.tongue", "load": 0.5}\'',
        connects=False,
    )
    _add_card(report, "its state: a JSON object with mailbox")

    remove = broker.add_command(
        *(kinds, "agent remove", _remove),
        help="take an agent out of the registry",
        example="mq9 agent remove agent.tongue",
        aliases=("unregister",),
    )
    remove.add_argument("mailbox", help="the mailbox of its card")

    importing = broker.add_command(
        *(kinds, "agent import", _run_import),
        help="register an agent by its A2A card",
        example="mq9 agent import card.json --mailbox agent.tongue",
        connects=False,
    )
    importing.add_argument("source", metavar="URL|FILE", help="where the card, or the agent, is")
    importing.add_argument(
        "--mailbox", metavar="ADDRESS", help="where it is reached here, if its card does not say"
    )
    importing.add_argument(
        "--ttl", type=int, metavar="SECONDS", help="how long it stays without a report"
    )


def _add_card(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("card", nargs="?", metavar="JSON", help=f"{text}; - reads the input")
    parser.add_argument("-f", "--file", metavar="FILE", help="read it from a file")


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="with this tag; can be repeated"
    )
    parser.add_argument("--alive", action="store_true", help="heard of lately")
    parser.add_argument("-n", "--limit", type=int, metavar="N", help="agents on a page (20)")
    parser.add_argument("--page", type=int, metavar="N", help="which page, from 1")


def _run_register(arguments: argparse.Namespace) -> int:
    return _register(arguments, _card(arguments))


def _run_import(arguments: argparse.Namespace) -> int:
    card = read_a2a_card(arguments.source, arguments.timeout)
    if arguments.mailbox:
        card["mailbox"] = arguments.mailbox
    if arguments.ttl is not None:
        card["ttl"] = arguments.ttl
    if not card.get("mailbox"):
        raise Failure("the card has no mailbox: say with --mailbox where it is reached", USAGE)
    return _register(arguments, card)


def _register(arguments: argparse.Namespace, card: dict[str, Any]) -> int:
    async def register(client: "Client", arguments: argparse.Namespace) -> int:
        await client.register(card)
        return _say(arguments, "registered", str(card["mailbox"]))

    return broker.run(register, arguments)


def _run_report(arguments: argparse.Namespace) -> int:
    card = _card(arguments)

    async def report(client: "Client", arguments: argparse.Namespace) -> int:
        await client.report(card)
        return _say(arguments, "reported", str(card["mailbox"]))

    return broker.run(report, arguments)


async def _remove(client: "Client", arguments: argparse.Namespace) -> int:
    await client.unregister(arguments.mailbox)
    return _say(arguments, "removed", arguments.mailbox)


async def _find(client: "Client", arguments: argparse.Namespace) -> int:
    found = await client.discover_page(
        arguments.text,
        semantic=arguments.semantic,
        tags=arguments.tag,
        alive=arguments.alive,
        limit=arguments.limit,
        page=arguments.page,
        status=not arguments.json,
    )
    if arguments.json:
        print_json(found.cards)
    elif not found.cards:
        print("no agents", file=sys.stderr)
    else:
        _print(found)
    if found.pending:
        print(f"{found.pending} agents were not looked at yet: ask again later", file=sys.stderr)
    return OK if found.cards else NOTHING


def _print(found: "AgentPage") -> None:
    table(
        ("NAME", "MAILBOX", "LAST SEEN", "ALIVE", "TAGS"),
        (
            (
                _short(card.get("name", "")),
                card["mailbox"],
                when(status.last_seen),
                "yes" if status.alive else "no",
                ",".join(map(_text, card.get("tags") or ())),
            )
            for card, status in zip(found.cards, found.statuses, strict=True)
        ),
    )
    if found.total > len(found.cards):
        print(f"{len(found.cards)} of {found.total} agents; --page and --limit show others")


def _text(value: object) -> str:
    # A card is somebody else's: nothing in it may move the cursor.
    return one_line(str(value).encode(errors="replace"))


def _short(name: object) -> str:
    text = _text(name)
    return text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1]}…"


def _say(arguments: argparse.Namespace, what: str, mailbox: str) -> int:
    if arguments.json:
        print_json({what: mailbox})
    else:
        print(f"{what} {visible(mailbox)}")
    return OK


def _card(arguments: argparse.Namespace) -> dict[str, Any]:
    if (arguments.card is None) == (arguments.file is None):
        raise Failure("give the JSON as an argument, or - for the input, or --file", USAGE)
    try:
        if arguments.file is not None:
            text = Path(arguments.file).read_text("utf-8")
        else:
            text = sys.stdin.read() if arguments.card == "-" else arguments.card
        card = json.loads(text)
    except OSError as error:
        raise Failure(f"cannot read {arguments.file}: {error.strerror}", USAGE) from error
    except ValueError as error:
        raise Failure(f"this is no JSON: {error}", USAGE) from error
    if not isinstance(card, dict) or not card.get("mailbox"):
        raise Failure('expected a JSON object with "mailbox", the address of the agent', USAGE)
    return card
