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

/// The wall clock as JSON has it: RFC 3339, in UTC, with microseconds.
pub fn timestamp() -> String {
    let time = clock_gettime(ClockId::Realtime);
    let (day, second) = (time.tv_sec.div_euclid(86_400), time.tv_sec.rem_euclid(86_400));
    let (year, month, date) = civil_date(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let us = time.tv_nsec / 1000;
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z")
}

/// Year, month and day of a number of days since 1970. Years begin in March, so that leap days come last.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year_of_era + era * 400 + next, month, date)
}
