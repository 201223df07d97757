"""What one client alone can say: the commands, their limits and their errors.

Only what is sent; the answers are recorded from a nats-server by `record.py`.
"""
# ruff: noqa: E501  (a script is easier to read in one piece)

import json

from tests.conformance.exchange import Exchange, single


def connect(**options: object) -> str:
    """A CONNECT line; quiet, with headers, unless told otherwise."""
    said: dict[str, object] = {"verbose": False, "headers": True, "no_responders": True}
    return "CONNECT " + json.dumps(said | options, separators=(",", ":")) + "\r\n"


C = connect()
VERBOSE = connect(verbose=True)
PEDANTIC = connect(pedantic=True)
PLAIN = connect(headers=False, no_responders=False)
PING = "PING\r\n"
HEADERS = "NATS/1.0\r\nA: b\r\n\r\n"


def after(start: str, **scripts: str) -> list[Exchange]:
    """Exchanges that begin with `start`; a PING goes behind each."""
    return [single(name.replace("_", " "), start + sent + PING) for name, sent in scripts.items()]


CONNECTING = [
    single("connect and ping, protocol 1", connect(protocol=1) + PING + PING),
    single("connect and ping, protocol 0", connect(protocol=0) + PING),
    single("connect and ping, no protocol", "CONNECT {}\r\nPING\r\n"),
    single("ping, connect with protocol 1, ping", PING + connect(protocol=1) + PING),
    single("connect, verbose", VERBOSE),
    single("connect, verbose, protocol 1", connect(verbose=True, protocol=1) + PING + PING),
    single("connect, lower case", "connect {}\r\nping\r\n"),
    single("connect, mixed case", 'CoNnEcT {"verbose":false}\r\npInG\r\n'),
    single("connect, tab before the options", 'CONNECT\t{"verbose":false}\r\nPING\r\n'),
    single("connect, many blanks", 'CONNECT    {"verbose":false}   \r\nPING\r\n'),
    single("connect, no blank", 'CONNECT{"verbose":false}\r\nPING\r\n'),
    single("connect without options", "CONNECT\r\nPING\r\n"),
    single("connect with blanks only", "CONNECT   \r\nPING\r\n"),
    single("connect, line feed only", 'CONNECT {"verbose":false}\nPING\n'),
    single("connect, blanks in the options", 'CONNECT { "verbose" : false }\r\nPING\r\n'),
    single("connect, unknown option", 'CONNECT {"verbose":false,"never_heard":[1,{}]}\r\nPING\r\n'),
    single("connect, option of another case", 'CONNECT {"VERBOSE":false}\r\nPING\r\n'),
    single("connect, option twice", 'CONNECT {"verbose":true,"verbose":false}\r\nPING\r\n'),
    single("connect, option null", 'CONNECT {"verbose":null,"name":null}\r\nPING\r\n'),
    single("connect, options null", "CONNECT null\r\nPING\r\n"),
    single("connect, options a list", "CONNECT []\r\nPING\r\n"),
    single("connect, options a number", "CONNECT 1\r\nPING\r\n"),
    single("connect, verbose a string", 'CONNECT {"verbose":"false"}\r\nPING\r\n'),
    single("connect, verbose a number", 'CONNECT {"verbose":0}\r\nPING\r\n'),
    single("connect, protocol a string", 'CONNECT {"verbose":false,"protocol":"1"}\r\nPING\r\n'),
    single("connect, protocol a fraction", 'CONNECT {"verbose":false,"protocol":1.5}\r\nPING\r\n'),
    single("connect, protocol 2", connect(protocol=2) + PING),
    single("connect, protocol negative", connect(protocol=-1) + PING),
    single("connect, name a number", 'CONNECT {"verbose":false,"name":5}\r\nPING\r\n'),
    single("connect, name with escapes", connect(name='a "quoted" \u00e9 name') + PING),
    single("connect, echo null", connect(echo=None) + "SUB ce 1\r\nPUB ce 1\r\nx\r\n" + PING),
    single("connect, options cut", 'CONNECT {"verbose":false\r\nPING\r\n'),
    single("connect, options and more", 'CONNECT {"verbose":false} x\r\nPING\r\n'),
    single("connect, not UTF-8", 'CONNECT {"verbose":false,"name":"\u00ff\u00fe"}\r\nPING\r\n'),
    single("connect with user where none is needed", connect(user="a", **{"pass": "b"}) + PING),
    single("connect with an account", connect(account="a") + PING),
    single("connect with token where none is needed", connect(auth_token="t") + PING),
    single("connect twice, verbose first", VERBOSE + C + PING),
    single("connect twice, verbose second", C + VERBOSE + "SUB c2 1\r\n" + PING),
    single(
        "connect twice, echo turned off",
        C + connect(echo=False) + "SUB c3 1\r\nPUB c3 0\r\n\r\n" + PING,
    ),
    single(
        "connect twice, headers turned off",
        C + PLAIN + "SUB c4 1\r\nHPUB c4 12 12\r\nNATS/1.0\r\n\r\n\r\n" + PING,
    ),
    single("connect twice, second bad", C + "CONNECT {bad\r\n" + PING),
    single("connect twice, no responders without headers", C + connect(headers=False) + PING),
    single("connect after a subscription", "SUB c5 1\r\n" + C + "PUB c5 2\r\nhi\r\n" + PING),
    single("no responders without headers, verbose", connect(verbose=True, headers=False)),
    single("publish without connect", "PUB c6 1\r\nx\r\nPING\r\n"),
    single("publish with headers without connect", f"HPUB c7 18 18\r\n{HEADERS}\r\nPING\r\n"),
    single("subscribe and publish without connect", "SUB c8 1\r\nPUB c8 1\r\nx\r\nPING\r\n"),
    single("no echo", connect(echo=False) + "SUB c9 1\r\nPUB c9 1\r\nx\r\n" + PING),
]

