"""Spans of messages that carry a `traceparent`: sent, delivered, acknowledged.

Owns which spans there are and what they are called. Their ids follow from where the records lie in
the log, so a span that is exported twice is the same span. Knows neither files nor the network.
"""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

MAX_OPEN = 200_000
"""Messages that something may still happen to; of more, the oldest are forgotten."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_KINDS = {"deliver", "redeliver", "ack", "nak", "dead_letter"}
_END = {"expire", "delete"}
_MS = 1_000_000


@dataclass(slots=True)
class _Message:
    """A message that has a trace."""

    trace: str
    sent: str
    """The span of its sending."""
    given: dict[str, tuple[str, int]]
    """By group, the span of its last delivery, and when that was in ms."""


class Spans:
    """Makes spans of what happened to messages, in the order in which it happened."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("mq9")
        self._open: OrderedDict[tuple[str, int], _Message] = OrderedDict()

    def of(
        self, events: Iterable[Mapping[str, Any]], parents: Mapping[tuple[str, int], str]
    ) -> list[ReadableSpan]:
        """Spans of these events; `parents` are the `traceparent`s of messages among them."""
        found: list[ReadableSpan] = []
        for event in events:
            mailbox, msg_id, kind = event["mailbox"], event["msg_id"], event["kind"]
            if msg_id is None:
                continue
            if kind == "send":
                parent = parse(parents.get((mailbox, msg_id), ""))
                if parent is not None:
                    found.append(self._sent(event, parent))
            elif message := self._open.get((mailbox, msg_id)):
                if kind in _KINDS:
                    found += self._happened(event, message)
                elif kind in _END:
                    del self._open[mailbox, msg_id]
        return found

    def _sent(self, event: Mapping[str, Any], parent: SpanContext) -> ReadableSpan:
        span = self._span(
            event, f"send {event['mailbox']}", SpanKind.PRODUCER, parent, _id(event), "send"
        )
        message = _Message(f"{parent.trace_id:032x}", f"{_span_id(span):016x}", {})
        self._open[event["mailbox"], event["msg_id"]] = message
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)
        return span

    def _happened(self, event: Mapping[str, Any], message: _Message) -> list[ReadableSpan]:
        kind, group = event["kind"], event["group"] or ""
        if kind in ("deliver", "redeliver"):
            parent = _context(message.trace, message.sent)
            span = self._span(
                event, f"deliver {event['mailbox']}", SpanKind.CONSUMER, parent, _id(event),
                "receive",
            )  # fmt: skip
            message.given[group] = (f"{_span_id(span):016x}", event["time"])
            return [span]
        given = message.given.pop(group, None)
        parent = _context(message.trace, given[0] if given else message.sent)
        word = {"ack": "ack", "nak": "nak"}.get(kind, "give up")
        start_ms = given[1] if given else event["time"]
        status = Status(StatusCode.ERROR, kind) if kind == "dead_letter" else Status()
        return [
            self._span(
                event, f"{word} {event['mailbox']}", SpanKind.CLIENT, parent, _id(event), "settle",
                start_ms=start_ms, status=status,
            )
        ]  # fmt: skip

    def _span(
        self,
        event: Mapping[str, Any],
        name: str,
        kind: SpanKind,
        parent: SpanContext,
        span_id: int,
        operation: str,
        *,
        start_ms: int | None = None,
        status: Status | None = None,
    ) -> ReadableSpan:
        attributes: dict[str, Any] = {
            "messaging.system": "mq9",
            "messaging.operation.type": operation,
            "messaging.destination.name": event["mailbox"],
            "messaging.message.id": str(event["msg_id"]),
        }
        optional = {
            "messaging.consumer.group.name": event.get("group"),
            "messaging.client.id": event.get("member"),
            "messaging.message.body.size": event.get("size"),
            "mq9.deliveries": event.get("count"),
            "mq9.level": event.get("level"),
        }
        attributes |= {key: value for key, value in optional.items() if value is not None}
        return ReadableSpan(
            name=name,
            context=_context(f"{parent.trace_id:032x}", f"{span_id:016x}", is_remote=False),
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=kind,
            status=status or Status(),
            start_time=(event["time"] if start_ms is None else start_ms) * _MS,
            end_time=event["time"] * _MS,
            instrumentation_scope=self._scope,
        )

    def state(self) -> list[list[Any]]:
        """What has to be known to go on, as JSON."""
        return [[*key, asdict(message)] for key, message in self._open.items()]

    def restore(self, state: Iterable[list[Any]]) -> None:
        """Go on from there."""
        for mailbox, msg_id, fields in state:
            given = {group: (str(span), int(at)) for group, (span, at) in fields["given"].items()}
            message = _Message(fields["trace"], fields["sent"], given)
            self._open[mailbox, msg_id] = message


def parse(header: str) -> SpanContext | None:
    """The span that a `traceparent` names, if it is a valid one that is sampled."""
    found = _TRACEPARENT.fullmatch(header.strip().lower())
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace, span, flags = (int(part, 16) for part in found.groups()[1:4])
    context = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid and context.trace_flags.sampled else None


def _context(trace: str, span: str, *, is_remote: bool = True) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace, 16), int(span, 16), is_remote=is_remote, trace_flags=flags)


def _id(event: Mapping[str, Any]) -> int:
    """A span's id: that of the record, and of the row in it."""
    place = f"{event['mailbox']} {event['segment']} {event['offset']} {event['seq']}"
    return int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest()) or 1


def _span_id(span: ReadableSpan) -> int:
    context = span.context
    return context.span_id if context is not None else 0
