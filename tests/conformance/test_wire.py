"""Recorded exchanges hold to the byte, however their input is cut into pieces."""

from dataclasses import replace

import pytest
from tests.conformance.exchange import DATA, Exchange, Send, Step, config_text, load, play
from tests.conformance.record import RECORDING, scripts
from tests.peers import MQ9, NATS_SERVER, Serve, Server, chosen_peer
from tests.wire import Wire, without_info

GIVEN = load(DATA / "nats-wire.jsonl")
RECORDED = load(RECORDING)

# Where nats-server 2.15 answers otherwise than the older one that was recorded first, the newer
# one is followed. It also sends an INFO behind the first PONG, which is left out here and asserted
# to the byte by the newer recording.
NEWER = {"503": "HMSG r 1 38 38\r\nNATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n\r\nPONG\r\n"}

# Where mq9 answers otherwise on purpose: sizes go out as plain numbers, however they came; a line
# may end in more carriage returns than one, after PUB as after all others; and no line is endless,
# not even one that nothing is kept of. The answer, and whether the connection is closed.
DELIBERATE = {
    "pub leading zeros": ("MSG pd 1 2\r\nhi\r\nPONG\r\n", False),
    "pub zero as zeros": ("MSG pe 1 0\r\n\r\nPONG\r\n", False),
    "hpub leading zeros": (
        "HMSG he 1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\nPONG\r\n",
        False,
    ),
    "pub two carriage returns": ("MSG pg 1 2\r\nhi\r\nPONG\r\n", False),
    "control line, ping with a tail": ("-ERR 'maximum control line exceeded'\r\n", True),
}

# Scripts up to this size are cut at every position; of longer ones only the ends.
SHORT_BYTES = 600
ENDS_BYTES = 100


@pytest.fixture(scope="session")
def port_of(serve_for_session: Serve, server: Server) -> dict[str, int]:
    """The port of a server for each configuration that is used."""
    names = {exchange.config for exchange in RECORDED} - {""}
    servers = {name: serve_for_session(config_text(name)) for name in sorted(names)}
    return {"": server.port} | {name: each.port for name, each in servers.items()}


def named(exchanges: list[Exchange]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("exchange", exchanges, ids=[each.name for each in exchanges])


def newer(exchange: Exchange) -> Exchange:
    [step] = exchange.steps
    receive = NEWER.get(exchange.name, step.receive)
    return replace(exchange, steps=[replace(step, receive=receive)])


def ours(exchange: Exchange) -> Exchange:
    """The exchange as the server at hand is meant to answer it."""
    if chosen_peer() != MQ9:
        return exchange
    if exchange.name in DELIBERATE:
        [step] = exchange.steps
        receive, closed = DELIBERATE[exchange.name]
        return replace(exchange, steps=[replace(step, receive=receive, closed=closed)])
    return replace(exchange, steps=[without_second_info(step) for step in exchange.steps])


def without_second_info(step: Step) -> Step:
    """mq9 has no accounts to tell of after the first PONG."""
    receive = without_info(step.receive.encode("latin-1")).decode("latin-1")
    return replace(step, receive=receive)


def positions(size: int) -> list[int]:
    if size <= SHORT_BYTES:
        return list(range(1, size))
    return [*range(1, ENDS_BYTES), *range(size - ENDS_BYTES, size)]


def in_two_pieces(at: int) -> Send:
    def send(wire: Wire, data: bytes) -> None:
        wire.send(data[:at])
        wire.wait_read()
        wire.send(data[at:])

    return send


def byte_by_byte(wire: Wire, data: bytes) -> None:
    for at in range(len(data)):
        wire.send(data[at : at + 1])


@named(GIVEN)
def test_an_exchange_of_the_older_recording_holds(exchange: Exchange, server: Server) -> None:
    play(newer(exchange), server.port, form=without_info)


@named(GIVEN)
def test_a_cut_at_any_position_changes_nothing(exchange: Exchange, server: Server) -> None:
    exchange = newer(exchange)
    for at in positions(len(exchange.steps[0].send)):
        play(exchange, server.port, send=in_two_pieces(at), form=without_info)


@named(RECORDED)
def test_an_exchange_holds(exchange: Exchange, port_of: dict[str, int]) -> None:
    play(ours(exchange), port_of[exchange.config])


# nats-server may say this again for every piece; mq9 does not depend on the pieces.
REPEATED_BY_NATS_SERVER = "Invalid Publish Subject"


@named(RECORDED)
def test_bytes_one_by_one_change_nothing(exchange: Exchange, port_of: dict[str, int]) -> None:
    repeated = any(REPEATED_BY_NATS_SERVER in step.receive for step in exchange.steps)
    if repeated and chosen_peer() == NATS_SERVER:
        pytest.skip("nats-server may answer twice when this comes in pieces")
    play(ours(exchange), port_of[exchange.config], send=byte_by_byte)


def test_the_recording_is_of_the_scripts() -> None:
    def sent(exchange: Exchange) -> tuple[object, ...]:
        steps = [(step.on, step.send) for step in exchange.steps]
        return exchange.name, exchange.config, exchange.any_order, steps

    recorded = [sent(exchange) for exchange in RECORDED]
    assert recorded == [sent(exchange) for exchange in scripts()], (
        "record again: python -m tests.conformance.record"
    )
