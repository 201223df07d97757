//! Durations, counted in a fixed number of buckets.
//!
//! Owns the bounds of the buckets. Must not know what is measured, nor any clock.

/// How many there are: two for each doubling, from 16 microseconds on; the last has what takes longer.
pub const BUCKETS: usize = 42;

/// Below 2^this many microseconds everything is in the first bucket.
const FIRST_BITS: u32 = 4;

/// Counts of durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies {
    counts: [u64; BUCKETS],
    sum_us: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: [0; BUCKETS], sum_us: 0 }
    }
}

impl Latencies {
    /// Something took so many microseconds.
    pub fn note(&mut self, us: u64) {
        self.counts[bucket_of(us)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// How many took less than each bound, the shorter ones not counted again; the last ones took longer than all.
    pub fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// All together.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Microseconds that all of a bucket took less than; nothing for the last one.
    pub fn bound_us(bucket: usize) -> Option<u64> {
        let (doublings, half) = (bucket / 2, bucket as u64 % 2);
        (bucket + 1 < BUCKETS).then(|| (2 + half) << (FIRST_BITS - 1) << doublings)
    }
}

fn bucket_of(us: u64) -> usize {
    let Some(bits) = us.checked_ilog2().filter(|bits| *bits >= FIRST_BITS) else { return 0 };
    let half = (us >> (bits - 1)) & 1;
    let bucket = u64::from(bits - FIRST_BITS) * 2 + half + 1;
    usize::try_from(bucket).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}
