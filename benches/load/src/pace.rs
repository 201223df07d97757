//! When each request of an open loop is due, whatever the server does meanwhile. Latency counts from
//! there: a server that stalls makes all that is due meanwhile late, and cannot hide it.

use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::failure::Failure;

/// Requests at even distances.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    started: Instant,
    per_second: f64,
}

impl Pace {
    /// The first request is due at once.
    pub fn new(per_second: f64, started: Instant) -> Self {
        Self { started, per_second }
    }

    /// When the request with this number is due.
    pub fn due(self, number: u64) -> Instant {
        self.started + Duration::from_secs_f64(number as f64 / self.per_second)
    }
}

/// The option `--rate`: requests per second of all connections together.
pub fn take(arguments: &mut Arguments) -> Result<Option<f64>, Failure> {
    let rate: Option<f64> = arguments.optional("rate")?;
    match rate {
        Some(rate) if !(rate > 0.0 && rate <= 1e8) => {
            Err(Failure::Usage(format!("--rate {rate}: must be more than 0, and at most 1e8")))
        }
        _ => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_even_distances() {
        let started = Instant::now();
        let pace = Pace::new(4000.0, started);
        assert_eq!(pace.due(0), started);
        assert_eq!(pace.due(1), started + Duration::from_micros(250));
        assert_eq!(pace.due(40_000), started + Duration::from_secs(10));
    }

    #[test]
    fn a_rate_is_a_positive_number() {
        let parse = |rate: &str| {
            let words = ["request", "--rate", rate].map(str::to_owned);
            Arguments::parse(words).and_then(|(_, mut arguments)| take(&mut arguments))
        };
        assert_eq!(parse("1e5").unwrap(), Some(1e5));
        for wrong in ["0", "-1", "nan", "1e9", "x"] {
            assert!(parse(wrong).unwrap_err().to_string().contains("--rate"), "{wrong}");
        }
    }
}
