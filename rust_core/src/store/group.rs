//! Removing groups, because somebody asks or because nobody has used them for long.

use std::sync::Arc;

use super::indexes::{GroupIx, SlotIx};
use super::push::INBOX_GROUP;
use super::timers::Timer;
use super::{Store, space_for};
use crate::error::{Error, Result};
use crate::log::Space;
use crate::mailbox::Policy;
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};

/// How long a group that could not be removed stays until the next try.
const RETRY_MS: u64 = 1000;

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
    pub(super) fn drop_group(
        &mut self,
        index: SlotIx,
        at: GroupIx,
        cause: u8,
        now: Now,
    ) -> Result<()> {
        let (slot, group) = self.state.group_of(index, at);
        let address = slot.mailbox.address.clone();
        if !self.state.in_memory(index) {
            let stamp = Stamp { time_ms: now.wall_ms, address: &address };
            let op = Op::GroupRemoved { stamp, group: &group, cause };
            // One that goes by itself frees no space: what is kept for acknowledgements on a full disk is not for it.
            let space = if cause == cause::EXPIRED { Space::Deliver } else { Space::Reclaim };
            self.log.reserve(space_for(&[&op]), space, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        self.state.remove_group(index, at);
        self.fail_waiters_of_group(index, &address, &group);
        Ok(())
    }

    /// Whether a member has messages of a group, whose time has not ended.
    fn is_held(&self, index: SlotIx, at: GroupIx) -> bool {
        let group = self.state.slot(index).and_then(|slot| slot.group(at));
        group.is_some_and(|group| group.group.leases() > 0)
    }

    /// A group is fetched from or acknowledges. Which is not recorded: after a restart its time begins anew.
    pub(super) fn note_use(&mut self, index: SlotIx, at: GroupIx, now: Now) {
        // What was read of an inbox is known for as long as the mailbox lives.
        let ttl_ms = if self.is_inbox(index, at) { 0 } else { self.group_ttl_ms(index) };
        self.state.note_use(index, at, ttl_ms, now);
    }

    /// Whether a group is that of the inbox.
    pub(super) fn is_inbox(&self, index: SlotIx, at: GroupIx) -> bool {
        let group = self.state.slot(index).and_then(|slot| slot.group(at));
        group.is_some_and(|group| *group.name == *INBOX_GROUP)
    }

    /// All groups count as used when the store is opened.
    pub(super) fn note_use_of_all(&mut self, now: Now) {
        for index in self.state.indexes(0) {
            let groups = self.state.slot(index).map(|slot| slot.group_places());
            for at in groups.into_iter().flatten() {
                self.note_use(index, at, now);
            }
        }
    }

    /// How long a group of a mailbox lives that nobody uses; 0 is for ever.
    pub(super) fn group_ttl_ms(&self, index: SlotIx) -> u64 {
        match self.state.slot(index).map_or(0, |slot| slot.mailbox.policy().group_ttl_ms) {
            0 => self.options.group_ttl_ms,
            Policy::NEVER => 0,
            own => own,
        }
    }

    /// A group goes if nobody has used it for long enough, holds messages of it or waits for it.
    pub(super) fn on_idle(&mut self, timer: Timer, now: Now) {
        let (index, at) = (timer.slot, GroupIx::from_timer(timer.id));
        let ttl_ms = self.group_ttl_ms(index);
        let Some(group) = self.state.slot_mut(index).and_then(|slot| slot.group_mut(at)) else {
            return;
        };
        group.idle = None;
        if ttl_ms == 0 || *group.name == *INBOX_GROUP {
            return;
        }
        let (name, used_ms) = (Arc::clone(&group.name), group.used_ms);
        let over_ms = used_ms.saturating_add(ttl_ms);
        if now.mono_ms >= over_ms {
            // Where time has leapt, those that ended on the way end first.
            self.end_leases(index, at, now);
        }
        let next_ms = if now.mono_ms < over_ms {
            over_ms
        } else if self.is_held(index, at) || self.is_waited_for(index, &name) {
            return self.note_use(index, at, now);
        } else if self.drop_group(index, at, cause::EXPIRED, now).is_err() {
            now.mono_ms.saturating_add(RETRY_MS)
        } else {
            return;
        };
        self.state.look_at_use(index, at, next_ms);
    }
}
