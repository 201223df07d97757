"""The lists `streams`, `consumers` and `queues`: what the broker makes when it starts.

Owns their words, and how they become configurations of JetStream. Whether one is usable, and
whether it fits what is there, the core says.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from mq9.config.errors import ConfigError, quoted
from mq9.config.options import Consumer, Stream
from mq9.config.reading import (
    Fields,
    Notes,
    Setting,
    at,
    boolean,
    entries,
    filled,
    integer,
    items,
    parse_duration_ms,
    read_block,
    text,
)
from mq9.config.tree import Place, Value

ENVELOPE = "hanzo.mq.v1"
DEAD_LETTERS = "mq.dlq"
"""What subjects of dead letters begin with, where only `dlq: yes` is said."""

_NAME = re.compile(r"[^\s.*>/\\]{1,255}")
_NUMBER = re.compile(r"-?[0-9](?:_?[0-9]){0,18}")
_MAX_STREAMS = 1000
_MAX_CONSUMERS = 10_000
_MS = 1_000_000

_RETENTIONS = {
    **dict.fromkeys(("limits", "limitspolicy"), "limits"),
    **dict.fromkeys(("interest", "interestpolicy"), "interest"),
    **dict.fromkeys(("workqueue", "work_queue", "workqueuepolicy"), "workqueue"),
}
_DISCARDS = {name + more: name for name in ("old", "new") for more in ("", "policy")}
_DISCARDS |= {f"discard{name}": name for name in ("old", "new")}
_STORAGES = {name + more: name for name in ("file", "memory") for more in ("", "storage")}
_ACKS = {name + more: name for name in ("none", "all", "explicit") for more in ("", "policy")}
_DELIVERS = {
    **{name: name for name in ("all", "last", "new", "last_per_subject")},
    **{f"deliver{name}policy": name for name in ("all", "last", "new")},
}


def _one_of(known: Mapping[str, str]) -> Callable[[Value, Notes], str]:
    def read(value: Value, notes: Notes) -> str:
        found = filled(value, notes)
        meaning = known.get(found.lower())
        if meaning is None:
            names = ", ".join(dict.fromkeys(known.values()))
            raise at(value.place, f"expected one of {names}, found {quoted(found)}")
        return meaning

    return read


def _name(value: Value, notes: Notes) -> str:
    found = filled(value, notes)
    if not _NAME.fullmatch(found):
        raise at(
            value.place,
            f"expected a name without blanks, dots, wildcards and slashes, found {quoted(found)}",
        )
    return found


def _number(value: Value, notes: Notes) -> int:
    """A whole number; `10_000_000` is one too."""
    if isinstance(value.data, str) and _NUMBER.fullmatch(value.data):
        value = Value(int(value.data.replace("_", "")), value.place)
    found = integer(-1)(value, notes)
    assert isinstance(found, int)
    return found


def _time(value: Value, _notes: Notes) -> int:
    """A duration in ns."""
    ms = parse_duration_ms(value.data) if isinstance(value.data, str) else None
    if ms is None or ms < 0:
        raise at(value.place, 'expected a duration such as "30s" or "24h"')
    return ms * _MS


def _times(value: Value, notes: Notes) -> list[int]:
    return [_time(item, notes) for item in items(value, "durations")]


def _texts(value: Value, notes: Notes) -> list[str]:
    if isinstance(value.data, str):
        return [filled(value, notes)]
    return [filled(item, notes) for item in items(value, "strings")]


def _metadata(value: Value, notes: Notes) -> dict[str, str]:
    return {entry.name: text(entry.value, notes) for entry in entries(value, "metadata")}


def _envelope(value: Value, _notes: Notes) -> str | Literal[False]:
    """Which envelope messages must have; False for none."""
    if value.data is True or value.data == ENVELOPE:
        return ENVELOPE
    if value.data is False:
        return False
    raise at(value.place, f"expected yes, no or {ENVELOPE}")


def _dead_letters(value: Value, notes: Notes) -> str:
    """What subjects of dead letters begin with; empty for none."""
    if isinstance(value.data, bool):
        return DEAD_LETTERS if value.data else ""
    found = filled(value, notes)
    if found == "-":
        return ""
    if re.search(r"[\s*>]", found) or not all(found.split(".")):
        raise at(
            value.place,
            'expected yes, no, or what subjects begin with such as "mq.dlq", '
            f"found {quoted(found)}",
        )
    return found


def _maybe_time(value: Value, notes: Notes) -> int:
    """A duration in ns; the `-` of the document's registry is 0, the default."""
    return 0 if value.data == "-" else _time(value, notes)


def _told(_value: Value, _notes: Notes) -> Fields:
    """What is there to be read by people."""
    return Fields()


STREAM_SETTINGS = {
    **{name: Setting(name, _name) for name in ("name",)},
    "description": Setting("description", text),
    "subjects": Setting("subjects", _texts),
    "retention": Setting("retention", _one_of(_RETENTIONS)),
    "discard": Setting("discard", _one_of(_DISCARDS)),
    "storage": Setting("storage", _one_of(_STORAGES)),
    **{
        name: Setting(name, _number)
        for name in (
            *("max_msgs", "max_bytes", "max_msg_size", "max_msgs_per_subject", "max_consumers"),
            "num_replicas",
        )
    },
    **{name: Setting(name, _time) for name in ("max_age", "duplicate_window")},
    **{name: Setting(name, boolean) for name in ("no_ack", "deny_delete", "deny_purge")},
    "metadata": Setting("metadata", _metadata),
    "priority": Setting("priority", boolean),
    "envelope": Setting("envelope", _envelope),
}
"""Every name in an entry of `streams`."""

