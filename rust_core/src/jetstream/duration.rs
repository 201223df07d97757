//! Times and durations as clients write them.

/// A duration like `1m30s`, in ms, rounded up. `None` if it is none.
pub fn parse_duration_ms(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut ns = 0.0_f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        ns += number * unit;
        rest = &rest[end..];
    }
    Some((ns / 1e6).ceil() as u64)
}

/// A duration in the words of Go, as nats-server writes it.
pub fn duration_text(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    if ms < 1000 {
        return format!("{ms}ms");
    }
    let (hours, minutes) = (ms / 3_600_000, ms / 60_000 % 60);
    let seconds = (ms % 60_000) as f64 / 1000.0;
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// A time in RFC 3339 as ms since 1970, rounded up; 0 for what lies before. `None` if it is none.
pub fn parse_time_ms(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let shape = text.as_bytes();
    if shape.len() < 20 || shape[4] != b'-' || shape[7] != b'-' || shape[13] != b':' {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let mut rest = text.get(19..)?;
    let mut ms = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let end = fraction.find(|c: char| !c.is_ascii_digit())?;
        let digits = format!("{:0<9}", fraction.get(..end.min(9))?);
        ms = (digits.parse::<i64>().ok()? + 999_999) / 1_000_000;
        rest = fraction.get(end..)?;
    }
    let offset_minutes = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = match rest.get(..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            let (hours, minutes) = rest.get(1..)?.split_once(':')?;
            if hours.len() != 2 || minutes.len() != 2 {
                return None;
            }
            sign * (hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?)
        }
    };
    // Years begin in March, so that leap days come last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
            - 1
            - 719_468;
    let minutes = (days * 24 + hour) * 60 + minute - offset_minutes;
    u64::try_from((minutes * 60 + second) * 1000 + ms).or(Ok::<u64, ()>(0)).ok()
}