OTHER_COMMANDS = [
    single("nothing", "\r\n"),
    single("empty line after connect", C + "\r\n" + PING),
    single("line feeds", C + "\n" + PING),
    single("blank before a command", C + " PING\r\n"),
    single("ping with blank behind", C + "PING \r\n"),
    single("ping with junk behind", C + "PING junk\r\nPING\r\n"),
    single("pong with junk behind", C + "PONG junk\r\nPING\r\n"),
    single("ping glued", C + "PINGPING\r\n"),
    single("ping, carriage return inside", C + "PI\rNG\r\n"),
    single("ping, two carriage returns", C + "PING\r\r\n"),
    single("ping, line feed only", C + "PING\n"),
    single("ping, carriage return only", C + "PING\rPING\r\n"),
    single("ping, lower case", C + "ping\r\n"),
    single("pong unasked", C + "PONG\r\n" + PING),
    single("pong, lower case", C + "pong\r\n" + PING),
    single("pong, verbose", VERBOSE + "PONG\r\n" + PING),
    single("many pings", C + PING * 20),
    single("ok from a client", C + "+OK\r\n" + PING),
    single("ok from a client, verbose", VERBOSE + "+OK\r\n" + PING),
    single("ok cut from a client", C + "+O\r\n" + PING),
    single("error from a client", C + "-ERR 'mine'\r\n" + PING),
    single("info from a client", C + "INFO {}\r\n" + PING),
    single("info from a client, bad", C + "INFO x\r\n" + PING),
    single("msg from a client", C + "MSG a 1 1\r\nx\r\n" + PING),
    single("hmsg from a client", C + "HMSG a 1 1 1\r\nx\r\n" + PING),
    single("route subscription from a client", C + "RS+ a b\r\n" + PING),
    single("account subscription from a client", C + "A+ a\r\n" + PING),
    single("leaf message from a client", C + "LMSG a 1\r\nx\r\n" + PING),
    *[
        single(f"unknown command {word}", C + word + "\r\n")
        for word in (
            "P",
            "PU",
            "PUX",
            "PUBX a 1",
            "S",
            "SUX",
            "SUBX a 1",
            "U",
            "UNSUBX 1",
            "H",
            "HPUX",
            "HPUBX a 1 1",
            "C",
            "CONNEXT {}",
            "PINX",
            "PONX",
            "PI",
            "I",
            "INFX",
            "Q",
            "0",
            "{}",
            "\u00e9",
            "\x00",
        )
    ],
    single("unknown command, verbose", VERBOSE + "FOO\r\n"),
    single("unknown command, then more", C + "FOO\r\nPING\r\nSUB a 1\r\n"),
    single("unknown command behind messages", C + "SUB o1 1\r\nPUB o1 1\r\nx\r\nFOO\r\n"),
]

