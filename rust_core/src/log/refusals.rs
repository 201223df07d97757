//! Refused writes: whether the disk takes new ones now, why not, and how often it did not.
//!
//! A record that was refused is the measure: the log takes writes again when there is room for one as large, for
//! the same purpose. Small acknowledgements, for which space is kept back, prove nothing about messages.

use super::Space;
use crate::error::{Error, Result};

/// What was refused last, until it would be taken.
#[derive(Debug)]
struct Refused {
    cause: String,
    bytes: usize,
    space: Space,
}

/// The memory of refused records.
#[derive(Debug, Default)]
pub struct Refusals {
    current: Option<Refused>,
    /// The cause of the last one, be it over or not.
    last: Option<String>,
    count: u64,
}

impl Refusals {
    /// Takes note of how a reservation ended.
    pub fn note(&mut self, outcome: &Result<()>, bytes: usize, space: Space) {
        match (outcome, &mut self.current) {
            (Ok(()), None) => {}
            (Ok(()), Some(refused)) => {
                if bytes >= refused.bytes && space >= refused.space {
                    self.current = None;
                }
            }
            (Err(error @ (Error::DiskFull(_) | Error::Io { .. })), current) => {
                self.count += 1;
                self.last = Some(error.to_string());
                let (bytes, space) = match current {
                    Some(refused) => (bytes.max(refused.bytes), space.max(refused.space)),
                    None => (bytes, space),
                };
                *current = Some(Refused { cause: error.to_string(), bytes, space });
            }
            // A request that is wrong, or writes that have stopped for good: others tell of that.
            (Err(_), _) => {}
        }
    }

    /// Whoever comes next will be refused: that is known before anybody has come.
    pub fn announce(&mut self, error: &Error) {
        let (bytes, space) = self.wanted().unwrap_or((0, Space::Reclaim));
        self.last = Some(error.to_string());
        self.current = Some(Refused { cause: error.to_string(), bytes, space });
    }

    /// Takes note of how a second try ended: nobody was refused anything.
    pub fn retried(&mut self, outcome: &Result<()>) {
        match (outcome, &mut self.current) {
            (Ok(()), current) => *current = None,
            (Err(error), Some(refused)) => refused.cause = error.to_string(),
            (Err(_), None) => {}
        }
    }

    /// What there has to be room for before all is well.
    pub fn wanted(&self) -> Option<(usize, Space)> {
        self.current.as_ref().map(|refused| (refused.bytes, refused.space))
    }

    /// Why new records are refused; `None` while they are taken.
    pub fn cause(&self) -> Option<&str> {
        self.current.as_ref().map(|refused| refused.cause.as_str())
    }

    /// Why records were refused last, be that over or not; `None` if none ever was.
    pub fn last_cause(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// How many times a record was refused, or could not be written, since the log was opened.
    pub fn count(&self) -> u64 {
        self.count
    }
}
