//! The store's commands one by one: append, fetch and acknowledge, open, compact. No syncs.

// The macros of criterion make a public function without a comment.
#![allow(missing_docs)]

use std::time::Duration;

use criterion::{
    BatchSize, BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
    measurement::WallTime,
};
use mq9_benches::{append, clock, consume, create, open, payload, scratch};
use mq9_core::store::{Options, Store};

const ADDRESS: &str = "agent.inbox";
const GROUP: &str = "workers";
/// Messages in the stores that are opened.
const MESSAGES: usize = 1_000_000;

fn group<'c>(c: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = c.benchmark_group(name);
    group.sample_size(10);
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    group
}

/// A batch of messages, written at its end.
fn bench_append(c: &mut Criterion) {
    let mut group = group(c, "append");
    for (bytes, batch) in [(100, 1), (100, 100), (1024, 1), (1024, 100)] {
        let dir = scratch();
        let mut store = open(dir.path()).expect("an empty store");
        create(&mut store, ADDRESS, clock()).expect("a new mailbox");
        let payload = payload(bytes);
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(BenchmarkId::new(format!("{bytes} B"), batch), |b| {
            b.iter(|| append(&mut store, ADDRESS, &payload, batch, batch).expect("space"));
        });
    }
    group.finish();
}

/// A batch fetched, looked at and acknowledged.
fn bench_consume(c: &mut Criterion) {
    let mut group = group(c, "fetch_and_ack");
    for batch in [1, 10, 100] {
        let dir = scratch();
        let mut store = open(dir.path()).expect("an empty store");
        create(&mut store, ADDRESS, clock()).expect("a new mailbox");
        let payload = payload(100);
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(BenchmarkId::from_parameter(batch), |b| {
            b.iter_custom(|iterations| {
                let count = batch * iterations as usize;
                append(&mut store, ADDRESS, &payload, count, 100).expect("space");
                let begin = std::time::Instant::now();
                for _ in 0..iterations {
                    let got = consume(&mut store, ADDRESS, GROUP, batch).expect("messages");
                    assert_eq!(got, batch);
                }
                begin.elapsed()
            });
        });
    }
    group.finish();
}

/// A million messages, known to a checkpoint or only to the log.
fn bench_open(c: &mut Criterion) {
    let mut group = group(c, "open");
    group.throughput(Throughput::Elements(MESSAGES as u64));
    for (what, clean) in [("clean", true), ("tail", false)] {
        let dir = scratch();
        let mut store = open(dir.path()).expect("an empty store");
        create(&mut store, ADDRESS, clock()).expect("a new mailbox");
        append(&mut store, ADDRESS, &payload(100), MESSAGES, 100).expect("space");
        if clean {
            store.close().expect("a checkpoint");
        } else {
            drop(store);
        }
        group.bench_function(what, |b| {
            b.iter_batched(
                || (),
                |()| open(dir.path()).expect("the store"),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// A store whose first segment is half dead, and not needed by a checkpoint.
fn half_dead(dir: &std::path::Path) -> Store {
    let mut store = open(dir).expect("an empty store");
    create(&mut store, ADDRESS, clock()).expect("a new mailbox");
    create(&mut store, "short.lived", clock()).expect("a new mailbox");
    let payload = payload(1024);
    for _ in 0..Options::default().segment_bytes / (2 * 1100) {
        append(&mut store, ADDRESS, &payload, 1, 1).expect("space");
        append(&mut store, "short.lived", &payload, 1, 1).expect("space");
    }
    store.remove_mailbox("short.lived", clock()).expect("it is there");
    while store.tick(clock()) {}
    for _ in 0..2 {
        store.rotate(clock()).expect("space");
        store.checkpoint().expect("space");
    }
    store
}

/// One 64 MB segment of 1 KiB messages, half of them live, rewritten.
fn bench_compact(c: &mut Criterion) {
    let mut group = group(c, "compact");
    group.bench_function("half a segment", |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations {
                let dir = scratch();
                let mut store = half_dead(dir.path());
                let begin = std::time::Instant::now();
                let mut compactor = store.pick_compaction().expect("a segment is half dead");
                compactor.load().expect("it is readable");
                while let Some(candidate) = compactor.next_message() {
                    store.compact(&candidate, clock()).expect("space");
                }
                spent += begin.elapsed();
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, bench_append, bench_consume, bench_open, bench_compact);
criterion_main!(benches);
