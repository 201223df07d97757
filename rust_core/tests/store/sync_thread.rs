//! Group commit with real threads: what is written becomes durable, and a failure stops everything.
#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use mq9_core::disk::{Disk, DiskFile, OsDisk};
use mq9_core::error::Error;
use mq9_core::log::{Call, Lsn, SyncMode, SyncThread, Syncer};
use mq9_core::store::{NewMailbox, Options, Query, Send, Store};
use mq9_core::time::Now;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

const NOW: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
/// Long enough for any disk; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

fn options(sync: SyncMode) -> Options {
    Options { segment_bytes: 64 << 10, allocate_bytes: 64 << 10, sync, ..Options::default() }
}

fn send(store: &mut Store, payload: &str) -> Result<Option<u64>, Error> {
    store.send("a", &Send::new(payload.as_bytes()), NOW)
}

fn stored(store: &mut Store) -> Vec<String> {
    let query = Query { limit: usize::MAX, max_bytes: u64::MAX, ..Query::default() };
    let batch = store.query("a", &query, NOW).unwrap();
    batch.iter().map(|(_, m)| String::from_utf8_lossy(m.payload).into_owned()).collect()
}

/// A store shared with a sync thread, and a bell that it rings after every round.
struct Served {
    store: Mutex<Store>,
    bell: Arc<(Mutex<()>, Condvar)>,
}

impl Served {
    fn start(disk: impl Disk + 'static, sync: SyncMode) -> (Served, SyncThread) {
        let mut store = Store::open(Arc::new(disk), options(sync), 7, NOW).unwrap();
        store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, NOW).unwrap();
        let bell = Arc::new((Mutex::new(()), Condvar::new()));
        let rung = Arc::clone(&bell);
        let begin = Instant::now();
        store.syncer().listen(move || {
            drop(rung.0.lock().unwrap());
            rung.1.notify_all();
        });
        let thread = SyncThread::start(store.syncer(), move || begin.elapsed());
        (Served { store: Mutex::new(store), bell }, thread.unwrap())
    }

    fn wait(&self, until: impl Fn() -> bool) {
        let mut guard = self.bell.0.lock().unwrap();
        while !until() {
            let (woken, timeout) = self.bell.1.wait_timeout(guard, PATIENCE).unwrap();
            guard = woken;
            assert!(!timeout.timed_out() || until(), "nothing was synced");
        }
    }
}

#[test]
fn the_sync_thread_acknowledges_what_many_threads_send() {
    for sync in [SyncMode::Always, SyncMode::Interval { ms: 1 }] {
        let dir = tempfile::tempdir().unwrap();
        let (served, thread) = Served::start(OsDisk::new(dir.path()).unwrap(), sync);
        let syncer = served.store.lock().unwrap().syncer();
        std::thread::scope(|scope| {
            for sender in 0..4 {
                let (served, syncer) = (&served, &syncer);
                scope.spawn(move || {
                    for n in 0..50 {
                        let mut store = served.store.lock().unwrap();
                        send(&mut store, &format!("{sender}-{n}-{:900}", "")).unwrap();
                        store.flush().unwrap();
                        let end = store.end();
                        drop(store);
                        served.wait(|| syncer.durable() >= end);
                    }
                });
            }
        });
        // Stops and is joined; the store goes on without it.
        drop(thread);
        let mut store = served.store.into_inner().unwrap();
        send(&mut store, "last").unwrap();
        store.sync().unwrap();
        drop(store);
        let disk = Arc::new(OsDisk::new(dir.path()).unwrap());
        assert_eq!(stored(&mut Store::open(disk, options(sync), 8, NOW).unwrap()).len(), 201);
    }
}

#[test]
fn a_failed_sync_of_the_thread_stops_writes_for_good() {
    let (sim, faults) = (SimDisk::new(), Faults::new());
    let disk = FaultyDisk::new(sim, faults.clone());
    let (served, thread) = Served::start(disk, SyncMode::Always);
    let syncer = served.store.lock().unwrap().syncer();
    served.store.lock().unwrap().flush().unwrap();
    let end = served.store.lock().unwrap().end();
    served.wait(|| syncer.durable() >= end);
    faults.fail(Operation::Sync, Fault::io().times(1));
    send(&mut served.store.lock().unwrap(), "never acknowledged").unwrap();
    served.store.lock().unwrap().flush().unwrap();
    served.wait(|| syncer.check().is_err());
    let mut store = served.store.lock().unwrap();
    assert!(matches!(send(&mut store, "refused"), Err(Error::WritesStopped(_))));
    assert_eq!(store.acknowledged(), end);
    assert_eq!(stored(&mut store), ["never acknowledged"]);
    drop(thread);
}

