//! How long opening takes after a clean stop, against reading and summing all files.

use std::path::Path;
use std::process::{Command, Stdio};

use mq9_benches::Result;
use mq9_benches::time;

use crate::table::{Table, median};
use crate::{Scale, memory};

/// Opens the store in `dir` again and again.
pub fn reopen(scale: Scale, mailboxes: usize, dir: &Path, table: &mut Table) -> Result<()> {
    // Later stops add a second checkpoint: the files of the first one are what is compared with.
    let kept = mq9_benches::scratch();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        std::fs::hard_link(entry.path(), kept.path().join(entry.file_name()))?;
    }
    let (mut ours, mut theirs, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.rounds.min(5) {
        theirs.push(sum(kept.path())?);
        let report = memory::reopened(dir);
        ours.push(report.seconds);
        resident.push(report.resident);
    }
    let count = scale.messages as f64;
    let (ours, theirs, resident) = (median(ours), median(theirs), median(resident));
    let ratio = ours / theirs;
    table.check(
        &format!("opening that store after a clean stop, part of `cat * | cksum`, {mailboxes} mailbox(es)"),
        format!("{ratio:.2} ({:.0} of {:.0} ms)", ours * 1e3, theirs * 1e3),
        "<= 0.25",
        ratio <= 0.25,
    );
    table.check(
        "memory after that",
        format!("{:.1} B each", resident / count),
        "<= 64 B each",
        resident <= 64.0 * count,
    );
    Ok(())
}

/// How long `cat * | cksum` takes.
fn sum(dir: &Path) -> std::io::Result<f64> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "cat * | cksum"]).current_dir(dir).stdout(Stdio::null());
    let (spent, status) = time(|| shell.status());
    status?.success().then_some(spent.as_secs_f64()).ok_or(std::io::Error::other("cksum failed"))
}
