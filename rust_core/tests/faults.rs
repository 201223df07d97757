//! A disk that reports errors: the caller is told, nothing acknowledged is lost, nothing that failed
//! is acknowledged, reading goes on, and writing resumes where it may.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::sync::Arc;

use mq9_core::disk::OsDisk;
use mq9_core::error::Error;
use mq9_core::log::SyncMode;
use mq9_core::mailbox::Policy;
use mq9_core::store::{
    Ack, AckKind, Fetch, FetchOutcome, NewMailbox, Options, Query, Send, Store, maintain,
};
use mq9_core::time::Now;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

const NOW: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
const OPTIONS: Options = Options {
    segment_bytes: 64 << 10,
    allocate_bytes: 64 << 10,
    sync: SyncMode::Always,
    ack_wait_ms: 30_000,
    max_groups: 16,
    group_ttl_ms: 0,
    quotas: mq9_core::store::Quotas::DEFAULT,
    checkpoint_bytes: 1 << 30,
};

struct House {
    sim: SimDisk,
    faults: Faults,
}

impl House {
    fn new() -> House {
        House { sim: SimDisk::new(), faults: Faults::new() }
    }

    fn try_open(&self) -> Result<Store, Error> {
        let disk = FaultyDisk::new(self.sim.clone(), self.faults.clone());
        Store::open(Arc::new(disk), OPTIONS, 42, NOW)
    }

    /// An open store with the work queue "a" and the messages "0" to "9" in it.
    fn filled(&self) -> Store {
        let mut store = self.try_open().unwrap();
        let policy = Policy { work_queue: true, ..Policy::default() };
        let new = NewMailbox { address: "a", policy, ..NewMailbox::default() };
        store.create_mailbox(&new, NOW).unwrap();
        for n in 0..10 {
            send(&mut store, &n.to_string()).unwrap();
        }
        store.sync().unwrap();
        store
    }

    /// What a power cut and a restart on a sound disk leave.
    fn left(&self) -> Vec<String> {
        let disk = self.sim.crash_strict();
        stored(&mut Store::open(Arc::new(disk), OPTIONS, 43, NOW).unwrap())
    }
}

fn send(store: &mut Store, payload: &str) -> Result<u64, Error> {
    store.send("a", &Send::new(payload.as_bytes()), NOW).map(Option::unwrap)
}

fn stored(store: &mut Store) -> Vec<String> {
    let query = Query { limit: usize::MAX, max_bytes: u64::MAX, ..Query::default() };
    let batch = store.query("a", &query, NOW).unwrap();
    batch.iter().map(|(_, m)| String::from_utf8_lossy(m.payload).into_owned()).collect()
}

fn fetch(store: &mut Store, max: usize) -> Result<Vec<u64>, Error> {
    match store.fetch(Fetch::group("a", "g", max), NOW)? {
        FetchOutcome::Messages(batch) => Ok(batch.iter().map(|(m, _)| m.msg_id).collect()),
        FetchOutcome::Waiting(_) => panic!("did not ask to wait"),
    }
}

fn ack(store: &mut Store, msg_ids: &[u64]) -> Result<(), Error> {
    let kind = AckKind::Done { only: true };
    store.ack(&Ack { address: "a", group: "g", msg_ids, kind }, NOW)
}

fn numbers(from: u32, to: u32) -> Vec<String> {
    (from..to).map(|n| n.to_string()).collect()
}

/// Sends until the disk refuses; returns what was taken.
fn send_until_full(store: &mut Store, len: usize) -> (Vec<String>, Error) {
    let mut taken = Vec::new();
    loop {
        let payload = format!("{}-{:len$}", taken.len(), "");
        match send(store, &payload).and_then(|_| store.sync()) {
            Ok(()) => taken.push(payload),
            Err(e) => return (taken, e),
        }
    }
}