#[test]
fn after_an_idle_interval_the_next_write_is_synced_all_the_same() {
    let (served, thread) = Served::start(SimDisk::new(), SyncMode::Interval { ms: 1 });
    let syncer = served.store.lock().unwrap().syncer();
    for _ in 0..5 {
        let mut store = served.store.lock().unwrap();
        send(&mut store, "now and then").unwrap();
        store.flush().unwrap();
        let end = store.end();
        drop(store);
        served.wait(|| syncer.durable() >= end);
        // Right without it: this only makes idle intervals likely.
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(thread);
}

/// A file whose syncs begin and end when the test says so, and take a minute by its clock.
struct Slow {
    begun: Mutex<mpsc::Sender<()>>,
    may_end: Mutex<mpsc::Receiver<()>>,
    minutes: Arc<AtomicU64>,
}

impl DiskFile for Slow {
    fn sync(&self) -> io::Result<()> {
        self.begun.lock().unwrap().send(()).unwrap();
        self.may_end.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        self.minutes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn read_at(&self, _buf: &mut [u8], _offset: u64) -> io::Result<usize> {
        unreachable!("it is only synced")
    }

    fn write_at(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        unreachable!("it is only synced")
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        unreachable!("it is only synced")
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        unreachable!("it is only synced")
    }

    fn size(&self) -> io::Result<u64> {
        unreachable!("it is only synced")
    }
}

#[test]
fn a_sync_waits_for_those_whom_the_last_one_has_served() {
    let (begun, begins) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    let (told, tells) = mpsc::channel();
    let minutes = Arc::new(AtomicU64::new(0));
    let (begun, may_end) = (Mutex::new(begun), Mutex::new(may_end));
    let file: Arc<dyn DiskFile> = Arc::new(Slow { begun, may_end, minutes: Arc::clone(&minutes) });
    let syncer = Arc::new(Syncer::new(SyncMode::Always, Lsn::new(1, 0)));
    let clock = move || Duration::from_secs(60 * minutes.load(Ordering::SeqCst));
    syncer.listen(move || told.send(()).unwrap_or(()));
    let thread = SyncThread::start(Arc::clone(&syncer), clock).unwrap();

    let write = |end: u32| syncer.wrote(Lsn::new(1, end), 1, &file, Call::Now);
    write(100);
    begins.recv_timeout(PATIENCE).unwrap();
    write(200);
    end.send(()).unwrap();
    tells.recv_timeout(PATIENCE).unwrap();
    // The first writer may come back. Nothing depends on the time it takes.
    assert!(begins.recv_timeout(Duration::from_millis(50)).is_err(), "it did not wait");
    write(300);
    begins.recv_timeout(PATIENCE).unwrap();
    end.send(()).unwrap();
    tells.recv_timeout(PATIENCE).unwrap();
    assert_eq!(syncer.durable(), Lsn::new(1, 300));
    // Nobody comes back: whoever writes then does not pay for a minute of the disk.
    write(301);
    begins.recv_timeout(PATIENCE).unwrap();
    end.send(()).unwrap();
    tells.recv_timeout(PATIENCE).unwrap();
    drop(thread);
}

#[test]
fn what_is_left_for_later_is_synced_when_the_thread_is_called() {
    let (served, thread) = Served::start(SimDisk::new(), SyncMode::Always);
    let syncer = served.store.lock().unwrap().syncer();
    served.store.lock().unwrap().sync().unwrap();
    for called_by_flush in [false, true] {
        let mut store = served.store.lock().unwrap();
        let before = store.end();
        send(&mut store, "later").unwrap();
        store.flush_and(Call::Later).unwrap();
        let end = store.end();
        drop(store);
        assert_eq!(syncer.durable(), before, "nobody has called it");
        if called_by_flush {
            served.store.lock().unwrap().flush().unwrap();
        } else {
            syncer.call_thread();
        }
        served.wait(|| syncer.durable() >= end);
    }
    drop(thread);
}

#[test]
fn a_caller_does_not_wait_for_a_sync_under_way() {
    let ((begun, begins), (end, may_end)) = (mpsc::channel(), mpsc::channel());
    let (begun, may_end) = (Mutex::new(begun), Mutex::new(may_end));
    let minutes = Arc::new(AtomicU64::new(0));
    let file: Arc<dyn DiskFile> = Arc::new(Slow { begun, may_end, minutes });
    let (told, tells) = mpsc::channel();
    let syncer = Arc::new(Syncer::new(SyncMode::Always, Lsn::new(1, 0)));
    syncer.listen(move || told.send(()).unwrap_or(()));
    let thread = SyncThread::start(Arc::clone(&syncer), || Duration::ZERO).unwrap();

    syncer.wrote(Lsn::new(1, 100), 1, &file, Call::Now);
    begins.recv_timeout(PATIENCE).unwrap();
    syncer.wrote(Lsn::new(1, 200), 1, &file, Call::Later);
    assert!(!syncer.sync_here(&|| Duration::ZERO), "the thread is at it");
    for _ in 0..2 {
        end.send(()).unwrap();
        tells.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(syncer.durable(), Lsn::new(1, 200));
    drop(thread);
}