CONSUMER_SETTINGS = {
    "stream": Setting("stream", _name),
    "name": Setting("name", _name),
    "durable": Setting("durable_name", _name),
    "description": Setting("description", text),
    "filter_subject": Setting("filter_subject", filled),
    "filter_subjects": Setting("filter_subjects", _texts),
    "ack_policy": Setting("ack_policy", _one_of(_ACKS)),
    "deliver_policy": Setting("deliver_policy", _one_of(_DELIVERS)),
    **{name: Setting(name, _time) for name in ("ack_wait", "inactive_threshold")},
    "backoff": Setting("backoff", _times),
    **{name: Setting(name, _number) for name in ("max_deliver", "max_ack_pending", "max_waiting")},
    "metadata": Setting("metadata", _metadata),
    "dlq": Setting("dlq", _dead_letters),
}
"""Every name in an entry of `consumers`."""

QUEUE_SETTINGS = {
    **dict.fromkeys(("name", "queue"), Setting("name", filled)),
    "subject": Setting("filter_subject", filled),
    "stream": Setting("stream", _name),
    "group": Setting("group", _name),
    "max_deliver": Setting("max_deliver", _number),
    "ack_wait": Setting("ack_wait", _maybe_time),
    "backoff": Setting("backoff", _times),
    "max_ack_pending": Setting("max_ack_pending", _number),
    "dlq": Setting("dlq", _dead_letters),
    "producers": Setting("", _told),
    "consumers": Setting("", _told),
}
"""Every name in an entry of `queues`: a row of the registry."""


def _read(
    value: Value, what: str, settings: Mapping[str, Setting], most: int, notes: Notes
) -> list[tuple[dict[str, Any], Place]]:
    found, wrong = [], []
    for item in items(value, what):
        try:
            block = read_block(item, f"an entry of {what}", settings, {}, notes).values
            found.append((block, item.place))
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigError("\n".join(wrong))
    if len(found) > most:
        raise at(value.place, f"too many: at most {most} {what}")
    return found


def read_streams(value: Value, notes: Notes) -> tuple[Stream, ...]:
    """The `streams` list."""
    streams = []
    for block, place in _read(value, "streams", STREAM_SETTINGS, _MAX_STREAMS, notes):
        if "name" not in block:
            raise at(place, "no name: a stream needs one")
        metadata = block.pop("metadata", {})
        if block.pop("priority", False):
            metadata["mq9.priority"] = "true"
        if envelope := block.pop("envelope", False):
            metadata["mq9.envelope"] = envelope
        config = block | ({"metadata": metadata} if metadata else {})
        streams.append(Stream(name=block["name"], config=_json(config), place=str(place)))
    return tuple(streams)


def read_consumers(value: Value, notes: Notes) -> tuple[Consumer, ...]:
    """The `consumers` list; a stream may be missing still."""
    found = _read(value, "consumers", CONSUMER_SETTINGS, _MAX_CONSUMERS, notes)
    return tuple(_consumer(block, place) for block, place in found)


def _consumer(block: dict[str, Any], place: Place) -> Consumer:
    name = block.get("name") or block.get("durable_name")
    if not name:
        raise at(place, "no name: a consumer needs one")
    if name != block.get("durable_name", name):
        raise at(place, "name and durable are two names of one consumer: give one")
    # What is declared stays until somebody removes it.
    block = {"ack_policy": "explicit"} | block | {"name": name, "durable_name": name}
    return _finished(block, str(place))


def read_queues(value: Value, notes: Notes) -> tuple[Consumer, ...]:
    """The `queues` list: each is a consumer in the registry's words."""
    found = _read(value, "queues", QUEUE_SETTINGS, _MAX_CONSUMERS, notes)
    return tuple(_queue(block, place) for block, place in found)


def _queue(block: dict[str, Any], place: Place) -> Consumer:
    for name in ("name", "filter_subject"):
        if name not in block:
            raise at(place, "expected name and subject of a queue")
    name = block.pop("name")
    group = block.pop("group", name.replace(".", "-"))
    if not _NAME.fullmatch(group):
        raise at(place, f"{quoted(group)} cannot be a name of a consumer: give the queue a group")
    config = {"name": group, "durable_name": group, "description": f"queue {name}"}
    return _finished(config | {"ack_policy": "explicit"} | block, str(place))


def _finished(block: dict[str, Any], place: str) -> Consumer:
    metadata = block.pop("metadata", {})
    if prefix := block.pop("dlq", ""):
        metadata["mq9.dead_letter_prefix"] = prefix
    if metadata:
        block["metadata"] = metadata
    stream = block.pop("stream", "")
    return Consumer(stream=stream, name=block["name"], config=_json(block), place=place)


def declared(streams: tuple[Stream, ...], consumers: tuple[Consumer, ...]) -> tuple[Consumer, ...]:
    """The consumers, each with its stream; ConfigError for what the broker would refuse."""
    from mq9._core import check_declared

    asked = [(each.stream, each.name, each.config) for each in consumers]
    homes, problems = check_declared([(each.name, each.config) for each in streams], asked)
    places = [each.place for each in streams] + [each.place for each in consumers]
    if problems:
        raise ConfigError("\n".join(f"{places[at]}: {problem}" for at, problem in problems))
    return tuple(
        Consumer(stream=home, name=each.name, config=each.config, place=each.place)
        for home, each in zip(homes, consumers, strict=True)
    )


def _json(config: Mapping[str, Any]) -> str:
    return json.dumps(config, ensure_ascii=False, separators=(",", ":"))
