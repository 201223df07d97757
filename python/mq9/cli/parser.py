"""The tree of commands: what can be written on the command line."""

import argparse

from mq9 import __version__
from mq9.cli import agent, completion, doctor, export, local, mailbox, messages, tail
from mq9.cli.exits import OK

_EXITS = """\
exit codes: 0 done; 1 refused by the broker, or damage found; 2 wrong command line;
3 no broker there, or it does not let you in; 4 no answer in time; 5 nothing to show;
130 interrupted"""

_TEXT = f"mq9 {__version__}"


def parser() -> argparse.ArgumentParser:
    """All commands."""
    root = argparse.ArgumentParser(
        prog="mq9",
        description="Durable priority mailboxes for agents, over the NATS protocol.",
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # What people try first on any command.
    root.add_argument("--version", action="version", version=_TEXT, help="like `mq9 version`")
    root.set_defaults(path="")
    commands = root.add_subparsers(dest="command", metavar="command", required=True)
    commands.add_parser("serve", help="start the broker; `mq9 serve --help` lists its flags")
    mailbox.add(commands)
    messages.add(commands)
    tail.add(commands)
    agent.add(commands)
    doctor.add(commands)
    export.add(commands)
    local.add(commands)
    completion.add(commands, parser)
    version = commands.add_parser("version", help="print the version and exit")
    version.add_argument("--json", action="store_true", help="print JSON")
    version.set_defaults(run=_version, path="version")
    return root


def _version(arguments: argparse.Namespace) -> int:
    from mq9.cli.output import print_json

    if arguments.json:
        print_json({"version": __version__})
    else:
        print(_TEXT)
    return OK
