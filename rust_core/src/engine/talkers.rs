//! Clients that talked lately: for one client alone the caller may wait for the disk.

use crate::front::ConnId;

/// Nobody else has talked for so long.
const ALONE_US: u64 = 5_000;

/// Who talked last, and when anybody else did.
#[derive(Debug, Default)]
pub(super) struct Talkers {
    last: Option<ConnId>,
    last_us: u64,
    others_us: Option<u64>,
}

impl Talkers {
    /// A client talks.
    pub fn heard(&mut self, id: ConnId, now_us: u64) {
        if self.last != Some(id) {
            self.others_us = self.last.replace(id).map(|_| self.last_us).max(self.others_us);
        }
        self.last_us = now_us;
    }

    /// Somebody who is no client wants something.
    pub fn heard_other(&mut self, now_us: u64) {
        self.others_us = Some(now_us);
    }

    /// Whether at most one client has talked lately, and nobody else.
    pub fn is_one(&self, now_us: u64) -> bool {
        self.others_us.is_none_or(|others_us| now_us.saturating_sub(others_us) >= ALONE_US)
    }
}
