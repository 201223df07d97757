//! Answers of each command.

use mq9_core::mailbox::{Discard, Policy};

use crate::driver::Driver;

#[test]
fn messages_come_back_by_level_then_id_with_what_they_were_sent_with() {
    let mut driver = Driver::new();
    let client = driver.client();
    assert_eq!(driver.ask(client, "SEND.m", "", "hello"), r#"{"error":"","msg_id":0}"#);
    let headers = "mq9-priority: urgent\r\nMQ9-Key: k\r\nmq9-tags: a, b ,c\r\nX-A: 1\r\nX-A: 2\r\n";
    driver.request(client, "SEND.m", headers, b"\xff\x00");
    driver.ask(client, "SEND.m", "mq9-priority: 2\r\n", "\"quoted\"\n");
    driver.ask(client, "SEND.m", "mq9-ttl: 300\r\n", "");
    let entries = [
        r#"{"msg_id":2,"payload":"\"quoted\"\n","priority":"2","create_time":1700000000}"#,
        concat!(
            r#"{"msg_id":1,"payload":"/wA=","encoding":"base64","priority":"urgent","#,
            r#""create_time":1700000000,"key":"k","tags":["a","b","c"],"#,
            r#""headers":{"X-A":["1","2"]}}"#
        ),
        r#"{"msg_id":0,"payload":"hello","priority":"normal","create_time":1700000000}"#,
        concat!(
            r#"{"msg_id":3,"payload":"","priority":"normal","create_time":1700000000,"#,
            r#""expires_at":1700000300}"#
        ),
    ];
    let all = driver.ask(client, "FETCH.m", "", r#"{"deliver":"earliest"}"#);
    assert_eq!(all, format!(r#"{{"error":"","messages":[{}]}}"#, entries.join(",")));
    let body = r#"{"deliver":"earliest","encoding":"base64","config":{"num_msgs":1}}"#;
    assert!(driver.ask(client, "FETCH.m", "", body).contains(r#""payload":"InF1b3RlZCIK""#));
    let urgent = r#"{"deliver":"earliest","config":{"min_priority":"urgent"}}"#;
    assert_eq!(driver.ask(client, "FETCH.m", "", urgent).matches("msg_id").count(), 2);
}

#[test]
fn thousands_of_headers_are_written_in_a_time_that_grows_as_they_do() {
    let mut driver = Driver::new();
    let client = driver.client();
    let mut took_of = |names: usize| {
        let headers: String = (0..names).map(|name| format!("{name:x}:\r\n")).collect();
        let address = format!("box{names}");
        driver.create(&address, Policy::default());
        driver.ask(client, &format!("SEND.{address}"), &headers, "");
        let took = (0..5).map(|_| {
            let begun = std::time::Instant::now();
            let all =
                driver.ask(client, &format!("FETCH.{address}"), "", r#"{"deliver":"earliest"}"#);
            assert_eq!(all.matches(":[\"\"]").count(), names);
            begun.elapsed()
        });
        took.min().unwrap()
    };
    let (few, many) = (took_of(1000), took_of(8000));
    // Sixty-four times as long if each name were looked for among all.
    assert!(many < few * 24, "{few:?} {many:?}");
}

#[test]
fn a_group_goes_on_where_it_was_and_an_ack_confirms_in_delivery_order() {
    let mut driver = Driver::new();
    let client = driver.client();
    for priority in ["normal", "normal", "urgent", "critical"] {
        driver.ask(client, "SEND.m", &format!("mq9-priority: {priority}\r\n"), "x");
    }
    let body = r#"{"group_name":"g","deliver":"earliest","config":{"num_msgs":3,"max_wait_ms":0}}"#;
    let ids = |reply: &str| -> Vec<String> {
        reply.split("\"msg_id\":").skip(1).map(|t| t.split(',').next().unwrap().into()).collect()
    };
    assert_eq!(ids(&driver.ask(client, "FETCH.m", "", body)), ["3", "2", "0"]);
    // The urgent one is acknowledged early: the normal one that was not delivered is not skipped.
    let ack = r#"{"group_name":"g","mail_address":"m","msg_id":2}"#;
    assert_eq!(driver.ask(client, "ACK.m", "", ack), r#"{"error":""}"#);
    assert_eq!(driver.ask(client, "ACK.m", "", ack), r#"{"error":""}"#);
    let again = driver.ask(client, "FETCH.m", "", body);
    assert_eq!(ids(&again), ["0", "1"]);
    assert!(again.contains(
        r#""msg_id":0,"payload":"x","priority":"normal","create_time":1700000000,"deliveries":1"#
    ));
    let only = r#"{"group_name":"g","msg_ids":[1],"only":true}"#;
    assert_eq!(driver.ask(client, "ACK.m", "", only), r#"{"error":""}"#);
    assert_eq!(ids(&driver.ask(client, "FETCH.m", "", body)), ["0"]);
    let term = r#"{"group_name":"g","msg_id":0,"kind":"term"}"#;
    assert_eq!(driver.ask(client, "ACK.m", "", term), r#"{"error":""}"#);
    assert!(ids(&driver.ask(client, "FETCH.m", "", body)).is_empty());
    let wrong = r#"{"group_name":"g","msg_id":9}"#;
    let refused = r#"{"error":"group g has not been given msg_id 9"}"#;
    assert_eq!(driver.ask(client, "ACK.m", "", wrong), refused);
}

#[test]
fn a_long_poll_is_answered_when_something_arrives_and_at_the_end_of_its_wait() {
    let mut driver = Driver::new();
    let (reader, sender) = (driver.client(), driver.client());
    let body = r#"{"group_name":"g","config":{"max_wait_ms":2000}}"#;
    assert_eq!(driver.ask(reader, "FETCH.m", "", body), "");
    driver.pass_ms(1000);
    assert!(driver.heard(reader).is_empty());
    driver.ask(sender, "SEND.m", "", "news");
    assert!(driver.heard(reader).iter().any(|reply| reply.contains("news")));
    driver.ask(reader, "ACK.m", "", r#"{"group_name":"g","msg_id":0}"#);
    assert_eq!(driver.ask(reader, "FETCH.m", "", body), "");
    driver.pass_ms(1999);
    assert!(driver.heard(reader).is_empty());
    driver.pass_ms(2);
    assert_eq!(driver.heard(reader), [r#"{"error":"","messages":[]}"#]);
}

#[test]
fn a_delayed_message_wakes_a_long_poll_when_it_is_due() {
    let mut driver = Driver::new();
    let (reader, sender) = (driver.client(), driver.client());
    let delayed = driver.ask(sender, "SEND.m", "mq9-delay: 3\r\n", "later");
    assert_eq!(delayed, r#"{"error":"","msg_id":-1}"#);
    assert_eq!(driver.ask(reader, "FETCH.m", "", r#"{"config":{"max_wait_ms":5000}}"#), "");
    driver.pass_ms(2990);
    assert!(driver.heard(reader).is_empty());
    driver.pass_ms(10);
    assert!(driver.heard(reader)[0].contains(r#"{"msg_id":0,"payload":"later""#));
}

#[test]
fn what_a_closed_connection_held_goes_to_another() {
    let mut driver = Driver::new();
    let (first, second) = (driver.client(), driver.client());
    driver.ask(first, "SEND.m", "", "job");
    let body = r#"{"group_name":"g","deliver":"earliest","config":{"max_wait_ms":9000}}"#;
    assert!(driver.ask(first, "FETCH.m", "", body).contains("job"));
    assert_eq!(driver.ask(second, "FETCH.m", "", body), "");
    driver.leave(first);
    driver.settle();
    assert!(driver.heard(second)[0].contains(r#""deliveries":2"#));
}

#[test]
fn raw_messages_are_bytes_and_are_acknowledged_where_they_say() {
    let mut driver = Driver::new();
    let client = driver.client();
    driver.ask(client, "SEND.m", "mq9-key: k\r\nX-A: 1\r\n", "one");
    driver.ask(client, "SEND.m", "", "two");
    let body = concat!(
        r#"{"group_name":"a group","deliver":"earliest","#,
        r#""config":{"format":"raw","max_wait_ms":0}}"#
    );
    driver.request(client, "FETCH.m", "", body.as_bytes());
    driver.store().sync().unwrap();
    driver.release();
    let text = String::from_utf8_lossy(driver.engine.front().unwritten(client)).into_owned();
    assert!(text.starts_with("HMSG in0.3 1 $mq9.AI.MSG.RACK.YSBncm91cA.0.m "), "{text}");
    let heard = driver.heard(client);
    let first = concat!(
        "NATS/1.0\r\nmq9-msg-id: 0\r\nmq9-priority: normal\r\nmq9-create-time: 1700000000\r\n",
        "mq9-key: k\r\nmq9-deliveries: 1\r\nX-A: 1\r\n\r\none"
    );
    assert_eq!((heard.len(), heard[0].as_str()), (3, first));
    assert_eq!(heard[2], "NATS/1.0 204 Batch Completed\r\n\r\n");
    for (subject, payload) in [("RACK.YSBncm91cA.0.m", "+ACK"), ("RACK.YSBncm91cA.1.m", "-NAK")] {
        assert_eq!(driver.ask(client, subject, "", payload), r#"{"error":""}"#);
    }
    let again = driver.ask(client, "FETCH.m", "", body);
    assert!(again.contains("two") && !again.contains("one"), "{again}");
    let delayed = "-NAK {\"delay\": 5000000000}";
    assert_eq!(driver.ask(client, "RACK.YSBncm91cA.1.m", "", delayed), r#"{"error":""}"#);
    assert_eq!(driver.ask(client, "FETCH.m", "", body), "NATS/1.0 404 No Messages\r\n\r\n");
    driver.pass_ms(5001);
    assert!(driver.ask(client, "FETCH.m", "", body).contains("two"));
    for (bad, error) in [
        (
            r#"{"config":{"format":"raw","num_msgs":0}}"#,
            "config.num_msgs is 0: it must be from 1 to 10000",
        ),
        (
            r#"{"config":{"num_msgs":"x","format":"raw"},"deliver":"a\r\nb"}"#,
            "invalid config.num_msgs: invalid type: string \"x\", expected u64 at line 1 column 25",
        ),
        (
            r#"{"member":"a","config":{"format":"raw"}}"#,
            "member is given, but group_name is missing",
        ),
    ] {
        assert_eq!(
            driver.ask(client, "FETCH.m", "", bad),
            format!("NATS/1.0 400 {error}\r\nmq9-error: invalid_request\r\n\r\n")
        );
    }
    // What cannot be read does not say how it wants to be answered.
    let broken = driver.ask(client, "FETCH.m", "", r#"{"config":{"format":"raw"}"#);
    assert!(broken.starts_with(r#"{"error":"invalid request: "#), "{broken}");
    let missing = r#"{"config":{"format":"raw"}}"#;
    let reply = driver.ask(client, "FETCH.none", "", missing);
    assert_eq!(
        reply,
        "NATS/1.0 400 mailbox none does not exist\r\nmq9-error: mailbox_not_found\r\n\r\n"
    );
}

#[test]
fn a_request_without_a_reply_subject_is_carried_out_and_not_answered() {
    let mut driver = Driver::new();
    let client = driver.client();
    driver.feed(client, b"PUB $mq9.AI.MSG.SEND.m 5\r\nquiet\r\n");
    driver.feed(client, b"PUB $mq9.AI.MSG.FETCH.m 0\r\n\r\n");
    driver.store().sync().unwrap();
    driver.release();
    assert!(driver.heard(client).is_empty());
    assert_eq!(driver.store().waiting(), 0);
    assert_eq!(driver.engine.front().totals().refused, 0);
    assert!(driver.ask(client, "FETCH.m", "", r#"{"deliver":"earliest"}"#).contains("quiet"));
}

#[test]
fn what_is_not_carried_out_is_told_also_where_no_answer_was_asked_for() {
    let mut driver = Driver::new();
    let policy = Policy { max_msgs: 1, discard: Discard::New, ..Policy::default() };
    driver.create("full", policy);
    let client = driver.client();
    driver.ask(client, "SEND.full", "", "x");
    let refused = [
        ("MSG.SEND.none", "0\r\n\r\n"),
        ("MSG.SEND.Bad", "0\r\n\r\n"),
        ("MSG.SEND.full", "0\r\n\r\n"),
        ("MSG.SENT.m", "0\r\n\r\n"),
        ("INBOX.none.normal", "0\r\n\r\n"),
        ("MSG.FETCH.m", "1\r\n{\r\n"),
        ("MSG.ACK.m", "0\r\n\r\n"),
        ("MSG.RACK.Zw.7.m", "0\r\n\r\n"),
    ];
    for (command, rest) in refused {
        driver.feed(client, format!("PUB $mq9.AI.{command} {rest}").as_bytes());
        driver.settle();
        let text = format!("Permissions Violation for Publish to \"$mq9.AI.{command}\"");
        assert_eq!(driver.wire(client), format!("-ERR '{text}'\r\n"));
    }
    let bad = b"HPUB $mq9.AI.MSG.SEND.m 32 32\r\nNATS/1.0\r\nmq9-priority: x\r\n\r\n   \r\n";
    driver.feed(client, bad);
    assert!(driver.wire(client).contains("Publish to \"$mq9.AI.MSG.SEND.m\""));
    let size = 2 << 20;
    driver.feed(client, format!("PUB $mq9.AI.MSG.SEND.m {size}\r\n").as_bytes());
    driver.feed(client, &vec![b'x'; size + 2]);
    assert!(driver.wire(client).contains("Publish to \"$mq9.AI.MSG.SEND.m\""));
    assert_eq!(driver.engine.front().totals().refused, refused.len() as u64 + 2);
    assert_eq!(driver.ask(client, "SEND.m", "", "y"), r#"{"error":"","msg_id":0}"#);
}

#[test]
fn a_dead_message_moves_with_the_reason() {
    let mut driver = Driver::new();
    driver.create("dead", Policy::default());
    let policy = Policy { max_deliver: 1, dead_letter: Some("dead".into()), ..Policy::default() };
    driver.create("q", policy);
    let client = driver.client();
    driver.ask(client, "SEND.q", "", "poison");
    let body = r#"{"group_name":"g","deliver":"earliest","config":{"max_wait_ms":0}}"#;
    assert!(driver.ask(client, "FETCH.q", "", body).contains("poison"));
    // Its holder may ask again; another attempt would be one too many.
    assert!(driver.ask(client, "FETCH.q", "", body).contains(r#""deliveries":1"#));
    driver.leave(client);
    let client = driver.client();
    assert!(!driver.ask(client, "FETCH.q", "", body).contains("poison"));
    let dead = driver.ask(client, "FETCH.dead", "", r#"{"deliver":"earliest"}"#);
    assert!(dead.contains("poison") && dead.contains("mq9-dead-"), "{dead}");
}

#[test]
fn the_name_of_a_group_forges_no_history() {
    let mut driver = Driver::new();
    let policy = Policy { max_deliver: 5, dead_letter: Some("dead".into()), ..Policy::default() };
    driver.create("q", policy);
    let client = driver.client();
    driver.ask(client, "SEND.q", "", "poison");
    let group = r#""group_name":"g\r\nmq9-dead-reason: forged""#;
    let fetch = format!(r#"{{{group},"deliver":"earliest"}}"#);
    assert!(driver.ask(client, "FETCH.q", "", &fetch).contains("poison"));
    let term = format!(r#"{{{group},"msg_id":0,"kind":"term"}}"#);
    assert_eq!(driver.ask(client, "ACK.q", "", &term), r#"{"error":""}"#);
    let dead = driver.ask(client, "FETCH.dead", "", r#"{"deliver":"earliest"}"#);
    assert!(dead.contains(r#""mq9-dead-reason":["terminated"]"#), "{dead}");
    assert!(dead.contains(r#""mq9-dead-group":["g  mq9-dead-reason: forged"]"#), "{dead}");
}

#[test]
fn an_answer_can_be_asked_for_into_a_mailbox() {
    let mut driver = Driver::new();
    driver.create("answers", Policy::default());
    let client = driver.client();
    driver.feed(client, b"PUB $mq9.AI.MSG.SEND.m $mq9.AI.MSG.SEND.answers 1\r\nx\r\n");
    driver.feed(client, b"PUB $mq9.AI.MSG.FETCH.m $mq9.AI.MSG.SEND.answers 0\r\n\r\n");
    driver.settle();
    assert_eq!(driver.ask(client, "SEND.m", "", "y"), r#"{"error":"","msg_id":1}"#);
    let found = driver.ask(client, "FETCH.answers", "", r#"{"deliver":"earliest"}"#);
    assert!(found.contains(r#""payload":"{\"error\":\"\",\"msg_id\":0}""#), "{found}");
    assert!(found.contains(r#"\"payload\":\"y\""#), "{found}");
}

#[test]
fn a_send_with_an_id_that_comes_again_is_answered_again_and_stored_once() {
    let mut driver = Driver::new();
    let client = driver.client();
    let first = r#"{"error":"","msg_id":0}"#;
    let again = r#"{"error":"","msg_id":0,"duplicate":true}"#;
    for (name, other) in [("mq9-id", "Nats-Msg-Id"), ("Nats-Msg-Id", "mq9-id")] {
        let mut driver = Driver::new();
        let client = driver.client();
        assert_eq!(driver.ask(client, "SEND.m", &format!("{name}: x\r\n"), "one"), first);
        assert_eq!(driver.ask(client, "SEND.m", &format!("{name}: x\r\n"), "two"), again);
        assert_eq!(driver.ask(client, "SEND.m", &format!("{other}: x\r\n"), "three"), again);
        assert_eq!(driver.store().mailbox("m", driver.now).unwrap().messages, 1);
    }
    let delayed = "mq9-id: x\r\nmq9-delay: 60\r\n";
    assert_eq!(driver.ask(client, "SEND.m", delayed, ""), r#"{"error":"","msg_id":-1}"#);
    let again = r#"{"error":"","msg_id":-1,"duplicate":true}"#;
    assert_eq!(driver.ask(client, "SEND.m", delayed, ""), again);
}
