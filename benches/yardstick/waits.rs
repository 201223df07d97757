//! How long somebody who reads waits for a store while checkpoints, compaction and new segments are made.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mq9_benches::{Result, clock, create, mix, open, payload, processor_ns, scratch};
use mq9_core::disk::OsDisk;
use mq9_core::log::SyncMode;
use mq9_core::store::{FairLock, Fetch, FetchOutcome, Options, Send, Shared, Store, maintain};

use crate::table::{Table, median};

const SMALL: usize = 1 << 10;
/// The largest payload there is.
const LARGE: usize = 64 << 10;
const MAILBOXES: usize = 20_000;
const BUSY: Duration = Duration::from_secs(5);
/// Copies that are enough to compare with, and how long they may keep us waiting: upkeep leaves most of the time to
/// others.
const ENOUGH: usize = 200;
const AT_MOST: Duration = Duration::from_secs(90);

/// Upkeep's side of the store: notes what each step takes.
struct Timed<'a> {
    store: &'a FairLock,
    holds: RefCell<Holds>,
    copies: &'a AtomicUsize,
}

/// What steps of upkeep took, in nanoseconds of the processor.
#[derive(Default)]
struct Holds {
    /// Copies of one of the largest records.
    copies: Vec<f64>,
    others: Vec<f64>,
}

impl Shared for Timed<'_> {
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        let (done, ns, copied) = self.store.with(|store| {
            let end = store.end();
            let begin = processor_ns();
            let done = step(store);
            let ns = processor_ns() - begin;
            (done, ns, store.end().number() - end.number() >= LARGE as u64)
        });
        let mut holds = self.holds.borrow_mut();
        if copied {
            holds.copies.push(ns);
            self.copies.fetch_add(1, Ordering::Relaxed);
        } else {
            holds.others.push(ns);
        }
        done
    }
}

fn address(n: usize) -> String {
    format!("tenant.agent.{n:08}")
}

/// Half of all messages go to one mailbox, which is emptied again and again: its segments get rewritten.
struct Work {
    small: Vec<u8>,
    large: Vec<u8>,
    sent: u64,
}

impl Work {
    fn some(&mut self, store: &mut Store) -> Result<()> {
        let now = clock();
        for _ in 0..16 {
            self.sent += 1;
            let at = address(mix(self.sent) as usize % MAILBOXES);
            store.send(&at, &Send::new(&self.small), now)?;
            store.send("short.lived", &Send::new(&self.small), now)?;
        }
        if self.sent.is_multiple_of(64) {
            store.send("large", &Send::new(&self.large), now)?;
            store.send("short.lived", &Send::new(&self.large), now)?;
        }
        if self.sent.is_multiple_of(8_000) {
            store.remove_mailbox("short.lived", now)?;
            create(store, "short.lived", now)?;
        }
        store.tick(now);
        Ok(store.flush()?)
    }
}

/// One message, as a reader gets it: how long it took to get hold of the store, and to read.
fn read(store: &FairLock, n: u64) -> Result<(f64, f64)> {
    let mut request = Fetch::all(&address(mix(n) as usize % MAILBOXES));
    request.max_msgs = 1;
    let begin = Instant::now();
    let mut held = store.lock();
    let waited = begin.elapsed();
    let outcome = held.fetch(request, clock())?;
    drop(held);
    let all = begin.elapsed();
    if let FetchOutcome::Messages(messages) = outcome {
        std::hint::black_box(messages.len());
    }
    Ok((waited.as_nanos() as f64, all.as_nanos() as f64))
}

/// Reads and sends in turns until it is time to stop; the waits and the times of the reads.
fn run(
    store: &FairLock,
    work: &mut Work,
    is_over: impl Fn(Duration) -> bool,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut waits, mut reads) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    while !is_over(begin.elapsed()) {
        for n in 0..8 {
            let (waited, took) = read(store, work.sent * 8 + n)?;
            waits.push(waited);
            reads.push(took);
        }
        work.some(&mut store.lock())?;
    }
    Ok((waits, reads))
}

/// The value that `share` of all are not above.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn sorted(mut of: Vec<f64>) -> Vec<f64> {
    of.sort_by(f64::total_cmp);
    of
}

/// Half of all are within the first number, 99 and 99.9 of a hundred within the next, all within the last.
fn spread(of: &[f64]) -> String {
    let us = |share| percentile(of, share) / 1e3;
    format!(
        "{:.1} / {:.1} / {:.1} / {:.1} us of {}",
        us(0.5),
        us(0.99),
        us(0.999),
        us(1.0),
        of.len()
    )
}

/// What makes a mailbox large.
#[derive(Debug, Clone, Copy)]
enum Large {
    Messages,
    Keys,
    Expiries,
    Delays,
    /// Each member holds a few.
    Deliveries,
}

const HOUR_MS: u64 = 3_600_000;
const HELD_BY_A_MEMBER: usize = 10;

