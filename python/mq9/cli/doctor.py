"""`mq9 doctor`: what a data directory holds, what of it is damaged, what could be reclaimed.

Opens the directory as a broker does at its start, but changes nothing in it, then reads every
message. While a broker has it open, only names and sizes of files are looked at.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import OK, REFUSED, UNREACHABLE, USAGE, Failure
from mq9.cli.output import pairs, print_json, size

if TYPE_CHECKING:
    from mq9.store import Damage, Store

_PAGE = 1000
_PAGE_BYTES = 8 << 20
_REDRAW_S = 0.1
_BAR = 30


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser this command."""
    doctor = broker.add_local_command(
        *(commands, "doctor", _doctor),
        help="check a data directory",
        example="mq9 doctor data",
    )
    doctor.add_argument("directory", metavar="DIR", help="the broker's --data")


def _doctor(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.directory)
    report: dict[str, Any] = {"directory": str(folder), "in_use": False, **_files(folder)}
    from mq9 import errors
    from mq9.store import Store

    try:
        with Store(folder, read_only=True) as store:
            report |= _contents(store)
            report["damage"] = [_damage(damage) for damage in store.damage()]
    except errors.StoreLocked:
        report["in_use"] = True
    except errors.NewerFormat as error:
        raise Failure(f"{error}\nCheck it with that version.") from error
    except errors.StoreError as error:
        raise Failure(f"cannot open {folder}: {error}") from error
    if arguments.json:
        print_json(report)
    else:
        _print(report)
    if report["in_use"]:
        return UNREACHABLE
    return REFUSED if report["damage"] or report["files"]["set_aside"]["count"] else OK


def _files(folder: Path) -> dict[str, Any]:
    """Names and sizes; nothing is opened."""
    if not folder.is_dir():
        raise Failure(f"{folder} is no directory: name the one that `mq9 serve --data` has", USAGE)
    kinds = {"segments": "segment-*.log", "checkpoints": "checkpoint-*.mq9"}
    kinds["set_aside"] = "damaged-*"
    files = {
        name: {"count": len(found := list(folder.glob(pattern))), "bytes": sum(map(_size, found))}
        for name, pattern in kinds.items()
    }
    if not files["segments"]["count"] and not files["checkpoints"]["count"]:
        raise Failure(f"{folder} holds no data of mq9: there is no segment-*.log in it", USAGE)
    return {"files": files}


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _contents(store: "Store") -> dict[str, Any]:
    mailboxes = list(_mailboxes(store))
    total = sum(count for _, count in mailboxes)
    read = payload_bytes = 0
    progress = _Progress(total)
    for address, _ in mailboxes:
        after: int | None = None
        while batch := store.query(
            address, after_id=after, since_ms=0, limit=_PAGE, max_bytes=_PAGE_BYTES
        ):
            read += len(batch)
            payload_bytes += sum(len(message.payload) for message in batch)
            after = batch[-1].msg_id
            progress.show(read)
    progress.clear()
    info = store.info()
    return {
        "mailboxes": len(mailboxes),
        "messages": read,
        "payload_bytes": payload_bytes,
        "log_bytes": info.log_bytes,
        "live_bytes": info.live_bytes,
        "reclaimable_bytes": max(0, info.log_bytes - info.live_bytes),
    }


def _mailboxes(store: "Store") -> Iterator[tuple[str, int]]:
    start: int | None = 0
    while start is not None:
        page, start = store.mailboxes(start, _PAGE)
        yield from ((mailbox.address, mailbox.messages) for mailbox in page)


def _damage(damage: "Damage") -> dict[str, Any]:
    return {
        "kind": damage.kind,
        "file": damage.file,
        "offset": damage.offset,
        "bytes": damage.bytes,
        "mailbox": damage.mailbox,
        "msg_id": damage.msg_id,
        "messages": damage.messages,
        "text": damage.text,
    }


def _print(report: dict[str, Any]) -> None:
    files = report["files"]
    told: dict[str, object] = {"directory": report["directory"]}
    for name in ("segments", "checkpoints"):
        told[name] = f"{files[name]['count']} ({size(files[name]['bytes'])})"
    if not report["in_use"]:
        told["mailboxes"] = report["mailboxes"]
        told["messages"] = f"{report['messages']} ({size(report['payload_bytes'])} of payload)"
        told["damage"] = _places(len(report["damage"]))
        reclaimable = size(report["reclaimable_bytes"])
        log_bytes = size(report["log_bytes"])
        told["reclaimable"] = f"{reclaimable} of {log_bytes}, by itself while it runs"
    if count := files["set_aside"]["count"]:
        damaged = "1 damaged-* file" if count == 1 else f"{count} damaged-* files"
        amount = size(files["set_aside"]["bytes"])
        told["set aside"] = f"{damaged} ({amount}): move or remove what you have looked at"
    pairs(told)
    if report["in_use"]:
        print(
            "\nA broker has it open, so only its files were counted. Stop the broker to check it."
        )
    elif report["damage"]:
        print("\nDamaged (each costs the messages it lies in, all else is sound):")
        for damage in report["damage"]:
            print(f"  {damage['text']}")


def _places(count: int) -> str:
    return "none" if not count else "1 place" if count == 1 else f"{count} places"


class _Progress:
    """A bar on the standard error output, where that is a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = total > 0 and sys.stderr.isatty()
        self._next = 0.0

    def show(self, read: int) -> None:
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + _REDRAW_S
        share = min(1.0, read / self._total)
        bar = ("#" * round(_BAR * share)).ljust(_BAR, "-")
        sys.stderr.write(f"\r[{bar}] {share:4.0%}  {read:,} of {self._total:,} messages")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
