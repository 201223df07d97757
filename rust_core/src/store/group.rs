//! Removing groups.

use std::sync::Arc;

use super::{Store, space_for};
use crate::error::{Error, Result};
use crate::log::Space;
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};

impl Store {
    /// Removes a group with its cursors, deliveries and leases. Messages stay, also those of a work queue that the group
    /// was given and has not acknowledged. Fetches that wait for the group end with an error.
    pub fn remove_group(&mut self, address: &str, group: &str, now: Now) -> Result<()> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        let at = self.state.slot(index).and_then(|slot| slot.find_group(group));
        let Some(at) = at else {
            let (mailbox, group) = (address.to_owned(), group.to_owned());
            return Err(Error::GroupNotFound { mailbox, group });
        };
        self.drop_group(index, at, cause::DELETED, now)
    }

    /// Removes the group of an index, for one of [`cause`].
    pub(super) fn drop_group(&mut self, index: u32, at: usize, cause: u8, now: Now) -> Result<()> {
        let Some(slot) = self.state.slot(index) else { return Ok(()) };
        let Some(group) = slot.group(at).map(|g| Arc::clone(&g.name)) else { return Ok(()) };
        let address = slot.mailbox.address.clone();
        if !self.state.in_memory(index) {
            let stamp = Stamp { time_ms: now.wall_ms, address: &address };
            let op = Op::GroupRemoved { stamp, group: &group, cause };
            self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        self.state.remove_group(index, at);
        self.fail_waiters_of_group(index, &address, &group);
        Ok(())
    }
}
