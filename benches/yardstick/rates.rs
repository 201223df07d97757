//! How fast messages go in and out.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use mq9_benches::Result;
use mq9_benches::{append as append_all, consume as consume_batch, create, open, scratch, time};
use mq9_core::mailbox::Policy;
use mq9_core::store::{NewMailbox, Send, Store};

use crate::Scale;
use crate::table::{Table, median, millions};

const ADDRESS: &str = "agent.inbox";
const BATCH: usize = 100;
const KEYS: usize = 1_000;
/// What a record has besides address and payload.
const FRAME: usize = 20 + 42;

fn per_second(count: usize, spent: Duration) -> f64 {
    count as f64 / spent.as_secs_f64()
}

/// Batches of 1 KiB messages, against checksums and writes alone.
pub fn append(scale: Scale, table: &mut Table) -> Result<()> {
    let count = scale.messages / 50;
    let payload = mq9_benches::payload(1024);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        let dir = scratch();
        let spent = checksum_and_write(&dir.path().join("bytes"), payload.len(), count)?;
        theirs.push(per_second(count, spent));
        drop(dir);

        let dir = scratch();
        let mut store = open(dir.path())?;
        create(&mut store, ADDRESS, mq9_benches::clock())?;
        let (spent, done) = time(|| append_all(&mut store, ADDRESS, &payload, count, BATCH));
        done?;
        ours.push(per_second(count, spent));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = ours / theirs;
    table.check(
        "append 1 KiB in batches of 100, part of the rate of checksum + write",
        format!("{ratio:.2} ({} of {})", millions(ours), millions(theirs)),
        ">= 0.5",
        ratio >= 0.5,
    );
    Ok(())
}

/// The same bytes: each record's checksum, one write per batch.
fn checksum_and_write(path: &std::path::Path, payload: usize, count: usize) -> Result<Duration> {
    let record = FRAME + ADDRESS.len() + payload;
    let bytes = mq9_benches::payload(record * BATCH);
    let mut file = File::create_new(path)?;
    let (spent, done) = time(|| {
        (0..count / BATCH).try_for_each(|_| {
            let sums = bytes.chunks_exact(record).map(crc32c::crc32c);
            std::hint::black_box(sums.fold(0, |a, b| a ^ b));
            file.write_all(&bytes)
        })
    });
    done?;
    Ok(spent)
}

/// Batches of 100-byte messages out, against the same messages in.
pub fn consume(scale: Scale, table: &mut Table) -> Result<()> {
    for (work_queue, what) in [(false, ""), (true, ", work queue")] {
        let (mut into, mut out) = (Vec::new(), Vec::new());
        for _ in 0..scale.rounds {
            let dir = scratch();
            let mut store = open(dir.path())?;
            let policy = Policy { work_queue, ..Policy::default() };
            let new = NewMailbox { address: ADDRESS, policy, ..NewMailbox::default() };
            store.create_mailbox(&new, mq9_benches::clock())?;
            let count = scale.messages / 20;
            let payload = mq9_benches::payload(100);
            let (spent, done) = time(|| append_all(&mut store, ADDRESS, &payload, count, BATCH));
            done?;
            into.push(per_second(count, spent));
            let (spent, done) = time(|| consume_all(&mut store));
            assert_eq!(done?, count);
            out.push(per_second(count, spent));
        }
        let (into, out) = (median(into), median(out));
        let ratio = out / into;
        let what =
            format!("fetch + ack of 100 B in batches of 100, part of the rate of append{what}");
        let measured = format!("{ratio:.2} ({} of {})", millions(out), millions(into));
        if work_queue {
            // It removes the messages as well: more than was put in.
            table.note(&what, measured);
        } else {
            table.check(&what, measured, ">= 1", ratio >= 1.0);
        }
    }
    Ok(())
}

/// Messages with keys, against the same without: each with a key of its own, or in place of an earlier one.
pub fn keyed(scale: Scale, table: &mut Table) -> Result<()> {
    let count = scale.messages / 20;
    let payload = mq9_benches::payload(100);
    let keys: Vec<String> = (0..count).map(|n| format!("key.{n:08}")).collect();
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..scale.rounds {
        for (rates, different) in rates.iter_mut().zip([0, count, KEYS]) {
            let dir = scratch();
            let mut store = open(dir.path())?;
            create(&mut store, ADDRESS, mq9_benches::clock())?;
            let (spent, done) = time(|| append_keyed(&mut store, &payload, &keys, different));
            done?;
            rates.push(per_second(count, spent));
        }
    }
    let [plain, own, replacing] = rates.map(median);
    for (what, rate) in [
        ("with a key of its own", own),
        ("with one of 1,000 keys, in place of the message before", replacing),
    ] {
        let what = format!("append 100 B {what}, in batches of 100, part of the rate without keys");
        let measured = format!("{:.2} ({} of {})", rate / plain, millions(rate), millions(plain));
        table.note(&what, measured);
    }
    Ok(())
}

/// Appends as many messages as there are keys, with so many different ones; none has one if that is 0.
fn append_keyed(
    store: &mut Store,
    payload: &[u8],
    keys: &[String],
    different: usize,
) -> Result<()> {
    for begin in (0..keys.len()).step_by(BATCH) {
        let now = mq9_benches::clock();
        for n in begin..keys.len().min(begin + BATCH) {
            let key = n.checked_rem(different).map_or("", |at| &keys[at]);
            store.send(ADDRESS, &Send { key, ..Send::new(payload) }, now)?;
        }
        store.flush()?;
    }
    Ok(())
}

fn consume_all(store: &mut Store) -> Result<usize> {
    let mut total = 0;
    loop {
        match consume_batch(store, ADDRESS, "workers", BATCH)? {
            0 => return Ok(total),
            count => total += count,
        }
    }
}
