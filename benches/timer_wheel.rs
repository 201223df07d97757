//! What a timer costs, with a thousand, a hundred thousand and a million others pending: the cost of
//! one must not depend on how many there are.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use mq9_core::timer::Wheel;

type Value = [u64; 3];

const PENDING: [u64; 3] = [1_000, 100_000, 1_000_000];
const NOW_MS: u64 = 1_750_000_000_000;
const HOUR_MS: u64 = 3_600_000;
const TEN_YEARS_MS: u64 = 10 * 365 * 24 * HOUR_MS;

/// Deadlines without order: a multiplicative hash of the counter.
fn deadline_ms(n: u64, within_ms: u64) -> u64 {
    NOW_MS + 1 + (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % within_ms
}

fn wheel(pending: u64, within_ms: u64) -> Wheel<Value> {
    let mut wheel = Wheel::new(NOW_MS);
    for n in 0..pending {
        wheel.insert(deadline_ms(n, within_ms), [n; 3]);
    }
    wheel
}

/// A thousand insertions into a wheel with that many pending; they are cancelled off the clock.
fn insert(c: &mut Criterion) {
    const BATCH: u64 = 1_000;
    let mut group = c.benchmark_group("insert_1k");
    group.throughput(Throughput::Elements(BATCH));
    for pending in PENDING {
        group.bench_function(BenchmarkId::from_parameter(pending), |b| {
            let mut wheel = wheel(pending, HOUR_MS);
            let mut keys = Vec::with_capacity(BATCH as usize);
            let mut n = pending;
            b.iter_custom(|iterations| {
                let mut spent = std::time::Duration::ZERO;
                for _ in 0..iterations {
                    let start = std::time::Instant::now();
                    for _ in 0..BATCH {
                        n += 1;
                        keys.push(wheel.insert(deadline_ms(n, HOUR_MS), [n; 3]));
                    }
                    spent += start.elapsed();
                    for key in keys.drain(..) {
                        wheel.cancel(key);
                    }
                }
                spent
            });
        });
    }
    group.finish();
}

/// One insertion and the cancellation of a timer inserted long ago: the life of an acked lease.
fn insert_and_cancel(c: &mut Criterion) {
    let mut group = c.benchmark_group("insert_and_cancel");
    group.throughput(Throughput::Elements(1));
    for pending in PENDING {
        group.bench_function(BenchmarkId::from_parameter(pending), |b| {
            let mut wheel = Wheel::new(NOW_MS);
            let mut keys: Vec<_> =
                (0..pending).map(|n| wheel.insert(deadline_ms(n, HOUR_MS), [n; 3])).collect();
            let mut n = pending;
            b.iter(|| {
                n += 1;
                let at = (n % pending) as usize;
                let new = wheel.insert(deadline_ms(n, HOUR_MS), [n; 3]);
                black_box(wheel.cancel(std::mem::replace(&mut keys[at], new)))
            });
        });
    }
    group.finish();
}

/// Every timer fired, millisecond order, in calls of at most a thousand: moves between levels included.
fn drain(c: &mut Criterion) {
    let mut group = c.benchmark_group("drain_hour");
    group.sample_size(10);
    for pending in PENDING {
        group.throughput(Throughput::Elements(pending));
        group.bench_function(BenchmarkId::from_parameter(pending), |b| {
            let mut due = Vec::with_capacity(1_000);
            b.iter_batched_ref(
                || wheel(pending, HOUR_MS),
                |wheel| {
                    while wheel.advance(NOW_MS + HOUR_MS, 1_000, &mut due) {
                        due.clear();
                    }
                    due.clear();
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// One tick with one timer due, put back an hour later, so that the number pending stays the same.
fn tick(c: &mut Criterion) {
    let mut group = c.benchmark_group("tick_one_due");
    for pending in PENDING {
        group.bench_function(BenchmarkId::from_parameter(pending), |b| {
            let mut wheel = Wheel::new(NOW_MS);
            for n in 0..pending {
                wheel.insert(NOW_MS + 1 + n, [n; 3]);
            }
            let mut due = Vec::with_capacity(16);
            let mut now_ms = NOW_MS;
            b.iter(|| {
                now_ms += 1;
                while wheel.advance(now_ms, 1_000, &mut due) {}
                for value in due.drain(..) {
                    wheel.insert(now_ms + pending, value);
                }
            });
        });
    }
    group.finish();
}

/// Ten years in one step, past nothing and short of everything.
fn jump(c: &mut Criterion) {
    let mut group = c.benchmark_group("jump_ten_years");
    for pending in PENDING {
        group.bench_function(BenchmarkId::from_parameter(pending), |b| {
            let mut due: Vec<Value> = Vec::new();
            let mut wheel = Wheel::new(NOW_MS);
            for n in 0..pending {
                wheel.insert(u64::MAX - n, [n; 3]);
            }
            let mut now_ms = NOW_MS;
            b.iter(|| {
                // Every thirty million jumps, lest time end: too rare to show in the mean.
                if now_ms > u64::MAX / 2 {
                    now_ms = NOW_MS;
                    wheel.rewind(now_ms);
                }
                now_ms += TEN_YEARS_MS;
                wheel.advance(now_ms, 1_000, &mut due)
            });
        });
    }
    group.finish();
}

fn main() {
    let mut c = Criterion::default().configure_from_args();
    insert(&mut c);
    insert_and_cancel(&mut c);
    tick(&mut c);
    drain(&mut c);
    jump(&mut c);
    c.final_summary();
}
