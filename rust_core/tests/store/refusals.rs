//! The store knows when it refuses what is new, and notices by itself when it need not any more.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::fs;
use std::sync::Arc;

use mq9_core::disk::OsDisk;
use mq9_core::error::Error;
use mq9_core::store::{NewMailbox, Options, Send, Store, maintain};
use mq9_core::time::Now;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

const NOW: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn options() -> Options {
    Options { segment_bytes: 64 << 10, allocate_bytes: 64 << 10, ..Options::default() }
}

fn opened(sim: &SimDisk, faults: &Faults) -> Store {
    let disk = Arc::new(FaultyDisk::new(sim.clone(), faults.clone()));
    let mut store = Store::open(disk, options(), 7, NOW).unwrap();
    store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, NOW).unwrap();
    store
}

fn send(store: &mut Store, bytes: usize) -> Result<(), Error> {
    store.send("a", &Send::new(&vec![7; bytes]), NOW).map(drop)
}

#[test]
fn a_full_disk_is_noticed_and_so_is_its_end_though_nobody_asks_again() {
    let (sim, faults) = (SimDisk::new(), Faults::new());
    let mut store = opened(&sim, &faults);
    faults.capacity(sim.total_bytes() + 300_000);
    let mut sent = 0;
    while send(&mut store, 8_000).is_ok() {
        sent += 1;
        store.sync().unwrap();
    }
    assert!(sent > 0);
    assert!(store.refusing().unwrap().starts_with("the disk is full"), "{:?}", store.refusing());
    assert_eq!(store.refused(), 1);
    // A small one for which space is kept back, or that still fits, proves nothing.
    let _ = send(&mut store, 1);
    assert!(store.refusing().is_some());

    let shared = RefCell::new(store);
    let _ = maintain(&shared, || NOW);
    assert!(shared.borrow().refusing().is_some(), "it is still full");
    faults.clear();
    maintain(&shared, || NOW).unwrap();
    assert_eq!(shared.borrow().refusing(), None);
}

#[test]
fn a_failed_write_is_a_refusal_until_it_comes_through() {
    let (sim, faults) = (SimDisk::new(), Faults::new());
    let mut store = opened(&sim, &faults);
    faults.fail(Operation::Write, Fault::io());
    send(&mut store, 100).unwrap();
    assert!(store.flush().is_err());
    assert!(store.refusing().unwrap().starts_with("cannot write segment-"));
    assert!(send(&mut store, 100).is_err());
    faults.clear();
    let shared = RefCell::new(store);
    maintain(&shared, || NOW).unwrap();
    assert_eq!(shared.borrow().refusing(), None);
    assert_eq!(shared.borrow_mut().mailbox("a", NOW).unwrap().messages, 1);
}

#[test]
fn a_directory_that_is_not_where_it_was_takes_nothing_and_another_in_its_place_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (data, away) = (folder.path().join("data"), folder.path().join("away"));
    let disk = Arc::new(OsDisk::new(&data).unwrap());
    let mut store = Store::open(disk, options(), 7, NOW).unwrap();
    store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, NOW).unwrap();
    send(&mut store, 100).unwrap();
    store.sync().unwrap();
    let shared = RefCell::new(store);
    maintain(&shared, || NOW).unwrap();
    assert_eq!(shared.borrow().refusing(), None);

    fs::rename(&data, &away).unwrap();
    for replaced in [false, true] {
        if replaced {
            // A backup, say, with files of the same names.
            fs::create_dir(&data).unwrap();
            fs::write(data.join("segment-0000000001.log"), b"other").unwrap();
        }
        assert!(maintain(&shared, || NOW).is_err());
        let mut store = shared.borrow_mut();
        assert!(store.refusing().unwrap().starts_with("cannot find the data directory"));
        assert!(send(&mut store, 100).is_err());
        store.flush().unwrap();
        assert!(store.refusing().is_some(), "a flush of nothing proves nothing");
        // No new file there, and nothing removed.
        assert!(store.rotate(NOW).is_err());
        assert!(store.checkpoint().is_err());
        let there: Vec<_> = fs::read_dir(&data).into_iter().flatten().collect();
        assert_eq!(there.len(), usize::from(replaced));
    }
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&away, &data).unwrap();
    maintain(&shared, || NOW).unwrap();
    assert_eq!(shared.borrow().refusing(), None);
    let mut store = shared.into_inner();
    send(&mut store, 100).unwrap();
    assert_eq!(store.mailbox("a", NOW).unwrap().messages, 2);
    store.close().unwrap();
}