fn fill(store: &mut Store, large: Large, count: usize) -> Result<()> {
    create(store, "large", clock())?;
    for n in 0..count {
        let key = format!("key.{n:08}");
        let plain = Send::new(b"x");
        let send = match large {
            Large::Keys => Send { key: &key, ..plain },
            Large::Expiries => Send { ttl_ms: HOUR_MS, ..plain },
            Large::Delays => Send { delay_ms: HOUR_MS, ..plain },
            Large::Messages | Large::Deliveries => plain,
        };
        store.send("large", &send, clock())?;
    }
    if matches!(large, Large::Deliveries) {
        for n in 0..count / HELD_BY_A_MEMBER {
            let mut request = Fetch::group("large", "g", HELD_BY_A_MEMBER);
            request.ack_wait_ms = HOUR_MS;
            request.conn = n as u64;
            store.fetch(request, clock())?;
        }
    }
    Ok(store.flush()?)
}

/// The longest of five captures of one large mailbox, which are a single step each. In a new store: the first has to
/// get what it needs from memory.
fn capture(large: Large, count: usize) -> Result<f64> {
    let dir = scratch();
    let mut store = open(dir.path())?;
    fill(&mut store, large, count)?;
    let mut longest = 0.0_f64;
    for _ in 0..5 {
        let mut checkpointer = store.begin_checkpoint()?;
        let begin = processor_ns();
        store.capture(&mut checkpointer, 1)?;
        longest = longest.max(processor_ns() - begin);
        checkpointer.write(|| Ok(()))?;
    }
    Ok(longest)
}

/// Fetches while upkeep has its hands full, and while it has nothing to do.
pub fn waits(table: &mut Table) -> Result<()> {
    let dir = scratch();
    let options =
        Options { sync: SyncMode::None, checkpoint_bytes: 64 << 20, ..Options::default() };
    let mut store = Store::open(Arc::new(OsDisk::new(dir.path())?), options, 42, clock())?;
    for n in 0..MAILBOXES {
        create(&mut store, &address(n), clock())?;
    }
    for name in ["short.lived", "large"] {
        create(&mut store, name, clock())?;
    }
    let mut work = Work { small: payload(SMALL), large: payload(LARGE), sent: 0 };
    for _ in 0..4_000 {
        work.some(&mut store)?;
    }
    let store = FairLock::new(store);
    let (idle_waits, idle_reads) = run(&store, &mut work, |since| since >= BUSY)?;
    let (stop, copies) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (waits, reads, holds) = std::thread::scope(|scope| {
        let upkeep = scope.spawn(|| {
            let timed = Timed { store: &store, holds: RefCell::default(), copies: &copies };
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                let busy = maintain(&timed, clock).map_err(|e| e.to_string())?;
                rounds += usize::from(busy);
                if !busy {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Ok::<_, String>((timed.holds.into_inner(), rounds))
        });
        let outcome = run(&store, &mut work, |since| {
            since >= AT_MOST || (since >= BUSY && copies.load(Ordering::Relaxed) >= ENOUGH)
        });
        stop.store(true, Ordering::Relaxed);
        let (holds, rounds) = upkeep.join().map_err(|_| "upkeep panicked")??;
        eprintln!("upkeep: {rounds} rounds that did something");
        let (waits, reads) = outcome?;
        Ok::<_, Box<dyn std::error::Error>>((waits, reads, holds))
    })?;
    let (copies, others) = (sorted(holds.copies), sorted(holds.others));
    table.note(
        "one step of upkeep that copies a record of 64 KiB, the largest there",
        spread(&copies),
    );
    table.check(
        "any other step of upkeep",
        spread(&others),
        "99.99 % as short as half of those copies",
        copies.len() >= ENOUGH && percentile(&others, 0.9999) <= percentile(&copies, 0.5),
    );
    table.note("a fetch waits for the store, while upkeep works", spread(&sorted(waits)));
    table.note("the same, without upkeep", spread(&sorted(idle_waits)));
    table.note("a fetch takes, while upkeep works", spread(&sorted(reads)));
    table.note("the same, without upkeep", spread(&sorted(idle_reads)));
    for (what, large, count) in [
        ("a mailbox of 1,000,000 messages", Large::Messages, 1_000_000),
        ("100,000 messages that have keys", Large::Keys, 100_000),
        ("100,000 messages that expire", Large::Expiries, 100_000),
        ("100,000 delayed messages", Large::Delays, 100_000),
        ("100,000 messages that 10,000 members hold", Large::Deliveries, 100_000),
    ] {
        let ns = median((0..5).map(|_| capture(large, count)).collect::<Result<_>>()?);
        let what = format!("one step of upkeep that captures {what}, the longest of 5");
        table.check(&what, format!("{:.0} us", ns / 1e3), "<= 300 us", ns <= 300e3);
    }
    Ok(())
}
