//! Priorities of a work queue: who says them, in which order messages are given then, and which streams have them.

use mq9_core::front::ConnId;

use crate::driver::Driver;
use crate::stream_delays::sent;
use crate::streams::{Heard, ask, consumer, messages, publish, pull, stream};

const PRIORITIES: &str = ",\"retention\":\"workqueue\",\"metadata\":{\"mq9.priority\":\"true\"}";

/// What a consumer of the stream S is given now.
fn given(driver: &mut Driver, id: ConnId, consumer: &str, most: usize) -> Vec<Heard> {
    let body = format!("{{\"batch\":{most},\"no_wait\":true}}");
    let mut given = pull(driver, id, &format!("S.{consumer}"), &body);
    given.retain(|heard| heard.status().is_empty());
    given
}

fn payloads(given: &[Heard]) -> Vec<&str> {
    given.iter().map(|heard| heard.payload.as_str()).collect()
}

fn send(driver: &mut Driver, id: ConnId, priority: &str, payload: &str) {
    let headers = format!("mq9-priority: {priority}\r\n");
    let answer = sent(driver, id, "S", &headers, payload);
    assert!(answer.contains("\"seq\":"), "{answer}");
}

fn served() -> (Driver, ConnId) {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", PRIORITIES);
    consumer(&mut driver, id, "S", "c", "");
    (driver, id)
}

fn info(driver: &mut Driver, id: ConnId) -> serde_json::Value {
    serde_json::from_str(&ask(driver, id, "CONSUMER.INFO.S.c", "")).unwrap()
}

#[test]
fn the_most_urgent_comes_first_and_of_a_priority_the_oldest() {
    let (mut driver, id) = served();
    for (priority, payload) in
        [("notify", "a"), ("5", "b"), ("10", "c"), ("1", "d"), ("urgent", "e"), ("critical", "f")]
    {
        send(&mut driver, id, priority, payload);
    }
    // Who says nothing is normal; the name of the header is in any case.
    sent(&mut driver, id, "S", "", "g");
    sent(&mut driver, id, "S", "MQ9-Priority: 2\r\n", "h");
    assert_eq!(payloads(&given(&mut driver, id, "c", 3)), ["d", "f", "h"]);
    send(&mut driver, id, "4", "i");
    let rest = given(&mut driver, id, "c", 100);
    assert_eq!(payloads(&rest), ["e", "i", "b", "g", "a", "c"]);
    // The number of the stream is that of the publish, the number of the delivery that of the giving.
    let words: Vec<&str> = rest[5].reply.split('.').collect();
    assert_eq!(words[4..7], ["1", "3", "9"], "{words:?}");
}

#[test]
fn the_envelope_says_the_priority_where_no_header_does() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    let metadata = "{\"mq9.priority\":\"true\",\"mq9.envelope\":\"hanzo.mq.v1\"}";
    let more = format!(",\"retention\":\"workqueue\",\"metadata\":{metadata}");
    stream(&mut driver, id, "S", &more);
    consumer(&mut driver, id, "S", "c", "");
    let task = |task: &str, priority: &str| {
        format!(
            "{{\"schema\":\"hanzo.mq.v1\",\"id\":\"{task}\",\"type\":\"t\",\"source\":\"s\",\
             \"timestamp\":\"2026-02-23T10:30:00Z\",\"data\":{{}}{priority}}}"
        )
    };
    for (headers, envelope) in [
        ("", task("1", ",\"priority\":9")),
        ("", task("2", "")),
        ("", task("3", ",\"priority\":1")),
        ("mq9-priority: 10\r\n", task("4", ",\"priority\":1")),
    ] {
        let answer = sent(&mut driver, id, "S", headers, &envelope);
        assert!(answer.contains("\"seq\":"), "{answer}");
    }
    let given = given(&mut driver, id, "c", 100);
    let seqs: Vec<&str> = given.iter().map(|h| h.reply.split('.').nth(5).unwrap()).collect();
    assert_eq!(seqs, ["3", "2", "1", "4"]);
    let bad = sent(&mut driver, id, "S", "", &task("5", ",\"priority\":11"));
    assert!(bad.contains("priority: 11 is not between 1"), "{bad}");
}

