"""`mq9 export`: what went through a broker, from its data directory to Parquet files.

Reads the directory without its lock: a broker may have it open.
"""

import argparse
import datetime
import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mq9.cli import broker
from mq9.cli.exits import OK, STOPPED, USAGE, Failure
from mq9.cli.output import pairs, print_json, size

if TYPE_CHECKING:
    from mq9._core import Export

_LOOK_S = 0.1
_DAY_MS = 86_400_000
_BAR = 30
_COUNTS = (
    *("messages", "events", "files", "file_bytes", "log_bytes"),
    *("gaps", "damaged_bytes", "untimed"),
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser this command."""
    export = broker.add_local_command(
        *(commands, "export", _export),
        help="write a data directory as Parquet files",
        example="mq9 export --data data --out lake",
    )
    export.add_argument("--data", required=True, metavar="DIR", help="the broker's --data")
    export.add_argument("--out", required=True, metavar="DIR", help="folder of the export")
    export.add_argument(
        "--since",
        metavar="TIME",
        help="leave out what is older: 2026-11-16, 2026-11-16T09:30, or Unix seconds; UTC",
    )
    export.add_argument("--follow", action="store_true", help="go on as the log grows")
    export.add_argument(
        "--every", type=float, default=10.0, metavar="SECONDS", help="how often, with --follow"
    )
    export.add_argument(
        "--payloads",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether payloads are written",
    )
    export.add_argument(
        "--keep-days", type=_days, metavar="DAYS", help="remove files of hours that are older"
    )


def _export(arguments: argparse.Namespace) -> int:
    data = Path(arguments.data)
    if not data.is_dir():
        raise Failure(f"{data} is no directory: name the one that `mq9 serve --data` has", USAGE)
    if not any(data.glob("segment-*.log")):
        raise Failure(f"{data} holds no data of mq9: there is no segment-*.log in it", USAGE)
    since_ms = None if arguments.since is None else _instant_ms(arguments.since)
    from mq9._core import Export
    from mq9.errors import StoreError

    # Both files of a piece at once: nobody waits for this process but its user.
    asked = {"payloads": arguments.payloads, "since_ms": since_ms, "at_once": True}
    try:
        export = Export(data, arguments.out, **asked)
    except (StoreError, OSError) as error:
        raise Failure(f"cannot export to {arguments.out}: {error}") from error
    out, status = Path(arguments.out), OK
    begun = told = _written(out)
    try:
        while True:
            _run(export)
            if arguments.keep_days is not None:
                now_ms = round(time.time() * 1000)
                export.forget(max(0, now_ms - arguments.keep_days * _DAY_MS))
            if not arguments.follow:
                break
            if arguments.json:
                told = _tell_more(out, told)
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        status = STOPPED
    finally:
        export.close()
    if arguments.follow and arguments.json:
        _tell_more(out, told)
    else:
        _tell(_difference(begun, _written(out)), arguments)
    return status


def _written(out: Path) -> dict[str, int]:
    """What the folder holds: of an interrupted run too, what was finished."""
    try:
        manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    except FileNotFoundError:
        return dict.fromkeys(_COUNTS, 0)
    messages, events = manifest["messages"], manifest["events"]
    return {
        "messages": messages["rows"],
        "events": events["rows"],
        "files": messages["files"] + events["files"],
        "file_bytes": messages["bytes"] + events["bytes"],
        **{name: manifest[name] for name in ("log_bytes", "gaps", "damaged_bytes", "untimed")},
    }


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in _COUNTS}


def _tell_more(out: Path, told: dict[str, int]) -> dict[str, int]:
    """One line of JSON, if there is anything new."""
    written = _written(out)
    if written != told:
        print_json(_difference(told, written))
    return written


def _run(export: "Export") -> None:
    """One run in a thread; a bar shows how far it is."""
    from mq9.errors import StoreError

    outcome: list[Exception] = []

    def work() -> None:
        try:
            export.run()
        except (StoreError, OSError) as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="export")
    thread.start()
    shown = sys.stderr.isatty()
    try:
        while thread.is_alive():
            thread.join(_LOOK_S)
            if shown:
                _show(*export.progress())
    except KeyboardInterrupt:
        export.stop()
        thread.join()
        raise
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
    if outcome:
        raise Failure(str(outcome[0])) from outcome[0]


def _show(done: int, ahead: int) -> None:
    share = min(1.0, done / ahead) if ahead else 0.0
    bar = ("#" * round(_BAR * share)).ljust(_BAR, "-")
    sys.stderr.write(f"\r[{bar}] {share:4.0%}  {size(done)} of {size(ahead)}")
    sys.stderr.flush()


def _tell(total: dict[str, int], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(total)
        return
    told: dict[str, object] = {
        "out": arguments.out,
        "messages": total["messages"],
        "events": total["events"],
        "files": f"{total['files']} ({size(total['file_bytes'])})",
        "log read": size(total["log_bytes"]),
    }
    if total["gaps"]:
        told["missing"] = (
            f"{total['gaps']} times a part of the log was gone before it could be exported"
        )
    if total["damaged_bytes"]:
        told["damaged"] = f"{size(total['damaged_bytes'])} that are no records"
    if total["untimed"]:
        told["untimed"] = f"{total['untimed']} records of an earlier mq9, which are no events"
    pairs(told)


def _days(written: str) -> int:
    days = int(written)
    if days < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return days


def _instant_ms(written: str) -> int:
    try:
        if written.isdecimal():
            return int(written) * 1000
        instant = datetime.datetime.fromisoformat(written)
    except ValueError as error:
        raise Failure(
            f"--since is {written!r}: it must be like 2026-11-16, 2026-11-16T09:30 or 1794821412",
            USAGE,
        ) from error
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=datetime.UTC)
    return round(instant.timestamp() * 1000)
