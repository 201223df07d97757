"""What one client can publish: sizes, headers, replies, no responders, and the limits on them.

Only what is sent; the answers are recorded from a nats-server by `record.py`.
"""
# ruff: noqa: E501  (a script is easier to read in one piece)

from tests.conformance.exchange import single
from tests.conformance.scripts_protocol import HEADERS, PING, PLAIN, VERBOSE, C, after, connect

BARE = "NATS/1.0\r\n\r\n"


def hpub(subject: str, headers: str, payload: str = "") -> str:
    """An HPUB with the right sizes."""
    total = len(headers) + len(payload)
    return f"HPUB {subject} {len(headers)} {total}\r\n{headers}{payload}\r\n"


PUBLISHING = [
    *after(
        C,
        pub_tabs="SUB pa 1\r\nPUB\tpa\t2\r\nhi\r\n",
        pub_many_blanks="SUB pb 1\r\nPUB    pb     2   \r\nhi\r\n",
        pub_lower_case="SUB pc 1\r\npub pc 2\r\nhi\r\n",
        pub_leading_zeros="SUB pd 1\r\nPUB pd 0002\r\nhi\r\n",
        pub_zero_as_zeros="SUB pe 1\r\nPUB pe 000\r\n\r\n",
        pub_plus_sign="PUB pf +2\r\nhi\r\n",
        pub_size_hexadecimal="PUB pf 0x2\r\nhi\r\n",
        pub_size_fraction="PUB pf 2.0\r\nhi\r\n",
        pub_size_with_comma="PUB pf 2,0\r\nhi\r\n",
        pub_size_missing="PUB pf\r\n",
        pub_nothing="PUB\r\n",
        pub_blank="PUB \r\n",
        pub_size_only="PUB 2\r\nhi\r\n",
        pub_too_many_words="PUB pf r 2 2\r\nhi\r\n",
        pub_size_of_nine_digits="PUB pf 999999999\r\n",
        pub_size_of_ten_digits="PUB pf 9999999999\r\n",
        pub_size_of_twenty_digits="PUB pf 99999999999999999999\r\n",
        pub_size_2_to_32="PUB pf 4294967296\r\n",
        pub_size_2_to_64="PUB pf 18446744073709551616\r\n",
        pub_size_2_to_64_plus_1="PUB pf 18446744073709551617\r\nx\r\n",
        pub_size_with_many_zeros="SUB pg 1\r\nPUB pg 00000000000000000000000000000000002\r\nhi\r\n",
        pub_two_carriage_returns="SUB pg 1\r\nPUB pg 2\r\r\nhi\r\n",
        pub_empty="SUB ph 1\r\nPUB ph 0\r\n\r\n",
        pub_empty_line_feed="SUB ph 1\r\nPUB ph 0\r\n\n",
        pub_empty_without_line="SUB ph 1\r\nPUB ph 0\r\n",
        pub_line_feed_only="SUB pi 1\r\nPUB pi 2\nhi\r\n",
        pub_payload_ends_in_line_feed="SUB pj 1\r\nPUB pj 2\r\nhi\n",
        pub_payload_line_feed_swallows="SUB pj 1\r\nPUB pj 2\r\nhi\nx",
        pub_payload_too_long="PUB pk 2\r\nhi!\r\n",
        pub_payload_too_long_by_two="PUB pk 2\r\nhi!!\r\n",
        pub_payload_too_short="PUB pk 4\r\nhi\r\n",
        pub_payload_two_short="PUB pk 4\r\nhi\r\nPI",
        pub_payload_ends_in_letters="PUB pk 2\r\nhiab",
        pub_payload_holds_commands="SUB pl 1\r\nPUB pl 12\r\nPING\r\nPING\r\n\r\n",
        pub_payload_every_byte="SUB pm 1\r\nPUB pm 256\r\n"
        + "".join(map(chr, range(256)))
        + "\r\n",
        pub_reply="SUB pn 1\r\nPUB pn re.ply 2\r\nhi\r\n",
        pub_reply_odd="SUB po 1\r\nPUB po a..b 2\r\nhi\r\n",
        pub_reply_wildcard="SUB po 1\r\nPUB po r.> 2\r\nhi\r\n",
        pub_reply_to_itself="SUB pp 1\r\nPUB pp pp 2\r\nhi\r\n",
        pub_reply_reserved="SUB po 1\r\nPUB po _R_.x 2\r\nhi\r\n",
        pub_reply_reserved_gateway="SUB po 1\r\nPUB po _GR_.x 2\r\nhi\r\n",
        pub_reply_ack="SUB po 1\r\nPUB po $JS.ACK.a.b.c 2\r\nhi\r\n",
        hpub_reply_reserved="SUB po 1\r\n" + hpub("po _R_.x", HEADERS),
        pub_reserved="SUB _R_.x 1\r\nPUB _R_.x 2\r\nhi\r\n",
        pub_greater="SUB pq.> 1\r\nPUB pq.> 1\r\nx\r\n",
        pub_wildcard_to_exact="SUB pq.a 1\r\nPUB pq.* 1\r\nx\r\n",
        pub_empty_token="SUB pr.> 1\r\nPUB pr..a 1\r\nx\r\n",
        pub_trailing_dot="SUB pr.> 1\r\nPUB pr. 1\r\nx\r\n",
        pub_leading_dot="SUB > 1\r\nPUB .pr 1\r\nx\r\n",
        pub_dot="SUB > 1\r\nPUB . 1\r\nx\r\n",
        pub_many="SUB ps 1\r\n" + "".join(f"PUB ps 1\r\n{digit}\r\n" for digit in "0123456789"),
        pub_sys="PUB $SYS.x 1\r\nx\r\n",
        pub_js_info_without_reply="PUB $JS.API.INFO 0\r\n\r\n",
        pub_to_nobody="PUB nobody-pt 1\r\nx\r\n",
        pub_carriage_return_in_line="PUB p\ru 1\r\nx\r\n",
        hpub_headers_only="SUB ha 1\r\n" + hpub("ha", HEADERS),
        hpub_reply="SUB hb 1\r\n" + hpub("hb r.x", HEADERS, "hi"),
        hpub_tabs=f"SUB hc 1\r\nHPUB\thc\t18\t20\r\n{HEADERS}hi\r\n",
        hpub_many_blanks=f"SUB hc 1\r\nHPUB   hc   r   18   20  \r\n{HEADERS}hi\r\n",
        hpub_lower_case=f"SUB hd 1\r\nhpub hd 18 20\r\n{HEADERS}hi\r\n",
        hpub_leading_zeros=f"SUB he 1\r\nHPUB he 0018 00020\r\n{HEADERS}hi\r\n",
        hpub_no_headers="SUB hf 1\r\nHPUB hf 0 2\r\nhi\r\n",
        hpub_nothing_at_all="SUB hg 1\r\nHPUB hg 0 0\r\n\r\n",
        hpub_not_headers="SUB hh 1\r\nHPUB hh 2 4\r\nabcd\r\n",
        hpub_headers_without_version="SUB hh 1\r\n" + hpub("hh", "A: b\r\n\r\n", "x"),
        hpub_headers_not_ended="SUB hh 1\r\n" + hpub("hh", "NATS/1.0\r\nA: b", "x"),
        hpub_status="SUB hi 1\r\n" + hpub("hi", "NATS/1.0 503 No\r\n\r\n", "x"),
        hpub_same_key_twice="SUB hj 1\r\n" + hpub("hj", "NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n"),
        hpub_header_bytes="SUB hk 1\r\n" + hpub("hk", "NATS/1.0\r\nA: \xff\x00\r\n\r\n"),
        hpub_sizes_equal_and_short="HPUB hl 12 11\r\n",
        hpub_one_size="HPUB hl 12\r\n" + BARE + "\r\n",
        hpub_no_size="HPUB hl\r\n",
        hpub_nothing="HPUB\r\n",
        hpub_too_many_words="HPUB hl r 12 12 12\r\n",
        hpub_header_size_negative="HPUB hl -1 2\r\nhi\r\n",
        hpub_header_size_a_word="HPUB hl x 2\r\nhi\r\n",
        hpub_total_negative="HPUB hl 12 -1\r\n",
        hpub_total_a_word="HPUB hl 12 x\r\n",
        hpub_total_huge="HPUB hl 12 99999999999\r\n",
        hpub_header_size_huge="HPUB hl 99999999999 99999999999\r\n",
        hpub_total_over_the_limit="HPUB hl 12 2000000\r\n",
        hpub_payload_too_long=f"HPUB hm 12 14\r\n{BARE}hi!\r\n",
        hpub_line_feed_only=f"SUB hn 1\r\nHPUB hn 12 14\n{BARE}hi\r\n",
    ),
    *after(
        PLAIN,
        pub_without_headers="SUB ia 1\r\nPUB ia r 2\r\nhi\r\n",
        hpub_without_headers=hpub("ib", HEADERS, "hi"),
        no_headers_no_responders="SUB ic 1\r\nPUB nobody-ic ic 0\r\n\r\n",
    ),
    single(
        "hpub without headers, verbose",
        connect(verbose=True, headers=False, no_responders=False) + hpub("id", HEADERS) + PING,
    ),
    *after(
        C,
        no_responders="SUB ja 1\r\nPUB nobody-ja ja 3\r\nabc\r\n",
        no_responders_by_wildcard="SUB jb.* 3\r\nPUB nobody-jb jb.x 0\r\n\r\n",
        no_responders_two_subscriptions_exact="SUB jc 1\r\nSUB jc 2\r\nUNSUB 2\r\nPUB nobody-jc jc 0\r\n\r\n",
        no_responders_without_subscription="PUB nobody-jd jd 0\r\n\r\n",
        no_responders_without_reply="SUB je 1\r\nPUB nobody-je 0\r\n\r\n",
        no_responders_with_headers="SUB jf 1\r\n" + hpub("nobody-jf jf", HEADERS, "x"),
        no_responders_queue="SUB jg q 1\r\nPUB nobody-jg jg 0\r\n\r\n",
        no_responders_own_subscription_answers="SUB jh 1\r\nSUB jr 2\r\nPUB jh jr 1\r\nx\r\n",
        no_responders_reply_is_the_subject="SUB ji.> 1\r\nPUB jj jj 0\r\n\r\n",
        no_responders_ends_a_subscription="SUB jk 1\r\nUNSUB 1 1\r\n"
        + "PUB nobody-jk jk 0\r\n\r\n" * 2,
        no_responders_after_unsub="SUB jl 1\r\nSUB jm 2\r\nUNSUB 1\r\nPUB jl jm 0\r\n\r\n",
        no_responders_wildcard_reply="SUB jn.* 1\r\nPUB nobody-jn jn.* 0\r\n\r\n",
        no_responders_long_subject="SUB jo 1\r\nPUB " + "x" * 200 + " jo 0\r\n\r\n",
        no_responders_wildcard_subject="SUB jp 1\r\nPUB nobody.* jp 0\r\n\r\n",
        js_api_info="SUB jq 1\r\nPUB $JS.API.INFO jq 0\r\n\r\n",
        js_api_stream_names="SUB jq 1\r\nPUB $JS.API.STREAM.NAMES jq 0\r\n\r\n",
        sys_server_ping="SUB jq 1\r\nPUB $SYS.REQ.SERVER.PING jq 0\r\n\r\n",
        sys_other="SUB jq 1\r\nPUB $SYS.REQ.NEVER.HEARD jq 0\r\n\r\n",
    ),
    single(
        "no responders, own subscription without echo",
        connect(echo=False) + "SUB ka 1\r\nSUB kr 2\r\nPUB ka kr 1\r\nx\r\n" + PING,
    ),
    single(
        "no responders, without echo",
        connect(echo=False) + "SUB kb 1\r\nPUB nobody-kb kb 1\r\nx\r\n" + PING,
    ),
]


