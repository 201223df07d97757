"""Who may do what: authentication and permissions.

Only what is sent; the answers are recorded from a nats-server by `record.py`.
"""

from tests.conformance.exchange import Exchange, several, single
from tests.conformance.scripts_protocol import HEADERS, PING, C, connect
from tests.conformance.scripts_publishing import hpub


def login(user: str, password: str = "secret", **options: object) -> str:
    """A CONNECT with user and password."""
    return connect(user=user, **{"pass": password}, **options)


def as_user(user: str, **scripts: str) -> list[Exchange]:
    """Exchanges of a user of the configuration `users`; a PING goes behind each."""
    return [
        single(f"{user} {name.replace('_', ' ')}", login(user) + sent + PING, config="users")
        for name, sent in scripts.items()
    ]


AUTHENTICATION = [
    *[
        single(f"users: {name}", sent, config="users")
        for name, sent in {
            "right password": login("anyone") + PING,
            "right password, verbose": login("anyone", verbose=True) + PING,
            "right password, protocol 1": login("anyone", protocol=1) + PING,
            "wrong password": login("anyone", "wrong") + PING,
            "wrong password, verbose": login("anyone", "wrong", verbose=True) + PING,
            "empty password": login("anyone", "") + PING,
            "unknown user": login("nobody") + PING,
            "no credentials": C + PING,
            "user without password": connect(user="anyone") + PING,
            "password without user": connect(**{"pass": "secret"}) + PING,
            "token instead": connect(auth_token="secret") + PING,
            "a user that has no password": connect(user="named") + PING,
            "a user that has no password, empty": login("named", "") + PING,
            "a user that has no password, with one": login("named", "secret") + PING,
            "a user that has no password, token": connect(user="named", auth_token="x") + PING,
            "ping first": PING,
            "pong first": "PONG\r\n",
            "sub first": "SUB a 1\r\n",
            "pub first": "PUB a 1\r\nx\r\n",
            "hpub first": hpub("a", HEADERS),
            "unsub first": "UNSUB 1\r\n",
            "unknown command first": "FOO\r\n",
            "http first": "GET / HTTP/1.1\r\n\r\n",
            "bad options": "CONNECT {bad\r\n",
            "bcrypt password": login("hashed", "secret") + PING,
            "bcrypt password wrong": login("hashed", "wrong") + PING,
            "bcrypt hash as password": login("hashed", "$2a$04$") + PING,
            "connect again with the same": login("anyone") + login("anyone") + PING,
            "connect again as another": login("anyone")
            + login("limited")
            + "PUB never 0\r\n\r\n"
            + PING,
            "connect again wrong": login("anyone") + login("anyone", "wrong") + PING,
            "messages behind connect": login("anyone") + "SUB au 1\r\nPUB au 1\r\nx\r\n" + PING,
            "messages behind wrong connect": login("anyone", "wrong")
            + "SUB au 1\r\nPUB au 1\r\nx\r\n"
            + PING,
            "user name not a string": connect(user=5, **{"pass": "secret"}) + PING,
            "no responders without headers": login("anyone", headers=False) + PING,
            "wrong password, no responders without headers": login("anyone", "wrong", headers=False)
            + PING,
            "control line over before connect": "CONNECT " + "x" * 5000 + "\r\n",
        }.items()
    ],
    *[
        single(f"token: {name}", sent, config="token")
        for name, sent in {
            "right": connect(auth_token="s3cr3t") + PING,
            "wrong": connect(auth_token="s3cr3T") + PING,
            "longer": connect(auth_token="s3cr3t!") + PING,
            "none": C + PING,
            "as password": connect(user="x", **{"pass": "s3cr3t"}) + PING,
            "as user": connect(user="s3cr3t") + PING,
            "ping first": PING,
        }.items()
    ],
    *[
        single(f"single user: {name}", sent, config="single")
        for name, sent in {
            "right": login("solo") + PING,
            "wrong": login("solo", "wrong") + PING,
            "other": login("duo") + PING,
            "none": C + PING,
        }.items()
    ],
    *[
        single(f"no_auth_user: {name}", sent, config="guest")
        for name, sent in {
            "no credentials": C + "SUB guest.a 1\r\nPUB guest.a 1\r\nx\r\n" + PING,
            "no credentials, not allowed": C + "PUB other 1\r\nx\r\n" + PING,
            "no connect": "SUB guest.a 1\r\nPUB guest.a 1\r\nx\r\nPUB other 1\r\nx\r\n" + PING,
            "ping first": PING,
            "ping, then connect": PING + login("member") + "PUB other 1\r\nx\r\n" + PING,
            "sub, then connect": "SUB guest.b 1\r\n"
            + login("member")
            + "PUB other 1\r\nx\r\n"
            + PING,
            "credentials": login("member") + "PUB other 1\r\nx\r\n" + PING,
            "wrong credentials": login("member", "wrong") + PING,
            "unknown user": login("nobody") + PING,
            "token": connect(auth_token="t") + PING,
            "user without password": connect(user="member") + PING,
        }.items()
    ],
    single("timeout: silence", "", config="timeout"),
    single("timeout: half a connect", "CONNECT {", config="timeout"),
]

