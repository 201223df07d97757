//! What an append costs with few and with many mailboxes, with few and with many messages stored.

use std::collections::HashMap;
use std::fmt;

use mq9_benches::{
    Result, address, append, clock, create, mix, open, payload, processor_ns, scratch,
};
use mq9_core::store::{Send, Store};
use tempfile::TempDir;

use crate::Scale;
use crate::table::{Table, median};

/// Appends that fill the processor's caches with what they need.
const LONG: usize = 50_000;
/// Appends after which a mailbox is hardly larger.
const SHORT: usize = 1_000;
/// Messages that every mailbox gets before. Its lane then has room for seven more: memory for a lane that grows is
/// paid for by its first messages, which one mailbox of a thousand has soon behind it, and one of a million has not.
const WARM_UP: usize = 9;
/// More than this much of the smallest counts as growth.
const SLACK: f64 = 1.25;
/// The same where every mailbox used is a trip to memory, which the smallest is not.
const RANDOM_SLACK: f64 = 2.0;

/// A store under test, its mailboxes, and what its rounds took.
struct Subject {
    what: String,
    store: Store,
    addresses: Vec<String>,
    /// How many of them get messages.
    used: usize,
    /// Whether messages are sent in batches of 100 or one by one; written they are in batches in any case.
    batches: bool,
    rounds: Vec<f64>,
    _dir: TempDir,
}

impl Subject {
    fn new(what: String, mailboxes: usize, used: usize, messages: usize) -> Result<Subject> {
        let dir = scratch();
        let mut store = open(dir.path())?;
        let addresses: Vec<String> = (0..mailboxes).map(address).collect();
        let payload = payload(100);
        for address in &addresses {
            create(&mut store, address, clock())?;
        }
        for batch in [&addresses; WARM_UP].into_iter().flat_map(|all| all.chunks(100)) {
            let now = clock();
            for address in batch {
                store.send(address, &Send::new(&payload), now)?;
            }
            store.flush()?;
        }
        append(&mut store, &addresses[0], &payload, messages, 100)?;
        Ok(Subject { what, store, addresses, used, batches: true, rounds: Vec::new(), _dir: dir })
    }

    /// A round of appends, each to a mailbox picked by chance. Returns the last one's id.
    fn round(&mut self, number: usize, appends: usize) -> Result<u64> {
        let payload = payload(100);
        let picked = |n: usize| mix((number * appends + n) as u64) as usize % self.used;
        // Copies, as requests come: reading the addresses must not miss the cache.
        let picks: Vec<String> = (0..appends).map(|n| self.addresses[picked(n)].clone()).collect();
        let mut last = None;
        let begin = processor_ns();
        for batch in picks.chunks(100) {
            let now = clock();
            if self.batches {
                let of = |address| (address, Send::new(&payload));
                let batch: Vec<_> = batch.iter().map(|address| of(address.as_str())).collect();
                for outcome in self.store.send_many(&batch, now) {
                    last = outcome?;
                }
            } else {
                for address in batch {
                    last = self.store.send(address, &Send::new(&payload), now)?;
                }
            }
            self.store.flush()?;
        }
        self.rounds.push((processor_ns() - begin) / appends as f64);
        last.ok_or_else(|| "a message without an id".into())
    }

    /// Deletes the messages up to the last one from the only mailbox.
    fn undo(&mut self, last: u64, appends: usize) -> Result<()> {
        for msg_id in last + 1 - appends as u64..=last {
            self.store.delete(&self.addresses[0], msg_id, clock())?;
        }
        Ok(self.store.flush()?)
    }
}