def control_line(size: int, command: str = "PUB ", end: str = " 0") -> str:
    """A line whose arguments, all that follows the command, are `size` bytes."""
    return command + "y" * (size - len(end)) + end


LIMITS = [
    single("control line at the limit", C + control_line(4096) + "\r\n\r\n" + PING),
    single("control line one over", C + control_line(4097) + "\r\n\r\n" + PING),
    single("control line at the limit, sub", C + control_line(4096, "SUB ", " 1") + "\r\n" + PING),
    single("control line one over, sub", C + control_line(4097, "SUB ", " 1") + "\r\n" + PING),
    single(
        "control line at the limit, unsub", C + control_line(4096, "UNSUB ", "") + "\r\n" + PING
    ),
    single("control line one over, unsub", C + control_line(4097, "UNSUB ", "") + "\r\n" + PING),
    single(
        "control line at the limit, hpub",
        C + control_line(4096, "HPUB ", " 0 0") + "\r\n\r\n" + PING,
    ),
    single(
        "control line one over, hpub", C + control_line(4097, "HPUB ", " 0 0") + "\r\n\r\n" + PING
    ),
    single("control line over, verbose", VERBOSE + control_line(5000) + "\r\n\r\n" + PING),
    single("control line without end", C + control_line(6000)),
    single("control line, ping with a tail", C + "PING" + " " * 5000 + "\r\n" + PING),
    single("control line, error with a tail", C + "-ERR " + "x" * 5000 + "\r\n" + PING),
    single(
        "connect at the limit",
        "CONNECT " + control_line(4096 - 26, '{"verbose":false,"name":"', '"}') + "\r\n" + PING,
    ),
    single(
        "connect over the limit",
        "CONNECT " + control_line(4097, '{"verbose":false,"name":"', '"}') + "\r\n" + PING,
    ),
    *[
        single(f"small limits, {name}", sent, config="small")
        for name, sent in {
            "payload at the limit": C + "SUB a 1\r\nPUB a 64\r\n" + "z" * 64 + "\r\n" + PING,
            "payload one over": C + "PUB a 65\r\n" + "z" * 65 + "\r\n" + PING,
            "payload one over, verbose": VERBOSE + "PUB a 65\r\n" + "z" * 65 + "\r\n" + PING,
            "headers and payload at the limit": C
            + "SUB a 1\r\n"
            + hpub("a", HEADERS, "z" * 46)
            + PING,
            "headers and payload one over": C + hpub("a", HEADERS, "z" * 47) + PING,
            "control line at the limit": C + control_line(256) + "\r\n\r\n" + PING,
            "control line one over": C + control_line(257) + "\r\n\r\n" + PING,
            "subscriptions at the limit": C + "SUB a 1\r\nSUB b 2\r\nPUB b 1\r\nx\r\n" + PING,
            "subscriptions one over": C
            + "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPUB c 1\r\nx\r\n"
            + PING,
            "subscriptions one over, verbose": VERBOSE + "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n" + PING,
            "subscriptions over, same sid": C + "SUB a 1\r\nSUB b 2\r\nSUB b 2\r\n" + PING,
            "subscriptions over, then one less": C
            + "SUB a 1\r\nSUB b 2\r\nUNSUB 1\r\nSUB c 3\r\nPUB c 0\r\n\r\n"
            + PING,
        }.items()
    ],
]

UNFINISHED = [
    single("unfinished command", C + "PI"),
    single("unfinished sub", C + "SUB a"),
    single("unfinished payload", C + "PUB a 10\r\nhello"),
    single("unfinished end of payload", C + "SUB a 1\r\nPUB a 5\r\nhello\r"),
    single("unfinished headers", C + "HPUB a 12 14\r\nNATS/1.0\r\n"),
    single("unfinished connect", 'CONNECT {"verbose":fal'),
]
