"""The tree of commands: what can be written on the command line."""

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from mq9 import __version__
from mq9.cli import (
    agent,
    broker,
    cluster,
    completion,
    dead,
    doctor,
    export,
    group,
    lake,
    local,
    mailbox,
    manage,
    mcp,
    messages,
    plain,
    push,
    status,
    tail,
    traces,
)
from mq9.cli.exits import OK

_END = f"""\
{
    broker.examples('''mq9 serve
mq9 mailbox create tasks
mq9 send tasks "water the plants"
mq9 fetch tasks --group workers --deliver earliest --ack''')
}

exit codes: 0 done; 1 refused by the broker, or damage found; 2 wrong command line;
3 no broker there, or it does not let you in; 4 no answer in time; 5 nothing to show;
130 interrupted"""

_TEXT = f"mq9 {__version__}"


class Parser(argparse.ArgumentParser):
    """A parser that guesses what was meant."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        what = "command" if isinstance(action, argparse._SubParsersAction) else "value"
        raise argparse.ArgumentError(
            None if what == "command" else action,
            f"there is no {what} {value!r}{_guess(str(value), known)}",
        )

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments; words that nobody knows are an error of the command they stand behind."""
        if not arguments:
            self.exit(2, self.format_help())
        parsed, rest = self.parse_known_args(arguments)
        if rest:
            inner: argparse.ArgumentParser = getattr(parsed, "parser", self)
            options = [name for name in inner._option_string_actions if name.startswith("--")]
            guess = _guess(rest[0], options) if rest[0].startswith("-") else ""
            inner.error(f"unrecognized arguments: {' '.join(rest)}{guess}")
        return broker.with_defaults(parsed)

    def error(self, message: str) -> NoReturn:
        """Says what is wrong and where help is, not all that could have been written."""
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` says what can be written.\n")


def parser() -> Parser:
    """All commands."""
    root = Parser(
        prog="mq9",
        usage="mq9 [options] command ...",
        description="Durable priority mailboxes for agents, over the NATS protocol.",
        epilog=_END,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # What people try first on any command.
    root.add_argument("--version", action="version", version=_TEXT, help="like `mq9 version`")
    broker.add_options(root)
    root.set_defaults(path="")
    commands: Any = root.add_subparsers(
        dest="command", metavar="command", required=True, prog="mq9"
    )
    commands.add_parser("serve", help="start the broker; `mq9 serve --help` lists its flags")
    for part in (
        mailbox,
        messages,
        push,
        tail,
        group,
        dead,
        agent,
        status,
        plain,
        local,
        doctor,
        export,
        lake,
        manage,
        traces,
        cluster,
        mcp,
    ):
        part.add(commands)
    completion.add(commands, parser)
    broker.add_local_command(
        *(commands, "version", _version),
        help="print the version and exit",
        example="mq9 version --json",
    )
    return root


def _guess(written: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(written, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _version(arguments: argparse.Namespace) -> int:
    from mq9.cli.output import print_json

    if arguments.json:
        print_json({"version": __version__})
    else:
        print(_TEXT)
    return OK
