//! Dead letters of streams that go back: each is a letter or a message again, never both and never neither.

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::Error;
use mq9_core::mailbox::{Discard, Policy};
use mq9_core::store::{NewStream, Publish, Store, StreamKey, StreamQuery};
use mq9_sim::SimDisk;

use crate::world::{OPTIONS, START, open};

fn opened(disk: &SimDisk) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    open(&disk, OPTIONS, START).unwrap()
}

fn stream(store: &mut Store, name: &str, policy: &Policy) -> StreamKey {
    let new = NewStream { name, config: "{}", policy: policy.clone() };
    store.create_stream(&new, START).unwrap()
}

fn publish(store: &mut Store, key: StreamKey, subject: &str, payload: &str) {
    let publish = Publish { subject, payload: payload.as_bytes(), ..Publish::default() };
    store.publish_to(key, &publish, START).unwrap();
}

/// Subjects and payloads of a stream, of those below a prefix.
fn messages(store: &mut Store, name: &str, prefixes: &[String]) -> Vec<String> {
    let key = store.find_stream(name).unwrap();
    let query = StreamQuery { prefixes, limit: 10, max_bytes: 1 << 20, ..StreamQuery::default() };
    let page = store.stream_page(key, &query).unwrap();
    assert_eq!(page.next, None);
    let said = |payload| String::from_utf8_lossy(payload).into_owned();
    page.messages.iter().map(|(_, m)| format!("{} {}", m.key, said(m.payload))).collect()
}

fn back<'a>() -> Publish<'a> {
    Publish { subject: "mq.a", payload: b"letter", ..Publish::default() }
}

#[test]
fn a_power_cut_in_a_replay_to_a_stream_leaves_the_letter_or_the_message() {
    let mut seen = (false, false);
    let full = Policy { max_msgs: 3, discard: Discard::New, ..Policy::default() };
    let small = Policy { max_msgs: 3, ..Policy::default() };
    for (policy, letters) in
        [(Policy::default(), "DEAD"), (small, "DEAD"), (Policy::default(), "MQ"), (full, "MQ")]
    {
        for cut in 1.. {
            let disk = SimDisk::new();
            let mut store = opened(&disk);
            let to = stream(&mut store, "MQ", &policy);
            let from = if letters == "MQ" { to } else { stream(&mut store, letters, &policy) };
            publish(&mut store, to, "mq.a", "before");
            publish(&mut store, from, "mq.dlq.mq.a", "another");
            publish(&mut store, from, "mq.dlq.mq.a", "letter");
            store.sync().unwrap();
            let letter = if letters == "MQ" { 2 } else { 1 };
            disk.cut_at(disk.ops() + cut);
            let sent = store.send_letter_back((from, letter), to, &back(), START);
            let sent = sent.and_then(|_| store.sync());
            if !disk.is_cut() {
                sent.unwrap();
                break;
            }
            drop(store);
            for crashed in [disk.crash_strict(), disk.crash_lucky(), disk.crash(cut)] {
                let mut store = opened(&crashed);
                let letters = messages(&mut store, letters, &["mq.dlq.".to_owned()]);
                let queue = messages(&mut store, "MQ", &["mq.a".to_owned()]);
                assert_eq!(letters[0], "mq.dlq.mq.a another");
                let went_back = match (letters.len(), queue.len()) {
                    (2, 1) => false,
                    (1, 2) => true,
                    both => panic!("cut at {cut}: {both:?}"),
                };
                assert!(sent.is_err() || went_back, "cut at {cut}: it was promised");
                match went_back {
                    true => seen.1 = true,
                    false => seen.0 = true,
                }
            }
        }
    }
    assert_eq!(seen, (true, true), "the cuts came too early or too late");
}

#[test]
fn a_letter_that_its_stream_does_not_take_stays() {
    let disk = SimDisk::new();
    let mut store = opened(&disk);
    let from = stream(&mut store, "DEAD", &Policy::default());
    publish(&mut store, from, "mq.dlq.mq.a", "letter");
    let full = Policy { max_msgs: 1, discard: Discard::New, ..Policy::default() };
    let small = Policy { max_msg_size: 3, ..Policy::default() };
    for (name, policy) in [("FULL", full), ("SMALL", small)] {
        let to = stream(&mut store, name, &policy);
        publish(&mut store, to, "mq.b", "one");
        let refused = store.send_letter_back((from, 0), to, &back(), START).unwrap_err();
        let right = match name {
            "FULL" => matches!(refused, Error::MailboxFull { .. }),
            _ => matches!(refused, Error::MessageTooLarge { limit: 3, .. }),
        };
        assert!(right, "{refused}");
        assert_eq!(messages(&mut store, name, &[]), ["mq.b one"]);
    }
    assert_eq!(messages(&mut store, "DEAD", &[]), ["mq.dlq.mq.a letter"]);
    let to = stream(&mut store, "MQ", &Policy::default());
    assert_eq!(store.send_letter_back((from, 0), to, &back(), START).unwrap(), 1);
    let again = store.send_letter_back((from, 0), to, &back(), START).unwrap_err();
    assert!(matches!(again, Error::MessageNotFound), "{again}");
    assert_eq!(messages(&mut store, "MQ", &[]), ["mq.a letter"]);
}

#[test]
fn a_page_of_a_stream_says_where_to_go_on() {
    let disk = SimDisk::new();
    let mut store = opened(&disk);
    let key = stream(&mut store, "S", &Policy::default());
    for number in 0..6 {
        publish(&mut store, key, if number % 2 == 0 { "a.x" } else { "b.x" }, &number.to_string());
    }
    let prefixes = ["a.".to_owned()];
    let mut page = |query: &StreamQuery<'_>| {
        let found = store.stream_page(key, query).unwrap();
        let ids: Vec<u64> = found.messages.iter().map(|(meta, _)| meta.msg_id).collect();
        (ids, found.next)
    };
    let two = StreamQuery { limit: 2, max_bytes: 1 << 20, ..StreamQuery::default() };
    assert_eq!(page(&two), (vec![0, 1], Some(2)));
    assert_eq!(page(&StreamQuery { from: 4, ..two.clone() }), (vec![4, 5], None));
    assert_eq!(page(&StreamQuery { newest: true, ..two.clone() }), (vec![4, 5], Some(4)));
    let older = StreamQuery { newest: true, before: Some(4), ..two.clone() };
    assert_eq!(page(&older), (vec![2, 3], Some(2)));
    assert_eq!(page(&StreamQuery { before: Some(2), newest: true, ..two.clone() }).1, None);
    let of_a = StreamQuery { prefixes: &prefixes, ..two.clone() };
    assert_eq!(page(&of_a), (vec![0, 2], Some(3)));
    assert_eq!(page(&StreamQuery { from: 3, ..of_a }), (vec![4], None));
    assert_eq!(page(&StreamQuery { max_bytes: 1, ..two }), (vec![0], Some(1)));
}
