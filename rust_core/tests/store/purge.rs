//! Purging: all messages go at once, numbers and positions stay, and nobody waits for it.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::Error;
use mq9_core::mailbox::{Policy, Tier};
use mq9_core::store::{Ack, AckKind, Fetch, FetchOutcome, NewMailbox, Options, Query, Send, Store};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn open(disk: &SimDisk, now: Now) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = Options { segment_bytes: 64 << 10, ..Options::default() };
    Store::open(disk, options, 42, now).unwrap()
}

fn created(disk: &SimDisk, policy: Policy) -> Store {
    let mut store = open(disk, START);
    let new = NewMailbox { address: "a", desc: "stays", policy, ..NewMailbox::default() };
    store.create_mailbox(&new, START).unwrap();
    store
}

fn send(store: &mut Store, send: Send<'_>) -> Option<u64> {
    store.send("a", &send, at(1)).unwrap()
}

fn payloads(store: &mut Store, now: Now) -> Vec<String> {
    let query = Query { limit: 1000, max_bytes: u64::MAX, ..Query::default() };
    let batch = store.query("a", &query, now).unwrap();
    batch.iter().map(|(_, m)| String::from_utf8(m.payload.to_vec()).unwrap()).collect()
}

fn fetch(store: &mut Store, now: Now) -> Vec<u64> {
    let FetchOutcome::Messages(batch) = store.fetch(Fetch::group("a", "g", 10), now).unwrap()
    else {
        panic!("did not ask to wait")
    };
    batch.iter().map(|(meta, _)| meta.msg_id).collect()
}

#[test]
fn a_purge_takes_messages_of_every_kind_and_tells_how_many() {
    for tier in [Tier::Durable, Tier::Memory] {
        let disk = SimDisk::new();
        let mut store = created(&disk, Policy { tier, ..Policy::default() });
        send(&mut store, Send::new(b"plain"));
        send(&mut store, Send { key: "k", tags: "t", ..Send::new(b"keyed") });
        send(&mut store, Send { ttl_ms: 5_000, ..Send::new(b"brief") });
        send(&mut store, Send { delay_ms: 5_000, ..Send::new(b"later") });
        assert_eq!(fetch(&mut store, at(2)), [0, 1, 2]);
        assert_eq!(store.purge("a", at(3)).unwrap(), 4);
        let info = store.mailbox("a", at(3)).unwrap();
        assert_eq!((info.messages, info.delayed, info.bytes, info.next_id), (0, 0, 0, 3));
        assert_eq!((info.desc.as_str(), info.groups[0].outstanding), ("stays", 0));
        assert_eq!(payloads(&mut store, at(3)), [""; 0]);
        assert_eq!(store.purge("a", at(3)).unwrap(), 0);
        // The group goes on behind them, and their key is free.
        assert_eq!(send(&mut store, Send { key: "k", ..Send::new(b"new") }), Some(3));
        assert_eq!(fetch(&mut store, at(4)), [3]);
        // What was to expire or become due in the meantime does nothing.
        while store.tick(at(60_000)) {}
        assert_eq!(payloads(&mut store, at(60_000)), ["new"]);
        let bytes = store.mailbox("a", at(60_000)).unwrap().bytes;
        assert_eq!(store.info().live_bytes, if tier == Tier::Memory { 0 } else { bytes });
    }
}

#[test]
fn a_purged_mailbox_is_the_same_after_a_restart_with_and_without_a_checkpoint() {
    for checkpoint in [false, true] {
        for close in [false, true] {
            let disk = SimDisk::new();
            let mut store = created(&disk, Policy::default());
            for _ in 0..5 {
                send(&mut store, Send::new(b"old"));
            }
            send(&mut store, Send { delay_ms: 5_000, ..Send::new(b"later") });
            assert_eq!(fetch(&mut store, at(2)).len(), 5);
            if checkpoint {
                store.checkpoint().unwrap();
            }
            assert_eq!(store.purge("a", at(3)).unwrap(), 6);
            send(&mut store, Send::new(b"new"));
            send(&mut store, Send { delay_ms: 9_000, ..Send::new(b"due") });
            let before = store.mailbox("a", at(4)).unwrap();
            match close {
                true => store.close().unwrap(),
                false => {
                    store.sync().unwrap();
                    drop(store);
                }
            }
            let mut store = open(&disk, at(5));
            assert_eq!(store.damage(), []);
            assert_eq!(store.mailbox("a", at(5)).unwrap(), before);
            assert_eq!((before.next_id, before.messages, before.delayed), (6, 1, 1));
            while store.tick(at(20_000)) {}
            assert_eq!(payloads(&mut store, at(20_000)), ["new", "due"]);
        }
    }
}

#[test]
fn an_acknowledgement_of_a_purged_message_is_no_error() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy::default());
    send(&mut store, Send::new(b"given"));
    assert_eq!(fetch(&mut store, at(2)), [0]);
    store.purge("a", at(3)).unwrap();
    let kind = AckKind::Done { only: false };
    store.ack(&Ack { address: "a", group: "g", msg_ids: &[0], kind }, at(4)).unwrap();
    assert!(matches!(store.purge("b", at(4)), Err(Error::MailboxNotFound(_))));
}

/// What a purge does by itself grows with neither messages nor deliveries: the rest is done a little at a time.
#[test]
fn a_purge_of_many_messages_is_counted_out_a_little_at_a_time() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy::default());
    for _ in 0..5_000 {
        send(&mut store, Send::new(b"one of many"));
    }
    let live = store.info().live_bytes;
    assert_eq!(store.purge("a", at(3)).unwrap(), 5_000);
    assert_eq!(store.info().live_bytes, live);
    assert_eq!(store.mailbox("a", at(3)).unwrap().messages, 0);
    let mut ticks = 0;
    while store.tick(at(4)) {
        ticks += 1;
    }
    assert!((2..10).contains(&ticks), "{ticks}");
    assert_eq!(store.info().live_bytes, 0);
}

#[test]
fn more_messages_than_were_seen_stay() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy::default());
    send(&mut store, Send::new(b"seen"));
    send(&mut store, Send { delay_ms: 5_000, ..Send::new(b"not seen") });
    let refused = store.expect_messages("a", 1, at(2));
    assert!(matches!(refused, Err(Error::MoreMessages { found: 2, expected: 1, .. })));
    store.expect_messages("a", 2, at(2)).unwrap();
    // What is due meanwhile is counted once.
    store.expect_messages("a", 2, at(9_000)).unwrap();
    let missing = store.expect_messages("b", 9, at(2));
    assert!(matches!(missing, Err(Error::MailboxNotFound(_))));
}
