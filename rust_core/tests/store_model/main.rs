//! The store against a model of it: random commands, every reply compared, across restarts.
//!
//! A script is a list of numbers, each a command. `PROPTEST_CASES` sets the number of scripts.
#![allow(clippy::unwrap_used)]

mod acks;
mod commands;
mod groups;
mod mailbox;
mod model;
mod run;
mod waiters;

use std::fmt;

use commands::Command;
use mq9_core::store::Options;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use run::Run;

/// Scripts per test, unless the environment says otherwise.
const SCRIPTS: u32 = 800;
/// Commands of a script.
const LENGTH: usize = 240;

#[derive(Clone)]
struct Script(Vec<Option<u64>>);

impl Script {
    fn commands(&self) -> impl Iterator<Item = (usize, Command)> {
        self.0
            .iter()
            .enumerate()
            .filter_map(|(nth, seed)| Some((nth, Command::draw((*seed)?, nth))))
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        self.commands().try_for_each(|(nth, command)| writeln!(f, "{nth}: {command:?}"))
    }
}

fn play(script: &Script, options: Options) -> Result<(), String> {
    let mut run = Run::new(options);
    for (nth, command) in script.commands() {
        match run.step(&command) {
            Ok(()) => {}
            Err(None) => return Ok(()),
            Err(Some(problem)) => return Err(format!("command {nth}, {command:?}: {problem}")),
        }
    }
    run.finish()
        .or_else(|stop| stop.map_or(Ok(()), |problem| Err(format!("at the end: {problem}"))))
}

fn play_many(segment_bytes: u32, checkpoint_bytes: u64, group_ttl_ms: u64) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let options = Options {
        segment_bytes,
        checkpoint_bytes,
        allocate_bytes: 4096,
        ack_wait_ms: 2000,
        max_groups: 3,
        group_ttl_ms,
        ..Options::default()
    };
    let config = Config {
        cases: cases.unwrap_or(SCRIPTS),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    // Commands are left out to find the shortest script that fails, and no others put in.
    let seed = prop::option::weighted(0.99, any::<u64>().no_shrink());
    let scripts = prop::collection::vec(seed, LENGTH..=LENGTH).prop_map(Script);
    let outcome = TestRunner::new(config)
        .run(&scripts, |script| play(&script, options).map_err(TestCaseError::fail));
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn with_segments_that_hold_a_few_messages() {
    play_many(4 << 10, 2 << 10, 7_000);
}

#[test]
fn with_segments_of_a_restart() {
    play_many(64 << 10, 8 << 10, 0);
}

#[test]
fn with_frequent_checkpoints() {
    play_many(8 << 10, 1 << 10, 0);
}
