"""What several clients see of each other: routing, queue groups, headers, replies, echo.

Only what is sent; the answers are recorded from a nats-server by `record.py`. A step that only
receives sends a PING: what was routed before it comes before its PONG.
"""

from tests.conformance.exchange import several
from tests.conformance.scripts_protocol import HEADERS, PING, PLAIN, VERBOSE, C, connect
from tests.conformance.scripts_publishing import hpub

ROUTING = [
    several(
        "one to one",
        ("a", C + "SUB ra 1\r\n" + PING),
        ("b", C + "PUB ra 2\r\nhi\r\n" + PING),
        ("a", PING),
    ),
    several(
        "one to two",
        ("a", C + "SUB rb 1\r\n" + PING),
        ("b", C + "SUB rb 9\r\n" + PING),
        ("c", C + "PUB rb r 2\r\nhi\r\n" + PING),
        ("a", PING),
        ("b", PING),
    ),
    several(
        "two subscriptions of one client",
        ("a", C + "SUB rc 1\r\nSUB rc.* 2\r\nSUB > 3\r\n" + PING),
        ("b", C + "PUB rc 2\r\nhi\r\nPUB rc.x 2\r\nho\r\n" + PING),
        ("a", PING),
        any_order=True,
    ),
    several(
        "headers to a client with headers",
        ("a", C + "SUB rd 1\r\n" + PING),
        ("b", C + hpub("rd r", HEADERS, "hi") + PING),
        ("a", PING),
    ),
    several(
        "headers to a client without",
        ("a", PLAIN + "SUB re 1\r\n" + PING),
        ("b", C + hpub("re r", HEADERS, "hi") + hpub("re", HEADERS) + PING),
        ("a", PING),
    ),
    several(
        "headers to a client without connect",
        ("a", "SUB rf 1\r\n" + PING),
        ("b", C + hpub("rf", HEADERS, "hi") + PING),
        ("a", PING),
    ),
    several(
        "plain to a client with headers",
        ("a", C + "SUB rg 1\r\n" + PING),
        ("b", PLAIN + "PUB rg 2\r\nhi\r\n" + PING),
        ("a", PING),
    ),
    several(
        "request and reply",
        ("s", C + "SUB rh 1\r\n" + PING),
        ("c", C + "SUB _INBOX.x.* 5\r\nPUB rh _INBOX.x.1 2\r\nhi\r\n" + PING),
        ("s", PING),
        ("s", "PUB _INBOX.x.1 2\r\nho\r\n" + PING),
        ("c", PING),
    ),
    several(
        "no responders behind another's subscription",
        ("a", C + "SUB ri 1\r\n" + PING),
        ("b", C + "SUB rj 1\r\nPUB ri rj 0\r\n\r\n" + PING),
        ("a", "UNSUB 1\r\n" + PING),
        ("b", "PUB ri rj 0\r\n\r\n" + PING),
    ),
    several(
        "no responders goes only to who asked",
        ("a", C + "SUB rk 1\r\n" + PING),
        ("b", C + "SUB rk 7\r\nPUB nobody-rk rk 0\r\n\r\n" + PING),
        ("a", PING),
    ),
    several(
        "no responders, reply subscribed by another",
        ("a", C + "SUB rk2 1\r\n" + PING),
        ("b", C + "PUB nobody-rk2 rk2 0\r\n\r\n" + PING),
        ("a", PING),
    ),
    several(
        "no responders, queue group answers",
        ("a", C + "SUB rl q 1\r\n" + PING),
        ("b", C + "SUB rm 1\r\nPUB rl rm 0\r\n\r\n" + PING),
        ("a", PING),
    ),
    several(
        "no responders, service without echo asks itself",
        ("a", connect(echo=False) + "SUB rn 1\r\nSUB ro 2\r\nPUB rn ro 0\r\n\r\n" + PING),
    ),
    several(
        "subscriber has closed",
        ("a", C + "SUB rp 1\r\nFOO\r\n"),
        ("b", C + "SUB rq 1\r\nPUB rp rq 0\r\n\r\n" + PING),
    ),
    several(
        "echo off still reaches others",
        ("a", C + "SUB rr 1\r\n" + PING),
        ("b", connect(echo=False) + "SUB rr 2\r\nPUB rr 1\r\nx\r\n" + PING),
        ("a", PING),
    ),
    several(
        "echo off for the publisher only",
        ("a", connect(echo=False) + "SUB rs 1\r\n" + PING),
        ("b", C + "PUB rs 1\r\nx\r\n" + PING),
        ("a", "PUB rs 1\r\ny\r\n" + PING),
    ),
    several(
        "limit of a subscription counts all publishers",
        ("a", C + "SUB rt 1\r\nUNSUB 1 3\r\n" + PING),
        ("b", C + "PUB rt 1\r\n1\r\nPUB rt 1\r\n2\r\n" + PING),
        ("c", C + "PUB rt 1\r\n3\r\nPUB rt 1\r\n4\r\n" + PING),
        ("a", PING),
    ),
    several(
        "limit of a queue member",
        ("a", C + "SUB ru q 1\r\nUNSUB 1 2\r\n" + PING),
        ("b", C + "PUB ru 0\r\n\r\n" * 3 + PING),
        ("a", PING),
    ),
    several(
        "unsubscribed between two messages",
        ("a", C + "SUB rv 1\r\n" + PING),
        ("b", C + "PUB rv 1\r\n1\r\n" + PING),
        ("a", "UNSUB 1\r\n" + PING),
        ("b", "PUB rv 1\r\n2\r\n" + PING),
        ("a", PING),
    ),
    several(
        "verbose subscriber gets no extra ok",
        ("a", VERBOSE + "SUB rw 1\r\n" + PING),
        ("b", C + "PUB rw 1\r\nx\r\n" + PING),
        ("a", PING),
    ),
    several(
        "queue member without echo is passed over",
        ("a", connect(echo=False) + "SUB rx q 1\r\n" + PING),
        ("b", C + "SUB rx q 2\r\n" + PING),
        ("a", "PUB rx 1\r\nx\r\n" + PING),
        ("b", PING),
    ),
    several(
        "plain and queue subscriptions both get it",
        ("a", C + "SUB ry 1\r\n" + PING),
        ("b", C + "SUB ry q 2\r\n" + PING),
        ("c", C + "PUB ry 1\r\nx\r\n" + PING),
        ("a", PING),
        ("b", PING),
    ),
    several(
        "queue groups of different names both get it",
        ("a", C + "SUB rz q 1\r\n" + PING),
        ("b", C + "SUB rz r 2\r\n" + PING),
        ("c", C + "PUB rz 1\r\nx\r\n" + PING),
        ("a", PING),
        ("b", PING),
    ),
    several(
        "subject bytes come through",
        ("a", C + "SUB \xff.* 1\r\n" + PING),
        ("b", C + "PUB \xff.\xfe \xc3 1\r\nx\r\n" + PING),
        ("a", PING),
    ),
    several(
        "order of one publisher",
        ("a", C + "SUB sa.> 1\r\n" + PING),
        ("b", C + "".join(f"PUB sa.{n % 3} {len(str(n))}\r\n{n}\r\n" for n in range(30)) + PING),
        ("a", PING),
    ),
    several(
        "error of one does not touch the other",
        ("a", C + "SUB sb 1\r\n" + PING),
        ("b", C + "FOO\r\n"),
        ("c", C + "PUB sb 0\r\n\r\n" + PING),
        ("a", PING),
    ),
    several(
        "second connect ends the subscriptions",
        ("a", C + "SUB sc 1\r\n" + C + PING),
        ("b", C + "PUB sc 0\r\n\r\n" + PING),
        ("a", PING),
    ),
    several(
        "system subjects are not seen",
        ("a", C + "SUB > 1\r\nSUB $SYS.> 2\r\n" + PING),
        ("b", C + "FOO\r\n"),
        ("a", PING),
    ),
]