#[test]
fn a_write_that_fails_is_not_acknowledged_and_comes_through_later() {
    for fault in
        [Fault::io(), Fault::no_space(), Fault::io().partial(), Fault::no_space().partial()]
    {
        let house = House::new();
        let mut store = house.filled();
        let before = store.acknowledged();
        house.faults.fail(Operation::Write, fault);
        send(&mut store, "10").unwrap();
        let e = store.sync().unwrap_err();
        let full = fault.error == Fault::no_space().error;
        assert!(matches!(e, Error::DiskFull(_)) == full, "{e}");
        assert!(matches!(e, Error::Io { action: "write", .. }) != full, "{e}");
        assert_eq!(store.acknowledged(), before);
        assert!(store.acknowledged() < store.end());
        // Nothing new is taken meanwhile, and nothing is lost or in the way.
        assert!(send(&mut store, "refused").is_err());
        assert!(fetch(&mut store, 1).is_err());
        assert_eq!(stored(&mut store), numbers(0, 11));
        assert_eq!(house.left(), numbers(0, 10));
        house.faults.clear();
        send(&mut store, "11").unwrap();
        store.sync().unwrap();
        assert!(store.acknowledged() >= store.end());
        assert_eq!(house.left(), numbers(0, 12));
    }
}

#[test]
fn a_failed_sync_stops_writes_for_good_and_reading_goes_on() {
    let house = House::new();
    let mut store = house.filled();
    let before = store.acknowledged();
    house.faults.fail(Operation::Sync, Fault::io().times(1));
    send(&mut store, "10").unwrap();
    assert!(matches!(store.sync(), Err(Error::WritesStopped(_))));
    // The disk is sound again, and what it dropped stays unknown.
    assert!(matches!(store.sync(), Err(Error::WritesStopped(_))));
    assert!(matches!(store.flush(), Err(Error::WritesStopped(_))));
    assert!(matches!(send(&mut store, "11"), Err(Error::WritesStopped(_))));
    assert!(matches!(fetch(&mut store, 1), Err(Error::WritesStopped(_))));
    assert!(matches!(store.checkpoint(), Err(Error::WritesStopped(_))));
    assert_eq!(store.acknowledged(), before);
    assert_eq!(stored(&mut store), numbers(0, 11));
    drop(store);
    assert_eq!(house.left()[..10], numbers(0, 10));
    assert_eq!(stored(&mut house.try_open().unwrap())[..10], numbers(0, 10));
}

/// What was written before is in memory no longer.
fn write_other(store: &mut Store) {
    store.create_mailbox(&NewMailbox { address: "other", ..Default::default() }, NOW).unwrap();
    store.sync().unwrap();
}

#[test]
fn a_read_that_fails_is_an_error_and_no_damage() {
    let house = House::new();
    let mut store = house.filled();
    write_other(&mut store);
    house.faults.fail(Operation::Read, Fault::io());
    let e = store.query("a", &Query { limit: 1, ..Query::default() }, NOW).unwrap_err();
    assert!(matches!(e, Error::Io { action: "read", .. }), "{e}");
    assert!(matches!(fetch(&mut store, 9), Err(Error::Io { action: "read", .. })));
    send(&mut store, "10").unwrap();
    store.sync().unwrap();
    house.faults.clear();
    assert_eq!(store.damage(), []);
    assert_eq!(stored(&mut store), numbers(0, 11));
    // What the failed fetch had chosen was not taken as delivered.
    assert_eq!(fetch(&mut store, 20).unwrap().len(), 11);
}

#[test]
fn what_was_written_last_is_read_from_memory() {
    let house = House::new();
    let mut store = house.filled();
    house.faults.fail(Operation::Read, Fault::io());
    assert_eq!(stored(&mut store), numbers(0, 10));
    assert_eq!(house.faults.failures(Operation::Read), 0, "it was read back");
    house.faults.clear();
    // Some are in the file alone, some were written last, and some are not written.
    for n in 10..16 {
        send(&mut store, &n.to_string()).unwrap();
        if n == 12 {
            store.flush().unwrap();
        }
    }
    assert_eq!(stored(&mut store), numbers(0, 16));
    assert_eq!(store.damage(), []);
}

