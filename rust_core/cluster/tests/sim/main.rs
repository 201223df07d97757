//! Three members and a modelled stream, run through accidents by seed: nothing acknowledged is ever lost.
//!
//! `MQ9_SEEDS=10000 cargo test -p mq9-cluster` runs more; `MQ9_SEED=17` runs one, and says what happened.

mod batches;
mod chance;
mod controls;
mod ledger;
mod node;
mod stream;
mod world;

use world::{Rules, World};

/// How many seeds a run tries.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    match number("MQ9_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MQ9_SEEDS").unwrap_or(default),
    }
}

#[test]
fn nothing_acknowledged_is_lost_doubled_or_reordered() {
    let (mut acknowledged, mut terms, mut reads) = (0, 0, 0);
    for seed in seeds(1_000) {
        match World::new(seed, Rules::default()).run() {
            Ok(summary) => {
                acknowledged += summary.acknowledged;
                terms += summary.terms;
                reads += summary.reads;
            }
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    println!("{acknowledged} acknowledged, {terms} terms, {reads} reads");
    if std::env::var("MQ9_SEED").is_err() {
        // A simulation in which nothing happens shows nothing.
        assert!(acknowledged > 20_000, "{acknowledged}");
        assert!(terms > 3_000, "{terms}");
        assert!(reads > 10_000, "{reads}");
    }
}

#[test]
fn a_stream_that_forgets_its_end_stops_the_partition() {
    let mut alarms = 0;
    for seed in seeds(200) {
        let rules = Rules { forgets: true, ..Rules::default() };
        let outcome = World::new(seed, rules).run();
        match outcome {
            // It forgot nothing that anybody knew of.
            Ok(_) => {}
            Err(broken) if broken.is_alarm() => alarms += 1,
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    assert!(alarms > 20, "{alarms} alarms");
}
