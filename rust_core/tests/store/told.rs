//! The log tells times, addresses and causes of what happened, expiry included.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::group::ranges::IdRanges;
use mq9_core::log::{Found, Header, Scan, SyncMode, names};
use mq9_core::mailbox::{Policy, Tier};
use mq9_core::store::{Ack, AckKind, Fetch, FetchOutcome, NewMailbox, Options, Send, Store};
use mq9_core::time::Now;
use mq9_core::wire::op::Op;
use mq9_core::wire::stamp::cause;
use mq9_sim::SimDisk;

const T: u64 = 1_700_000_000_000;

fn at(ms: u64) -> Now {
    Now { wall_ms: T + ms, mono_ms: 1_000 + ms }
}

fn open(disk: &SimDisk, now: Now) -> Store {
    let options = Options { sync: SyncMode::None, ..Options::default() };
    Store::open(Arc::new(disk.clone()), options, 7, now).unwrap()
}

fn create(store: &mut Store, address: &str, policy: Policy) {
    store.create_mailbox(&NewMailbox { address, policy, ..NewMailbox::default() }, at(0)).unwrap();
}

/// Every removal in the log: time, address, cause and ids.
fn removals(disk: &SimDisk) -> Vec<(u64, String, u8, Vec<u64>)> {
    let mut found = Vec::new();
    for name in disk.names() {
        let Some(number) = names::segment_number(&name) else { continue };
        let bytes = disk.read_file(&name).unwrap();
        let salt = Header::decode(&name, &bytes).unwrap().unwrap().salt;
        for item in Scan::new(&bytes, number, salt, 80) {
            let Found::Record { record, .. } = item else { panic!("{item:?}") };
            if let Op::Removed { stamp, cause, ranges } =
                Op::decode(record.kind, record.body).unwrap().unwrap()
            {
                let stamp = stamp.unwrap();
                let ids = IdRanges::decode(ranges).unwrap().iter().collect();
                found.push((stamp.time_ms - T, stamp.address.to_owned(), cause, ids));
            }
        }
    }
    found
}

#[test]
fn every_removal_tells_its_time_and_cause() {
    let disk = SimDisk::new();
    let mut store = open(&disk, at(0));
    create(&mut store, "plain", Policy::default());
    create(&mut store, "small", Policy { max_msgs: 1, ..Policy::default() });
    create(&mut store, "newest", Policy { latest: true, ..Policy::default() });
    create(&mut store, "work", Policy { work_queue: true, ..Policy::default() });
    store.send("plain", &Send::new(b"0"), at(1)).unwrap();
    store.delete("plain", 0, at(2)).unwrap();
    for ms in [3, 4] {
        store.send("plain", &Send { key: "k", ..Send::new(b"k") }, at(ms)).unwrap();
        store.send("small", &Send::new(b"s"), at(ms)).unwrap();
        store.send("newest", &Send::new(b"n"), at(ms)).unwrap();
    }
    let later = Send { key: "k", delay_ms: 10, ..Send::new(b"later") };
    store.send("plain", &later, at(5)).unwrap();
    store.send("work", &Send::new(b"w"), at(6)).unwrap();
    store.fetch(Fetch::group("work", "g", 1), at(7)).unwrap();
    let kind = AckKind::Done { only: true };
    store.ack(&Ack { address: "work", group: "g", msg_ids: &[0], kind }, at(8)).unwrap();
    store.send("plain", &Send { ttl_ms: 1, ..Send::new(b"short") }, at(9)).unwrap();
    store.tick(at(20));
    store.sync().unwrap();
    let told = |ms, address: &str, cause, id| (ms, address.to_owned(), cause, vec![id]);
    assert_eq!(
        removals(&disk),
        [
            told(2, "plain", cause::DELETED, 0),
            told(4, "plain", cause::REPLACED, 1),
            told(4, "small", cause::EVICTED, 0),
            told(4, "newest", cause::REPLACED, 0),
            told(8, "work", cause::CONSUMED, 0),
            told(20, "plain", cause::EXPIRED, 3),
            told(20, "plain", cause::REPLACED, 2),
        ]
    );
}

#[test]
fn what_has_expired_stays_away_though_the_clock_was_set_back() {
    let disk = SimDisk::new();
    let mut store = open(&disk, at(0));
    create(&mut store, "box", Policy::default());
    store.send("box", &Send { ttl_ms: 100, ..Send::new(b"short") }, at(1)).unwrap();
    store.send("box", &Send { ttl_ms: 50, delay_ms: 60, ..Send::new(b"never") }, at(1)).unwrap();
    store.tick(at(200));
    assert_eq!(store.mailbox("box", at(200)).unwrap().messages, 0);
    store.sync().unwrap();
    drop(store);
    for disk in [disk.crash_strict(), disk.snapshot()] {
        let mut store = open(&disk, at(10));
        let info = store.mailbox("box", at(10)).unwrap();
        assert_eq!((info.messages, info.delayed, info.next_id), (0, 0, 1));
    }
}

#[test]
fn expiry_of_very_many_is_told_in_few_bytes_and_short_steps() {
    let disk = SimDisk::new();
    let mut store = open(&disk, at(0));
    create(&mut store, "box", Policy::default());
    for _ in 0..100_000 {
        store.send("box", &Send { ttl_ms: 100, ..Send::new(b"x") }, at(1)).unwrap();
    }
    let before = store.end().offset();
    let mut rounds = 1;
    while store.tick(at(200)) {
        rounds += 1;
    }
    assert!((95..130).contains(&rounds), "{rounds}");
    assert_eq!(store.mailbox("box", at(200)).unwrap().messages, 0);
    assert!(store.end().offset() - before < 100_000, "{:?}", store.end());
    store.sync().unwrap();
    let ids: Vec<u64> = removals(&disk).into_iter().flat_map(|removal| removal.3).collect();
    assert_eq!(ids, (0..100_000).collect::<Vec<_>>());
}

#[test]
fn of_messages_in_memory_nothing_is_told() {
    let disk = SimDisk::new();
    let mut store = open(&disk, at(0));
    create(&mut store, "memory", Policy { tier: Tier::Memory, ..Policy::default() });
    store.send("memory", &Send { ttl_ms: 5, ..Send::new(b"x") }, at(1)).unwrap();
    let end = store.end();
    store.tick(at(10));
    assert_eq!(store.end(), end);
}

#[test]
fn expiry_found_by_a_fetch_is_told_too() {
    let disk = SimDisk::new();
    let mut store = open(&disk, at(0));
    create(&mut store, "box", Policy::default());
    // More than one tick takes: the fetch meets the rest.
    for _ in 0..3_000 {
        store.send("box", &Send { ttl_ms: 100, ..Send::new(b"x") }, at(1)).unwrap();
    }
    let fetched = store.fetch(Fetch::group("box", "g", 5_000), at(200)).unwrap();
    let FetchOutcome::Messages(batch) = fetched else { panic!() };
    assert_eq!(batch.iter().count(), 0);
    store.sync().unwrap();
    let ids: usize = removals(&disk).into_iter().map(|removal| removal.3.len()).sum();
    assert_eq!(ids, 3_000);
}