SUBSCRIBING = [
    *after(
        C,
        sub_tabs="SUB\tsa\t1\r\nPUB sa 0\r\n\r\n",
        sub_many_blanks="SUB   sb    7  \r\nPUB sb 0\r\n\r\n",
        sub_lower_case="sub sc 1\r\nPUB sc 0\r\n\r\n",
        sub_without_sid="SUB sd\r\n",
        sub_without_anything="SUB\r\n",
        sub_blank_only="SUB \r\n",
        sub_too_many_words="SUB se q 1 2\r\n",
        sub_five_words="SUB se q 1 2 3 4\r\n",
        sub_sid_a_word="SUB sf one-Two.3\r\nPUB sf 0\r\n\r\n",
        sub_sid_punctuation="SUB sf *>\r\nPUB sf 0\r\n\r\n",
        sub_sid_not_ascii="SUB sf \u00e9\r\nPUB sf 0\r\n\r\n",
        sub_same_sid_twice="SUB sg 1\r\nSUB sg 1\r\nPUB sg 0\r\n\r\n",
        sub_same_sid_other_subject="SUB sh 1\r\nSUB si 1\r\nPUB sh 1\r\nh\r\nPUB si 1\r\ni\r\n",
        sub_same_sid_then_unsub="SUB sj 1\r\nSUB sk 1\r\nUNSUB 1\r\nPUB sj 1\r\nj\r\nPUB sk 1\r\nk\r\n",
        sub_same_sid_with_queue="SUB sl 1\r\nSUB sl q 1\r\nPUB sl 0\r\n\r\n",
        sub_reused_sid="SUB sm 1\r\nUNSUB 1\r\nSUB sn 1\r\nPUB sm 0\r\n\r\nPUB sn 0\r\n\r\n",
        sub_empty_first_token="SUB .a 1\r\n",
        sub_dot="SUB . 1\r\n",
        sub_dots="SUB ... 1\r\n",
        sub_only_star="SUB * 1\r\nPUB so 0\r\n\r\nPUB so.p 0\r\n\r\n",
        sub_only_greater="SUB > 1\r\nPUB sp 0\r\n\r\nPUB sp.q 0\r\n\r\n",
        sub_star_in_token="SUB sq* 1\r\nPUB sq* 0\r\n\r\nPUB sqx 0\r\n\r\n",
        sub_star_inside_token="SUB s*q.r 1\r\nPUB sxq.r 0\r\n\r\nPUB s*q.r 0\r\n\r\n",
        sub_greater_in_token="SUB sr> 1\r\nPUB sr> 0\r\n\r\nPUB srx 0\r\n\r\n",
        sub_two_stars="SUB ** 1\r\nPUB ** 0\r\n\r\nPUB ss 0\r\n\r\n",
        sub_two_greaters="SUB st.>> 1\r\nPUB st.>> 0\r\n\r\nPUB st.a 0\r\n\r\n",
        sub_greater_inside="SUB su.>.a 1\r\n",
        sub_star_then_greater="SUB sv.*.> 1\r\nPUB sv.a 0\r\n\r\nPUB sv.a.b 0\r\n\r\nPUB sv.a.b.c 0\r\n\r\n",
        sub_greater_needs_a_token="SUB sw.> 1\r\nPUB sw 0\r\n\r\nPUB sw.a 0\r\n\r\n",
        sub_stars="SUB *.sx.* 1\r\nPUB a.sx.b 0\r\n\r\nPUB a.sx 0\r\n\r\nPUB a.sx.b.c 0\r\n\r\n",
        sub_subjects_differ_by_case="SUB Sy 1\r\nPUB sy 0\r\n\r\nPUB Sy 0\r\n\r\n",
        sub_odd_characters="SUB a!\"#$%&'()+,-/:;<=?@[]^_`{|}~ 1\r\nPUB a!\"#$%&'()+,-/:;<=?@[]^_`{|}~ 0\r\n\r\n",
        sub_control_character="SUB s\x01z 1\r\nPUB s\x01z 0\r\n\r\n",
        sub_zero_byte="SUB s\x00z 1\r\nPUB s\x00z 0\r\n\r\n",
        sub_form_feed="SUB s\x0cz 1\r\nPUB s\x0cz 0\r\n\r\n",
        sub_queue="SUB ta q 1\r\nPUB ta 0\r\n\r\n",
        sub_queue_with_wildcard="SUB tb q.* 1\r\nPUB tb 0\r\n\r\n",
        sub_queue_with_empty_token="SUB tc q..r 1\r\nPUB tc 0\r\n\r\n",
        sub_queue_odd="SUB tc . 1\r\nPUB tc 0\r\n\r\n",
        sub_sys="SUB $SYS.REQ.SERVER.PING 1\r\nPUB $SYS.REQ.SERVER.PING 0\r\n\r\n",
        sub_js="SUB $JS.ACK.> 1\r\nPUB $JS.ACK.a 0\r\n\r\n",
        sub_line_feed_only="SUB te 1\nPUB te 1\r\nx\r\n",
        sub_carriage_return_inside="SUB t\rf 1\r\nPUB tf 0\r\n\r\n",
        sub_carriage_return_twice="SUB tg 1\r\r\nPUB tg 0\r\n\r\n",
        sub_long_subject="SUB " + "x." * 300 + "x 1\r\nPUB " + "x." * 300 + "x 0\r\n\r\n",
        unsub="SUB ua 1\r\nPUB ua 0\r\n\r\nUNSUB 1\r\nPUB ua 0\r\n\r\n",
        unsub_tabs="SUB ub 1\r\nUNSUB\t1\t1\r\nPUB ub 0\r\n\r\nPUB ub 0\r\n\r\n",
        unsub_lower_case="SUB uc 1\r\nunsub 1\r\nPUB uc 0\r\n\r\n",
        unsub_max_0="SUB ud 1\r\nUNSUB 1 0\r\nPUB ud 0\r\n\r\n",
        unsub_max_negative="SUB ue 1\r\nUNSUB 1 -1\r\nPUB ue 0\r\n\r\n",
        unsub_max_a_word="SUB uf 1\r\nUNSUB 1 x\r\nPUB uf 0\r\n\r\n",
        unsub_max_huge="SUB ug 1\r\nUNSUB 1 99999999999999999999\r\nPUB ug 0\r\n\r\n",
        unsub_max_large="SUB ug 1\r\nUNSUB 1 999999999\r\nPUB ug 0\r\n\r\n",
        unsub_max_leading_zeros="SUB uh 1\r\nUNSUB 1 001\r\nPUB uh 0\r\n\r\nPUB uh 0\r\n\r\n",
        unsub_max_below_delivered="SUB ui 1\r\n"
        + "PUB ui 0\r\n\r\n" * 3
        + "UNSUB 1 2\r\nPUB ui 0\r\n\r\n",
        unsub_max_equals_delivered="SUB uj 1\r\n"
        + "PUB uj 0\r\n\r\n" * 2
        + "UNSUB 1 2\r\nPUB uj 0\r\n\r\n",
        unsub_max_above_delivered="SUB uk 1\r\n"
        + "PUB uk 0\r\n\r\n" * 2
        + "UNSUB 1 3\r\n"
        + "PUB uk 0\r\n\r\n" * 2,
        unsub_max_raised="SUB ul 1\r\nUNSUB 1 1\r\nUNSUB 1 2\r\n" + "PUB ul 0\r\n\r\n" * 3,
        unsub_max_lowered="SUB um 1\r\nUNSUB 1 3\r\nUNSUB 1 1\r\n" + "PUB um 0\r\n\r\n" * 3,
        unsub_max_taken_back="SUB um 1\r\nUNSUB 1 1\r\nUNSUB 1\r\n" + "PUB um 0\r\n\r\n" * 2,
        unsub_max_then_same_sid="SUB un 1\r\nUNSUB 1 1\r\nSUB un 1\r\n" + "PUB un 0\r\n\r\n" * 3,
        unsub_max_reached_then_same_sid="SUB un 1\r\nUNSUB 1 1\r\nPUB un 0\r\n\r\nSUB un 1\r\n"
        + "PUB un 0\r\n\r\n" * 2,
        unsub_twice="SUB uo 1\r\nUNSUB 1\r\nUNSUB 1\r\n",
        unsub_nothing="UNSUB\r\n",
        unsub_blank="UNSUB \r\n",
        unsub_three_words="UNSUB 1 2 3\r\n",
        unsub_blanks_behind="SUB up 1\r\nUNSUB 1   \r\nPUB up 0\r\n\r\n",
    ),
    *after(
        VERBOSE,
        sub_verbose="SUB va 1\r\nSUB va..b 2\r\nUNSUB 1\r\nUNSUB 9\r\n",
        sub_verbose_wildcard_error="SUB a. 1\r\nSUB >.> 1\r\n",
        sub_verbose_twice="SUB vb 1\r\nSUB vb 1\r\n",
        pub_verbose="SUB vc 1\r\nPUB vc 1\r\nx\r\nPUB vc 0\r\n\r\nPUB nobody-vc 0\r\n\r\n",
        hpub_verbose=f"SUB vd 1\r\nHPUB vd 18 20\r\n{HEADERS}hi\r\n",
        no_responders_verbose="SUB ve 1\r\nPUB nobody-ve ve 0\r\n\r\n",
        unsub_max_verbose="SUB vf 1\r\nUNSUB 1 1\r\nPUB vf 0\r\n\r\nPUB vf 0\r\n\r\n",
        ping_verbose=PING,
    ),
    *after(
        PEDANTIC,
        pedantic_pub_wildcard="SUB wa.* 1\r\nPUB wa.* 1\r\nx\r\n",
        pedantic_pub_greater="SUB wb.> 1\r\nPUB wb.> 1\r\nx\r\n",
        pedantic_pub_empty_token="PUB wc..d 1\r\nx\r\n",
        pedantic_pub_trailing_dot="PUB wc. 1\r\nx\r\n",
        pedantic_pub_leading_dot="PUB .wc 1\r\nx\r\n",
        pedantic_pub_star_in_token="SUB wd* 1\r\nPUB wd* 1\r\nx\r\n",
        pedantic_pub_reply_wildcard="SUB we 1\r\nPUB we r.* 1\r\nx\r\n",
        pedantic_hpub_wildcard=f"HPUB wf.* 18 18\r\n{HEADERS}\r\n",
        pedantic_sub_bad="SUB wg..h 1\r\nSUB wg.>.h 1\r\n",
        pedantic_sid_a_word="SUB wh one\r\nPUB wh 0\r\n\r\n",
        pedantic_unsub_unknown="UNSUB 99\r\n",
        pedantic_good="SUB wi 1\r\nPUB wi 2\r\nhi\r\n",
    ),
    *after(
        connect(pedantic=True, verbose=True),
        pedantic_verbose_pub_wildcard="PUB wj.* 1\r\nx\r\n",
        pedantic_verbose_good="SUB wk 1\r\nPUB wk 1\r\nx\r\n",
    ),
    single(
        "sub in two queues",
        C + "SUB td q 1\r\nSUB td r 2\r\nPUB td 0\r\n\r\n" + PING,
        any_order=True,
    ),
    single("pub wildcard, pedantic by default", "SUB wl.* 1\r\nPUB wl.* 1\r\nx\r\nPING\r\n"),
    single(
        "pub wildcard, not pedantic",
        connect(pedantic=False)
        + "SUB wm.> 1\r\nPUB wm.* 1\r\nx\r\nPUB wm..a 1\r\nx\r\nPUB wm. 1\r\nx\r\nPING\r\n",
    ),
    single("sub with wildcards, verbose by default", "SUB a.*.> 1\r\nSUB a..b 2\r\nPING\r\n"),
]
