//! Emptying a mailbox.

use super::{Store, space_for};
use crate::error::{Error, Result};
use crate::log::Space;
use crate::time::Now;
use crate::wire::mailbox_ops::Purged;
use crate::wire::op::Op;
use crate::wire::stamp::Stamp;

impl Store {
    /// Removes all messages of a mailbox, delayed ones too, and returns how many. One record tells it, so that a crash
    /// leaves all of them or none; however many there are, it takes the same time: they are counted out later.
    pub fn purge(&mut self, address: &str, now: Now) -> Result<u64> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        let mailbox = &self.state.in_use(index).mailbox;
        let purged = mailbox.messages() as u64;
        if purged == 0 {
            return Ok(0);
        }
        let next_id = mailbox.next_id;
        let next_delay = mailbox.extras().map_or(0, |extras| extras.next_delay);
        if !self.state.in_memory(index) {
            let stamp = Stamp { time_ms: now.wall_ms, address };
            let op = Op::Purged(Purged { stamp, next_id, next_delay });
            self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        let emptied = self.state.purge(index, next_id, next_delay);
        debug_assert!(emptied, "these are its own numbers");
        // With max_ack_pending, there is room again.
        self.mark_ready(index);
        Ok(purged)
    }

    /// Refuses to go on if a mailbox holds more messages than this, delayed ones included.
    pub fn expect_messages(&mut self, address: &str, expected: u64, now: Now) -> Result<()> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        let found = self.state.in_use(index).mailbox.messages() as u64;
        if found > expected {
            return Err(Error::MoreMessages { mailbox: address.to_owned(), found, expected });
        }
        Ok(())
    }
}
