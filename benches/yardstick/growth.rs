//! What an append costs with few and with many mailboxes, with few and with many messages stored.

use std::collections::HashMap;

use mq9_benches::{
    Result, address, append, clock, create, mix, open, payload, processor_ns, scratch,
};
use mq9_core::store::{Send, Store};
use tempfile::TempDir;

use crate::Scale;
use crate::table::{Table, median};

const ROUND: usize = 100_000;
/// More than this much of the smallest counts as growth.
const SLACK: f64 = 1.25;
/// The same where every mailbox used is a trip to memory, which the smallest is not: see the machine's own
/// growth in the same table.
const RANDOM_SLACK: f64 = 2.5;

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
        // The first messages of a mailbox also pay for the memory of its lane, which a mailbox among a thousand
        // has behind it when one among a million has not: not to be measured.
        for batch in [&addresses; 5].into_iter().flat_map(|all| all.chunks(100)) {
            let now = clock();
            for address in batch {
                store.send(address, &Send::new(&payload), now)?;
            }
            store.flush()?;
        }
        append(&mut store, &addresses[0], &payload, messages, 100)?;
        Ok(Subject { what, store, addresses, used, batches: true, rounds: Vec::new(), _dir: dir })
    }

    /// A round of appends, each to a mailbox picked by chance.
    fn round(&mut self, number: usize) -> Result<()> {
        let payload = payload(100);
        let picked = |n: usize| mix((number * ROUND + n) as u64) as usize % self.used;
        // Copies, as requests come: reading the addresses must not miss the cache.
        let picks: Vec<String> = (0..ROUND).map(|n| self.addresses[picked(n)].clone()).collect();
        let begin = processor_ns();
        for batch in picks.chunks(100) {
            let now = clock();
            if self.batches {
                let of = |address| (address, Send::new(&payload));
                let batch: Vec<_> = batch.iter().map(|address| of(address.as_str())).collect();
                for outcome in self.store.send_many(&batch, now) {
                    outcome?;
                }
            } else {
                for address in batch {
                    self.store.send(address, &Send::new(&payload), now)?;
                }
            }
            self.store.flush()?;
        }
        self.rounds.push((processor_ns() - begin) / ROUND as f64);
        Ok(())
    }
}

/// Appends to a thousand, a hundred thousand and a million mailboxes.
pub fn by_mailboxes(scale: Scale, table: &mut Table) -> Result<()> {
    let counts = [1_000, scale.mailboxes / 10, scale.mailboxes];
    let mut subjects = Vec::new();
    for count in counts {
        let what = format!("append, 1000 busy mailboxes of {count}");
        subjects.push(Subject::new(what, count, 1_000, 0)?);
    }
    compare(scale, subjects, SLACK, table)?;
    let mut subjects = Vec::new();
    for count in counts {
        let what = format!("append in batches of 100, any of {count} mailboxes");
        subjects.push(Subject::new(what, count, count, 0)?);
    }
    compare(scale, subjects, RANDOM_SLACK, table)?;
    let mut subjects = Vec::new();
    for count in counts {
        let what = format!("append one by one, any of {count} mailboxes");
        subjects.push(Subject { batches: false, ..Subject::new(what, count, count, 0)? });
    }
    for (what, ratio, ns) in measure(scale, subjects)? {
        table.note(&what, format!("{ratio:.2} ({ns:.0} ns)"));
    }
    let mut first = None;
    for count in counts {
        let ns = median((0..scale.rounds).map(|_| control(count)).collect());
        let ratio = ns / *first.get_or_insert(ns);
        let what = format!("the machine itself: find and change one of {count} boxes in a map");
        table.note(&what, format!("{ratio:.2} ({ns:.0} ns)"));
    }
    Ok(())
}

/// What it costs to find a box by its address and to change it, in the simplest index there is.
fn control(count: usize) -> f64 {
    let mut map: HashMap<String, Box<[u64; 16]>> =
        (0..count).map(|n| (address(n), Box::default())).collect();
    let picks: Vec<String> = (0..ROUND).map(|n| address(mix(n as u64) as usize % count)).collect();
    let begin = processor_ns();
    for address in &picks {
        if let Some(found) = map.get_mut(address) {
            found[0] += 1;
        }
    }
    (processor_ns() - begin) / ROUND as f64
}

/// Appends to a mailbox that holds a thousand to ten million messages.
pub fn by_messages(scale: Scale, table: &mut Table) -> Result<()> {
    let all = scale.messages;
    let mut subjects = Vec::new();
    for count in [1_000, all / 100, all / 10, all] {
        subjects.push(Subject::new(format!("append after {count} messages"), 1, 1, count)?);
    }
    compare(scale, subjects, SLACK, table)
}

/// Each subject's cost, as part of the first one's and in nanoseconds.
fn measure(scale: Scale, mut subjects: Vec<Subject>) -> Result<Vec<(String, f64, f64)>> {
    for number in 0..scale.rounds {
        for subject in &mut subjects {
            subject.round(number)?;
        }
    }
    let mut first = None;
    let rows = subjects.into_iter().map(|subject| {
        let ns = median(subject.rounds);
        (subject.what, ns / *first.get_or_insert(ns), ns)
    });
    Ok(rows.collect())
}

/// The cost must not grow from the first subject to the last.
fn compare(scale: Scale, subjects: Vec<Subject>, most: f64, table: &mut Table) -> Result<()> {
    for (what, ratio, ns) in measure(scale, subjects)? {
        let limit = format!("<= {most}");
        table.check(&what, format!("{ratio:.2} ({ns:.0} ns)"), &limit, ratio <= most);
    }
    Ok(())
}