#[test]
fn an_open_that_meets_an_error_says_so_and_loses_nothing() {
    use Operation::{Allocate, Create, Open, Read, Sync, SyncDir, Write};
    let house = House::new();
    house.filled().close().unwrap();
    for operation in [Allocate, Create, Open, Read, Sync, SyncDir, Write] {
        for after in 0..4 {
            house.faults.fail(operation, Fault::io().after(after).times(1));
            if let Err(e) = house.try_open() {
                assert!(matches!(e, Error::Io { .. }), "{operation:?}: {e}");
            }
            house.faults.clear();
            assert_eq!(house.left(), numbers(0, 10), "{operation:?} after {after}");
        }
    }
    house.faults.fail(Create, Fault::read_only());
    assert!(matches!(house.try_open(), Err(Error::Io { action: "create", .. })));
    house.faults.clear();
    assert_eq!(stored(&mut house.try_open().unwrap()), numbers(0, 10));
}

#[test]
fn a_segment_that_cannot_be_made_refuses_sends_and_keeps_the_rest() {
    use Operation::{Allocate, Create, Sync, SyncDir, Write};
    for operation in [Allocate, Create, Write, Sync, SyncDir] {
        let house = House::new();
        let mut store = house.filled();
        house.faults.fail(operation, Fault::no_space());
        assert!(matches!(store.rotate(NOW), Err(Error::DiskFull(_))), "{operation:?}");
        house.faults.clear();
        assert_eq!(stored(&mut store), numbers(0, 10));
        send(&mut store, "10").unwrap();
        store.rotate(NOW).unwrap();
        send(&mut store, "11").unwrap();
        store.sync().unwrap();
        assert!(store.acknowledged() >= store.end());
        assert_eq!(house.left(), numbers(0, 12), "{operation:?}");
    }
}

#[test]
fn a_full_disk_can_be_emptied_by_consumers_and_then_filled_again() {
    let house = House::new();
    let mut store = house.filled();
    house.faults.capacity(house.sim.total_bytes() + 400_000);
    let (taken, e) = send_until_full(&mut store, 1000);
    assert!(matches!(e, Error::DiskFull(_)), "{e}");
    assert!(taken.len() > 100, "{}", taken.len());
    let mut all = numbers(0, 10);
    all.extend(taken);
    assert_eq!(stored(&mut store), all);
    assert_eq!(house.left(), all);
    // Still full: fetching, acknowledging and deleting go on, and are acknowledged.
    loop {
        let ids = fetch(&mut store, 10).unwrap();
        if ids.is_empty() {
            break;
        }
        store.delete("a", ids[0], NOW).unwrap();
        ack(&mut store, &ids[1..]).unwrap();
        store.sync().unwrap();
        assert!(store.acknowledged() >= store.end());
    }
    assert_eq!(stored(&mut store), [""; 0]);
    assert_eq!(house.left(), [""; 0]);
    let shared = RefCell::new(store);
    while maintain(&shared, || NOW).unwrap() {}
    let mut store = shared.into_inner();
    let (again, _) = send_until_full(&mut store, 1000);
    assert!(again.len() > 100, "{}", again.len());
    assert_eq!(house.left(), again);
}

#[test]
fn a_disk_with_less_room_than_the_reserve_keeps_no_worker_from_its_work() {
    let house = House::new();
    let mut store = house.filled();
    house.faults.capacity(house.sim.total_bytes() + 400_000);
    let (taken, _) = send_until_full(&mut store, 1000);
    drop(store);
    // What was kept back is given back when the store opens, and something else takes a part of it.
    house.faults.capacity(house.sim.total_bytes() - 100_000);
    let mut store = house.try_open().unwrap();
    assert!(matches!(send(&mut store, "more"), Err(Error::DiskFull(_))));
    for _ in 0..3 {
        let ids = fetch(&mut store, 10).unwrap();
        assert_eq!(ids.len(), 10);
        ack(&mut store, &ids).unwrap();
        store.sync().unwrap();
    }
    assert_eq!(house.left(), taken[20..]);
}

