//! The clocks of the machine: the ones that Python's `time.time` and `time.monotonic` read, so that
//! instants from either side can be compared.

use std::time::Duration;

use mq9_core::time::Now;
use rustix::time::{ClockId, clock_gettime};

/// The present.
pub fn now() -> Now {
    Now { wall_ms: read_ms(ClockId::Realtime), mono_ms: read_ms(ClockId::Monotonic) }
}

/// The instant a caller gave as `(wall_ms, mono_ms)`, or the present.
pub fn given(now_ms: Option<(u64, u64)>) -> Now {
    now_ms.map_or_else(now, |(wall_ms, mono_ms)| Now { wall_ms, mono_ms })
}

fn read_ms(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let ms = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}

/// The monotonic clock.
pub fn mono() -> Duration {
    Duration::from_micros(mono_us())
}

/// Microseconds of the monotonic clock.
pub fn mono_us() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let us = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1000);
    u64::try_from(us).unwrap_or(0)
}

/// How long the calling thread has had a processor.
pub fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What the wall clock shows more than the monotonic one.
pub fn epoch_ms() -> u64 {
    let now = now();
    now.wall_ms.saturating_sub(now.mono_ms)
}
