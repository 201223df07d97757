//! Acknowledging, returning, extending and giving up deliveries.

use super::dead_letter::Reason;
use super::indexes::{GroupIx, SlotIx};
use super::{Store, space_for, space_for_unit};
use crate::error::{Error, Result};
use crate::group::{Pick, ranges};
use crate::log::Space;
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};

/// What is said of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckKind {
    /// Done, with everything given to the same member before it, unless `only` this one.
    Done {
        /// Just this message.
        only: bool,
    },
    /// Not done: deliver it again after this many milliseconds.
    Return {
        /// How long it rests.
        delay_ms: u64,
    },
    /// Still at work: the lease starts anew.
    Progress,
    /// Never deliver it again: it goes to the dead-letter mailbox if there is one.
    Terminate,
}

/// An acknowledgement.
#[derive(Debug, Clone)]
pub struct Ack<'a> {
    /// The mailbox.
    pub address: &'a str,
    /// The group.
    pub group: &'a str,
    /// The messages. All must have been given to the group, or nothing happens.
    pub msg_ids: &'a [u64],
    /// What is said of them.
    pub kind: AckKind,
}

impl Store {
    /// Carries out an acknowledgement.
    pub fn ack(&mut self, ack: &Ack<'_>, now: Now) -> Result<()> {
        self.tick(now);
        let index = self.lookup(ack.address, now)?;
        let not_given = |msg_id| Error::NotGiven { group: ack.group.to_owned(), msg_id };
        let slot = self.state.slot(index);
        let at = slot.and_then(|slot| slot.find_group(ack.group));
        let (Some(slot), Some(at)) = (slot, at) else {
            return ack.msg_ids.first().map_or(Ok(()), |&msg_id| Err(not_given(msg_id)));
        };
        let group = slot.known_group(at);
        let cumulative = ack.kind == AckKind::Done { only: false };
        let mut planned = Vec::new();
        let level_of = |msg_id| slot.mailbox.get(msg_id).map(|(level, _)| level);
        let asked = ack.msg_ids.iter().map(|&msg_id| (msg_id, level_of(msg_id)));
        group.group.plan_acks(asked, cumulative, &mut planned).map_err(not_given)?;
        self.note_use(index, at, now);
        if planned.is_empty() {
            return Ok(());
        }
        match ack.kind {
            AckKind::Done { .. } => {
                self.count_acked(index, at, &planned, now);
                self.confirm(index, at, &planned, now)?;
            }
            AckKind::Return { delay_ms } => {
                self.count(index, at, |counts| counts.returned += planned.len() as u64);
                self.give_back(index, at, &planned, delay_ms, now)?;
            }
            AckKind::Progress => {
                let until = now.mono_ms.saturating_add(self.ack_wait(index, 0));
                self.extend(index, at, &planned, until);
            }
            AckKind::Terminate => {
                for msg_id in planned {
                    self.terminate(index, at, msg_id, now)?;
                }
            }
        }
        self.state.arm_leases(index, at);
        Ok(())
    }

    /// The group has done with these messages; a work queue removes them.
    pub(super) fn confirm(
        &mut self,
        index: SlotIx,
        at: GroupIx,
        msg_ids: &[u64],
        now: Now,
    ) -> Result<()> {
        let (slot, group) = self.state.group_of(index, at);
        let address = slot.mailbox.address.clone();
        let work_queue = slot.mailbox.policy().work_queue;
        if !self.state.in_memory(index) {
            let mut ranges = Vec::new();
            ranges::encode_ids(msg_ids.iter().copied(), &mut ranges);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
            let acked = Op::Acked { stamp, group: &group, ranges: &ranges };
            let removed = Op::Removed { stamp, cause: cause::CONSUMED, ranges: &ranges };
            let both = [(index, &acked), (index, &removed)];
            let unit = if work_queue { &both[..] } else { &both[..1] };
            self.log.reserve(space_for_unit(unit), Space::Reclaim, now.wall_ms)?;
            self.append_unit(unit);
        }
        self.confirmed(index, at, msg_ids);
        Ok(())
    }

    /// What [`Store::confirm`] does once it is in the log.
    pub(super) fn confirmed(&mut self, index: SlotIx, at: GroupIx, msg_ids: &[u64]) {
        self.state.confirm(index, at, msg_ids.iter().copied());
        if self.state.slot(index).is_some_and(|slot| slot.mailbox.policy().work_queue) {
            for &msg_id in msg_ids {
                self.state.remove_message(index, msg_id);
            }
        }
        // With max_ack_pending, room for one is room for another.
        self.mark_ready(index);
    }

    fn give_back(
        &mut self,
        index: SlotIx,
        at: GroupIx,
        msg_ids: &[u64],
        delay_ms: u64,
        now: Now,
    ) -> Result<()> {
        let (slot, group) = self.state.group_of(index, at);
        let address = slot.mailbox.address.clone();
        let max_deliver = slot.mailbox.policy().max_deliver;
        if !self.state.in_memory(index) {
            let mut ranges = Vec::new();
            ranges::encode_ids(msg_ids.iter().copied(), &mut ranges);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
            let op = Op::Returned { stamp, group: &group, ranges: &ranges };
            self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        let until = (delay_ms > 0).then(|| now.mono_ms.saturating_add(delay_ms));
        for &msg_id in msg_ids {
            self.state.give_back(index, at, msg_id, until);
            if let Some(last) = self.delivered(index, at, msg_id)
                && (1..=last.count).contains(&max_deliver)
            {
                // What cannot be moved now stays available, undelivered, until it can.
                let _ = self.dead_letter(index, at, &last, Reason::MaxDeliver, now);
            }
        }
        self.mark_ready(index);
        Ok(())
    }

    fn extend(&mut self, index: SlotIx, at: GroupIx, msg_ids: &[u64], until_ms: u64) {
        if let Some(slot) = self.state.slot_mut(index)
            && let Some(group) = slot.group_mut(at)
        {
            for &msg_id in msg_ids {
                group.group.progress(msg_id, until_ms);
            }
        }
    }

    fn terminate(&mut self, index: SlotIx, at: GroupIx, msg_id: u64, now: Now) -> Result<()> {
        let Some(pick) = self.delivered(index, at, msg_id) else { return Ok(()) };
        self.dead_letter(index, at, &pick, Reason::Terminated, now)
    }

    /// A message that the group was given and has not done with, while it is stored.
    fn delivered(&self, index: SlotIx, at: GroupIx, msg_id: u64) -> Option<Pick> {
        let slot = self.state.slot(index)?;
        let pending = slot.group(at)?.group.pending(msg_id)?;
        let (level, entry) = slot.mailbox.get(msg_id)?;
        Some(Pick { level, entry, count: pending.delivered.count, again: false })
    }
}
