//! Bad input: its error, nothing changed, the connection alive.

use crate::driver::Driver;

#[test]
fn bad_headers_are_named() {
    let cases = [
        ("mq9-priority: high\r\n", "mq9-priority is \\\"high\\\""),
        ("mq9-priority: 0\r\n", "mq9-priority is \\\"0\\\""),
        ("mq9-priority: 11\r\n", "mq9-priority is \\\"11\\\""),
        ("mq9-priority: Normal\r\n", "mq9-priority is \\\"Normal\\\""),
        ("mq9-priority:\r\n", "mq9-priority is empty"),
        ("mq9-delay: -1\r\n", "mq9-delay is \\\"-1\\\""),
        ("mq9-delay: 1.5\r\n", "mq9-delay is \\\"1.5\\\""),
        ("mq9-delay: soon\r\n", "mq9-delay is \\\"soon\\\""),
        ("mq9-ttl: 99999999999\r\n", "mq9-ttl is \\\"99999999999\\\""),
        ("mq9-ttl: 18446744073709551616\r\n", "mq9-ttl is"),
        ("mq9-key: \r\n", "mq9-key is empty"),
        ("mq9-key: a\r\nmq9-KEY: b\r\n", "mq9-key is given more than once"),
        ("mq9-tags: , ,\r\n", "mq9-tags holds no tag"),
        ("no colon\r\n", "the header line \\\"no colon\\\" is malformed"),
        (": nameless\r\n", "malformed"),
        ("mq9-msg-id: 7\r\n", "mq9-msg-id is a header that only the broker writes"),
        ("MQ9-Create-Time: 7\r\n", "only the broker writes"),
        ("mq9-deliveries: 7\r\n", "only the broker writes"),
        ("mq9-expires-at: 7\r\n", "only the broker writes"),
        ("mq9-last-delivery: true\r\n", "only the broker writes"),
        ("mq9-dead-reason: x\r\n", "only the broker writes"),
        ("Mq9-Dead-Anything: x\r\n", "only the broker writes"),
        ("mq9-persist: no\r\n", "mq9-persist is \\\"no\\\": it must be true or false"),
        (" mq9-msg-id: 7\r\n", "the header name \\\" mq9-msg-id\\\" holds a blank"),
        ("\tmq9-dead-reason: x\r\n", "holds a blank"),
        ("mq9-deliveries : 7\r\n", "holds a blank"),
        ("\u{a0}mq9-msg-id: 7\r\n", "holds a blank"),
        ("\u{b}mq9-msg-id: 7\r\n", "holds a blank"),
        ("\u{feff}mq9-msg-id: 7\r\n", "holds a blank"),
        ("mq9-msg-id\u{200b}: 7\r\n", "holds a blank"),
        ("A B: 1\r\n", "holds a blank"),
        ("A: 1\rmq9-msg-id: 7\r\n", "holds a bare CR or LF"),
        ("A: 1\r\r\n", "holds a bare CR or LF"),
        ("A: 1\nB: 2\r\n", "holds a bare CR or LF"),
        ("mq9-key: a\rb\r\n", "holds a bare CR or LF"),
    ];
    let mut driver = Driver::new();
    let client = driver.client();
    for (headers, expected) in cases {
        let reply = driver.ask(client, "SEND.m", headers, "x");
        assert!(reply.contains(expected), "{headers:?}: {reply}");
        assert!(reply.ends_with(",\"msg_id\":-1}"), "{reply}");
    }
    let long = format!("mq9-key: {}\r\n", "k".repeat(2000));
    assert!(driver.ask(client, "SEND.m", &long, "x").contains("invalid key"));
    assert_eq!(driver.ask(client, "SEND.m", "", "x"), r#"{"error":"","msg_id":0}"#);
}

#[test]
fn unknown_headers_travel_whatever_they_are_called() {
    let mut driver = Driver::new();
    let client = driver.client();
    let headers =
        "mq9-reply-to: $mq9.AI.MSG.SEND.me\r\nmq9-a2a-task: 7\r\nmq9-deadline: 1\r\nX:\r\n";
    assert_eq!(driver.ask(client, "SEND.m", headers, "x"), r#"{"error":"","msg_id":0}"#);
    let found = driver.ask(client, "FETCH.m", "", r#"{"deliver":"earliest"}"#);
    let expected = r#""headers":{"mq9-reply-to":["$mq9.AI.MSG.SEND.me"],"mq9-a2a-task":["7"],"mq9-deadline":["1"],"X":[""]}"#;
    assert!(found.contains(expected), "{found}");
}

#[test]
fn a_header_block_that_is_none_is_refused() {
    let mut driver = Driver::new();
    let client = driver.client();
    for block in ["GARBAGE!", "NATS/1.0", "NATS/1.0\r\n", "NATS/1.0\r\nA: 1\r\n"] {
        let line = format!("HPUB $mq9.AI.MSG.SEND.m in0.x {0} {0}\r\n{block}\r\n", block.len());
        driver.feed(client, line.as_bytes());
        driver.release();
        let heard = driver.heard(client);
        assert!(heard[0].contains("the headers are malformed"), "{block}: {heard:?}");
    }
}

#[test]
fn bad_requests_are_told_what_is_wrong_and_where() {
    let fetch = [
        ("{", "invalid request: EOF"),
        ("[]", "the request must be a JSON object"),
        ("\"x\"", "the request must be a JSON object"),
        ("{} {}", "invalid request: trailing characters"),
        (r#"{"deliver":"newest"}"#, "invalid deliver: unknown variant `newest`"),
        (r#"{"deliver":1}"#, "invalid deliver"),
        (r#"{"deliver":"from_time"}"#, "from_time is missing"),
        (r#"{"deliver":"from_id"}"#, "from_id is missing"),
        (r#"{"deliver":"from_id","from_id":-1}"#, "invalid from_id"),
        (r#"{"deliver":"from_time","from_time":1.5}"#, "invalid from_time"),
        (r#"{"group_name":5}"#, "invalid group_name"),
        (r#"{"group_name":""}"#, "invalid group_name"),
        (r#"{"group_name":"g","member":""}"#, "invalid member"),
        (r#"{"member":"w"}"#, "group_name is missing"),
        (r#"{"force_deliver":true}"#, "group_name is missing"),
        (r#"{"force_deliver":"yes"}"#, "invalid force_deliver"),
        (r#"{"encoding":"hex"}"#, "invalid encoding"),
        (r#"{"config":[1]}"#, "invalid config"),
        (r#"{"config":{"num_msgs":0}}"#, "config.num_msgs is 0: it must be from 1 to 10000"),
        (r#"{"config":{"num_msgs":10001}}"#, "config.num_msgs is 10001"),
        (r#"{"config":{"num_msgs":"5"}}"#, "invalid config.num_msgs"),
        (r#"{"config":{"max_wait_ms":3600001}}"#, "config.max_wait_ms is 3600001"),
        (r#"{"config":{"ack_wait_ms":0}}"#, "config.ack_wait_ms is 0"),
        (r#"{"config":{"max_bytes":0}}"#, "config.max_bytes is 0"),
        (r#"{"config":{"min_priority":"high"}}"#, "config.min_priority is \\\"high\\\""),
        (r#"{"config":{"min_priority":11}}"#, "config.min_priority is \\\"11\\\""),
        (r#"{"config":{"min_priority":true}}"#, "invalid config.min_priority"),
        (r#"{"config":{"format":"xml"}}"#, "invalid config.format"),
    ];
    let ack = [
        ("", "group_name is missing"),
        (r#"{"group_name":"g"}"#, "msg_id is missing"),
        (r#"{"msg_id":1}"#, "group_name is missing"),
        (r#"{"group_name":"g","msg_id":-1}"#, "invalid msg_id"),
        (r#"{"group_name":"g","msg_id":"1"}"#, "invalid msg_id"),
        (r#"{"group_name":"g","msg_id":1,"msg_ids":[1]}"#, "cannot both be given"),
        (r#"{"group_name":"g","msg_ids":[]}"#, "msg_ids holds 0 numbers"),
        (r#"{"group_name":"g","msg_ids":[1,"2"]}"#, "invalid msg_ids[1]"),
        (r#"{"group_name":"g","msg_id":1,"kind":"done"}"#, "invalid kind"),
        (r#"{"group_name":"g","msg_id":1,"delay_ms":999999999999}"#, "delay_ms is 999999999999"),
        (r#"{"group_name":"g","msg_id":1,"mail_address":"other"}"#, "the subject says"),
        (r#"{"group_name":"g","msg_id":1}"#, "group g has not been given msg_id 1"),
    ];
    let mut driver = Driver::new();
    let client = driver.client();
    for (payload, expected) in fetch {
        let reply = driver.ask(client, "FETCH.m", "", payload);
        assert!(reply.contains(expected), "{payload}: {reply}");
        assert!(reply.ends_with(",\"messages\":[]}"), "{reply}");
    }
    for (payload, expected) in ack {
        let reply = driver.ask(client, "ACK.m", "", payload);
        assert!(reply.contains(expected), "{payload}: {reply}");
    }
    let deep = format!("{{\"config\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(driver.ask(client, "FETCH.m", "", &deep).contains("invalid config"));
    // Unknown fields are ignored, and null is the same as nothing.
    let body = r#"{"surprise":{"a":[1]},"group_name":null,"config":null,"deliver":"earliest"}"#;
    assert_eq!(driver.ask(client, "FETCH.m", "", body), "");
    driver.pass_ms(500);
    assert_eq!(driver.heard(client), [r#"{"error":"","messages":[]}"#]);
}

#[test]
fn bad_addresses_are_told_which_rule_they_break() {
    let mut driver = Driver::new();
    let client = driver.client();
    for (address, rule) in [
        ("Task", "lowercase"),
        ("a-b", "only a-z"),
        ("a..b", "two dots"),
        ("a.", "begin or end"),
        (&"a".repeat(129), "at most 128"),
    ] {
        for command in ["SEND", "FETCH", "ACK"] {
            let reply = driver.ask(client, &format!("{command}.{address}"), "", "");
            assert!(reply.contains(rule), "{address}: {reply}");
        }
    }
    for (tail, expected) in [
        ("!!.0.m", "not one that a message was delivered with"),
        ("Zw.x.m", "not one that a message was delivered with"),
        ("Zw.0", "invalid mail_address"),
        ("Zw.0.m", "has not been given"),
    ] {
        let reply = driver.ask(client, &format!("RACK.{tail}"), "", "+ACK");
        assert!(reply.contains(expected), "{tail}: {reply}");
    }
    assert!(driver.ask(client, "RACK.Zw.0.m", "", "huh").contains("+ACK, -NAK"));
    let unknown = r#"{"error":"unknown command \"MSG.NONSENSE.m\""}"#;
    assert_eq!(driver.ask(client, "NONSENSE.m", "", ""), unknown);
}

#[test]
fn a_refusal_says_of_which_kind_it_is_and_its_text_is_for_people() {
    let mut driver = Driver::new();
    let client = driver.client();
    let ack = r#"{"group_name":"g","msg_id":0}"#;
    for (command, payload, kind) in [
        ("SEND.none", "x", "mailbox_not_found"),
        ("SEND.task-1", "x", "invalid_address"),
        ("FETCH.m", "{", "invalid_request"),
        ("ACK.m", ack, "not_given"),
        ("SENT.m", "x", "unknown_command"),
    ] {
        driver.request(client, command, "", payload.as_bytes());
        driver.settle();
        let told = driver.wire(client);
        assert!(told.contains(&format!("\r\nNATS/1.0\r\nmq9-error: {kind}\r\n\r\n{{")), "{told}");
    }
    let raw = r#"{"config":{"format":"raw","num_msgs":0}}"#;
    driver.request(client, "FETCH.m", "", raw.as_bytes());
    driver.settle();
    let told = driver.wire(client);
    assert!(told.contains("NATS/1.0 400 config.num_msgs is 0: "), "{told}");
    assert!(told.contains("\r\nmq9-error: invalid_request\r\n\r\n"), "{told}");
}
