//! Partitions: the hour of an instant, in UTC.

const HOUR_MS: u64 = 3_600_000;

/// Hours since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hour(u64);

impl Hour {
    /// The hour of a wall time.
    pub fn of(wall_ms: u64) -> Hour {
        // A clock that is wrong must not give a year that no reader understands.
        const LATEST: u64 = 253_402_300_799_999;
        Hour(wall_ms.min(LATEST) / HOUR_MS)
    }

    /// The folder of the partition below that of the dataset.
    pub fn folder(self) -> String {
        let (year, month, day) = civil(self.0 / 24);
        format!("date={year:04}-{month:02}-{day:02}/hour={:02}", self.0 % 24)
    }
}

/// Year, month and day of a day since the epoch, by the Gregorian calendar: years are counted from March, so that a
/// leap day is the last of its year, in eras of 400 years, which have 146097 days.
fn civil(day: u64) -> (u64, u64, u64) {
    let days = day + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_an_hour_is_its_date_in_utc() {
        let cases = [
            (0, "date=1970-01-01/hour=00"),
            (951_782_399_999, "date=2000-02-28/hour=23"),
            (951_782_400_000, "date=2000-02-29/hour=00"),
            (951_868_800_000, "date=2000-03-01/hour=00"),
            (1_700_000_000_000, "date=2023-11-14/hour=22"),
            (4_107_542_400_000, "date=2100-03-01/hour=00"),
            (u64::MAX, "date=9999-12-31/hour=23"),
        ];
        for (wall_ms, folder) in cases {
            assert_eq!(Hour::of(wall_ms).folder(), folder);
        }
    }
}
