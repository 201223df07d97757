//! Decides when a sync begins: at once, or a moment later, so that it serves more.
//!
//! Clients that wait for their replies write again when they get them. A sync that begins while they
//! are at it leaves them to the next one, and so each sync serves half of the clients. Owns only
//! the decision to wait; must not know files.

use std::time::Duration;

/// Syncs that begin at once after one for which waiting was in vain.
const RESTS: u32 = 16;

/// No client is kept waiting for others longer than this.
const MOST_PATIENCE: Duration = Duration::from_millis(100);

/// What the last syncs tell about the next.
#[derive(Debug, Default)]
pub(super) struct Pace {
    expected: u64,
    patience: Duration,
    rests: u32,
}

impl Pace {
    /// A sync of so many bytes is over. Whoever wrote them may write as many again, beside the bytes
    /// that are waiting already.
    pub fn synced(&mut self, bytes: u64, waiting: u64, took: Duration) {
        self.expected = bytes + waiting;
        // A wait must cost less than the sync it may save, and one that the disk held up says nothing of the next.
        self.patience = (took / 2).min(MOST_PATIENCE);
    }

    /// How many bytes the next sync should have, and how long they are worth waiting for; nothing
    /// if it should begin at once.
    pub fn wait(&mut self) -> Option<(u64, Duration)> {
        if self.rests > 0 {
            self.rests -= 1;
            return None;
        }
        // Not every message is as long as the one before.
        Some((self.expected - self.expected / 8, self.patience))
    }

    /// The bytes did not come in time.
    pub fn in_vain(&mut self) {
        self.rests = RESTS;
    }
}
