"""What a fuzzer says to the broker: recorded exchanges with mistakes, and commands made at random.

The recorded ones are all requests of docs/protocol.md. The same seed says the same. Knows nothing
of sockets.
"""

import functools
import json
import random
import shlex
from pathlib import Path

from tests.mail import encoded

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
PREFIX = "$mq9.AI."
INBOX = "_INBOX.f"

CORE = (
    b"SUB fuzz.* q 1\r\nUNSUB 1 3\r\nPUB fuzz.a r 5\r\nhello\r\n"
    b"HPUB fuzz.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\nPONG\r\n"
)
WORDS = [
    b"\r\n",
    b"PUB ",
    b"HPUB ",
    b"SUB ",
    b" 0\r\n",
    b"\x00",
    b"\xff\xfe",
    b"-1",
    b"99999999999",
    b"$mq9.AI.",
    b'"',
    b"{",
    b"]",
]

# Few addresses, so that commands meet each other and mailboxes do not become many.
ADDRESSES = [
    "fuzzed",
    "fuzzed.dead",
    "fuzzed.queue",
    "agent.fuzzed",
    "Fuzzed",
    "a..b",
    "",
    "*",
    ">",
]
COMMANDS = {
    "MAILBOX.CREATE": (
        *("name", "ttl", "desc", "type", "public", "retention", "ack_wait", "ack_wait_ms"),
        *("max_deliver", "dead_letter", "max_ack_pending", "max_msgs", "max_bytes", "discard"),
        *("max_age", "max_msg_size", "dedup_window", "group_ttl", "exist_ok", "token"),
    ),
    "MAILBOX.UPDATE": (
        *(
            "ttl",
            "type",
            "public",
            "retention",
            "max_deliver",
            "dead_letter",
            "max_msgs",
            "max_age",
        ),
        *("max_bytes", "discard", "dedup_window", "group_ttl", "token"),
    ),
    "MAILBOX.REMOVE": ("token",),
    "MAILBOX.PURGE": ("token", "group_name"),
    "MAILBOX.QUERY": ("token", "encoding"),
    "MAILBOX.DELETE": (),
    "MAILBOX.MSG": (),
    "INBOX": (),
    "BROADCAST": (),
    "GROUP.REMOVE": ("group_name", "token"),
    "GROUP.LIST": ("token", "limit", "after"),
    "MSG.SEND": (),
    "MSG.FETCH": (
        *("deliver", "from_time", "from_id", "group_name", "member", "force_deliver", "encoding"),
        "config",
    ),
    "MSG.ACK": ("group_name", "mail_address", "msg_id", "msg_ids", "only", "kind", "delay_ms"),
    "MSG.RACK": (),
    "MSG.QUERY": ("key", "tags", "since", "after_id", "limit", "encoding", "delayed"),
    "MSG.DELETE": (),
    "PUBLIC.LIST": ("limit", "after"),
    "AGENT.REGISTER": ("mailbox", "name", "description", "tags", "ttl", "skills"),
    "AGENT.REPORT": ("mailbox", "load"),
    "AGENT.DISCOVER": ("text", "semantic", "tags", "alive", "fields", "status", "limit", "page"),
    "AGENT.UNREGISTER": ("mailbox",),
    "ADMIN.MAILBOX.LIST": ("limit", "start"),
    "ADMIN.MAILBOX.SHOW": (),
    "ADMIN.STATUS": (),
    "ADMIN.ACTIVITY": ("start", "after", "limit"),
    "ADMIN.ACCESS": (),
    "ADMIN.DEAD.REPLAY": ("created_ms",),
    "ADMIN.DEAD.RESOLVE": ("how", "created_ms"),
    "ADMIN.DEAD.RESOLVED": ("after", "before", "limit", "store"),
    "ADMIN.DEAD.STREAMS": ("prefixes",),
    "ADMIN.STREAM.QUERY": ("first", "before", "limit", "newest", "prefixes", "config"),
    "ADMIN.SCHEDULE.FIRE": ("name", "spec", "due", "mailbox", "subject", "headers", "payload"),
    "ADMIN.SCHEDULE.NOTE": ("name", "spec", "due", "fired"),
    "ADMIN.SCHEDULE.LIST": (),
    "ADMIN.SERVER.VARZ": (),
    "ADMIN.SERVER.YIELD": ("to",),
    "ADMIN.SERVER.CONNZ": ("cid", "limit", "offset", "sort", "subs"),
    "NO.SUCH": (),
}
OF_A_MAILBOX = (
    *("MSG.", "ADMIN.MAILBOX.SHOW", "ADMIN.DEAD.RE", "GROUP.", "INBOX", "BROADCAST"),
    *("MAILBOX.UPDATE", "MAILBOX.REMOVE", "MAILBOX.PURGE", "MAILBOX.QUERY", "MAILBOX.DELETE"),
    "MAILBOX.MSG",
)
OF_A_MESSAGE = ("MSG.DELETE", "MAILBOX.DELETE", "ADMIN.DEAD.RESOLVE", "ADMIN.DEAD.REPLAY")
# What is sent: a payload of any kind, and headers.
SENDS = ("MSG.SEND", "MAILBOX.MSG", "INBOX", "BROADCAST")
CONFIG = ("num_msgs", "ack_wait_ms", "max_bytes", "min_priority", "format", "held", "max_wait_ms")
HEADERS = (
    *("priority", "key", "tags", "delay", "ttl", "id", "persist", "dead-msg-id", "nonsense"),
    *("msg-id", "error", "last-delivery"),
)
TEXTS = (
    *("earliest", "latest", "from_id", "work_queue", "limits", "g", "urgent", "raw", "json"),
    *("nak", "term", "progress", "base64", "new", "old", "", "\x00", "ça", "\ud800", "x" * 300),
    *("fuzzed", "fuzzed.dead", "agent.fuzzed", "mq9://broker/agent.fuzzed", '"phrase" rain*'),
)
NUMBERS = (0, 1, 2, 5, 1000, -1, 2**31, 2**63, 2**64, 10**30, 0.5, 1e300)


