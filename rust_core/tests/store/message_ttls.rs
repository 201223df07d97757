//! Lives that a mailbox gives to messages by their level.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::mailbox::{Level, MessageTtls, Policy};
use mq9_core::store::{Changes, NewMailbox, Options, Query, Send, Store};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn open(disk: &SimDisk, now: Now) -> Store {
    Store::open(Arc::new(disk.clone()), Options::default(), 42, now).unwrap()
}

fn ttls(of: &[(Level, u64)]) -> MessageTtls {
    let mut ttls = MessageTtls::default();
    for &(level, ttl_ms) in of {
        ttls.set(level, ttl_ms);
    }
    ttls
}

fn left(store: &mut Store, ms: u64) -> String {
    let query = Query { limit: 100, max_bytes: u64::MAX, ..Query::default() };
    let found = store.query("m", &query, at(ms)).unwrap();
    let payloads = found.iter().map(|(_, message)| message.payload.to_vec());
    String::from_utf8(payloads.collect::<Vec<_>>().concat()).unwrap()
}

#[test]
fn a_message_lives_as_long_as_the_mailbox_says_for_its_level() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let message_ttls =
        ttls(&[(Level::NORMAL, 1_000), (Level::URGENT, 5_000), (Level::NOTIFY, 9_000)]);
    let policy = Policy { message_ttls, max_age_ms: 8_000, ..Policy::default() };
    let new = NewMailbox { address: "m", policy: policy.clone(), ..NewMailbox::default() };
    store.create_mailbox(&new, START).unwrap();
    for (payload, level, ttl_ms, delay_ms) in [
        (b"n", Level::NORMAL, 0, 0),
        (b"u", Level::URGENT, 0, 0),
        // No other level has one, and none is longer than max_age.
        (b"c", Level::CRITICAL, 0, 0),
        (b"y", Level::NOTIFY, 0, 0),
        // What a message says itself counts, shorter or longer; so does that it has no limit.
        (b"s", Level::URGENT, 500, 0),
        (b"l", Level::NORMAL, 3_000, 0),
        (b"e", Level::NORMAL, Policy::NEVER, 0),
        // It counts from the send.
        (b"d", Level::NORMAL, 0, 900),
    ] {
        let send = Send { level, ttl_ms, delay_ms, ..Send::new(payload) };
        store.send("m", &send, START).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let mut store = open(&disk, at(1));
    assert_eq!(store.mailbox("m", at(1)).unwrap().policy, policy);
    for (ms, payloads) in [
        (499, "nucysle"),
        (500, "nucyle"),
        (950, "nucyled"),
        (1_000, "ucyle"),
        (3_000, "ucye"),
        (5_000, "cye"),
        (8_000, ""),
    ] {
        assert_eq!(left(&mut store, ms), payloads, "{ms} ms");
    }
}

#[test]
fn a_change_counts_for_what_is_sent_afterwards() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    store.create_mailbox(&NewMailbox { address: "m", ..NewMailbox::default() }, START).unwrap();
    store.send("m", &Send::new(b"a"), START).unwrap();
    let change = |policy: &mut Policy| policy.message_ttls = ttls(&[(Level::NORMAL, 1_000)]);
    store.update_mailbox("m", Changes::default(), change, at(1)).unwrap();
    store.send("m", &Send::new(b"b"), at(1)).unwrap();
    let change = |policy: &mut Policy| policy.message_ttls = ttls(&[(Level::NORMAL, 0)]);
    store.update_mailbox("m", Changes::default(), change, at(2)).unwrap();
    assert_eq!(store.mailbox("m", at(2)).unwrap().policy, Policy::default());
    store.send("m", &Send::new(b"c"), at(2)).unwrap();
    assert_eq!(left(&mut store, 1_000), "abc");
    assert_eq!(left(&mut store, 1_001), "ac");
}
