//! The index of one lane: what a put, get, removal, step, and a snapshot cost per entry.

// The macros of criterion make a public function without a comment.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mq9_core::log::Lsn;
use mq9_core::mailbox::{Entry, Lane};

const SIZES: [u64; 3] = [1_000, 100_000, 1_000_000];
const DECODE_SIZES: [u64; 4] = [1_000, 100_000, 1_000_000, 10_000_000];

fn entry(msg_id: u64) -> Entry {
    Entry {
        msg_id,
        at: Lsn::new(1 + (msg_id >> 20) as u32, (msg_id as u32) << 8),
        len: 200,
        create_ms: 1_750_000_000_000 + msg_id / 50,
        flags: 0,
    }
}

fn lane(size: u64) -> Lane {
    let mut lane = Lane::default();
    for msg_id in 0..size {
        lane.put(entry(msg_id));
    }
    lane
}

/// As many ids as `size`, all below it, far from one to the next. Some come twice, some never.
fn scattered(size: u64) -> impl Iterator<Item = u64> {
    let step = 0x9E37_79B9_7F4A_7C15_u64;
    (0..size).map(move |n| ((u128::from(n.wrapping_mul(step)) * u128::from(size)) >> 64) as u64)
}

/// Two of three entries, as when other levels took the rest of the ids.
fn lane_with_gaps(size: u64) -> Lane {
    let mut lane = Lane::default();
    for msg_id in (0..size).filter(|id| id % 3 != 1) {
        lane.put(entry(msg_id));
    }
    lane
}

fn bench_lane(c: &mut Criterion) {
    let mut group = c.benchmark_group("lane");
    group.sample_size(10);
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    for size in SIZES {
        group.throughput(Throughput::Elements(size));
        group.bench_with_input(BenchmarkId::new("put", size), &size, |b, &size| {
            b.iter_with_large_drop(|| lane(size));
        });
        let full = lane(size);
        group.bench_with_input(BenchmarkId::new("get", size), &size, |b, &size| {
            b.iter(|| scattered(size).filter_map(|id| full.get(id)).map(|e| e.len).sum::<u32>());
        });
        let gaps = lane_with_gaps(size);
        group.bench_with_input(BenchmarkId::new("get_gaps", size), &size, |b, &size| {
            b.iter(|| scattered(size).filter_map(|id| gaps.get(id)).map(|e| e.len).sum::<u32>());
        });
        group.bench_with_input(BenchmarkId::new("iterate", size), &size, |b, _| {
            b.iter(|| full.iter_from(0).map(|e| e.create_ms ^ e.msg_id).fold(0, |a, b| a ^ b));
        });
        group.bench_with_input(BenchmarkId::new("remove_front", size), &size, |b, &size| {
            let drain = |mut lane: Lane| {
                for id in 0..size {
                    black_box(lane.remove(id));
                }
                lane
            };
            b.iter_batched(|| lane(size), drain, BatchSize::PerIteration);
        });
        group.bench_with_input(BenchmarkId::new("remove_scattered", size), &size, |b, &size| {
            let drain = |mut lane: Lane| {
                for id in scattered(size) {
                    black_box(lane.remove(id));
                }
                lane
            };
            b.iter_batched(|| lane(size), drain, BatchSize::PerIteration);
        });
        let snapshot = full.snapshot();
        let mut bytes = Vec::new();
        group.bench_with_input(BenchmarkId::new("encode", size), &size, |b, _| {
            b.iter(|| {
                bytes.clear();
                snapshot.encode(&mut bytes);
                bytes.len()
            });
        });
    }
    for size in DECODE_SIZES {
        let mut bytes = Vec::new();
        lane(size).snapshot().encode(&mut bytes);
        group.throughput(Throughput::Elements(size));
        group.bench_with_input(BenchmarkId::new("decode", size), &bytes, |b, bytes| {
            b.iter_with_large_drop(|| Lane::decode(bytes));
        });
    }
    // A consumer that keeps up: the lane holds `depth` entries, one goes in and one goes out.
    for depth in [0_u64, 1, 100, 10_000] {
        let mut queue = lane(depth);
        let mut next = depth;
        group.throughput(Throughput::Elements(1));
        group.bench_with_input(BenchmarkId::new("put_and_take", depth), &depth, |b, &depth| {
            b.iter(|| {
                queue.put(entry(next));
                let taken = queue.remove(next - depth);
                next += 1;
                taken
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench_lane);
criterion_main!(benches);
