"""`mq9 completion`: scripts that let a shell complete commands, options and their values.

Made from the tree of parsers, so that it cannot know less than they do.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mq9.cli import broker
from mq9.cli.exits import OK

_FILES = {"FILE", "DIR"}


@dataclass(frozen=True)
class Word:
    """Something that can be written: a command, or an option."""

    text: str
    help: str
    choices: tuple[str, ...] = ()
    takes_file: bool = False
    takes_value: bool = False


@dataclass(frozen=True)
class Place:
    """What can follow a sequence of commands."""

    path: tuple[str, ...]
    commands: list[Word] = field(default_factory=list)
    options: list[Word] = field(default_factory=list)
    choices: tuple[str, ...] = ()
    """Values of its first argument."""


def add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    root: Callable[[], argparse.ArgumentParser],
) -> None:
    """Give the parser this command; `root` makes the tree to complete."""

    def run(arguments: argparse.Namespace) -> int:
        places = list(_places(root(), ()))
        write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]
        print("\n".join(write(places)))
        return OK

    completion = broker.add_local_command(
        *(commands, "completion", run),
        help="print a script that completes commands in a shell",
        example="source <(mq9 completion bash)",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))


def _places(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[Place]:
    if path == ("serve",):
        from mq9.config import add_flags

        add_flags(parser)
    place = Place(path)
    below: list[tuple[str, argparse.ArgumentParser]] = []
    choices: tuple[str, ...] = ()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            place.commands.extend(Word(name, helps.get(name, "")) for name in action.choices)
            below += action.choices.items()
        elif action.help != argparse.SUPPRESS:
            place.options.extend(_option(action, name) for name in action.option_strings)
            if not action.option_strings and action.choices:
                choices = tuple(map(str, action.choices))
    yield Place(path, place.commands, place.options, choices)
    for name, parser_below in below:
        yield from _places(parser_below, (*path, name))


def _option(action: argparse.Action, name: str) -> Word:
    return Word(
        name,
        (action.help or "").replace("%%", "%"),
        tuple(map(str, action.choices or ())),
        action.metavar in _FILES,
        action.nargs != 0,
    )


def _bash(places: list[Place]) -> Iterator[str]:
    yield "# bash completion of mq9. Load it with: source <(mq9 completion bash)"
    yield "_mq9() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    local place="" words="" i'
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield '        case "$place ${COMP_WORDS[i]}" in'
    yield f"            {_paths(places)}) place+=" + '" ${COMP_WORDS[i]}" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$place $before" in'
    for place in places:
        for option in place.options:
            at = f'"{_place(place)} {option.text}"'
            if option.choices:
                yield f"        {at}) words='{' '.join(option.choices)}' ;;"
            elif option.takes_file:
                yield f'        {at}) COMPREPLY=($(compgen -f -- "$current")); return ;;'
            elif option.takes_value:
                yield f"        {at}) return ;;"
    yield "    esac"
    yield '    [[ -n $words ]] || case "$place" in'
    for place in places:
        words = [*(w.text for w in (*place.commands, *place.options)), *place.choices]
        yield f"        \"{_place(place)}\") words='{' '.join(words)}' ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _mq9 mq9"


def _zsh(places: list[Place]) -> Iterator[str]:
    yield "#compdef mq9"
    yield "# zsh completion of mq9. Load it with: source <(mq9 completion zsh)"
    yield "_mq9() {"
    yield '    local place="" word'
    yield "    local -a found"
    yield "    for word in ${words[2,CURRENT-1]}; do"
    yield '        case "$place $word" in'
    yield f"            ({_paths(places)}) place+=" + '" $word" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$place ${words[CURRENT-1]}" in'
    for place in places:
        for option in place.options:
            at = f'("{_place(place)} {option.text}")'
            if option.choices:
                yield f"        {at} compadd -- {' '.join(option.choices)}; return ;;"
            elif option.takes_file:
                yield f"        {at} _files; return ;;"
            elif option.takes_value:
                yield f"        {at} return ;;"
    yield "    esac"
    yield '    case "$place" in'
    for place in places:
        words = [*place.commands, *place.options, *(Word(c, "") for c in place.choices)]
        listed = " ".join(_quoted(f"{w.text}:{w.help}") for w in words)
        yield f'        ("{_place(place)}") found=({listed}) ;;'
    yield "    esac"
    yield "    _describe mq9 found"
    yield "}"
    yield "compdef _mq9 mq9"


def _fish(places: list[Place]) -> Iterator[str]:
    yield "# fish completion of mq9. Load it with: mq9 completion fish | source"
    yield "function __mq9_at"
    yield "    set -l place"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        switch "$place $word"'
    paths = " ".join(f'"{_place(place)}"' for place in places if place.path)
    yield f"            case {paths}"
    yield '                set place "$place $word"'
    yield "        end"
    yield "    end"
    yield '    test "$place" = "$argv[1]"'
    yield "end"
    for place in places:
        at = f"complete -c mq9 -n '__mq9_at \"{_place(place)}\"'"
        for command in place.commands:
            yield f"{at} -f -a {command.text} -d {_quoted(command.help)}"
        if place.choices:
            yield f"{at} -f -a {_quoted(' '.join(place.choices))}"
        for option in place.options:
            name = option.text.lstrip("-")
            kind = "-l" if option.text.startswith("--") else "-s" if len(name) == 1 else "-o"
            line = f"{at} {kind} {name} -d {_quoted(option.help)}"
            if option.choices:
                line += f" -x -a {_quoted(' '.join(option.choices))}"
            elif option.takes_file:
                line += " -r -F"
            elif option.takes_value:
                line += " -x"
            yield line


def _place(place: Place) -> str:
    return "".join(f" {command}" for command in place.path)


def _paths(places: list[Place]) -> str:
    return "|".join(f'"{_place(place)}"' for place in places if place.path)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"
