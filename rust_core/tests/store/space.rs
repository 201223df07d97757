//! Disk space comes back: after upkeep the files take at most twice what is live, and one segment.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::sync::Arc;

use mq9_core::error::Error;
use mq9_core::log::SyncMode;
use mq9_core::mailbox::Policy;
use mq9_core::store::{
    Ack, AckKind, Fetch, FetchOutcome, NewMailbox, Options, Query, Send, Store, maintain,
};
use mq9_core::time::Now;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

const NOW: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
const SEGMENT: u64 = 1 << 20;
const OPTIONS: Options = Options {
    segment_bytes: SEGMENT as u32,
    allocate_bytes: 256 << 10,
    sync: SyncMode::None,
    ack_wait_ms: 30_000,
    max_groups: 16,
    group_ttl_ms: 0,
    quotas: mq9_core::store::Quotas::DEFAULT,
    checkpoint_bytes: 8 << 20,
};
/// The segment being written, with the space reserved behind it.
const ACTIVE: u64 = SEGMENT + (512 << 10);

fn at(ms: u64) -> Now {
    Now { wall_ms: NOW.wall_ms + ms, mono_ms: NOW.mono_ms + ms }
}

fn open(disk: &SimDisk, now: Now) -> Store {
    Store::open(Arc::new(disk.clone()), OPTIONS, 11, now).unwrap()
}

fn create(store: &mut Store, address: &str, ttl_ms: u64, policy: Policy) {
    let new = NewMailbox { address, ttl_ms, policy, ..NewMailbox::default() };
    store.create_mailbox(&new, NOW).unwrap();
}

fn payload(n: u64) -> Vec<u8> {
    format!("{n:0100}").into_bytes()
}

