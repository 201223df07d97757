//! Blocking for the log, with the interpreter left to others and an eye on signals.

use std::time::{Duration, Instant};

use mq9_core::log::Lsn;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use mq9_runtime::Durability;

/// Longest time without a look at signals, so that Ctrl-C ends a wait.
const SIGNALS: Duration = Duration::from_millis(100);

/// Blocks until the log is acknowledged up to `ticket`, and leaves the interpreter to others meanwhile.
pub fn wait_durable(
    py: Python<'_>,
    durability: &Durability,
    ticket: Lsn,
    until: Option<Instant>,
) -> Result<()> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let patience = left.map_or(SIGNALS, |left| left.min(SIGNALS));
        if py.detach(|| durability.wait(ticket, patience))? {
            return Ok(());
        }
        py.check_signals()?;
        if left.is_some_and(|left| left <= patience) {
            return Err(Failure::TimedOut);
        }
    }
}
