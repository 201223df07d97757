"""Records what a real nats-server answers to the scripts: `python -m tests.conformance.record`.

Every script is played several times; an answer that differs from one time to the next does not
belong in a recording.
"""

import functools
import logging
import operator
import tempfile
from pathlib import Path

from tests.conformance.exchange import DATA, Exchange, Step, config_text, load, ordered, save
from tests.conformance.scripts_access import AUTHENTICATION, PERMISSIONS
from tests.conformance.scripts_protocol import CONNECTING, OTHER_COMMANDS, SUBSCRIBING
from tests.conformance.scripts_publishing import LIMITS, PUBLISHING, UNFINISHED
from tests.conformance.scripts_routing import ROUTING
from tests.conformance.scripts_tracing import TRACING
from tests.peers import NATS_SERVER, start
from tests.wire import Wire, comparable, without_info

RECORDING = DATA / "nats-wire-2.15.jsonl"
GIVEN = DATA / "nats-wire.jsonl"
TIMES = 2
QUIET_S = 0.1
# Where nothing at all comes; longer, for a machine that is busy.
SILENT_S = 1.0


def scripts() -> list[Exchange]:
    """All that is recorded, in order: the scripts of the older recording, then our own."""
    given = [
        Exchange(f"older: {exchange.name}", [Step(step.on, step.send) for step in exchange.steps])
        for exchange in load(GIVEN)
    ]
    own = [CONNECTING, OTHER_COMMANDS, SUBSCRIBING, PUBLISHING, LIMITS, UNFINISHED, ROUTING]
    return [
        *given,
        *functools.reduce(operator.iadd, own, []),
        *AUTHENTICATION,
        *PERMISSIONS,
        *TRACING,
    ]


def hear(wire: Wire) -> bytes:
    """All that the server has to say now."""
    return wire.until_quiet(QUIET_S) or wire.until_quiet(SILENT_S) + wire.until_quiet(QUIET_S)


def record(exchange: Exchange, port: int) -> Exchange:
    """The exchange with the answers of the server at `port`."""
    wires: dict[str, Wire] = {}
    steps = []
    for step in exchange.steps:
        wire = wires.get(step.on) or wires.setdefault(step.on, Wire(port))
        wire.send(step.send.encode("latin-1"))
        received = comparable(hear(wire))
        steps.append(Step(step.on, step.send, received.decode("latin-1"), wire.ended))
    unfinished = []
    for name, wire in wires.items():
        if not wire.ended:
            wire.send(b"PING\r\n")
            answer = without_info(hear(wire))
            if answer != b"PONG\r\n":
                unfinished.append(name)
        wire.finish()
    return Exchange(exchange.name, steps, exchange.config, exchange.any_order, unfinished)


def same(one: Exchange, other: Exchange) -> bool:
    return one.unfinished == other.unfinished and all(
        a.closed == b.closed
        and ordered(a.receive.encode("latin-1"), one.any_order)
        == ordered(b.receive.encode("latin-1"), one.any_order)
        for a, b in zip(one.steps, other.steps, strict=True)
    )


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    wanted = scripts()
    names = [exchange.name for exchange in wanted]
    assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}
    recorded: dict[str, Exchange] = {}
    for config in dict.fromkeys(exchange.config for exchange in wanted):
        with tempfile.TemporaryDirectory() as folder:
            server = start(Path(folder), config_text(config), peer=NATS_SERVER)
            try:
                for exchange in wanted:
                    if exchange.config == config:
                        takes = [record(exchange, server.port) for _ in range(TIMES)]
                        if not all(same(takes[0], take) for take in takes):
                            logging.warning("differs from time to time: %s", takes)
                        recorded[exchange.name] = takes[0]
            finally:
                server.stop()
    save(RECORDING, (recorded[name] for name in names))
    logging.info("%d exchanges in %s", len(recorded), RECORDING.name)


if __name__ == "__main__":
    main()