fn fill(store: &mut Store, address: &str, count: u64) {
    for n in 0..count {
        store.send(address, &Send::new(&payload(n)), NOW).unwrap();
        if n % 4096 == 0 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
}

fn upkeep(store: Store, now: Now) -> Store {
    let shared = RefCell::new(store);
    for _ in 0..10_000 {
        if !maintain(&shared, || now).unwrap() {
            return shared.into_inner();
        }
    }
    panic!("upkeep does not come to an end");
}

fn assert_small(disk: &SimDisk, store: &Store) {
    let (files, live) = (disk.total_bytes(), store.info().live_bytes);
    assert!(files <= 2 * live + ACTIVE, "{files} bytes of files for {live} live ones");
}

/// Every message must be the one sent with its id.
fn stored(store: &mut Store, address: &str, now: Now) -> Vec<u64> {
    let query = Query { limit: usize::MAX, max_bytes: u64::MAX, ..Query::default() };
    let batch = store.query(address, &query, now).unwrap();
    let messages = batch.iter().map(|(meta, message)| {
        assert_eq!(message.payload, payload(meta.msg_id));
        meta.msg_id
    });
    messages.collect()
}

#[test]
fn deleting_nine_of_ten_messages_gives_their_space_back() {
    let disk = SimDisk::new();
    let mut store = open(&disk, NOW);
    create(&mut store, "a", 0, Policy::default());
    fill(&mut store, "a", 200_000);
    for n in (0..200_000).filter(|n| n % 10 != 7) {
        store.delete("a", n, NOW).unwrap();
    }
    let before = disk.total_bytes();
    let mut store = upkeep(store, NOW);
    assert!(disk.total_bytes() < before / 4);
    assert_small(&disk, &store);
    let survivors: Vec<u64> = (0..200_000).filter(|n| n % 10 == 7).collect();
    assert_eq!(stored(&mut store, "a", NOW), survivors);
    drop(store);
    for disk in [disk.crash_strict(), disk.snapshot()] {
        let mut store = open(&disk, NOW);
        assert_eq!(store.damage(), []);
        assert_eq!(stored(&mut store, "a", NOW), survivors);
        store.close().unwrap();
        let mut store = upkeep(open(&disk, NOW), NOW);
        assert_eq!(stored(&mut store, "a", NOW), survivors);
        assert_small(&disk, &store);
    }
}

#[test]
fn a_work_queue_gives_back_what_is_acknowledged() {
    let disk = SimDisk::new();
    let mut store = open(&disk, NOW);
    create(&mut store, "a", 0, Policy { work_queue: true, ..Policy::default() });
    fill(&mut store, "a", 50_000);
    for _ in 0..45 {
        let outcome = store.fetch(Fetch::group("a", "g", 1000), NOW).unwrap();
        let FetchOutcome::Messages(batch) = outcome else { panic!("did not ask to wait") };
        let last = batch.iter().last().unwrap().0.msg_id;
        let kind = AckKind::Done { only: false };
        store.ack(&Ack { address: "a", group: "g", msg_ids: &[last], kind }, NOW).unwrap();
    }
    let mut store = upkeep(store, NOW);
    assert_small(&disk, &store);
    assert_eq!(stored(&mut store, "a", NOW), (45_000..50_000).collect::<Vec<_>>());
    drop(store);
    let mut store = open(&disk.crash_strict(), NOW);
    assert_eq!(stored(&mut store, "a", NOW), (45_000..50_000).collect::<Vec<_>>());
    assert_eq!(store.damage(), []);
}

#[test]
fn expiry_of_mailboxes_and_messages_gives_space_back() {
    let disk = SimDisk::new();
    let mut store = open(&disk, NOW);
    create(&mut store, "brief", 1000, Policy::default());
    create(&mut store, "aged", 0, Policy { max_age_ms: 1000, ..Policy::default() });
    create(&mut store, "kept", 0, Policy::default());
    for address in ["brief", "aged", "kept", "brief", "aged"] {
        fill(&mut store, address, 10_000);
    }
    while store.tick(at(1000)) {}
    let mut store = upkeep(store, at(1000));
    assert!(store.mailbox("brief", at(1000)).is_err());
    assert_eq!(store.mailbox("aged", at(1000)).unwrap().messages, 0);
    assert_small(&disk, &store);
    assert_eq!(stored(&mut store, "kept", at(1000)), (0..10_000).collect::<Vec<_>>());
    drop(store);
    let mut store = open(&disk.crash_strict(), at(1000));
    assert_eq!(store.damage(), []);
    assert_eq!(stored(&mut store, "kept", at(1000)), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn overwriting_keys_for_ever_keeps_the_files_bounded() {
    let disk = SimDisk::new();
    let mut store = open(&disk, NOW);
    create(&mut store, "a", 0, Policy::default());
    let keys: Vec<String> = (0..1000).map(|n| format!("key-{n}")).collect();
    let mut most = 0;
    for round in 0..60 {
        for (n, key) in keys.iter().enumerate() {
            let payload = payload(round * 1000 + n as u64);
            store.send("a", &Send { key, ..Send::new(&payload) }, NOW).unwrap();
        }
        store = upkeep(store, NOW);
        most = most.max(disk.total_bytes());
    }
    // The live part is small: what upkeep tolerates before it acts dominates.
    assert!(most <= 6 * SEGMENT, "{most}");
    assert_eq!(stored(&mut store, "a", NOW), (59_000..60_000).collect::<Vec<_>>());
    let mut store = upkeep(store, NOW);
    store.sync().unwrap();
    let mut store = open(&disk.crash_strict(), NOW);
    assert_eq!(stored(&mut store, "a", NOW), (59_000..60_000).collect::<Vec<_>>());
}

#[test]
fn a_rewrite_that_found_the_disk_full_is_tried_again() {
    let disk = SimDisk::new();
    let faults = Faults::new();
    let faulty = Arc::new(FaultyDisk::new(disk.clone(), faults.clone()));
    let mut store = Store::open(faulty, OPTIONS, 11, NOW).unwrap();
    create(&mut store, "a", 0, Policy::default());
    fill(&mut store, "a", 40_000);
    (0..40_000).filter(|n| n % 10 != 0).for_each(|n| store.delete("a", n, NOW).unwrap());
    // Both checkpoints behind the segments that are mostly dead, so that only rewriting is left.
    for address in ["b", "c"] {
        store.rotate(NOW).unwrap();
        store.checkpoint().unwrap();
        create(&mut store, address, 0, Policy::default());
    }
    store.rotate(NOW).unwrap();
    faults.fail(Operation::Allocate, Fault::no_space());
    faults.fail(Operation::Create, Fault::no_space());
    let shared = RefCell::new(store);
    let mut rounds = 0;
    while maintain(&shared, || NOW).is_ok_and(|busy| busy) {
        rounds += 1;
        assert!(rounds < 1000);
    }
    assert!(matches!(maintain(&shared, || NOW), Err(Error::DiskFull(_))));
    faults.clear();
    let store = upkeep(shared.into_inner(), NOW);
    assert_small(&disk, &store);
}
