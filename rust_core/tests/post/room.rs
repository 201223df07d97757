//! What is owed to clients is bounded, and answers are for those who asked.

use mq9_core::broker::{Event, PermissionsBuilder};
use mq9_core::mailbox::Policy;
use mq9_core::post::{Post, PostOptions};

use crate::desk::Office;

#[test]
fn an_answer_is_heard_by_nobody_but_the_client_that_asked() {
    let mut office = Office::new();
    let (client, spy) = (office.client(), office.client());
    office.feed(spy, b"SUB > 7\r\nSUB in0.> 8\r\nSUB in0.* w 9\r\n");
    assert_eq!(office.ask(client, "SEND.m", "", "secret"), r#"{"error":"","msg_id":0}"#);
    let all = office.ask(client, "FETCH.m", "", r#"{"deliver":"earliest"}"#);
    assert!(all.contains("secret"));
    assert!(office.heard(spy).is_empty());
    // Nor does the server publish for a client what it may not publish itself.
    office.feed(client, b"PUB $mq9.AI.MSG.SEND.m in1.x 1\r\nx\r\n");
    office.settle();
    assert!(office.heard(spy).is_empty());
}

#[test]
fn a_request_that_is_too_large_is_refused_and_the_connection_lives_on() {
    let payload = vec![b'x'; (1 << 20) + 1];
    let line = format!("PUB $mq9.AI.MSG.SEND.m in0.1 {}\r\n", payload.len());
    let input = [line.as_bytes(), &payload, b"\r\nPING\r\n"].concat();
    for piece in [usize::MAX, 65_536, 1000] {
        let mut office = Office::new();
        let client = office.client();
        for chunk in input.chunks(piece.min(input.len())) {
            office.feed(client, chunk);
        }
        office.settle();
        let text = String::from_utf8_lossy(office.broker.unwritten(client)).into_owned();
        let error = "the payload has more than max_payload (1048576) bytes";
        let reply = format!("{{\"error\":\"{error}\",\"msg_id\":-1}}");
        assert!(text.contains(&reply) && text.contains("PONG\r\n"), "{text}");
        office.broker.written(client, usize::MAX);
        assert_eq!(office.ask(client, "SEND.m", "", "small"), r#"{"error":"","msg_id":0}"#);
    }
}

#[test]
fn a_client_that_asks_for_much_is_answered_as_it_takes_it() {
    let mut office = Office::new();
    let client = office.client();
    let large = "x".repeat(900_000);
    for _ in 0..10 {
        office.ask(client, "SEND.m", "", &large);
    }
    let body = br#"{"deliver":"earliest","config":{"max_bytes":16777216}}"#;
    for _ in 0..50 {
        office.request(client, "FETCH.m", "", body);
    }
    let mut largest = 0;
    let mut answers = 0;
    for _ in 0..200 {
        office.settle();
        office.retry_held();
        largest = largest.max(office.broker.stats(client).unwrap().pending_bytes);
        answers += office.heard(client).len();
    }
    assert_eq!(answers, 50);
    assert!(largest < 40 << 20, "{largest}");
    assert!(!office.broker.is_holding());
    assert_eq!(office.ask(client, "SEND.m", "", "y"), r#"{"error":"","msg_id":10}"#);
}

#[test]
fn many_polls_of_one_mailbox_are_answered_a_part_at_a_time() {
    let mut office = Office::new();
    let sender = office.client();
    let readers: Vec<_> = (0..40).map(|_| office.client()).collect();
    for &reader in &readers {
        office.request(reader, "FETCH.m", "", br#"{"config":{"max_wait_ms":9000}}"#);
    }
    office.request(sender, "SEND.m", "", &vec![b'x'; 900_000]);
    assert!(office.post.collect(&mut office.store, office.now), "there is more");
    office.store.sync().unwrap();
    office.release();
    let count = |office: &mut Office| -> usize {
        readers.iter().map(|&reader| office.heard(reader).len()).sum()
    };
    let first = count(&mut office);
    assert!((1..40).contains(&first), "{first}");
    let mut heard = first;
    for _ in 0..10 {
        office.settle();
        heard += count(&mut office);
    }
    assert_eq!(heard, 40);
}

#[test]
fn a_connection_waits_in_so_many_fetches_and_no_more() {
    let mut office = Office::new();
    let client = office.client();
    let body = br#"{"config":{"max_wait_ms":9000}}"#;
    for _ in 0..1024 {
        office.request(client, "FETCH.m", "", body);
    }
    office.settle();
    assert!(office.heard(client).is_empty());
    let refused = office.ask(client, "FETCH.m", "", r#"{"config":{"max_wait_ms":1}}"#);
    assert!(refused.contains(
        "quota max_waiting_fetches_per_connection reached: at most 1024 FETCHes that wait"
    ));
    let cid = office.broker.cid(client).unwrap();
    office.post.disconnect(&mut office.store, cid, office.now);
    assert_eq!(office.store.waiting(), 0);
}

#[test]
fn a_wait_ends_when_its_permission_does() {
    let mut office = Office::new();
    office.create("other", Policy::default());
    let (client, bystander) = (office.client(), office.client());
    for (who, address, format) in [
        (client, "m", "json"),
        (client, "m", "raw"),
        (client, "other", "json"),
        (bystander, "m", "json"),
    ] {
        let body = format!(r#"{{"config":{{"max_wait_ms":9000,"format":"{format}"}}}}"#);
        office.request(who, &format!("FETCH.{address}"), "", body.as_bytes());
    }
    let deny = vec!["$mq9.AI.MSG.FETCH.m".to_owned()];
    office
        .permit(client, PermissionsBuilder { publish_deny: deny, ..PermissionsBuilder::default() });
    office.settle();
    let told = office.wire(client);
    let violation = "-ERR 'Permissions Violation for Publish to \"$mq9.AI.MSG.FETCH.m\"'\r\n";
    assert_eq!(told.matches(violation).count(), 2, "{told}");
    let text = r#"{"error":"the permission to publish to \"$mq9.AI.MSG.FETCH.m\" has ended","messages":[]}"#;
    assert!(told.contains(text), "{told}");
    assert!(told.contains("NATS/1.0 400 the permission to publish to"), "{told}");
    assert_eq!(office.store.waiting(), 2);
    office.ask(bystander, "SEND.m", "", "secret");
    office.settle();
    assert_eq!(office.wire(client), "");
    office.ask(bystander, "SEND.other", "", "open");
    assert!(office.wire(client).contains("open"));
}

#[test]
fn a_reply_that_promises_nothing_outlives_the_disk() {
    let office = Office::new();
    let mut post = Post::new(PostOptions::default());
    let end = office.store.end();
    post.reply_at(end, 1, b"in.a", b"list".to_vec(), None);
    post.reply_at(end, 1, b"in.b", b"done".to_vec(), Some(b"failed".to_vec()));
    post.fail(office.store.acknowledged(), &mq9_core::error::Error::MessageNotFound);
    let mut said = Vec::new();
    while let Some(reply) = post.next_reply(office.store.acknowledged()) {
        reply.publish(|_, _, payload| said.push(String::from_utf8(payload.to_vec()).unwrap()));
    }
    assert_eq!(said, ["list", "failed"]);
    assert!(post.has_room(1, 1) && !post.is_holding());
}

#[test]
fn input_is_held_while_there_is_no_room_and_bounded() {
    let mut office = Office::new();
    let client = office.client();
    let ping = b"PING\r\n".repeat(100);
    // Nobody decides on this CONNECT.
    office.feed_only(client, b"CONNECT {}\r\n");
    for _ in 0..10_000 {
        office.feed_only(client, &ping);
    }
    assert!(office.broker.reason(client).is_some(), "it is not kept for ever");
    let closes = |event: &Event| matches!(event, Event::Close { .. });
    assert!(std::iter::from_fn(|| office.broker.next_event()).any(|event| closes(&event)));
}