#[test]
fn upkeep_that_fails_anywhere_loses_nothing_and_succeeds_later() {
    use Operation::{Allocate, Create, Read, Remove, Rename, SetLen, Sync, SyncDir, Write};
    for operation in [Allocate, Create, Read, Remove, Rename, SetLen, Sync, SyncDir, Write] {
        for after in 0..12 {
            let house = House::new();
            let mut store = house.filled();
            for round in 0..4 {
                for n in 0..70 {
                    let id = send(&mut store, &format!("{round}-{n}-{:1000}", "")).unwrap();
                    if n > 0 {
                        store.delete("a", id, NOW).unwrap();
                    }
                }
            }
            store.sync().unwrap();
            let all = stored(&mut store);
            assert_eq!(all.len(), 14);
            let shared = RefCell::new(store);
            house.faults.fail(operation, Fault::io().after(after).times(1));
            let mut outcome = Ok(true);
            while matches!(outcome, Ok(true)) {
                outcome = maintain(&shared, || NOW);
            }
            let failed = house.faults.failures(operation) > 0;
            house.faults.clear();
            let at = format!("{operation:?} after {after}: {outcome:?}");
            assert_eq!(house.left(), all, "{at}");
            let mut store = shared.into_inner();
            assert_eq!(stored(&mut store), all, "{at}");
            if failed && operation == Sync && send(&mut store, "10").is_err() {
                // The log's own sync failed: only a restart helps.
                continue;
            }
            let shared = RefCell::new(store);
            while maintain(&shared, || NOW).unwrap() {}
            let mut store = shared.into_inner();
            assert_eq!(stored(&mut store)[..14], all, "{at}");
            assert_eq!(house.left()[..14], all, "{at}");
            let names = house.sim.names();
            assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{at}: {names:?}");
            assert!(house.sim.total_bytes() < 900_000, "{at}: {names:?}");
        }
    }
}

#[test]
fn a_segment_goes_only_when_what_replaces_it_is_durable() {
    let house = House::new();
    let mut store = house.filled();
    for _ in 0..9 {
        let id = send(&mut store, &format!("{:1000}", "")).unwrap();
        store.delete("a", id, NOW).unwrap();
    }
    for _ in 0..3 {
        store.rotate(NOW).unwrap();
        store.checkpoint().unwrap();
    }
    let first = "segment-0000000001.log".to_owned();
    let mut compactor = store.pick_compaction().expect("little of it is live");
    compactor.load().unwrap();
    while let Some(candidate) = compactor.next_message() {
        store.compact(&candidate, NOW).unwrap();
    }
    store.finish_compaction(&compactor);
    for _ in 0..3 {
        store.reclaim().unwrap();
        store.flush().unwrap();
        assert!(house.sim.names().contains(&first));
        assert_eq!(house.left(), numbers(0, 10));
    }
    store.sync().unwrap();
    store.reclaim().unwrap();
    store.reclaim().unwrap();
    assert!(!house.sim.names().contains(&first));
    assert_eq!(house.left(), numbers(0, 10));
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let open = || Store::open(Arc::new(OsDisk::new(dir.path()).unwrap()), OPTIONS, 1, NOW);
    drop(open().unwrap());
    let set_mode = |mode| {
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0o555);
    let outcome = open();
    // The superuser may write everywhere.
    if std::fs::File::create(dir.path().join("probe")).is_err() {
        assert!(matches!(outcome, Err(Error::Io { .. })));
    }
    set_mode(0o755);
    drop(outcome);
    open().unwrap();
}
