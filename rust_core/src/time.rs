//! The two clocks of a caller. The core never reads a clock itself.

/// One instant, read by the caller from both clocks at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the Unix epoch: may jump. Used for TTLs and delays.
    pub wall_ms: u64,
    /// Milliseconds of a clock that never goes back. Used for leases and waits.
    pub mono_ms: u64,
}

/// The same instant, finer: what the engine is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds since the Unix epoch: may jump.
    pub wall_us: u64,
    /// Microseconds of a clock that never goes back.
    pub mono_us: u64,
}

impl Moment {
    /// Milliseconds of the clock that never goes back.
    pub fn mono_ms(self) -> u64 {
        self.mono_us / 1000
    }

    /// The wall clock as JSON has it: RFC 3339, in UTC, with microseconds.
    pub fn timestamp(self) -> String {
        let (seconds, us) = (self.wall_us / 1_000_000, self.wall_us % 1_000_000);
        let (day, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, date) = civil_date(day);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z")
    }
}

impl From<Moment> for Now {
    fn from(moment: Moment) -> Now {
        Now { wall_ms: moment.wall_us / 1000, mono_ms: moment.mono_us / 1000 }
    }
}

/// Year, month and day of a number of days since 1970. Years begin in March, so that leap days come last.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year_of_era + era * 400 + next, month, date)
}
