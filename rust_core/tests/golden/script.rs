//! The commands that the golden files are made of: every kind of record, every part of a checkpoint.

use std::sync::Arc;

use mq9_core::log::SyncMode;
use mq9_core::mailbox::{Discard, Level, Policy, Tier};
use mq9_core::store::{
    Ack, AckKind, Fetch, FetchOutcome, GroupFetch, MemberId, NewMailbox, Options, Send, Start,
    Store,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

pub const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
pub const ENTROPY: u64 = 0x0123_4567_89ab_cdef;

pub fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

pub fn open(disk: &SimDisk, now: Now) -> Store {
    let options = Options { sync: SyncMode::None, ..Options::default() };
    Store::open(Arc::new(disk.clone()), options, ENTROPY, now).unwrap()
}

/// Every field differs from the default.
pub fn full_policy() -> Policy {
    Policy {
        latest: true,
        work_queue: true,
        public: true,
        tier: Tier::Memory,
        discard: Discard::New,
        max_msgs: 1,
        max_bytes: 2_000,
        max_msg_size: 3_000,
        max_age_ms: 4_000_000,
        ack_wait_ms: 5_000,
        max_deliver: 6,
        max_ack_pending: 7,
        group_ttl_ms: 8_000,
        dedup_window_ms: 0,
        dead_letter: Some("dead".into()),
        owner: Some("ada".into()),
        ..Policy::default()
    }
}

fn fetch(store: &mut Store, group: &str, member: MemberId, max_msgs: usize, ms: u64) -> Vec<u64> {
    let group = Some(GroupFetch { name: group.to_owned(), member, force: false });
    let request =
        Fetch { group, max_msgs, conn: 9, start: Start::Earliest, ..Fetch::all("orders") };
    let FetchOutcome::Messages(batch) = store.fetch(request, at(ms)).unwrap() else { panic!() };
    batch.iter().map(|(meta, _)| meta.msg_id).collect()
}

fn ack(store: &mut Store, msg_id: u64, kind: AckKind, ms: u64) {
    let ack = Ack { address: "orders", group: "g", msg_ids: &[msg_id], kind };
    store.ack(&ack, at(ms)).unwrap();
}

/// Runs the commands and leaves the store as a killed process does, after a checkpoint.
pub fn run() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let orders = NewMailbox { address: "orders", desc: "golden", ..NewMailbox::default() };
    store.create_mailbox(&orders, START).unwrap();
    let policy = full_policy();
    let memory = NewMailbox { address: "memory.box", ttl_ms: 86_400_000, desc: "", policy };
    store.create_mailbox(&memory, at(1)).unwrap();
    store.send("memory.box", &Send::new(b"never on disk"), at(2)).unwrap();

    let headers = b"A: b\r\n";
    let full = Send { key: "k", tags: "t1,t2", headers, ttl_ms: 3_600_000, ..Send::new(b"zero") };
    store.send("orders", &full, at(3)).unwrap();
    let urgent = Send { level: Level::CRITICAL, key: "j", ..Send::new(b"one") };
    store.send("orders", &urgent, at(4)).unwrap();
    for payload in [b"two", b"tri", b"for", b"fiv"] {
        store.send("orders", &Send::new(payload), at(5)).unwrap();
    }
    store.send("orders", &Send { delay_ms: 100, ..Send::new(b"soon") }, at(6)).unwrap();
    let later = Send { delay_ms: 600_000, ttl_ms: 3_600_000, ..Send::new(b"later") };
    store.send("orders", &later, at(7)).unwrap();

    let named = || MemberId::Named("w".to_owned());
    assert_eq!(fetch(&mut store, "g", named(), 3, 8), [1, 0, 2]);
    ack(&mut store, 1, AckKind::Done { only: true }, 9);
    ack(&mut store, 2, AckKind::Return { delay_ms: 0 }, 10);
    assert_eq!(fetch(&mut store, "g", MemberId::Conn, 2, 11), [2, 3]);
    assert_eq!(fetch(&mut store, "latecomer", named(), 1, 12), [1]);
    store.delete("orders", 4, at(13)).unwrap();
    // The delayed message enters its lane: a unit of two records.
    store.tick(at(200));

    // One message expires, another is given up.
    let policy = Policy { dead_letter: Some("gone.dead".into()), ..Policy::default() };
    let gone = NewMailbox { address: "gone", policy, ..NewMailbox::default() };
    store.create_mailbox(&gone, at(201)).unwrap();
    store.send("gone", &Send { ttl_ms: 1, ..Send::new(b"short") }, at(201)).unwrap();
    store.send("gone", &Send::new(b"never mind"), at(201)).unwrap();
    store.fetch(Fetch::group("gone", "g", 10), at(202)).unwrap();
    let (group, kind) = ("g", AckKind::Terminate);
    store.ack(&Ack { address: "gone", group, msg_ids: &[1], kind }, at(202)).unwrap();
    store.remove_group("gone", "g", at(202)).unwrap();
    store.remove_mailbox("gone", at(202)).unwrap();
    store.remove_mailbox("gone.dead", at(202)).unwrap();
    store.rotate(at(203)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    disk
}
