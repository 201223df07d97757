"""Whatever a client says, mq9 answers as a real nats-server does, byte for byte.

Scripts come from a grammar of commands, most of them right and some of them broken.
MQ9_TEST_EXAMPLES=5000 tries that many other scripts than the usual ones.
"""

import itertools
import json
import os
from collections.abc import Iterator

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.peers import Server
from tests.wire import Wire, cut, without_info

EXPLORING = "MQ9_TEST_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("MQ9_TEST_EXAMPLES", "150"))

# nats-server first reads this much at once, and repeats some errors for a message in two reads.
MAX_SCRIPT_BYTES = 500

# Replaced by what differs from script to script: the servers may still be forgetting the last one.
UNIQUE = "@"
NUMBERS = itertools.count()

BOOLEANS = st.booleans()
BLANK = st.sampled_from([" "] * 8 + ["\t", "  ", " \t "])
END = st.sampled_from(["\r\n"] * 12 + ["\n"])
ODD_END = END | st.just("\r\r\n")
TOKEN = st.sampled_from(["a", "b", "c", "A", "a*", "é"])
SUBJECT = st.lists(TOKEN, max_size=2).map(lambda tokens: ".".join(["t@", *tokens]))
PATTERN = st.lists(TOKEN | st.sampled_from(["*", ">"]), max_size=2).map(
    lambda tokens: ".".join(["t@", *tokens])
)
BAD_SUBJECT = st.sampled_from(["t@.", ".t@", "t@..a", "t@.>.a", "."])
SID = st.sampled_from(["1", "2", "3", "x"])
PAYLOAD = st.sampled_from(["", "x", "hello", "PING\r\n", "\r\n", "\xff\x00"])
HEADERS = st.sampled_from(["NATS/1.0\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n", "no", ""])


@st.composite
def connects(draw: st.DrawFn) -> str:
    options: dict[str, object] = {"verbose": draw(BOOLEANS)}
    for name in ("pedantic", "echo", "headers", "no_responders"):
        if draw(BOOLEANS):
            options[name] = draw(BOOLEANS)
    if draw(BOOLEANS):
        options["protocol"] = draw(st.sampled_from([0, 1]))
    return "CONNECT " + json.dumps(options, separators=(",", ":")) + draw(END)


@st.composite
def subscriptions(draw: st.DrawFn) -> str:
    sid = draw(SID)
    # A group of one member: which of several gets a message is left to chance.
    words = [
        "SUB",
        draw(PATTERN | PATTERN | BAD_SUBJECT),
        *draw(st.sampled_from([[], [f"q{sid}"]])),
        sid,
    ]
    return draw(BLANK).join(words) + draw(ODD_END)


@st.composite
def unsubscriptions(draw: st.DrawFn) -> str:
    limit = draw(st.sampled_from([[], [], ["0"], ["1"], ["2"], ["x"]]))
    return draw(BLANK).join(["UNSUB", draw(SID), *limit]) + draw(ODD_END)


@st.composite
def publications(draw: st.DrawFn) -> str:
    payload = draw(PAYLOAD)
    reply = draw(st.sampled_from([[], [], ["t@.a"], ["t@.r"], ["_R_.x"]]))
    words = ["PUB", draw(SUBJECT | SUBJECT | PATTERN | BAD_SUBJECT), *reply, str(len(payload))]
    return draw(BLANK).join(words) + draw(END) + payload + "\r\n"


@st.composite
def publications_with_headers(draw: st.DrawFn) -> str:
    headers, payload = draw(HEADERS), draw(PAYLOAD)
    reply = draw(st.sampled_from([[], ["t@.a"]]))
    sizes = [str(len(headers)), str(len(headers) + len(payload))]
    words = ["HPUB", draw(SUBJECT | PATTERN), *reply, *sizes]
    return draw(BLANK).join(words) + draw(END) + headers + payload + "\r\n"


BROKEN = st.sampled_from(
    [
        "\r\n",
        "FOO\r\n",
        "PUB t@ -1\r\n\r\n",
        "PUB t@ x\r\n\r\n",
        "PUB t@\r\n",
        "PUB t@ 99999999\r\n",
        "PUB t@ 2\r\nabc\r\n",
        "PUB t@ 5\r\nabc\r\n",
        "HPUB t@ 5 3\r\nabc\r\n",
        "HPUB t@ 3\r\nabc\r\n",
        "SUB t@\r\n",
        "SUB t@ a b c\r\n",
        "UNSUB\r\n",
        "UNSUB 1 2 3\r\n",
        "CONNECT {\r\n",
        'CONNECT {"verbose":1}\r\n',
        "CONNECT []\r\n",
        "-ERR 'x'\r\n",
        "MSG t@ 1 1\r\nx\r\n",
        " PING\r\n",
        "PI",
        "SUB t@",
        "PUB t@ 3\r\nab",
    ]
) | st.text("PSUBHCING+-OKERR 0123 \r\n\t", min_size=1, max_size=8)
HARMLESS = st.sampled_from(
    ["PING\r\n", "ping\r\n", "PONG\r\n", "+OK\r\n", "PING x\r\n", "PINGPING\r\n", "INFO {}\r\n"]
)
COMMANDS = st.one_of(
    subscriptions(),
    subscriptions(),
    publications(),
    publications(),
    publications_with_headers(),
    unsubscriptions(),
    HARMLESS,
)
SCRIPTS = st.builds(
    lambda start, commands, broken: "".join([start, *commands, *broken]) + "PING\r\n",
    connects() | connects() | st.just(""),
    st.lists(COMMANDS | COMMANDS | COMMANDS | connects(), min_size=1, max_size=9),
    st.lists(BROKEN, max_size=1),
).filter(lambda script: len(script) < MAX_SCRIPT_BYTES)


def in_order(stream: bytes) -> bytes:
    """The stream with neighbouring messages sorted: their order is not defined."""

    def runs(frames: list[bytes]) -> Iterator[bytes]:
        for message, run in itertools.groupby(
            frames, lambda frame: frame.startswith((b"MSG ", b"HMSG "))
        ):
            yield from sorted(run, key=lambda frame: frame if message else b"")

    complete, rest = cut(without_info(stream))
    return b"".join(runs(complete)) + rest


def answer(server: Server, script: bytes) -> bytes:
    with Wire(server.port) as wire:
        wire.send(script)
        return in_order(wire.finish())


@settings(
    max_examples=EXAMPLES,
    derandomize=not EXPLORING,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(script=SCRIPTS)
def test_any_script_is_answered_as_by_nats_server(
    server: Server, real_server: Server, script: str
) -> None:
    sent = script.replace(UNIQUE, f"{next(NUMBERS):04}").encode("latin-1")
    note(f"sent: {sent!r}")
    assert answer(server, sent) == answer(real_server, sent)
