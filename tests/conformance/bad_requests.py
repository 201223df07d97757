"""Requests that are wrong, each with a part of the error that it must get.

Only the table: `test_protocol_6_bad_input.py` sends them. `{box}` stands for a mailbox that is
there, `{missing}` for one that is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.mail import Headers, body, encoded


@dataclass(frozen=True)
class Bad:
    """One request."""

    command: str
    request: bytes
    headers: bytes
    problem: str

    @property
    def name(self) -> str:
        """For the list of tests."""
        said = repr(self.request or self.headers)
        return f"{self.command} {said if len(said) < 60 else said[:57] + '...'}"


def bad(command: str, request: object, problem: str, headers: Headers | None = None) -> Bad:
    return Bad(command, body(request), encoded(headers), problem)


ADDRESSES = {
    "": "must not be empty",
    "Task.001": "must be lowercase",
    "task-001": "only a-z, 0-9 and dots",
    "task_001": "only a-z, 0-9 and dots",
    "task%2e1": "only a-z, 0-9 and dots",
    "task/1": "only a-z, 0-9 and dots",
    "$agents": "only a-z, 0-9 and dots",
    "täsk": "only a-z, 0-9 and dots",
    "task.*": "only a-z, 0-9 and dots",
    "task.>": "only a-z, 0-9 and dots",
    ".task": "begin or end with a dot",
    "task.": "begin or end with a dot",
    "ta..sk": "two dots in a row",
    "a" * 129: "at most 128 characters",
}

NOT_OBJECTS = {
    b"[]": "JSON object",
    b"null": "JSON object",
    b"17": "JSON object",
    b'"text"': "JSON object",
    b"true": "JSON object",
}

BROKEN_JSON = (
    b"{",
    b'{"a":1',
    b'{"a":1}}',
    b'{"a":1} {"b":2}',
    b"{a:1}",
    b"{'a':1}",
    b'{"a":1,}',
    b'{"a":01}',
    b'{"a":NaN}',
    b'{"a":"\x01"}',
    b'{"a":"\\x"}',
)

# Values of a field that must be text; inside a field that nobody reads they may go unnoticed.
BROKEN_TEXT = (
    b'"\xff"',
    b'"\\ud800"',
    b"[" * 2000 + b"]" * 2000,
    b"{}",
    b"false",
)


def addresses() -> Iterator[Bad]:
    for command in ("SEND", "FETCH", "ACK", "QUERY"):
        request = {"group_name": "g", "msg_id": 0} if command == "ACK" else {}
        for address, problem in ADDRESSES.items():
            yield bad(f"MSG.{command}.{address}", request, problem)
        yield bad(f"MSG.{command}.{{missing}}", request, "mailbox {missing} does not exist")
    for address, problem in ADDRESSES.items():
        yield bad(f"MSG.DELETE.{address}.0", b"", problem)
        yield bad("MAILBOX.CREATE", {"name": address}, problem)
    yield bad("MSG.DELETE.{missing}.0", b"", "mailbox {missing} does not exist")


def bodies() -> Iterator[Bad]:
    for command, field in (
        ("MSG.FETCH.{box}", b"group_name"),
        ("MSG.ACK.{box}", b"group_name"),
        ("MSG.QUERY.{box}", b"key"),
        ("MAILBOX.CREATE", b"name"),
    ):
        for request, problem in NOT_OBJECTS.items():
            yield bad(command, request, problem)
        for request in BROKEN_JSON:
            yield bad(command, request, "invalid ")
        for value in BROKEN_TEXT:
            yield bad(command, b'{"%s":%s}' % (field, value), "invalid ")


PRIORITY = "must be critical, urgent, normal, notify or a number from 1 to 10"
SECONDS = "must be a whole number of seconds from 0 to"

HEADERS: list[tuple[Headers, str]] = [
    *(({"mq9-priority": value}, PRIORITY) for value in ("0", "11", "256", "-1", "1.5", "0x1")),
    *(({"mq9-priority": value}, PRIORITY) for value in ("high", "URGENT", "urgent;1", "null")),
    ({"mq9-priority": ""}, "mq9-priority is empty"),
    ({"MQ9-PRIORITY": "high"}, "mq9-priority is"),
    *(({"mq9-delay": value}, SECONDS) for value in ("soon", "-1", "1.5", "1s", "1e3", "1 000")),
    ({"mq9-delay": "99999999999"}, SECONDS),
    ({"mq9-delay": "99999999999999999999999"}, SECONDS),
    ({"mq9-delay": ""}, "mq9-delay is empty"),
    *(({"mq9-ttl": value}, SECONDS) for value in ("soon", "-1", "1.5", "0x10", "\u0661", "∞")),
    ({"mq9-ttl": "99999999999"}, SECONDS),
    ({"mq9-ttl": " "}, "mq9-ttl is empty"),
    *(({f"mq9-{name}-ms": "1.5"}, "number of milliseconds from 0") for name in ("delay", "ttl")),
    ({"mq9-delay": "1", "mq9-delay-ms": "1000"}, "cannot both be given"),
    ({"mq9-ttl": "1", "mq9-ttl-ms": "1000"}, "cannot both be given"),
    ({"mq9-key": ""}, "mq9-key is empty"),
    ({"mq9-key": "k" * 1025}, "key"),
    ({"mq9-tags": ""}, "mq9-tags is empty"),
    ({"mq9-tags": ","}, "mq9-tags holds no tag"),
    ({"mq9-tags": " , ,"}, "mq9-tags holds no tag"),
    ({"mq9-tags": "t" * 4097}, "tags"),
    ({"Big": "x" * 70_000}, "headers"),
    ([("mq9-key", "a"), ("mq9-key", "b")], "mq9-key is given more than once"),
    ([("mq9-key", "a"), ("MQ9-Key", "a")], "mq9-key is given more than once"),
    ([("mq9-ttl", "1"), ("mq9-ttl", "1")], "mq9-ttl is given more than once"),
    ([("mq9-delay", "1"), ("mq9-delay", "2")], "mq9-delay is given more than once"),
    ([("mq9-tags", "a"), ("mq9-tags", "b")], "mq9-tags is given more than once"),
    ([("mq9-priority", "1"), ("mq9-priority", "1")], "mq9-priority is given more than once"),
    (b"NATS/1.0\r\nmq9-key: \xff\xfe\r\n\r\n", "mq9-key is not UTF-8"),
    (b"NATS/1.0\r\nmq9-tags: \xff\r\n\r\n", "mq9-tags is not UTF-8"),
    (b"NATS/1.0\r\nno colon\r\n\r\n", '"no colon" is malformed'),
    (b"NATS/1.0\r\n: no name\r\n\r\n", "is malformed"),
    (b"NATS/1.0\r\nmq9-key: k\r\n", "the headers are malformed"),
    (b"NATS/1.0", "the headers are malformed"),
    (b"HTTP/1.1\r\nmq9-key: k\r\n\r\n", "the headers are malformed"),
    (b"\r\n\r\n", "the headers are malformed"),
]


def headers() -> Iterator[Bad]:
    for block, problem in HEADERS:
        yield bad("MSG.SEND.{box}", b"refused", problem, block)


WEEK_MS = 7 * 24 * 3_600_000

FETCHES: list[tuple[object, str]] = [
    ({"group_name": ""}, "group_name"),
    ({"group_name": "g" * 256}, "group_name"),
    ({"group_name": 7}, "invalid group_name"),
    ({"group_name": ["g"]}, "invalid group_name"),
    ({"group_name": "g", "member": ""}, "member"),
    ({"group_name": "g", "member": "m" * 256}, "member"),
    ({"group_name": "g", "member": 1}, "invalid member"),
    ({"member": "m"}, "group_name is missing"),
    ({"deliver": "oldest"}, "invalid deliver"),
    ({"deliver": "Earliest"}, "invalid deliver"),
    ({"deliver": ""}, "invalid deliver"),
    ({"deliver": 0}, "invalid deliver"),
    ({"deliver": {}}, "invalid deliver"),
    ({"deliver": "from_time"}, "from_time is missing"),
    ({"deliver": "from_id"}, "from_id is missing"),
    ({"deliver": "from_time", "from_id": 1}, "from_time is missing"),
    ({"deliver": "from_time", "from_time": "now"}, "invalid from_time"),
    ({"deliver": "from_time", "from_time": -1}, "invalid from_time"),
    ({"deliver": "from_time", "from_time": 1.5}, "invalid from_time"),
    ({"deliver": "from_id", "from_id": -1}, "invalid from_id"),
    ({"deliver": "from_id", "from_id": "0"}, "invalid from_id"),
    ({"deliver": "from_id", "from_id": 2**64}, "invalid from_id"),
    ({"force_deliver": True}, "group_name is missing"),
    ({"group_name": "g", "force_deliver": "yes"}, "invalid force_deliver"),
    ({"group_name": "g", "force_deliver": 1}, "invalid force_deliver"),
    ({"encoding": "base32"}, "invalid encoding"),
    ({"encoding": True}, "invalid encoding"),
    ({"config": []}, "invalid config"),
    ({"config": "fast"}, "invalid config"),
    ({"config": {"num_msgs": 0}}, "config.num_msgs is 0: it must be from 1 to 10000"),
    ({"config": {"num_msgs": 10_001}}, "config.num_msgs is 10001"),
    ({"config": {"num_msgs": -5}}, "invalid config.num_msgs"),
    ({"config": {"num_msgs": "5"}}, "invalid config.num_msgs"),
    ({"config": {"num_msgs": 2.5}}, "invalid config.num_msgs"),
    ({"config": {"num_msgs": 2**70}}, "invalid config.num_msgs"),
    ({"config": {"max_wait_ms": 3_600_001}}, "config.max_wait_ms is 3600001"),
    ({"config": {"max_wait_ms": -1}}, "invalid config.max_wait_ms"),
    ({"config": {"max_wait_ms": True}}, "invalid config.max_wait_ms"),
    ({"config": {"ack_wait_ms": 0}}, "config.ack_wait_ms is 0"),
    ({"config": {"ack_wait_ms": WEEK_MS + 1}}, "config.ack_wait_ms is"),
    ({"config": {"ack_wait_ms": "30s"}}, "invalid config.ack_wait_ms"),
    ({"config": {"max_bytes": 0}}, "config.max_bytes is 0"),
    ({"config": {"max_bytes": 2**40}}, "config.max_bytes is"),
    ({"config": {"max_bytes": "1m"}}, "invalid config.max_bytes"),
    ({"config": {"min_priority": "low"}}, 'config.min_priority is "low"'),
    ({"config": {"min_priority": 0}}, 'config.min_priority is "0"'),
    ({"config": {"min_priority": 11}}, 'config.min_priority is "11"'),
    ({"config": {"min_priority": []}}, "invalid config.min_priority"),
    ({"config": {"format": "xml"}}, "invalid config.format"),
    ({"config": {"format": 1}}, "invalid config.format"),
]

ACKS: list[tuple[object, str]] = [
    ({}, "group_name is missing"),
    ({"msg_id": 0}, "group_name is missing"),
    ({"group_name": "held"}, "msg_id is missing"),
    ({"group_name": "held", "msg_ids": []}, "msg_ids holds 0 numbers"),
    ({"group_name": "held", "msg_ids": list(range(10_001))}, "msg_ids holds 10001 numbers"),
    ({"group_name": "held", "msg_ids": 0}, "invalid msg_ids"),
    ({"group_name": "held", "msg_ids": [0, "1"]}, "invalid msg_ids[1]"),
    ({"group_name": "held", "msg_ids": [0, -1]}, "invalid msg_ids[1]"),
    ({"group_name": "held", "msg_ids": [0, 99]}, "has not been given msg_id 99"),
    ({"group_name": "held", "msg_id": 0, "msg_ids": [0]}, "cannot both be given"),
    ({"group_name": "held", "msg_id": -1}, "invalid msg_id"),
    ({"group_name": "held", "msg_id": "0"}, "invalid msg_id"),
    ({"group_name": "held", "msg_id": 0.0}, "invalid msg_id"),
    ({"group_name": "held", "msg_id": [0]}, "invalid msg_id"),
    ({"group_name": "held", "msg_id": 2**64}, "invalid msg_id"),
    ({"group_name": "held", "msg_id": 99}, "group held has not been given msg_id 99"),
    ({"group_name": "unknown", "msg_id": 0}, "group unknown has not been given msg_id 0"),
    ({"group_name": 5, "msg_id": 0}, "invalid group_name"),
    ({"group_name": "held", "msg_id": 0, "mail_address": "other"}, 'mail_address is "other"'),
    ({"group_name": "held", "msg_id": 0, "mail_address": 1}, "invalid mail_address"),
    ({"group_name": "held", "msg_id": 0, "only": "yes"}, "invalid only"),
    ({"group_name": "held", "msg_id": 0, "kind": "done"}, "invalid kind"),
    ({"group_name": "held", "msg_id": 0, "kind": "NAK"}, "invalid kind"),
    ({"group_name": "held", "msg_id": 0, "kind": "nak", "delay_ms": -1}, "invalid delay_ms"),
    ({"group_name": "held", "msg_id": 0, "kind": "nak", "delay_ms": WEEK_MS + 1}, "delay_ms is"),
    ({"group_name": "held", "msg_id": 0, "kind": "nak", "delay_ms": "1s"}, "invalid delay_ms"),
]

QUERIES: list[tuple[object, str]] = [
    ({"key": 1}, "invalid key"),
    ({"key": ["a"]}, "invalid key"),
    ({"tags": "a,b"}, "invalid tags"),
    ({"tags": [1]}, "invalid tags[0]"),
    ({"tags": {"a": 1}}, "invalid tags"),
    ({"since": "yesterday"}, "invalid since"),
    ({"since": -1}, "since is -1"),
    ({"since": 1.5}, "invalid since"),
    ({"since": 2**64}, "since is"),
    ({"limit": 0}, "limit is 0"),
    ({"limit": -1}, "limit is -1"),
    ({"limit": 10_001}, "limit is 10001"),
    ({"limit": "10"}, "invalid limit"),
    ({"limit": True}, "invalid limit"),
    ({"after_id": -1}, "after_id is -1"),
    ({"after_id": "0"}, "invalid after_id"),
    ({"after_id": 2**64}, "after_id is"),
    ({"encoding": "hex"}, "invalid encoding"),
    ({"encoding": 64}, "invalid encoding"),
]

CREATES: list[tuple[object, str]] = [
    ({"name": "{box}"}, "mailbox {box} already exists"),
    ({"name": 1}, "invalid name"),
    ({"name": ["a"]}, "invalid name"),
    ({"ttl": -1}, "ttl is -1"),
    ({"ttl": "1h"}, "invalid ttl"),
    ({"ttl": 1.5}, "invalid ttl"),
    ({"ttl": True}, "invalid ttl"),
    ({"ttl": 2**64}, "ttl is"),
    ({"desc": 1}, "invalid desc"),
    ({"desc": "d" * 4097}, "desc"),
    ({"type": "newest"}, "invalid type"),
    ({"type": 1}, "invalid type"),
    ({"public": "yes"}, "invalid public"),
    ({"public": 1}, "invalid public"),
    ({"retention": "forever"}, "invalid retention"),
    ({"ack_wait": -1}, "ack_wait is -1"),
    ({"ack_wait": "30s"}, "invalid ack_wait"),
    ({"ack_wait": 1, "ack_wait_ms": 1000}, "cannot both be given"),
    ({"ttl": 1, "ttl_ms": 1000}, "cannot both be given"),
    ({"max_age": 1, "max_age_ms": 1000}, "cannot both be given"),
    ({"max_deliver": -1}, "max_deliver is -1"),
    ({"max_deliver": 3}, "dead_letter"),
    ({"max_deliver": 2**32, "dead_letter": "d"}, "max_deliver is"),
    ({"dead_letter": "Not.An.Address"}, "invalid dead_letter"),
    ({"dead_letter": 1}, "invalid dead_letter"),
    ({"name": "{missing}", "dead_letter": "{missing}"}, "come back to the mailbox itself"),
    ({"max_ack_pending": -1}, "max_ack_pending is -1"),
    ({"max_msgs": -1}, "max_msgs is -1"),
    ({"max_msgs": "many"}, "invalid max_msgs"),
    ({"max_bytes": 2**63}, "max_bytes is"),
    ({"max_age": -1}, "max_age is -1"),
    ({"max_msg_size": 1.5}, "invalid max_msg_size"),
    ({"discard": "random"}, "invalid discard"),
    ({"message_ttls": 5}, "invalid message_ttls: expected an object, found 5"),
    ({"message_ttls": {"urgent": -1}}, "message_ttls.urgent is -1"),
    ({"message_ttls": {"urgent": "1h"}}, "invalid message_ttls.urgent"),
    ({"message_ttls": {"important": 1}}, 'message_ttls has a life for "important"'),
    ({"message_ttls": {"11": 1}}, 'message_ttls has a life for "11"'),
    ({"message_ttls": {"urgent": 1, "3": 1}}, 'message_ttls has more than one life for "3"'),
]


def fields() -> Iterator[Bad]:
    for request, problem in FETCHES:
        yield bad("MSG.FETCH.{box}", request, problem)
    for request, problem in ACKS:
        yield bad("MSG.ACK.{box}", request, problem)
    for request, problem in QUERIES:
        yield bad("MSG.QUERY.{box}", request, problem)
    for request, problem in CREATES:
        yield bad("MAILBOX.CREATE", request, problem)


IDS = (
    "",
    "x",
    "-1",
    "1.5",
    "0x1",
    "1e3",
    "+1",
    "\u0661",
    "99999999999999999999999",
    "18446744073709551616",
)


def deletions() -> Iterator[Bad]:
    for msg_id in IDS:
        yield bad(f"MSG.DELETE.{{box}}.{msg_id}", b"", "")
    yield bad("MSG.DELETE.{box}.99", b"", "message not found")
    yield bad("MSG.DELETE.{box}", b"", "")


RAW_ACKS: list[tuple[str, bytes, str]] = [
    ("MSG.RACK.aGVsZA.0.{box}", b"+NO", "the payload must be +ACK, -NAK, +WPI, +TERM or empty"),
    ("MSG.RACK.aGVsZA.0.{box}", b"ack", "the payload must be"),
    ("MSG.RACK.aGVsZA.0.{box}", b'-NAK {"delay":-1}', "invalid delay"),
    ("MSG.RACK.aGVsZA.0.{box}", b'-NAK {"delay"', "invalid"),
    ("MSG.RACK.aGVsZA.0.{box}", b"-NAKED", "must be"),
    ("MSG.RACK.aGVsZA.99.{box}", b"", "has not been given msg_id 99"),
    ("MSG.RACK.aGVsZA.-1.{box}", b"", "not one that a message was delivered with"),
    ("MSG.RACK.aGVsZA.x.{box}", b"", "not one that a message was delivered with"),
    ("MSG.RACK.!!!.0.{box}", b"", "not one that a message was delivered with"),
    ("MSG.RACK.aGVsZA.0.{missing}", b"", "mailbox {missing} does not exist"),
    ("MSG.RACK.aGVsZA.0.Bad-Box", b"", "invalid mail_address"),
    ("MSG.RACK.aGVsZA.0", b"", ""),
]


def raw_acks() -> Iterator[Bad]:
    for command, request, problem in RAW_ACKS:
        yield bad(command, request, problem)


TABLE = [*addresses(), *headers(), *bodies(), *fields(), *deletions(), *raw_acks()]
