//! The clocks of the machine: the ones that Python's `time.time` and `time.monotonic` read, so that
//! instants from either side can be compared.

use std::time::Duration;

use mq9_core::time::{Moment, Now};
use rustix::time::{ClockId, clock_gettime};

/// The present.
pub fn moment() -> Moment {
    Moment { wall_us: read_us(ClockId::Realtime), mono_us: read_us(ClockId::Monotonic) }
}

/// The present, as the store takes it.
pub fn now() -> Now {
    moment().into()
}

/// The instant a caller gave as `(wall_ms, mono_ms)`, or the present.
pub fn given(now_ms: Option<(u64, u64)>) -> Now {
    now_ms.map_or_else(now, |(wall_ms, mono_ms)| Now { wall_ms, mono_ms })
}

/// The monotonic clock.
pub fn mono() -> Duration {
    Duration::from_micros(read_us(ClockId::Monotonic))
}

/// How long the calling thread has had a processor.
pub fn worked() -> Duration {
    Duration::from_micros(read_us(ClockId::ThreadCPUTime))
}

/// What the wall clock shows more than the monotonic one.
pub fn epoch_ms() -> u64 {
    let now = now();
    now.wall_ms.saturating_sub(now.mono_ms)
}

fn read_us(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let us = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1000);
    u64::try_from(us).unwrap_or(0)
}