def publication(subject: str, payload: bytes, headers: bytes = b"", number: int = 0) -> bytes:
    """A request as it is on the wire."""
    to = f"{subject} {INBOX}.{number}".encode("utf-8", "surrogatepass")
    if headers:
        sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
        return b"HPUB %s %s\r\n%s%s\r\n" % (to, sizes, headers, payload)
    return b"PUB %s %d\r\n%s\r\n" % (to, len(payload), payload)


@functools.cache
def recorded() -> tuple[bytes, ...]:
    """The requests of the protocol's page, in their order."""
    text = PAGE.read_text("utf-8").replace("\\\n", " ")
    found: list[bytes] = []
    for line in text.splitlines():
        if not line.startswith("$ nats "):
            continue
        words = shlex.split(line[2:])
        if "request" not in words:
            continue
        at = words.index("request")
        headers = [words[n + 1].split(":", 1) for n, word in enumerate(words) if word == "-H"]
        plain = [
            word
            for n, word in enumerate(words[at + 1 :], at + 1)
            if not word.startswith("-") and not words[n - 1].startswith("-")
        ]
        block = encoded([(name, value) for name, value in headers]) if headers else b""
        payload = plain[1].encode() if len(plain) > 1 else b""
        found.append(publication(plain[0], payload, block, len(found)))
    return tuple(found)


def value(choose: random.Random, depth: int = 0) -> object:
    """Anything that JSON can say, likely something that means something."""
    kind = choose.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return choose.choice(TEXTS)
    if kind < 4:
        return choose.choice(NUMBERS)
    if kind == 4:
        return choose.choice((True, False, None))
    if kind == 5:
        return [value(choose, depth + 1) for _ in range(choose.randrange(4))]
    return {choose.choice(TEXTS): value(choose, depth + 1) for _ in range(choose.randrange(4))}


def command(choose: random.Random) -> bytes:
    """A command with fields and headers chosen at random."""
    name = choose.choice(list(COMMANDS))
    subject = PREFIX + name
    if name.startswith(OF_A_MAILBOX):
        subject += f".{choose.choice(ADDRESSES)}"
    if name in OF_A_MESSAGE:
        subject += f".{choose.choice((0, 1, 7, 2**64, 'x'))}"
    if name in ("INBOX", "MAILBOX.MSG"):
        subject += choose.choice(("", ".normal", ".urgent", ".critical", ".x"))
    fields = COMMANDS[name]
    chosen = choose.sample(fields, choose.randint(0, min(4, len(fields))))
    body: dict[str, object] = {field: value(choose) for field in chosen}
    if "name" in body and name == "MAILBOX.CREATE":
        body["name"] = choose.choice(ADDRESSES)
    if "config" in body and choose.random() < 0.8:
        body["config"] = {field: value(choose) for field in choose.sample(CONFIG, 2)}
    payload = json.dumps(body).encode()
    block = b""
    if name in SENDS:
        payload = choose.randbytes(choose.randrange(300))
        said = choose.sample(HEADERS, choose.randrange(3))
        values = [str(choose.choice((*NUMBERS, "urgent", "k", "", "a,b"))) for _ in said]
        pairs = [(f"mq9-{each}", text) for each, text in zip(said, values, strict=True)]
        block = encoded(pairs) if pairs else b""
    return publication(subject, payload, block, choose.randrange(1000))


def exchange(choose: random.Random) -> bytes:
    """What one connection says: recorded or made up, with or without mistakes in it."""
    said = CONNECT + b"SUB %s.* 9\r\n" % INBOX.encode()
    kind = choose.random()
    if kind < 0.1:
        return choose.randbytes(choose.randint(1, 2000))
    if kind < 0.3:
        said += CORE
    elif kind < 0.6:
        page = recorded()
        start = choose.randrange(len(page))
        said += b"".join(page[start : start + choose.randint(1, 12)])
    else:
        said += b"".join(command(choose) for _ in range(choose.randint(1, 12)))
    said += b"PING\r\n"
    # Commands that are well formed and make no sense are half of it.
    return said if kind > 0.8 else mutated(said, choose)


def mutated(script: bytes, choose: random.Random) -> bytes:
    """A script with bytes turned, cut, doubled, or words put in."""
    turned = bytearray(script)
    for _ in range(choose.randint(1, 6)):
        at = choose.randrange(len(turned))
        match choose.randrange(5):
            case 0:
                turned[at] = choose.randrange(256)
            case 1:
                del turned[at : at + choose.randint(1, 20)]
            case 2:
                turned[at:at] = choose.choice(WORDS)
            case 3:
                turned[at:at] = turned[at : at + choose.randint(1, 200)]
            case 4:
                turned[at:at] = choose.randbytes(choose.randint(1, 50))
        if not turned:
            break
    return bytes(turned)
