//! Answers owed to clients are bounded, and are for those who asked.

use mq9_core::commands::Shape;
use mq9_core::front::{Event, PermissionsBuilder};
use mq9_core::mailbox::Policy;
use mq9_core::partition::RequestHandler;
use mq9_core::protocol::WireOptions;

use crate::driver::Driver;

#[test]
fn an_answer_is_heard_by_nobody_but_the_client_that_asked() {
    let mut driver = Driver::new();
    let (client, spy) = (driver.client(), driver.client());
    driver.feed(spy, b"SUB > 7\r\nSUB in0.> 8\r\nSUB in0.* w 9\r\n");
    assert_eq!(driver.ask(client, "SEND.m", "", "secret"), r#"{"error":"","msg_id":0}"#);
    let all = driver.ask(client, "FETCH.m", "", r#"{"deliver":"earliest"}"#);
    assert!(all.contains("secret"));
    assert!(driver.heard(spy).is_empty());
    // Nor does the server publish for a client what it may not publish itself.
    driver.feed(client, b"PUB $mq9.AI.MSG.SEND.m in1.x 1\r\nx\r\n");
    driver.settle();
    assert!(driver.heard(spy).is_empty());
}

#[test]
fn a_request_that_is_too_large_is_refused_and_the_connection_lives_on() {
    let payload = vec![b'x'; (1 << 20) + 1];
    let line = format!("PUB $mq9.AI.MSG.SEND.m in0.1 {}\r\n", payload.len());
    let input = [line.as_bytes(), &payload, b"\r\nPING\r\n"].concat();
    for piece in [usize::MAX, 65_536, 1000] {
        let mut driver = Driver::new();
        let client = driver.client();
        for chunk in input.chunks(piece.min(input.len())) {
            driver.feed(client, chunk);
        }
        driver.settle();
        let text = String::from_utf8_lossy(driver.engine.front().unwritten(client)).into_owned();
        let error = "the payload has more than max_payload (1048576) bytes";
        let reply = format!("{{\"error\":\"{error}\",\"msg_id\":-1}}");
        assert!(text.contains(&reply) && text.contains("PONG\r\n"), "{text}");
        driver.wire(client);
        assert_eq!(driver.ask(client, "SEND.m", "", "small"), r#"{"error":"","msg_id":0}"#);
    }
}

#[test]
fn a_client_that_asks_for_much_is_answered_as_it_takes_it() {
    let mut driver = Driver::new();
    let client = driver.client();
    let large = "x".repeat(900_000);
    for _ in 0..10 {
        driver.ask(client, "SEND.m", "", &large);
    }
    let body = br#"{"deliver":"earliest","config":{"max_bytes":16777216}}"#;
    for _ in 0..50 {
        driver.request(client, "FETCH.m", "", body);
    }
    let mut largest = 0;
    let mut answers = 0;
    for _ in 0..200 {
        driver.settle();
        largest = largest.max(driver.engine.front().stats(client).unwrap().pending_bytes);
        answers += driver.heard(client).len();
    }
    assert_eq!(answers, 50);
    assert!(largest < 40 << 20, "{largest}");
    assert!(!driver.engine.front().is_holding());
    assert_eq!(driver.ask(client, "SEND.m", "", "y"), r#"{"error":"","msg_id":10}"#);
}

#[test]
fn many_polls_of_one_mailbox_are_answered_a_part_at_a_time() {
    let mut driver = Driver::new();
    let sender = driver.client();
    let readers: Vec<_> = (0..40).map(|_| driver.client()).collect();
    for &reader in &readers {
        driver.request(reader, "FETCH.m", "", br#"{"config":{"max_wait_ms":9000}}"#);
    }
    driver.request(sender, "SEND.m", "", &vec![b'x'; 900_000]);
    driver.settle();
    assert!(driver.engine.due_in_ms(driver.moment()) == Some(0), "there is more");
    let count = |driver: &mut Driver| -> usize {
        readers.iter().map(|&reader| driver.heard(reader).len()).sum()
    };
    let first = count(&mut driver);
    assert!((1..40).contains(&first), "{first}");
    let mut heard = first;
    for _ in 0..10 {
        driver.settle();
        heard += count(&mut driver);
    }
    assert_eq!(heard, 40);
}

#[test]
fn a_connection_waits_in_so_many_fetches_and_no_more() {
    let mut driver = Driver::new();
    let client = driver.client();
    let body = br#"{"config":{"max_wait_ms":9000}}"#;
    for _ in 0..1024 {
        driver.request(client, "FETCH.m", "", body);
    }
    driver.settle();
    assert!(driver.heard(client).is_empty());
    let refused = driver.ask(client, "FETCH.m", "", r#"{"config":{"max_wait_ms":1}}"#);
    assert!(refused.contains(
        "quota max_waiting_fetches_per_connection reached: at most 1024 FETCHes that wait"
    ));
    driver.leave(client);
    assert_eq!(driver.store().waiting(), 0);
}

#[test]
fn a_wait_ends_when_its_permission_does() {
    let mut driver = Driver::new();
    driver.create("other", Policy::default());
    let (client, bystander) = (driver.client(), driver.client());
    for (who, address, format) in [
        (client, "m", "json"),
        (client, "m", "raw"),
        (client, "other", "json"),
        (bystander, "m", "json"),
    ] {
        let body = format!(r#"{{"config":{{"max_wait_ms":9000,"format":"{format}"}}}}"#);
        driver.request(who, &format!("FETCH.{address}"), "", body.as_bytes());
    }
    let deny = vec!["$mq9.AI.MSG.FETCH.m".to_owned()];
    driver
        .permit(client, PermissionsBuilder { publish_deny: deny, ..PermissionsBuilder::default() });
    driver.settle();
    let told = driver.wire(client);
    let violation = "-ERR 'Permissions Violation for Publish to \"$mq9.AI.MSG.FETCH.m\"'\r\n";
    assert_eq!(told.matches(violation).count(), 2, "{told}");
    let text = r#"{"error":"the permission to publish to \"$mq9.AI.MSG.FETCH.m\" has ended","messages":[]}"#;
    assert!(told.contains(text), "{told}");
    assert!(told.contains("NATS/1.0 400 the permission to publish to"), "{told}");
    assert_eq!(driver.store().waiting(), 2);
    driver.ask(bystander, "SEND.m", "", "secret");
    driver.settle();
    assert_eq!(driver.wire(client), "");
    driver.ask(bystander, "SEND.other", "", "open");
    assert!(driver.wire(client).contains("open"));
}

#[test]
fn a_reply_that_promises_nothing_outlives_the_disk() {
    let driver = Driver::new();
    let mut handler = RequestHandler::new(WireOptions::default());
    let end = driver.store().end();
    handler.reply_at(end, 1, b"in.a", b"list".to_vec(), None);
    handler.reply_at(end, 1, b"in.b", b"done".to_vec(), Some(Shape::Removed));
    handler
        .replies_mut()
        .fail(driver.store().acknowledged(), &mq9_core::error::Error::MessageNotFound);
    let mut said = Vec::new();
    while let Some(reply) = handler.replies_mut().next(driver.store().acknowledged()) {
        reply.publish(|_, _, payload| said.push(String::from_utf8(payload.to_vec()).unwrap()));
    }
    assert_eq!(said, ["list", r#"{"error":"message not found","removed":false}"#]);
    assert!(handler.replies().has_room(1, 1) && !handler.replies().is_waiting());
}

#[test]
fn input_is_held_while_there_is_no_room_and_bounded() {
    let mut driver = Driver::new();
    let client = driver.client();
    let ping = b"PING\r\n".repeat(100);
    // Nobody decides on this CONNECT.
    driver.feed_only(client, b"CONNECT {}\r\n");
    for _ in 0..10_000 {
        driver.feed_only(client, &ping);
    }
    assert!(driver.engine.front().reason(client).is_some(), "it is not kept for ever");
    let closes = |event: &Event| matches!(event, Event::Close { .. });
    assert!(
        std::iter::from_fn(|| driver.engine.front_mut().next_event()).any(|event| closes(&event))
    );
}

/// Asks for so much that is not durable that the broker holds as many replies as it may for those nobody waits for.
pub fn hold_many_replies(driver: &mut Driver) {
    driver.create("held", Policy::default());
    let sender = driver.client();
    for _ in 0..5 {
        driver.request(sender, "SEND.held", "", &vec![b'x'; 900_000]);
    }
    let body = br#"{"deliver":"earliest","config":{"max_bytes":16777216}}"#;
    for _ in 0..20 {
        let client = driver.client();
        driver.request(client, "FETCH.held", "", body);
        assert!(driver.heard(client).is_empty(), "it is not durable");
    }
}

#[test]
fn polls_that_are_over_wait_for_room_at_rest() {
    let mut driver = Driver::new();
    let (reader, sender) = (driver.client(), driver.client());
    driver.request(reader, "FETCH.m", "", br#"{"config":{"max_wait_ms":9000}}"#);
    driver.settle();
    hold_many_replies(&mut driver);
    driver.request(sender, "SEND.m", "", b"late");
    driver.release();
    assert_ne!(driver.engine.due_in_ms(driver.moment()), Some(0), "it would turn without an end");
    assert!(!driver.engine.wants_to_settle(driver.moment()), "it would turn without an end");
    driver.store().sync().unwrap();
    driver.release();
    assert_eq!(driver.engine.due_in_ms(driver.moment()), Some(0), "there is room");
    driver.settle();
    assert_eq!(driver.heard(reader).len(), 1);
    assert_ne!(driver.engine.due_in_ms(driver.moment()), Some(0), "all is done");
}