PERMISSIONS = [
    *as_user(
        "limited",
        publishes="PUB a.x 1\r\nx\r\nPUB b.x 1\r\nx\r\n",
        publishes_elsewhere="PUB c 1\r\nx\r\n",
        publishes_too_deep="PUB b.x.y 1\r\nx\r\n",
        publishes_denied="PUB a.secret 1\r\nx\r\n",
        publishes_denied_by_wildcard="PUB a.deny.x 1\r\nx\r\n",
        publishes_headers_elsewhere=hpub("c", HEADERS, "x"),
        publishes_to_a_wildcard="PUB a.* 1\r\nx\r\n",
        publishes_to_a_wildcard_elsewhere="PUB > 1\r\nx\r\n",
        publishes_with_reply="PUB a.x c.reply 1\r\nx\r\n",
        publishes_with_denied_reply="PUB a.x a.secret 1\r\nx\r\n",
        publishes_with_allowed_reply="PUB a.x a.reply 1\r\nx\r\n",
        subscribes="SUB a.x 1\r\nPUB a.x 1\r\nx\r\n",
        subscribes_elsewhere="SUB c 1\r\n",
        subscribes_everything="SUB > 1\r\n",
        subscribes_denied="SUB a.secret 1\r\n",
        subscribes_denied_by_wildcard="SUB a.hidden.x 1\r\n",
        subscribes_denied_wildcard="SUB a.hidden.* 1\r\n",
        subscribes_over_a_denied_one="SUB a.* 1\r\nPUB a.x 1\r\nx\r\n",
        subscribes_over_all_denied="SUB a.> 1\r\n",
        subscribes_inbox="SUB _INBOX.a.* 1\r\n",
        subscribes_wider_than_allowed="SUB *.x 1\r\n",
        subscribes_twice_elsewhere="SUB c 1\r\nSUB c 1\r\nUNSUB 1\r\n",
        subscribes_bad_subject="SUB c..d 1\r\n",
        subscribes_queue_elsewhere="SUB c q 1\r\n",
        subscribes_denied_queue="SUB a.secret q 1\r\n",
        no_responders="SUB a.r 1\r\nPUB a.nobody a.r 0\r\n\r\n",
        no_responders_not_allowed="SUB a.r 1\r\nPUB c a.r 0\r\n\r\n",
    ),
    single(
        "limited verbose",
        login("limited", verbose=True)
        + "PUB c 1\r\nx\r\nSUB c 1\r\nSUB c q 1\r\nSUB a.x 2\r\n"
        + PING,
        config="users",
    ),
    *as_user(
        "worker",
        subscribes_in_its_queue="SUB q.a workers 1\r\nPUB q.a 1\r\nx\r\n",
        subscribes_in_another_queue="SUB q.a idlers 1\r\n",
        subscribes_without_queue="SUB q.a 1\r\n",
        subscribes_in_a_denied_queue="SUB open.a closed 1\r\n",
        subscribes_in_an_open_queue="SUB open.a other 1\r\nPUB open.a 1\r\nx\r\n",
        subscribes_open_plainly="SUB open.a 1\r\nPUB open.a 1\r\nx\r\n",
        subscribes_in_a_queue_by_wildcard="SUB w.a v1.prod 1\r\nSUB w.a v2.test 2\r\n",
    ),
    *as_user(
        "mute",
        publishes="PUB a 1\r\nx\r\n",
        subscribes="SUB mute.a 1\r\n",
        publishes_inbox="PUB _INBOX.x 1\r\nx\r\n",
    ),
    *as_user(
        "deaf",
        publishes="PUB a 1\r\nx\r\n",
        subscribes="SUB a 1\r\n",
        subscribes_inbox="SUB _INBOX.> 1\r\n",
    ),
    *as_user(
        "short",
        publishes="PUB a.x 1\r\nx\r\nPUB c 1\r\nx\r\n",
        subscribes="SUB a.x 1\r\nSUB c 2\r\n",
    ),
    *as_user(
        "default",
        publishes="PUB common.x 1\r\nx\r\nPUB c 1\r\nx\r\n",
        subscribes="SUB common.x 1\r\nSUB c 2\r\n",
    ),
    several(
        "denied messages are taken out of a wildcard",
        ("a", login("limited") + "SUB a.* 1\r\n" + PING),
        (
            "b",
            login("anyone")
            + "PUB a.ok 1\r\n1\r\nPUB a.secret 1\r\n2\r\nPUB a.fine 1\r\n3\r\n"
            + PING,
        ),
        ("a", PING),
        config="users",
    ),
    several(
        "denied subscription is not there",
        ("a", login("limited") + "SUB c 1\r\n" + PING),
        ("b", login("anyone") + "PUB c 1\r\n1\r\n" + PING),
        ("a", PING),
        config="users",
    ),
    several(
        "denied publication does not arrive",
        ("a", login("anyone") + "SUB > 1\r\n" + PING),
        ("b", login("limited") + "PUB c 1\r\n1\r\nPUB a.ok 1\r\n2\r\n" + PING),
        ("a", PING),
        config="users",
    ),
    several(
        "response is allowed",
        ("s", login("service") + "SUB svc.a 1\r\n" + PING),
        ("c", login("anyone") + "SUB my.inbox 1\r\nPUB svc.a my.inbox 1\r\nq\r\n" + PING),
        ("s", PING),
        ("s", "PUB my.inbox 1\r\nr\r\n" + PING),
        ("c", PING),
        config="users",
    ),
    several(
        "responses are allowed up to the limit",
        ("s", login("service") + "SUB svc.b 1\r\n" + PING),
        ("c", login("anyone") + "SUB my.inbox2 1\r\nPUB svc.b my.inbox2 1\r\nq\r\n" + PING),
        ("s", PING),
        ("s", "PUB my.inbox2 1\r\n1\r\nPUB my.inbox2 1\r\n2\r\nPUB my.inbox2 1\r\n3\r\n" + PING),
        ("c", PING),
        config="users",
    ),
    several(
        "response without a request",
        ("s", login("service") + "SUB svc.c 1\r\nPUB my.inbox3 1\r\nr\r\n" + PING),
        config="users",
    ),
    several(
        "response to a request without reply",
        ("s", login("service") + "SUB svc.d 1\r\n" + PING),
        ("c", login("anyone") + "SUB my.inbox4 1\r\nPUB svc.d 1\r\nq\r\n" + PING),
        ("s", PING),
        ("s", "PUB my.inbox4 1\r\nr\r\n" + PING),
        ("c", PING),
        config="users",
    ),
    several(
        "response elsewhere",
        ("s", login("service") + "SUB svc.e 1\r\n" + PING),
        ("c", login("anyone") + "SUB my.inbox5 1\r\nPUB svc.e my.inbox5 1\r\nq\r\n" + PING),
        ("s", PING),
        ("s", "PUB my.inbox6 1\r\nr\r\n" + PING),
        config="users",
    ),
    several(
        "response with headers",
        ("s", login("service") + "SUB svc.f 1\r\n" + PING),
        ("c", login("anyone") + "SUB my.inbox7 1\r\nPUB svc.f my.inbox7 1\r\nq\r\n" + PING),
        ("s", PING),
        ("s", hpub("my.inbox7", HEADERS, "r") + PING),
        ("c", PING),
        config="users",
    ),
    several(
        "response once only by default",
        ("s", login("once") + "SUB one.a 1\r\n" + PING),
        ("c", login("anyone") + "SUB my.inbox8 1\r\nPUB one.a my.inbox8 1\r\nq\r\n" + PING),
        ("s", PING),
        ("s", "PUB my.inbox8 1\r\n1\r\nPUB my.inbox8 1\r\n2\r\n" + PING),
        ("c", PING),
        config="users",
    ),
    several(
        "response to a queue member",
        ("s", login("service") + "SUB svc.g q 1\r\n" + PING),
        ("c", login("anyone") + "SUB my.inbox9 1\r\nPUB svc.g my.inbox9 1\r\nq\r\n" + PING),
        ("s", PING),
        ("s", "PUB my.inbox9 1\r\nr\r\n" + PING),
        ("c", PING),
        config="users",
    ),
    several(
        "response permission is of the connection",
        ("s", login("service") + "SUB svc.h 1\r\n" + PING),
        ("t", login("service") + PING),
        ("c", login("anyone") + "SUB my.inbox10 1\r\nPUB svc.h my.inbox10 1\r\nq\r\n" + PING),
        ("s", PING),
        ("t", "PUB my.inbox10 1\r\nr\r\n" + PING),
        ("c", PING),
        config="users",
    ),
    several(
        "responses denied where denied",
        ("s", login("denied") + "SUB den.a 1\r\n" + PING),
        ("c", login("anyone") + "SUB no.inbox 1\r\nPUB den.a no.inbox 1\r\nq\r\n" + PING),
        ("s", PING),
        ("s", "PUB no.inbox 1\r\nr\r\n" + PING),
        ("c", PING),
        config="users",
    ),
]
