//! How long answers took.

use std::time::Instant;

/// Every latency of a phase.
#[derive(Debug, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Something asked at that moment has been answered now.
    pub fn since(&mut self, asked: Instant) {
        self.0.push(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// Percentiles in microseconds.
    pub fn json(mut self) -> String {
        self.0.sort_unstable();
        let at = |part: f64| {
            let rank = (self.0.len() as f64 * part).ceil() as usize;
            let value_ns = self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default();
            value_ns as f64 / 1e3
        };
        format!(
            "{{\"p50\":{:.1},\"p99\":{:.1},\"p99_9\":{:.1},\"max\":{:.1}}}",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let latencies = Latencies((1..=1000).map(|us| us * 1000).rev().collect());
        let expected = r#"{"p50":500.0,"p99":990.0,"p99_9":999.0,"max":1000.0}"#;
        assert_eq!(latencies.json(), expected);
    }
}
