//! How many instructions an append takes with few and with many mailboxes, counted by valgrind where it is installed.
//!
//! Times of appends to mailboxes picked by chance hold what the processor waits for memory. Instructions do not: if
//! these do not grow, the store does no more for a message because there are more mailboxes.

use std::ffi::OsStr;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use mq9_benches::{Result, address, append, clock, create, mix, open, payload, scratch};
use mq9_core::store::{Send, Store};
use mq9_core::wire::tie::{StreamPosition, Tie};

use crate::Scale;
use crate::table::Table;

const APPENDS: usize = 20_000;
const MESSAGES: usize = 10;
/// More than this much of the smallest counts as growth.
const SLACK: f64 = 1.05;

/// The same number of appends beside a thousand, a hundred thousand and a million mailboxes.
pub fn by_mailboxes(scale: Scale, table: &mut Table) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        table.note("instructions of an append", "valgrind is not installed".to_owned());
        return Ok(());
    }
    let mut first = None;
    for count in [1_000, scale.mailboxes / 10, scale.mailboxes] {
        let dir = scratch();
        fill(dir.path(), count)?;
        let each = instructions(dir.path(), count, &[]) / APPENDS as f64;
        let ratio = each / *first.get_or_insert(each);
        table.check(
            &format!("instructions of an append in batches of 100, any of {count} mailboxes"),
            format!("{ratio:.2} ({each:.0})"),
            &format!("<= {SLACK}"),
            ratio <= SLACK,
        );
    }
    Ok(())
}

/// The same append on a single node and on one that leads others, to which it hands all it writes.
pub fn by_outbox(table: &mut Table) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok(());
    }
    let mut each = [0.0; 2];
    for (each, more) in each.iter_mut().zip([&[][..], &["leads"][..]]) {
        let dir = scratch();
        fill(dir.path(), 1_000)?;
        *each = instructions(dir.path(), 1_000, more) / APPENDS as f64;
    }
    let [alone, leads] = each;
    table.note(
        "instructions of an append in batches of 100 on a single node, and on one that leads others",
        format!("{alone:.0}, {leads:.0}"),
    );
    Ok(())
}

/// Some messages in every mailbox: the first few also pay for the memory of the lane.
fn fill(dir: &Path, count: usize) -> Result<()> {
    let mut store = open(dir)?;
    let payload = payload(100);
    for n in 0..count {
        create(&mut store, &address(n), clock())?;
        append(&mut store, &address(n), &payload, MESSAGES, MESSAGES)?;
    }
    Ok(store.close()?)
}

/// What valgrind counts of [`counted_appends`] in a process of its own.
fn instructions(dir: &Path, count: usize, more: &[&str]) -> f64 {
    let count = count.to_string();
    let mut arguments = vec!["count-appends".as_ref(), dir.as_os_str(), count.as_ref()];
    arguments.extend(more.iter().map(OsStr::new));
    counted_by_valgrind("*counted_appends*", &arguments)
}

/// What valgrind counts of a function, in a process of its own with these arguments.
pub fn counted_by_valgrind(function: &str, arguments: &[&OsStr]) -> f64 {
    let program = std::env::current_exe().expect("the benchmark has a path");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", &format!("--toggle-collect={function}")]);
    valgrind.args(["--callgrind-out-file=/dev/null"]).arg(program).args(arguments);
    let output = valgrind.output().expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    match collected.and_then(|(_, number)| number.trim().parse().ok()) {
        Some(number) if output.status.success() && number > 0.0 => number,
        _ => panic!("valgrind failed: {said}"),
    }
}

/// What is run under valgrind.
pub fn count_appends(dir: &str, count: &str, leads: bool) -> Result<()> {
    let count: usize = count.parse().expect("a number of mailboxes");
    let mut store = open(Path::new(dir))?;
    if leads {
        store.seed(1, clock())?;
        store.promote(&tie(1), clock())?;
    }
    let picks: Vec<String> =
        (0..APPENDS).map(|n| address(mix(n as u64) as usize % count)).collect();
    // The first append after a start also pays for the memory of those to come.
    appends(&mut store, &picks)?;
    counted_appends(&mut store, &picks)
}

#[inline(never)]
fn counted_appends(store: &mut Store, picks: &[String]) -> Result<()> {
    appends(store, picks)
}

fn appends(store: &mut Store, picks: &[String]) -> Result<()> {
    let payload = payload(100);
    for batch in picks.chunks(100) {
        let batch: Vec<_> = batch.iter().map(|a| (a.as_str(), Send::new(&payload))).collect();
        for outcome in store.send_many(&batch, clock()) {
            outcome?;
        }
        store.flush()?;
        if store.has_outgoing() {
            hand_over(store)?;
        }
    }
    Ok(())
}

/// What a node does with a batch, but for the network.
fn hand_over(store: &mut Store) -> Result<()> {
    let sequence = store.last_tie().map_or(0, |tie| tie.at.sequence) + 1;
    black_box(store.take_outbox()?);
    store.tie(&tie(sequence), clock())?;
    store.committed(sequence);
    Ok(())
}

fn tie(sequence: u64) -> Tie {
    let at = StreamPosition { sequence, digest: 1, term: 1, leader: Some((1, 1)) };
    Tie { at, before: None }
}
