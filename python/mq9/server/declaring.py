"""Streams and consumers of the configuration: made at the start, and with a reload.

Owns in which order, and what the log says. What may be changed, the core knows; nothing is removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq9.server.running import Running


def declare(running: Running) -> None:
    """Make what is missing and change what differs; the log tells what could not be."""
    options, broker, log = running.options, running.broker, running.log
    if not options.jetstream:
        return
    for stream in options.streams:
        what = f"stream {stream.name}"
        outcome, why = broker.declare_stream(stream.config)
        if outcome == "refused":
            log.error(f"{stream.place}: {what} is not as declared: {why}")
        elif outcome != "unchanged":
            log.info(f"{what} was {outcome}")
    for consumer in options.consumers:
        what = f"consumer {consumer.name} of stream {consumer.stream}"
        outcome, why = broker.declare_consumer(consumer.stream, consumer.name, consumer.config)
        if outcome == "refused":
            log.error(f"{consumer.place}: {what} is not as declared: {why}")
        elif outcome != "unchanged":
            log.info(f"{what} was {outcome}")
