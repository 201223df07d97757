//! The numbers the core store is held to: each measured on this machine, against its limit.
//!
//! What is compared is measured in turns within one run, and medians are compared. Memory is
//! measured in processes of their own. `QUICK=1` does everything with a tenth of the data.

mod commands;
mod growth;
mod memory;
mod rates;
mod reopen;
mod table;
mod waits;
mod work;

use mq9_benches::Result;
use table::Table;

/// How much to do.
#[derive(Debug, Clone, Copy)]
struct Scale {
    rounds: usize,
    mailboxes: usize,
    messages: usize,
}

impl Scale {
    fn from_env() -> Scale {
        match std::env::var_os("QUICK") {
            Some(_) => Scale { rounds: 5, mailboxes: 100_000, messages: 1_000_000 },
            None => Scale { rounds: 7, mailboxes: 1_000_000, messages: 10_000_000 },
        }
    }
}

fn run(scale: Scale, only: Option<&str>) -> Result<()> {
    let mut table = Table::default();
    let wanted = |part: &str| only.is_none_or(|only| only == part);
    if wanted("rates") {
        rates::append(scale, &mut table)?;
        rates::consume(scale, &mut table)?;
        rates::keyed(scale, &mut table)?;
    }
    if wanted("mailboxes") {
        memory::mailboxes(scale, &mut table);
    }
    if wanted("messages") {
        for mailboxes in [1, 1_000] {
            let dir = mq9_benches::scratch();
            memory::messages(scale, mailboxes, dir.path(), &mut table);
            reopen::reopen(scale, mailboxes, dir.path(), &mut table)?;
        }
    }
    if wanted("waits") {
        waits::waits(&mut table)?;
    }
    if wanted("growth") {
        growth::by_mailboxes(scale, &mut table)?;
        growth::by_messages(scale, &mut table)?;
    }
    if wanted("work") {
        work::by_mailboxes(scale, &mut table)?;
        work::by_outbox(&mut table)?;
    }
    if wanted("commands") {
        commands::by_message(&mut table);
    }
    println!("\n{table}");
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(Scale::from_env(), None),
        // The processes of `memory`.
        ["fill-mailboxes", dir, count] => memory::fill_mailboxes(dir, count),
        ["fill-messages", dir, mailboxes, count] => memory::fill_messages(dir, mailboxes, count),
        // What valgrind runs.
        ["count-appends", dir, count] => work::count_appends(dir, count, false),
        ["count-appends", dir, count, "leads"] => work::count_appends(dir, count, true),
        ["count-commands", name, dir] => commands::count(name, dir),
        ["reopen", dir] => memory::reopen(dir),
        [part, ..] => run(Scale::from_env(), Some(part)),
    }
}