#[test]
fn a_priority_that_is_none_is_refused_and_nothing_is_stored() {
    let (mut driver, id) = served();
    for said in ["high", "0", "11", "Normal", "", "1.5", "\u{ff11}"] {
        let answer = sent(&mut driver, id, "S", &format!("mq9-priority: {said}\r\n"), "x");
        assert!(answer.contains("\"err_code\":10003") && answer.contains("\"seq\":0"), "{answer}");
        let why = "it must be critical, urgent, normal, notify or a number from 1 to 10";
        assert!(answer.contains(why), "{answer}");
    }
    assert_eq!(messages(&mut driver, id, "S"), "0");
    // Elsewhere it is a header like others.
    stream(&mut driver, id, "P", "");
    let answer = sent(&mut driver, id, "P", "mq9-priority: high\r\n", "x");
    assert_eq!(answer, "{\"stream\":\"P\",\"seq\":1}");
}

#[test]
fn what_comes_again_is_before_what_is_new_of_its_priority_and_behind_what_is_more_urgent() {
    let (mut driver, id) = served();
    for (priority, payload) in [("5", "a"), ("5", "b"), ("9", "c")] {
        send(&mut driver, id, priority, payload);
    }
    let first = given(&mut driver, id, "c", 100);
    assert_eq!(payloads(&first), ["a", "b", "c"]);
    for (priority, payload) in [("9", "d"), ("5", "e"), ("1", "f")] {
        send(&mut driver, id, priority, payload);
    }
    // The less urgent is returned first, and comes later.
    publish(&mut driver, id, &first[2].reply, "", "-NAK");
    publish(&mut driver, id, &first[1].reply, "", "-NAK");
    publish(&mut driver, id, &first[0].reply, "", "-NAK {\"delay\":2000000000}");
    assert_eq!(payloads(&given(&mut driver, id, "c", 100)), ["f", "b", "e", "c", "d"]);
    send(&mut driver, id, "5", "g");
    driver.pass_ms(2_000);
    assert_eq!(payloads(&given(&mut driver, id, "c", 100)), ["a", "g"]);
    // All are out, and come back at once: by priority, then as their times ended.
    driver.pass_ms(40_000);
    let again = given(&mut driver, id, "c", 100);
    assert_eq!(payloads(&again), ["f", "b", "e", "a", "g", "c", "d"]);
}

#[test]
fn whoever_may_have_few_at_once_is_given_the_most_urgent() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", PRIORITIES);
    consumer(&mut driver, id, "S", "c", ",\"max_ack_pending\":2");
    for (priority, payload) in [("5", "a"), ("5", "b"), ("5", "c")] {
        send(&mut driver, id, priority, payload);
    }
    let first = given(&mut driver, id, "c", 100);
    assert_eq!(payloads(&first), ["a", "b"]);
    send(&mut driver, id, "critical", "d");
    assert_eq!(given(&mut driver, id, "c", 100), []);
    publish(&mut driver, id, &first[0].reply, "", "+ACK");
    let next = given(&mut driver, id, "c", 100);
    assert_eq!(payloads(&next), ["d"]);
    // What comes again has its place among what is out.
    publish(&mut driver, id, &first[1].reply, "", "-NAK");
    assert_eq!(payloads(&given(&mut driver, id, "c", 100)), ["b"]);
    publish(&mut driver, id, &next[0].reply, "", "+ACK");
    assert_eq!(payloads(&given(&mut driver, id, "c", 100)), ["c"]);
}

#[test]
fn the_floor_is_not_above_what_is_still_to_come() {
    let (mut driver, id) = served();
    for (priority, payload) in [("5", "a"), ("5", "b"), ("1", "c")] {
        send(&mut driver, id, priority, payload);
    }
    let urgent = given(&mut driver, id, "c", 1);
    assert_eq!(payloads(&urgent), ["c"]);
    publish(&mut driver, id, &urgent[0].reply, "", "+ACK");
    let said = info(&mut driver, id);
    assert_eq!(said["delivered"]["stream_seq"], 3);
    assert_eq!(said["ack_floor"]["consumer_seq"], 1);
    assert_eq!(said["ack_floor"]["stream_seq"], 0);
    assert_eq!((&said["num_pending"], &said["num_ack_pending"]), (&2.into(), &0.into()));
    // An acknowledgement of what was not given changes nothing.
    publish(&mut driver, id, &urgent[0].reply.replace(".1.3.1.", ".1.1.1."), "", "+ACK");
    assert_eq!(messages(&mut driver, id, "S"), "2");
    let rest = given(&mut driver, id, "c", 100);
    publish(&mut driver, id, &rest[0].reply, "", "+ACK");
    assert_eq!(info(&mut driver, id)["ack_floor"]["stream_seq"], 1);
    publish(&mut driver, id, &rest[1].reply, "", "+ACK");
    let said = info(&mut driver, id);
    assert_eq!(said["ack_floor"]["consumer_seq"], 3);
    assert_eq!(said["ack_floor"]["stream_seq"], 3);
}

