"""`mq9 agent`: the registry of agents."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK, USAGE, Failure
from mq9.cli.output import print_json, table

if TYPE_CHECKING:
    from mq9.client import Client


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    agent = commands.add_parser("agent", help="register agents and find them")
    kinds = agent.add_subparsers(dest="kind", metavar="command", required=True)

    register = kinds.add_parser("register", help="enter an agent's card, or replace it")
    _add_card(register, "the card: a JSON object with mailbox")
    register.set_defaults(run=_run_register, path="agent register")

    unregister = kinds.add_parser("unregister", help="take an agent out")
    unregister.add_argument("mailbox", help="the mailbox of its card")
    broker.add_options(unregister)
    unregister.set_defaults(run=lambda a: broker.run(_unregister, a), path="agent unregister")

    report = kinds.add_parser("report", help="say that an agent is alive, and what it does")
    _add_card(report, "its state: a JSON object with mailbox")
    report.set_defaults(run=_run_report, path="agent report")

    discover = kinds.add_parser("discover", help="find agents, best match first")
    discover.add_argument("text", nargs="?", help="words to look for; without any, all agents")
    discover.add_argument("--semantic", metavar="TEXT", help="look for a meaning, not for words")
    discover.add_argument("-n", "--limit", type=int, metavar="N", help="agents on a page (20)")
    discover.add_argument("--page", type=int, metavar="N", help="which page, from 1")
    broker.add_options(discover)
    discover.set_defaults(run=lambda a: broker.run(_discover, a), path="agent discover")


def _add_card(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("card", nargs="?", metavar="JSON", help=f"{text}; - reads the input")
    parser.add_argument("-f", "--file", metavar="FILE", help="read it from a file")
    broker.add_options(parser)


def _run_register(arguments: argparse.Namespace) -> int:
    card = _card(arguments)

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


async def _unregister(client: "Client", arguments: argparse.Namespace) -> int:
    await client.unregister(arguments.mailbox)
    return _say(arguments, "unregistered", arguments.mailbox)


async def _discover(client: "Client", arguments: argparse.Namespace) -> int:
    agents = await client.discover(
        arguments.text, semantic=arguments.semantic, limit=arguments.limit, page=arguments.page
    )
    if arguments.json:
        print_json(agents)
    elif not agents:
        print("no agents", file=sys.stderr)
    else:
        table(
            ("MAILBOX", "NAME", "DESCRIPTION"),
            (
                (agent.get("mailbox", ""), agent.get("name", ""), agent.get("description", ""))
                for agent in agents
            ),
        )
    return OK if agents else NOTHING


def _say(arguments: argparse.Namespace, what: str, mailbox: str) -> int:
    if arguments.json:
        print_json({what: mailbox})
    else:
        print(f"{what} {mailbox}")
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
