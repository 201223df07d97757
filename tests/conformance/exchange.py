"""What a recorded exchange is, and how it is played to a server.

An exchange is a list of steps on named connections. A step sends bytes, and says which bytes come
back on the same connection and whether the server closes it.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.wire import Wire, comparable, cut, without_info

DATA = Path(__file__).parent / "data"

Send = Callable[[Wire, bytes], None]


@dataclass
class Step:
    """Bytes to send on a connection, and what comes back on it."""

    on: str
    send: str
    receive: str = ""
    closed: bool = False


@dataclass
class Exchange:
    """Steps, and the configuration of the server that they are for."""

    name: str
    steps: list[Step]
    config: str = ""
    # The order of deliveries to several subscriptions is not defined.
    any_order: bool = False
    # Ends inside a frame, where a PING would be taken for something else.
    unfinished: list[str] = field(default_factory=list)


def single(name: str, send: str, **options: Any) -> Exchange:  # noqa: ANN401
    """An exchange on one connection."""
    return Exchange(name, [Step("a", send)], **options)


def several(name: str, *steps: tuple[str, str], **options: Any) -> Exchange:  # noqa: ANN401
    """An exchange of (connection, bytes to send) on several connections."""
    return Exchange(name, [Step(on, send) for on, send in steps], **options)


def load(file: Path) -> list[Exchange]:
    """The exchanges of a file, of either form."""
    found = []
    for line in file.read_text("utf-8").splitlines():
        entry = json.loads(line)
        if "steps" in entry:
            steps = [Step(**step) for step in entry.pop("steps")]
        else:
            steps = [Step("a", entry.pop("send"), entry.pop("receive"), entry.pop("closed"))]
        found.append(Exchange(steps=steps, **entry))
    return found


def save(file: Path, exchanges: Iterable[Exchange]) -> None:
    """Writes exchanges, one to a line, without what has its default."""
    lines = []
    for exchange in exchanges:
        entry = {key: value for key, value in asdict(exchange).items() if value}
        lines.append(json.dumps(entry) + "\n")
    file.write_text("".join(lines), "utf-8")


def config_text(name: str) -> str:
    """The server configuration of that name; the empty name is a server without one."""
    return (DATA / f"{name}.conf").read_text("utf-8") if name else ""


def ordered(stream: bytes, any_order: bool) -> bytes:
    """The stream in a form in which equal means equal."""
    if not any_order:
        return stream
    complete, rest = cut(stream)
    return b"".join(sorted(complete)) + rest


def receive(wire: Wire, step: Step, form: Callable[[bytes], bytes]) -> bytes:
    """What the server sends, until it is as much as expected or the server closes."""
    if step.closed:
        return form(wire.until_closed())
    wanted = len(step.receive.encode("latin-1"))
    received = b""
    while len(form(received)) < wanted:
        frame = wire.frame()
        received += frame
        if not frame:
            break
    return form(received)


def play(
    exchange: Exchange,
    port: int,
    *,
    send: Send = Wire.send,
    form: Callable[[bytes], bytes] = comparable,
) -> None:
    """Plays an exchange and asserts that every byte is as recorded, and that no more comes."""
    wires: dict[str, Wire] = {}
    try:
        for number, step in enumerate(exchange.steps):
            wire = wires.get(step.on) or wires.setdefault(step.on, Wire(port))
            send(wire, step.send.encode("latin-1"))
            received = receive(wire, step, form)
            expected = step.receive.encode("latin-1")
            assert ordered(received, exchange.any_order) == ordered(expected, exchange.any_order), (
                f"step {number} on {step.on}, after sending {step.send!r:.300}"
            )
        closed = {step.on for step in exchange.steps if step.closed}
        for name, wire in wires.items():
            if name in closed:
                continue
            if name not in exchange.unfinished:
                wire.send(b"PING\r\n")
                assert without_info(wire.until(b"PONG\r\n")) == b"PONG\r\n", f"{name} at the end"
            # The server has forgotten the connection before the next exchange begins.
            assert without_info(wire.finish()) == b"", f"{name} after the end"
    finally:
        for wire in wires.values():
            wire.close()