#[test]
fn dead_letters_and_delayed_messages_keep_their_priority() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    let subjects = format!(",\"subjects\":[\"S\",\"dead.>\"]{PRIORITIES}");
    stream(&mut driver, id, "S", &subjects);
    let dead = ",\"metadata\":{\"mq9.dead_letter_prefix\":\"dead\"},\"max_deliver\":1";
    consumer(&mut driver, id, "S", "c", &format!(",\"filter_subject\":\"S\"{dead}"));
    consumer(&mut driver, id, "S", "letters", ",\"filter_subject\":\"dead.>\"");
    sent(&mut driver, id, "S", "mq9-delay: 1\r\n", "b");
    sent(&mut driver, id, "S", "mq9-delay: 1\r\nmq9-priority: 1\r\n", "a");
    assert_eq!(given(&mut driver, id, "c", 100), []);
    driver.pass_ms(1_000);
    assert_eq!(payloads(&given(&mut driver, id, "c", 1)), ["a"]);
    let normal = given(&mut driver, id, "c", 1);
    assert_eq!(payloads(&normal), ["b"]);
    publish(&mut driver, id, &normal[0].reply, "", "+TERM");
    driver.pass_ms(30_000);
    assert_eq!(payloads(&given(&mut driver, id, "letters", 100)), ["a", "b"]);
}

#[test]
fn a_full_stream_removes_the_oldest_messages_however_urgent() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", &format!(",\"max_msgs\":2{PRIORITIES}"));
    consumer(&mut driver, id, "S", "c", "");
    for (priority, payload) in [("1", "a"), ("9", "b"), ("5", "c")] {
        send(&mut driver, id, priority, payload);
    }
    assert_eq!(payloads(&given(&mut driver, id, "c", 100)), ["c", "b"]);
}

#[test]
fn only_work_queues_have_priorities() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    for (config, why) in [
        ("", "needs retention workqueue"),
        (",\"retention\":\"interest\"", "needs retention workqueue"),
    ] {
        let body = format!("{{\"name\":\"P\"{config},\"metadata\":{{\"mq9.priority\":\"true\"}}}}");
        let answer = ask(&mut driver, id, "STREAM.CREATE.P", &body);
        assert!(answer.contains(why), "{answer}");
    }
    let body = "{\"name\":\"P\",\"retention\":\"workqueue\",\"metadata\":{\"mq9.priority\":\"9\"}}";
    let answer = ask(&mut driver, id, "STREAM.CREATE.P", body);
    assert!(answer.contains("mq9.priority must be true, or left out"), "{answer}");
}

#[test]
fn what_is_stored_keeps_its_place_when_priorities_begin_or_end() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", ",\"retention\":\"workqueue\"");
    consumer(&mut driver, id, "S", "c", "");
    send(&mut driver, id, "1", "a");
    send(&mut driver, id, "1", "b");
    assert_eq!(payloads(&given(&mut driver, id, "c", 1)), ["a"]);
    let change = |driver: &mut Driver, more: &str| {
        let answer = ask(driver, id, "STREAM.UPDATE.S", &format!("{{\"name\":\"S\"{more}}}"));
        assert!(!answer.contains("error"), "{answer}");
    };
    change(&mut driver, PRIORITIES);
    send(&mut driver, id, "9", "c");
    send(&mut driver, id, "1", "d");
    assert_eq!(payloads(&given(&mut driver, id, "c", 1)), ["d"]);
    change(&mut driver, ",\"retention\":\"workqueue\"");
    send(&mut driver, id, "1", "e");
    assert_eq!(payloads(&given(&mut driver, id, "c", 100)), ["b", "e", "c"]);
    driver.pass_ms(40_000);
    assert_eq!(payloads(&given(&mut driver, id, "c", 100)), ["d", "a", "b", "e", "c"]);
}
