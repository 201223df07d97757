//! Upkeep holds the store to look and to copy, never while it waits for the disk, and for one record at a time.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mq9_core::disk::{Disk, DiskFile};
use mq9_core::log::names;
use mq9_core::store::{NewMailbox, Options, Send, Shared, Store, maintain};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
const OPTIONS: Options = Options {
    segment_bytes: 256 << 10,
    allocate_bytes: 64 << 10,
    sync: mq9_core::log::SyncMode::Always,
    ack_wait_ms: 30_000,
    max_groups: 16,
    group_ttl_ms: 0,
    quotas: mq9_core::store::Quotas::DEFAULT,
    checkpoint_bytes: 1 << 20,
};
const PAYLOAD: usize = 2_000;
/// One record, and what was copied before it and not written yet.
const MOST: u64 = (16 << 10) + PAYLOAD as u64 + 200;

/// What is done to the disk while the store is held.
#[derive(Default)]
struct Watch {
    held: AtomicBool,
    written: AtomicU64,
    slow: AtomicU64,
}

impl Watch {
    fn slow(&self) {
        self.slow.fetch_add(u64::from(self.held.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

struct WatchedDisk(SimDisk, Arc<Watch>);
struct WatchedFile(Arc<dyn DiskFile>, Arc<Watch>);

impl WatchedDisk {
    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(WatchedFile(file, Arc::clone(&self.1)))
    }
}

impl Disk for WatchedDisk {
    fn lock(&self) -> io::Result<Box<dyn std::marker::Send + Sync>> {
        self.0.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.1.slow();
        self.0.create(name).map(|file| self.file(file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open(name).map(|file| self.file(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.1.slow();
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.1.slow();
        self.0.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.1.slow();
        self.0.sync_dir()
    }
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.1.held.load(Ordering::Relaxed) {
            self.1.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        self.0.write_at(data, offset)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.slow();
        self.0.set_len(len)
    }
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn sync(&self) -> io::Result<()> {
        self.1.slow();
        self.0.sync()
    }
}

/// Every hold of a store, with how much of the log it grew by.
struct Held {
    store: RefCell<Store>,
    watch: Arc<Watch>,
    most: RefCell<(u64, u64)>,
    rests: Cell<u64>,
}

impl Shared for Held {
    fn rest(&self) {
        assert!(self.store.try_borrow().is_ok(), "rests while it holds the store");
        self.rests.set(self.rests.get() + 1);
    }

    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        let store = &mut *self.store.borrow_mut();
        let end = store.end();
        self.watch.held.store(true, Ordering::Relaxed);
        let done = step(store);
        self.watch.held.store(false, Ordering::Relaxed);
        let written = self.watch.written.swap(0, Ordering::Relaxed);
        let copied = match store.end().segment() == end.segment() {
            true => u64::from(store.end().offset() - end.offset()),
            false => u64::from(store.end().offset()),
        };
        let mut most = self.most.borrow_mut();
        *most = (most.0.max(written), most.1.max(copied));
        done
    }
}

#[test]
fn upkeep_holds_the_store_for_one_record_and_for_nothing_slow() {
    let (disk, watch) = (SimDisk::new(), Arc::new(Watch::default()));
    let watched = Arc::new(WatchedDisk(disk.clone(), Arc::clone(&watch)));
    let mut store = Store::open(watched, OPTIONS, 42, START).unwrap();
    for address in ["kept", "gone"] {
        store.create_mailbox(&NewMailbox { address, ..Default::default() }, START).unwrap();
    }
    let (store, watch_of, most) = (RefCell::new(store), Arc::clone(&watch), RefCell::default());
    let held = Held { store, watch: watch_of, most, rests: Cell::new(0) };
    let payload = [7; PAYLOAD];
    for round in 0..40 {
        for n in 0..60 {
            let address = if n % 3 == 0 { "kept" } else { "gone" };
            held.store.borrow_mut().send(address, &Send::new(&payload), START).unwrap();
        }
        held.store.borrow_mut().sync().unwrap();
        if round % 4 == 3 {
            let mut store = held.store.borrow_mut();
            store.remove_mailbox("gone", START).unwrap();
            while store.tick(START) {}
            let new = NewMailbox { address: "gone", ..Default::default() };
            store.create_mailbox(&new, START).unwrap();
            store.sync().unwrap();
        }
        while maintain(&held, || START).unwrap() {}
    }
    let (written, copied) = *held.most.borrow();
    let first = "segment-0000000001.log".to_owned();
    assert!(!disk.names().contains(&first), "nothing was rewritten and removed");
    assert!(disk.names().iter().any(|name| name.starts_with("checkpoint-")), "no checkpoint");
    assert!(copied > PAYLOAD as u64, "nothing was copied");
    assert!(copied <= PAYLOAD as u64 + 200, "{copied} bytes were copied at once");
    assert!(written <= MOST, "{written} bytes were written at once");
    assert_eq!(watch.slow.load(Ordering::Relaxed), 0, "waited for the disk");
    assert!(
        held.rests.get() > 100,
        "rested {} times while it rewrote and captured",
        held.rests.get()
    );
    let kept = held.store.borrow_mut().mailbox("kept", START).unwrap();
    assert_eq!(kept.messages, 40 * 20);
}

/// A store whose log grows whenever upkeep rests.
struct Busy {
    store: RefCell<Store>,
    disk: SimDisk,
    rests: Cell<u64>,
    /// The log's next segment is wanted.
    wanted: Cell<bool>,
}

impl Busy {
    fn next_segment(&self) -> String {
        names::segment(self.store.borrow().end().segment() + 1)
    }
}

impl Shared for Busy {
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        step(&mut self.store.borrow_mut())
    }

    fn rest(&self) {
        self.rests.set(self.rests.get() + 1);
        if self.wanted.get() {
            assert!(self.disk.names().contains(&self.next_segment()), "the log has to wait");
            return;
        }
        let store = &mut *self.store.borrow_mut();
        while !store.asks_for_upkeep() {
            store.send("many", &Send::new(&[7; PAYLOAD]), START).unwrap();
        }
        self.wanted.set(true);
    }
}

#[test]
fn a_checkpoint_of_a_large_mailbox_rests_and_does_not_keep_the_log_from_its_next_segment() {
    let disk = SimDisk::new();
    let options = Options { segment_bytes: 8 << 20, ..OPTIONS };
    let mut store = Store::open(Arc::new(disk.clone()), options, 42, START).unwrap();
    store.create_mailbox(&NewMailbox { address: "many", ..Default::default() }, START).unwrap();
    for _ in 0..60_000 {
        store.send("many", &Send::new(b"x"), START).unwrap();
    }
    store.sync().unwrap();
    let (rests, wanted) = (Cell::new(0), Cell::new(false));
    let busy = Busy { store: RefCell::new(store), disk, rests, wanted };
    maintain(&busy, || START).unwrap();
    assert!(busy.disk.names().contains(&names::checkpoint(1)), "no checkpoint");
    assert!(busy.wanted.get());
    assert!(busy.rests.get() >= 60_000 / 8192, "rested {} times", busy.rests.get());
}
