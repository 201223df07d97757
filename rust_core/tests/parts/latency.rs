//! Buckets of latencies hold what their bounds say.

use mq9_core::latency::{BUCKETS, Latencies};

fn bucket_of(us: u64) -> usize {
    let mut latencies = Latencies::default();
    latencies.note(us);
    assert_eq!(latencies.sum_us(), us);
    latencies.counts().iter().position(|count| *count == 1).unwrap_or(BUCKETS)
}

#[test]
fn everything_is_below_its_bound_and_not_below_the_one_before() {
    let bounds: Vec<u64> = (0..BUCKETS).filter_map(Latencies::bound_us).collect();
    assert_eq!(bounds.len(), BUCKETS - 1, "the last one has no bound");
    assert_eq!(bounds[..6], [16, 24, 32, 48, 64, 96]);
    assert!(bounds.is_sorted());
    for (at, bound) in bounds.iter().enumerate() {
        assert_eq!(bucket_of(bound - 1), at, "just below {bound}");
        assert_eq!(bucket_of(*bound), at + 1, "at {bound}");
    }
    assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
}
