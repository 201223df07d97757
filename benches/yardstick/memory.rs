//! How much memory mailboxes and messages take, each measured in a process of its own.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use mq9_benches::Result;
use mq9_benches::{clock, create, open, payload, scratch, time};
use mq9_core::store::Send;

use crate::Scale;
use crate::table::Table;

/// What a process said of itself: resident bytes over those before the store was opened.
pub struct Report {
    /// When done.
    pub resident: f64,
    /// At most.
    pub peak: f64,
    /// What its work took, in seconds.
    pub seconds: f64,
}

/// A million empty mailboxes.
pub fn mailboxes(scale: Scale, table: &mut Table) {
    let dir = scratch();
    let count = scale.mailboxes;
    let made = child(&["fill-mailboxes", &dir.path().display().to_string(), &count.to_string()]);
    let limit = 512.0 * count as f64;
    table.check(
        &format!("memory of {count} empty mailboxes"),
        format!("{:.0} MB, {:.0} B each", made.resident / 1e6, made.resident / count as f64),
        &format!("<= {:.0} MB", limit / 1e6),
        made.resident <= limit,
    );
    let read = child(&["reopen", &dir.path().display().to_string()]);
    table.check(
        &format!("the same after a clean restart, which took {:.0} ms", read.seconds * 1e3),
        format!("{:.0} MB, {:.0} B each", read.resident / 1e6, read.resident / count as f64),
        &format!("<= {:.0} MB", limit / 1e6),
        read.resident <= limit,
    );
}

/// Ten million messages, left in `dir` after a clean stop.
pub fn messages(scale: Scale, mailboxes: usize, dir: &Path, table: &mut Table) {
    let count = scale.messages;
    let (mailboxes, dir) = (mailboxes.to_string(), dir.display().to_string());
    let made = child(&["fill-messages", &dir, &mailboxes, &count.to_string()]);
    table.check(
        &format!("memory of {count} messages of 100 B in {mailboxes} mailbox(es)"),
        format!(
            "{:.1} B each ({:.0} MB; peak {:.1} B each)",
            made.resident / count as f64,
            made.resident / 1e6,
            made.peak / count as f64
        ),
        "<= 64 B each",
        made.resident <= 64.0 * count as f64,
    );
}

/// Opens the store in `dir` in another process, and stops it cleanly.
pub fn reopened(dir: &Path) -> Report {
    child(&["reopen", &dir.display().to_string()])
}

fn child(arguments: &[&str]) -> Report {
    let program = std::env::current_exe().expect("the benchmark has a path");
    let output = Command::new(program).args(arguments).output().expect("the benchmark runs again");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<f64> = said.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    match numbers[..] {
        [resident, peak, seconds] => Report { resident, peak, seconds },
        _ => panic!("{arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// A number of `/proc/self/status`, in bytes.
fn status(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) * 1024.0
}

fn report(empty: f64, seconds: f64) {
    println!("{} {} {seconds}", status("VmRSS") - empty, status("VmHWM") - empty);
}

/// The process that makes empty mailboxes.
pub fn fill_mailboxes(dir: &str, count: &str) -> Result<()> {
    let empty = status("VmRSS");
    let mut store = open(Path::new(dir))?;
    let count: usize = count.parse().unwrap_or(0);
    let mut address = String::new();
    let (spent, done) = time(|| {
        (0..count).try_for_each(|n| {
            address.clear();
            let _ = write!(address, "tenant.agent.{n:08}");
            create(&mut store, &address, clock())?;
            if n % 100 == 0 {
                store.flush()?;
            }
            Ok(())
        })
    });
    let done: Result<()> = done;
    done?;
    report(empty, spent.as_secs_f64());
    Ok(store.close()?)
}

/// The process that sends messages to mailboxes in turn.
pub fn fill_messages(dir: &str, mailboxes: &str, count: &str) -> Result<()> {
    let empty = status("VmRSS");
    let mut store = open(Path::new(dir))?;
    let (mailboxes, count): (usize, usize) =
        (mailboxes.parse().unwrap_or(1), count.parse().unwrap_or(0));
    let addresses: Vec<String> = (0..mailboxes).map(|n| format!("agent.{n:04}")).collect();
    addresses.iter().try_for_each(|address| create(&mut store, address, clock()))?;
    let payload = payload(100);
    let (spent, done) = time(|| {
        (0..count).step_by(100).try_for_each(|begin| {
            let now = clock();
            for n in begin..count.min(begin + 100) {
                store.send(&addresses[n % mailboxes], &Send::new(&payload), now)?;
            }
            Ok(store.flush()?)
        })
    });
    let done: Result<()> = done;
    done?;
    report(empty, spent.as_secs_f64());
    Ok(store.close()?)
}

/// The process that opens a store, then stops cleanly.
pub fn reopen(dir: &str) -> Result<()> {
    let empty = status("VmRSS");
    let (spent, store) = time(|| open(Path::new(dir)));
    let store = store?;
    report(empty, spent.as_secs_f64());
    Ok(store.close()?)
}
