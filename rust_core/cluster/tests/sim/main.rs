//! Three members and a modelled stream, run through accidents by seed: nothing acknowledged is ever lost.
//!
//! `MQ9_SEEDS=100000 cargo test -p mq9-cluster` runs more; `MQ9_SEED=17` runs one, and says what happened.

mod batches;
mod chance;
mod controls;
mod ledger;
mod node;
mod purge;
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

/// What some seeds came to: operations acknowledged, terms, reads, messages that left the stream.
fn run(seeds: impl Iterator<Item = u64>) -> [u64; 4] {
    let mut sum = [0; 4];
    for seed in seeds {
        match World::new(seed, Rules::default()).run() {
            Ok(summary) => {
                let found = [summary.acknowledged, summary.terms, summary.reads, summary.purged];
                sum.iter_mut().zip(found).for_each(|(sum, more)| *sum += more);
            }
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    sum
}

#[test]
fn nothing_acknowledged_is_lost_doubled_or_reordered() {
    let threads = std::thread::available_parallelism().map_or(1, |found| found.get());
    let sums: Vec<[u64; 4]> = std::thread::scope(|scope| {
        let part = |nth| scope.spawn(move || run(seeds(10_000).skip(nth).step_by(threads)));
        let parts: Vec<_> = (0..threads).map(part).collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect()
    });
    let [acknowledged, terms, reads, purged]: [u64; 4] =
        [0, 1, 2, 3].map(|nth| sums.iter().map(|sum| sum[nth]).sum());
    println!("{acknowledged} acknowledged, {terms} terms, {reads} reads, {purged} purged");
    if std::env::var("MQ9_SEED").is_err() && std::env::var("MQ9_SEEDS").is_err() {
        // A simulation in which nothing happens shows nothing.
        assert!(acknowledged > 200_000, "{acknowledged}");
        assert!(terms > 30_000, "{terms}");
        assert!(reads > 100_000, "{reads}");
        assert!(purged > 100_000, "{purged}");
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
    if std::env::var("MQ9_SEED").is_err() && std::env::var("MQ9_SEEDS").is_err() {
        assert!(alarms > 20, "{alarms} alarms");
    }
}
