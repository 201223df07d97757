//! What all scenarios share: where the server is, how long a phase lasts, and what is reported.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::poller::Poller;
use crate::processor::{Meter, Usage};
use crate::target::Target;

/// The options of every scenario.
#[derive(Debug)]
pub struct Load {
    /// Where the server listens.
    pub server: Target,
    /// Payload bytes of each message.
    pub size: usize,
    patience: Duration,
    pid: Option<u32>,
    warmup: Duration,
    seconds: Duration,
    count: Option<u64>,
}

/// When a phase stops sending: by the clock, or by count.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    deadline: Option<Instant>,
    count: u64,
}

impl Limit {
    /// Nothing may be sent.
    pub const NONE: Self = Self { deadline: None, count: 0 };

    /// So many may be sent.
    #[cfg(test)]
    pub fn of(count: u64) -> Self {
        Self { deadline: None, count }
    }

    /// Whether no more may be sent when `sent` messages of this phase are.
    pub fn reached(self, sent: u64) -> bool {
        self.reached_at(Instant::now(), sent)
    }

    /// The same at a moment that is known.
    pub fn reached_at(self, now: Instant, sent: u64) -> bool {
        sent >= self.count || self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// How many requests are due from now on at this rate.
    pub fn requests(self, per_second: f64) -> u64 {
        let by_clock = self.deadline.map_or(u64::MAX, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            (left.as_secs_f64() * per_second).ceil() as u64
        });
        self.count.min(by_clock)
    }

    /// The part of one of `all` connections that send alike.
    pub fn share(self, number: u64, all: u64) -> Self {
        let (each, rest) = (self.count / all, self.count % all);
        Self { deadline: self.deadline, count: each + u64::from(number < rest) }
    }

    /// How many of `wanted` more messages the count allows.
    pub fn allowed(self, sent: u64, wanted: u64) -> u64 {
        wanted.min(self.count.saturating_sub(sent))
    }
}

impl Load {
    /// Takes the shared options; `least_size` is what the scenario needs for its own marks.
    pub fn take(arguments: &mut Arguments, least_size: usize) -> Result<Self, Failure> {
        let address = arguments.optional("server")?;
        let address = address.ok_or_else(|| Failure::Usage("--server is missing".to_owned()))?;
        let ca: Option<String> = arguments.optional("ca")?;
        Ok(Self {
            server: Target::new(address, ca.as_deref())?,
            // Frames must fit the buffer that connections read into.
            size: arguments.number("size", 128, least_size, 64 * 1024)?,
            patience: arguments.seconds("patience", 10.0)?,
            pid: arguments.optional("pid")?,
            warmup: arguments.seconds("warmup", 0.5)?,
            seconds: arguments.seconds("seconds", 2.0)?,
            count: arguments.optional("count")?,
        })
    }

    /// Waits for that many connections.
    pub fn poller(&self, connections: usize) -> Result<Poller, Failure> {
        Poller::new(connections, self.patience)
    }

    /// How long the same load goes before, or nothing happens where there is none.
    pub fn warmup(&self) -> Duration {
        self.warmup
    }

    /// Nothing goes before.
    pub fn skip_warmup(&mut self) {
        self.warmup = Duration::ZERO;
    }

    /// How long is measured.
    pub fn duration(&self) -> Duration {
        self.seconds
    }

    /// Measures what server and generator use from now on.
    pub fn meter(&self) -> Result<Meter, Failure> {
        Meter::start(self.pid)
    }

    /// Runs `phase` for the warm-up, then measures it. It returns how much it did when the server
    /// has answered everything.
    pub fn measure(
        &self,
        mut phase: impl FnMut(Limit, bool) -> Result<u64, Failure>,
    ) -> Result<Measured, Failure> {
        if !self.warmup.is_zero() {
            phase(Limit { deadline: Some(Instant::now() + self.warmup), count: u64::MAX }, false)?;
        }
        let meter = self.meter()?;
        let limit = match self.count {
            Some(count) => Limit { deadline: None, count },
            None => Limit { deadline: Some(Instant::now() + self.seconds), count: u64::MAX },
        };
        let messages = phase(limit, true)?;
        let usage = meter.stop()?;
        if messages == 0 {
            return Err(Failure::Usage("nothing was measured: the time is too short".to_owned()));
        }
        Ok(Measured { messages, usage })
    }
}

/// A finished measurement.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// What was counted: messages taken, deliveries or replies.
    pub messages: u64,
    /// What it took.
    pub usage: Usage,
}

impl Measured {
    /// One line of JSON; `more` are members that the scenario adds, as JSON.
    pub fn json(&self, scenario: &str, load: &Load, more: &[(&str, String)]) -> String {
        let Usage { elapsed, generator, server } = self.usage;
        let each_us = |time: Duration| time.as_secs_f64() * 1e6 / self.messages as f64;
        let cores = |time: Duration| time.as_secs_f64() / elapsed.as_secs_f64();
        let or_null = |value: Option<f64>| {
            value.map_or_else(|| "null".to_owned(), |value| format!("{value:.4}"))
        };
        let mut line = format!("{{\"scenario\":\"{scenario}\",\"size\":{}", load.size);
        for (name, value) in more {
            let _ = write!(line, ",\"{name}\":{value}");
        }
        let _ = write!(
            line,
            ",\"messages\":{},\"seconds\":{:.6},\"rate\":{:.1},\"generator_cpu_us\":{:.4},\
             \"generator_cores\":{:.4},\"server_cpu_us\":{},\"server_cores\":{}}}",
            self.messages,
            elapsed.as_secs_f64(),
            self.messages as f64 / elapsed.as_secs_f64(),
            each_us(generator),
            cores(generator),
            or_null(server.map(each_us)),
            or_null(server.map(cores)),
        );
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_by_the_clock_is_a_number_of_requests_at_a_rate() {
        let deadline = Some(Instant::now() + Duration::from_secs(100));
        let requests = Limit { deadline, count: u64::MAX }.requests(50.0);
        assert!((4900..=5000).contains(&requests), "{requests}");
        assert_eq!(Limit { deadline, count: 7 }.requests(50.0), 7);
        assert_eq!(Limit { deadline: None, count: 7 }.requests(50.0), 7);
    }
}