/// Appends to a thousand, a hundred thousand and a million mailboxes.
///
/// Where any of them is used, they may also add no more to an append than they add to finding and changing one of as
/// many boxes in a map.
pub fn by_mailboxes(scale: Scale, table: &mut Table) -> Result<()> {
    let counts = [1_000, scale.mailboxes / 10, scale.mailboxes];
    let mut subjects = Vec::new();
    for count in counts {
        let what = format!("append, 1000 busy mailboxes of {count}");
        subjects.push(Subject::new(what, count, 1_000, 0)?);
    }
    check(measure(scale.rounds * 5, subjects)?, SLACK, table);
    let map = by_boxes(scale, counts);
    for batches in [true, false] {
        let how = if batches { "in batches of 100" } else { "one by one" };
        let mut subjects = Vec::new();
        for count in counts {
            let what = format!("append {how}, any of {count} mailboxes");
            subjects.push(Subject { batches, ..Subject::new(what, count, count, 0)? });
        }
        let rows = measure(scale.rounds, subjects)?;
        let what = format!("what {} mailboxes instead of 1000 add to an append {how}", counts[2]);
        let (more, of) = (more(&rows), more(&map));
        let measured = format!("{more:.0} ns ({of:.0} ns to the map)");
        if batches {
            check(rows, RANDOM_SLACK, table);
            table.check(&what, measured, "<= to the map", more <= of);
        } else {
            note(rows, table);
            table.note(&what, measured);
        }
    }
    note(map, table);
    Ok(())
}

/// A map of as many boxes as there are mailboxes: the machine's own growth.
fn by_boxes(scale: Scale, counts: [usize; 3]) -> Vec<Cost> {
    let ns = |count| median((0..scale.rounds).map(|_| control(count)).collect());
    let costs = counts.map(|count| {
        (format!("the machine itself: find and change one of {count} boxes in a map"), ns(count))
    });
    relative(costs)
}

/// Nanoseconds that the last one takes longer than the first.
fn more(rows: &[Cost]) -> f64 {
    rows.last().map_or(f64::NAN, |last| last.ns - rows[0].ns)
}

/// The cost must not grow from the first row to the last.
fn check(rows: Vec<Cost>, most: f64, table: &mut Table) {
    for row in rows {
        table.check(&row.what, row.to_string(), &format!("<= {most}"), row.ratio <= most);
    }
}

fn note(rows: Vec<Cost>, table: &mut Table) {
    rows.iter().for_each(|row| table.note(&row.what, row.to_string()));
}

/// What it costs to find a box by its address and to change it, in the simplest index there is.
fn control(count: usize) -> f64 {
    let mut map: HashMap<String, Box<[u64; 16]>> =
        (0..count).map(|n| (address(n), Box::default())).collect();
    let picks: Vec<String> = (0..LONG).map(|n| address(mix(n as u64) as usize % count)).collect();
    let begin = processor_ns();
    for address in &picks {
        if let Some(found) = map.get_mut(address) {
            found[0] += 1;
        }
    }
    (processor_ns() - begin) / LONG as f64
}

/// Appends to a mailbox that holds a thousand to ten million messages, and again as many after each round.
pub fn by_messages(scale: Scale, table: &mut Table) -> Result<()> {
    let all = scale.messages;
    let mut subjects = Vec::new();
    for count in [1_000, all / 100, all / 10, all] {
        subjects.push(Subject::new(format!("append after {count} messages"), 1, 1, count)?);
    }
    for number in 0..scale.rounds * 50 {
        for subject in &mut subjects {
            let last = subject.round(number, SHORT)?;
            subject.undo(last, SHORT)?;
        }
    }
    check(costs(subjects), SLACK, table);
    Ok(())
}

/// What something costs.
struct Cost {
    what: String,
    /// Of what the first one costs.
    ratio: f64,
    ns: f64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.0} ns)", self.ratio, self.ns)
    }
}

/// Costs beside the first one.
fn relative(costs: impl IntoIterator<Item = (String, f64)>) -> Vec<Cost> {
    let mut first = None;
    let cost = |(what, ns)| Cost { what, ratio: ns / *first.get_or_insert(ns), ns };
    costs.into_iter().map(cost).collect()
}

/// What an append to each of the subjects costs, in rounds that alternate.
fn measure(rounds: usize, mut subjects: Vec<Subject>) -> Result<Vec<Cost>> {
    for number in 0..rounds {
        for subject in &mut subjects {
            subject.round(number, LONG)?;
        }
    }
    Ok(costs(subjects))
}

fn costs(subjects: Vec<Subject>) -> Vec<Cost> {
    relative(subjects.into_iter().map(|subject| (subject.what, median(subject.rounds))))
}
