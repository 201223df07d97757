"""Requests that are wrong: each gets its error, changes nothing, and the connection lives on."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.peers import Serve
from tests.requester import Requester

from mq9.commands.address import check_address
from mq9.commands.request import Refusal

OPERATOR = """
authorization { users: [
  { user: ops, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
] }
no_auth_user: ops
"""

CREATE, QUERY, DELETE = "MAILBOX.CREATE", "MSG.QUERY.box", "MSG.DELETE.box"
REMOVE, PURGE = "MAILBOX.REMOVE.box", "MAILBOX.PURGE.box"
UPDATE = "MAILBOX.UPDATE.box"
PUBLIC, LIST, SHOW = "PUBLIC.LIST", "ADMIN.MAILBOX.LIST", "ADMIN.MAILBOX.SHOW.box"
SHAPES: dict[str, dict[str, Any]] = {
    "MAILBOX.CREATE": {"mail_address": ""},
    "MAILBOX.UPDATE": {"mail_address": ""},
    "MAILBOX.REMOVE": {"removed": False},
    "MAILBOX.PURGE": {"purged": 0},
    "MSG.QUERY": {"messages": []},
    "MSG.DELETE": {"deleted": False},
    "PUBLIC": {"mailboxes": []},
    "ADMIN.MAILBOX.LIST": {"mailboxes": []},
    "ADMIN.MAILBOX.SHOW": {"mailbox": None},
}

# The rest is in the words of the JSON reader, with line and column.
UNREADABLE = "invalid request: "
TOO_DEEP = "invalid request: nested too deeply: at most 64 levels are allowed"
A_NUMBER = "expected a whole number, found"
SECONDS = "it must be from 0 to 3162240000"
SIZE = "it must be from 0 to 9223372036854775807"
COUNT = "it must be from 0 to 4294967295"
WEEK = "it must be from 0 to 604800"
NOT_YET = "is not supported by this version: leave it out"
MSG_ID = "invalid msg_id in the subject: expected a whole number, found"
DELAY_ID = MSG_ID.replace("msg_id", "delay_id")
DEEP = b"[" * 50_000


def named(fields: str) -> bytes:
    return ('{"name":"never",' + fields + "}").encode()


JSON = [
    (CREATE, b"{", UNREADABLE),
    (CREATE, b"nonsense", UNREADABLE),
    (CREATE, b"{'name':'never'}", UNREADABLE),
    (
        CREATE,
        b'{"name":"never"',
        UNREADABLE,
    ),
    (CREATE, b'{"name":"never",}', UNREADABLE),
    (CREATE, b'{"name":"never"}{}', UNREADABLE),
    (CREATE, b'{"name":"never"} x', UNREADABLE),
    (CREATE, b'{"name":"\xff"}', UNREADABLE),
    (CREATE, b'{"name":"\\ud800"}', UNREADABLE),
    (CREATE, b'{"name":"a\nb"}', UNREADABLE),
    (CREATE, b"\x00", UNREADABLE),
    (CREATE, b"[]", "the request must be a JSON object"),
    (CREATE, b'"never"', "the request must be a JSON object"),
    (CREATE, b"7", "the request must be a JSON object"),
    (CREATE, b"null", "the request must be a JSON object"),
    (CREATE, b"true", "the request must be a JSON object"),
    (CREATE, named('"ttl":NaN'), UNREADABLE),
    (CREATE, named('"ttl":Infinity'), UNREADABLE),
    (CREATE, named('"x":')[:-1] + DEEP, TOO_DEEP),
    (CREATE, named('"x":' + "[" * 5000 + "]" * 5000), TOO_DEEP),
    (CREATE, named('"x":' + '{"a":' * 5000 + "1" + "}" * 5000), TOO_DEEP),
    (CREATE, named('"ttl":' + "9" * 5000), UNREADABLE),
    (UPDATE, b"{", UNREADABLE),
    (UPDATE, b"[]", "the request must be a JSON object"),
    (UPDATE, b'{"x":' + DEEP, TOO_DEEP),
    (UPDATE, b'{"max_msgs":' + b"9" * 5000 + b"}", UNREADABLE),
]

NAMES = [
    (CREATE, b'{"name":""}', 'invalid mail_address "": it must not be empty'),
    (CREATE, b'{"name":"Never"}', 'invalid mail_address "Never": it must be lowercase'),
    *(
        (
            CREATE,
            json.dumps({"name": name}).encode(),
            f'invalid mail_address "{name}": it may hold only a-z, 0-9 and dots',
        )
        for name in ("task-001", "task_001", "a b", "a*", "a.>", "a%20b", "a/b", "*", ">", "müll")
    ),
    (CREATE, b'{"name":".a"}', 'invalid mail_address ".a": it must not begin or end with a dot'),
    (CREATE, b'{"name":"a."}', 'invalid mail_address "a.": it must not begin or end with a dot'),
    (CREATE, b'{"name":"a..b"}', 'invalid mail_address "a..b": it must not hold two dots in a row'),
    (
        CREATE,
        b'{"name":"%b"}' % (b"a" * 129),
        f'invalid mail_address "{"a" * 128}": it must have at most 128 characters',
    ),
    (CREATE, b'{"name":7}', "invalid name: expected a string, found 7"),
    (CREATE, b'{"name":true}', "invalid name: expected a string, found true"),
    (CREATE, b'{"name":["never"]}', "invalid name: expected a string, found a list"),
    (CREATE, b'{"name":{}}', "invalid name: expected a string, found an object"),
    (CREATE, b'{"name":"box"}', "mailbox box already exists"),
    (CREATE, b'{"name":"box","public":false}', "mailbox box already exists"),
]

FIELDS = [
    (CREATE, named('"ttl":"5"'), f'invalid ttl: {A_NUMBER} "5"'),
    (CREATE, named('"ttl":true'), f"invalid ttl: {A_NUMBER} true"),
    (CREATE, named('"ttl":5.5'), f"invalid ttl: {A_NUMBER} 5.5"),
    (CREATE, named('"ttl":5.0'), f"invalid ttl: {A_NUMBER} 5.0"),
    (CREATE, named('"ttl":1e3'), f"invalid ttl: {A_NUMBER} 1000.0"),
    (CREATE, named('"ttl":[5]'), f"invalid ttl: {A_NUMBER} a list"),
    (CREATE, named('"ttl":-1'), f"ttl is -1: {SECONDS}"),
    (CREATE, named('"ttl":3162240001'), f"ttl is 3162240001: {SECONDS}"),
    (CREATE, named('"ttl":18446744073709551616'), f"ttl is 18446744073709551616: {SECONDS}"),
    (CREATE, named('"ttl":1' + "0" * 40), f"ttl is a number of too many digits: {SECONDS}"),
    (CREATE, named('"desc":5'), "invalid desc: expected a string, found 5"),
    (
        CREATE,
        named('"desc":"' + "x" * 4097 + '"'),
        "invalid desc: it has 4097 bytes, at most 4096 are allowed",
    ),
    (
        CREATE,
        named('"type":"newest"'),
        'invalid type: expected "standard" or "latest", found "newest"',
    ),
    (
        CREATE,
        named('"type":"Latest"'),
        'invalid type: expected "standard" or "latest", found "Latest"',
    ),
    (CREATE, named('"type":1'), 'invalid type: expected "standard" or "latest", found 1'),
    (CREATE, named('"public":"true"'), 'invalid public: expected true or false, found "true"'),
    (CREATE, named('"public":1'), "invalid public: expected true or false, found 1"),
    (
        CREATE,
        named('"retention":"interest"'),
        'invalid retention: expected "limits" or "work_queue", found "interest"',
    ),
    (CREATE, named('"ack_wait":"30s"'), f'invalid ack_wait: {A_NUMBER} "30s"'),
    (CREATE, named('"ack_wait":-1'), f"ack_wait is -1: {WEEK}"),
    (CREATE, named('"ack_wait":604801'), f"ack_wait is 604801: {WEEK}"),
    (CREATE, named('"ack_wait_ms":604800001'), f"ack_wait_ms is 604800001: {WEEK}000"),
    (CREATE, named('"ack_wait_ms":0.5'), f"invalid ack_wait_ms: {A_NUMBER} 0.5"),
    (
        CREATE,
        named('"ack_wait":1,"ack_wait_ms":1000'),
        "ack_wait and ack_wait_ms cannot both be given",
    ),
    (
        CREATE,
        named('"max_deliver":3'),
        "invalid max_deliver: it needs a dead_letter mailbox to move messages to",
    ),
    (CREATE, named('"max_deliver":-3'), f"max_deliver is -3: {COUNT}"),
    (CREATE, named('"max_deliver":4294967296'), f"max_deliver is 4294967296: {COUNT}"),
    (CREATE, named('"max_ack_pending":4294967296'), f"max_ack_pending is 4294967296: {COUNT}"),
    (CREATE, named('"dead_letter":"Dead"'), 'invalid dead_letter "Dead": it must be lowercase'),
    (CREATE, named('"dead_letter":""'), 'invalid dead_letter "": it must not be empty'),
    (
        CREATE,
        named('"dead_letter":"a\\n"'),
        'invalid dead_letter "a\\n": it may hold only a-z, 0-9 and dots',
    ),
    (CREATE, named('"dead_letter":7'), "invalid dead_letter: expected a string, found 7"),
    (
        CREATE,
        named('"dead_letter":"never"'),
        "invalid dead_letter: dead letters would come back to the mailbox itself",
    ),
    (CREATE, named('"max_msgs":-1'), f"max_msgs is -1: {SIZE}"),
    (CREATE, named('"max_msgs":"10"'), f'invalid max_msgs: {A_NUMBER} "10"'),
    (CREATE, named('"max_bytes":9223372036854775808'), f"max_bytes is {2**63}: {SIZE}"),
    (CREATE, named('"max_bytes":"1MB"'), f'invalid max_bytes: {A_NUMBER} "1MB"'),
    (CREATE, named('"max_msg_size":-5'), f"max_msg_size is -5: {SIZE}"),
    (CREATE, named('"max_age":-5'), f"max_age is -5: {SECONDS}"),
    (CREATE, named('"max_age":"1h"'), f'invalid max_age: {A_NUMBER} "1h"'),
    (CREATE, named('"discard":"none"'), 'invalid discard: expected "old" or "new", found "none"'),
    (CREATE, named('"discard":["old"]'), 'invalid discard: expected "old" or "new", found a list'),
    (CREATE, named('"backoff":[1,2]'), f"backoff {NOT_YET}"),
    (CREATE, named('"dedup_window":"2m"'), f'invalid dedup_window: {A_NUMBER} "2m"'),
    (CREATE, named('"dedup_window":604801'), f"dedup_window is 604801: {WEEK}"),
    (CREATE, named('"subjects":["mq.>"]'), f"subjects {NOT_YET}"),
]

QUERIES = [
    (QUERY, b"[", UNREADABLE),
    (QUERY, b"[1]", "the request must be a JSON object"),
    (QUERY, b'{"x":' + DEEP, TOO_DEEP),
    (QUERY, b'{"key":1}', "invalid key: expected a string, found 1"),
    (QUERY, b'{"tags":"a"}', 'invalid tags: expected a list, found "a"'),
    (QUERY, b'{"tags":{"a":1}}', "invalid tags: expected a list, found an object"),
    (QUERY, b'{"tags":["a",7]}', "invalid tags[1]: expected a string, found 7"),
    (QUERY, b'{"tags":[null]}', "invalid tags[0]: expected a string, found null"),
    (QUERY, b'{"since":"now"}', f'invalid since: {A_NUMBER} "now"'),
    (QUERY, b'{"since":-1}', "since is -1: it must be from 0 to 9007199254740991"),
    (QUERY, b'{"limit":0}', "limit is 0: it must be from 1 to 10000"),
    (QUERY, b'{"limit":-1}', "limit is -1: it must be from 1 to 10000"),
    (QUERY, b'{"limit":10001}', "limit is 10001: it must be from 1 to 10000"),
    (QUERY, b'{"limit":"10"}', f'invalid limit: {A_NUMBER} "10"'),
    (QUERY, b'{"limit":true}', f"invalid limit: {A_NUMBER} true"),
    (QUERY, b'{"limit":1.0}', f"invalid limit: {A_NUMBER} 1.0"),
    (QUERY, b'{"after_id":-1}', f"after_id is -1: it must be from 0 to {2**64 - 1}"),
    (QUERY, b'{"after_id":"0"}', f'invalid after_id: {A_NUMBER} "0"'),
    (
        QUERY,
        b'{"after_id":18446744073709551616}',
        f"after_id is {2**64}: it must be from 0 to {2**64 - 1}",
    ),
    (QUERY, b'{"encoding":"hex"}', 'invalid encoding: expected "base64", found "hex"'),
    (QUERY, b'{"encoding":64}', 'invalid encoding: expected "base64", found 64'),
    ("MSG.QUERY.nobody", b"", "mailbox nobody does not exist"),
    ("MSG.QUERY.Box", b"", 'invalid mail_address "Box": it must be lowercase'),
    ("MSG.QUERY.b*", b"", 'invalid mail_address "b*": it may hold only a-z, 0-9 and dots'),
    ("MSG.QUERY.b-x", b"", 'invalid mail_address "b-x": it may hold only a-z, 0-9 and dots'),
]

DELETES = [
    (DELETE, b"", "the subject must end in the mail_address and the msg_id"),
    (f"{DELETE}.1", b"", "message not found"),
    (f"{DELETE}.x", b"", f'{MSG_ID} "x"'),
    (f"{DELETE}.d", b"", f'{DELAY_ID} ""'),
    (f"{DELETE}.dd0", b"", f'{DELAY_ID} "d0"'),
    (f"{DELETE}.d0", b"", "message not found"),
    (f"{DELETE}.-1", b"", f'{MSG_ID} "-1"'),
    (f"{DELETE}.+0", b"", f'{MSG_ID} "+0"'),
    (f"{DELETE}.0x0", b"", f'{MSG_ID} "0x0"'),
    (f"{DELETE}.*", b"", f'{MSG_ID} "*"'),
    (f"{DELETE}.\u0660", b"", f'{MSG_ID} "\u0660"'),
    (f"{DELETE}.18446744073709551616", b"", f'{MSG_ID} "18446744073709551616"'),
    (f"{DELETE}." + "0" * 1000, b"", f'{MSG_ID} "{"0" * 80}..."'),
    ("MSG.DELETE.0", b"", "the subject must end in the mail_address and the msg_id"),
    ("MSG.DELETE.box.0.0", b"", "mailbox box.0 does not exist"),
    ("MSG.DELETE.nobody.0", b"", "mailbox nobody does not exist"),
    ("MSG.DELETE.Box.0", b"", 'invalid mail_address "Box": it must be lowercase'),
]

LISTS = [
    (PUBLIC, b"[]", "the request must be a JSON object"),
    (PUBLIC, b'{"limit":0}', "limit is 0: it must be from 1 to 1000"),
    (PUBLIC, b'{"limit":1001}', "limit is 1001: it must be from 1 to 1000"),
    (PUBLIC, b'{"limit":"1"}', f'invalid limit: {A_NUMBER} "1"'),
    (PUBLIC, b'{"after":1}', "invalid after: expected a string, found 1"),
    (LIST, b"x", UNREADABLE),
    (LIST, b'{"limit":1001}', "limit is 1001: it must be from 1 to 1000"),
    (LIST, b'{"start":-1}', "start is -1: it must be from 0 to 4294967295"),
    (LIST, b'{"start":"a"}', f'invalid start: {A_NUMBER} "a"'),
    (SHOW, b"[]", "the request must be a JSON object"),
    ("ADMIN.MAILBOX.SHOW.nobody", b"", "mailbox nobody does not exist"),
    ("ADMIN.MAILBOX.SHOW.B", b"", 'invalid mail_address "B": it must be lowercase'),
]

OWNERS = [
    (REMOVE, b"{", UNREADABLE),
    (REMOVE, b"[]", "the request must be a JSON object"),
    (REMOVE, b'{"token":true}', "invalid token: expected a string, found true"),
    ("MAILBOX.REMOVE.Box", b"", 'invalid mail_address "Box": it must be lowercase'),
    ("MAILBOX.REMOVE.nobody", b"", "mailbox nobody does not exist"),
    (PURGE, b"{", UNREADABLE),
    (PURGE, b'{"token":[]}', "invalid token: expected a string, found a list"),
    ("MAILBOX.PURGE.Box", b"", 'invalid mail_address "Box": it must be lowercase'),
    ("MAILBOX.PURGE.nobody", b"", "mailbox nobody does not exist"),
]

TABLE = [*JSON, *NAMES, *FIELDS, *QUERIES, *DELETES, *LISTS, *OWNERS]


@pytest.fixture(scope="module")
def client(serve_for_session: Serve) -> Iterator[Requester]:
    with Requester(serve_for_session(OPERATOR).port) as client:
        client.create("box")
        client.post("box", b"kept")
        yield client


def state(client: Requester) -> list[bytes]:
    return [client.raw(command) for command in (LIST, SHOW, QUERY)]


def test_the_table_is_long_enough() -> None:
    assert len({(command, payload) for command, payload, _ in TABLE}) == len(TABLE) >= 80


@pytest.mark.parametrize(
    "address",
    [
        "",
        "A",
        "a-b",
        ".a",
        "a.",
        "a..b",
        "a" * 129,
        "\u00e9" * 65,
        'a"b',
        "a\u00df",
        "A-.",
        "..",
        "-.",
    ],
)
def test_a_bad_address_is_refused_in_the_words_of_the_store(
    client: Requester, address: str
) -> None:
    [stored] = client.ask_json("MAILBOX.CREATE", name=address)["error"].splitlines()
    with pytest.raises(Refusal) as refused:
        check_address(address)
    assert str(refused.value) == stored


@pytest.mark.parametrize(
    ("command", "payload", "error"),
    TABLE,
    ids=[f"{at}-{row[0][:20]}" for at, row in enumerate(TABLE)],
)
def test_it_gets_its_error_and_changes_nothing(
    client: Requester, command: str, payload: bytes, error: str
) -> None:
    before = state(client)
    answer = client.raw(command, payload)
    found = json.loads(answer)
    [shape] = [shape for prefix, shape in SHAPES.items() if command.startswith(prefix)]
    assert found == {"error": found["error"], **shape}
    assert answer == json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()
    if error == UNREADABLE:
        assert found["error"].startswith(error)
        assert re.search(r" at line \d+ column \d+$", found["error"])
    else:
        assert found["error"] == error
    assert state(client) == before
    # The same without a reply subject: the client learns that it was refused.
    client.publish(command, payload)
    told = f"-ERR 'Permissions Violation for Publish to \"$mq9.AI.{command}\"'\r\n"
    assert client.frame() == told.encode()
    assert state(client) == before
