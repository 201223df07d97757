//! A panic in the middle of a change: the store is not used any more, nobody waits for ever, and what was acknowledged
//! is there when it is opened again.
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use mq9_core::error::Error;
use mq9_core::log::SyncThread;
use mq9_core::store::{FairLock, NewMailbox, Options, Query, Send, Shared, Store};
use mq9_core::time::Now;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

const NOW: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

fn opened(sim: &SimDisk, faults: &Faults) -> Store {
    let disk = Arc::new(FaultyDisk::new(sim.clone(), faults.clone()));
    Store::open(disk, Options::default(), 7, NOW).unwrap()
}

fn filled(sim: &SimDisk, faults: &Faults) -> Store {
    let mut store = opened(sim, faults);
    store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, NOW).unwrap();
    store.send("a", &Send::new(b"before"), NOW).unwrap();
    store.sync().unwrap();
    store
}

fn stored(store: &mut Store) -> Vec<Vec<u8>> {
    let batch = store.query("a", &Query { limit: 10, ..Query::default() }, NOW).unwrap();
    batch.iter().map(|(_, message)| message.payload.to_vec()).collect()
}

#[test]
fn a_store_that_a_panic_left_half_changed_is_not_entered_again() {
    let (sim, faults) = (SimDisk::new(), Faults::new());
    let lock = FairLock::new(filled(&sim, &faults));
    assert!(!lock.is_broken());
    faults.fail(Operation::Write, Fault::panic());
    let change = || {
        let mut store = lock.lock();
        store.send("a", &Send::new(b"half"), NOW).unwrap();
        store.flush()
    };
    assert!(catch_unwind(AssertUnwindSafe(change)).is_err());
    faults.clear();
    assert!(lock.is_broken());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| lock.with(|store| store.flush()))).is_err());
    assert!(lock.take().is_none(), "nothing of it is saved");
    let before = vec![b"before".to_vec()];
    assert_eq!(stored(&mut opened(&sim, &faults)), before);
    assert_eq!(stored(&mut opened(&sim.crash_strict(), &faults)), before);
}

#[test]
fn a_sync_thread_that_panics_stops_writes_and_whoever_waits_is_told() {
    let (sim, faults) = (SimDisk::new(), Faults::new());
    let mut store = filled(&sim, &faults);
    let (told, rung) = mpsc::channel();
    let begin = Instant::now();
    let syncer = store.syncer();
    syncer.listen(move || told.send(()).unwrap());
    let thread = SyncThread::start(store.syncer(), move || begin.elapsed()).unwrap();
    faults.fail(Operation::Sync, Fault::panic());
    store.send("a", &Send::new(b"in vain"), NOW).unwrap();
    store.flush().unwrap();
    rung.recv_timeout(PATIENCE).unwrap();
    let stopped = |outcome: Result<(), Error>| match outcome {
        Err(Error::WritesStopped(cause)) => assert!(cause.contains("the sync thread panicked")),
        other => panic!("{other:?}"),
    };
    stopped(syncer.check());
    assert!(syncer.acknowledged() < store.end());
    stopped(store.send("a", &Send::new(b"later"), NOW).map(drop));
    faults.clear();
    stopped(store.sync());
    drop(thread);
}

#[test]
fn a_sync_that_panicked_in_another_thread_is_not_tried_again() {
    let (sim, faults) = (SimDisk::new(), Faults::new());
    let mut store = filled(&sim, &faults);
    faults.fail(Operation::Sync, Fault::panic());
    store.send("a", &Send::new(b"in vain"), NOW).unwrap();
    let end = store.end();
    assert!(catch_unwind(AssertUnwindSafe(|| store.sync())).is_err());
    faults.clear();
    assert!(matches!(store.sync(), Err(Error::WritesStopped(_))));
    assert!(store.acknowledged() < end);
}
