//! Durable changes of the state's groups: the part of [`State`] that is about deliveries.
//!
//! As in `state.rs`, each method is the effect of one kind of record, for commands and for recovery alike.

use std::sync::Arc;

use super::indexes::{GroupIx, SlotIx};
use super::slot::{GroupSlot, Slot};
use super::state::State;
use super::timers::{Purpose, Timer, Timers};
use crate::group::{Delivered, Group, Hold, Member};
use crate::mailbox::LEVELS;
use crate::time::Now;

impl State {
    /// The mailbox of a command, and the name of the group that it has looked up.
    pub fn group_of(&self, index: SlotIx, group: GroupIx) -> (&Slot, Arc<str>) {
        let slot = self.slots.in_use(index);
        (slot, Arc::clone(&slot.known_group(group).name))
    }

    /// A group is created or pinned anew; returns its index.
    pub fn reset_group(&mut self, index: SlotIx, name: &str, start: [u64; LEVELS]) -> GroupIx {
        let slot = self.slots.in_use_mut(index);
        self.journal.touch(index);
        match slot.find_group(name) {
            Some(at) => {
                let before = slot.known_group_mut(at).group.reset(start);
                self.removed_groups.push_back(before);
                at
            }
            None => slot.add_group(name, Group::new(start)),
        }
    }

    /// A group goes, and with it what it was given. The messages stay.
    pub fn remove_group(&mut self, index: SlotIx, group: GroupIx) {
        if let Some(mut removed) = self.slots.in_use_mut(index).remove_group(group) {
            cancel_timers(&mut removed, &mut self.timers);
            self.removed_groups.push_back(removed.group);
            self.journal.touch(index);
        }
    }

    /// A group is being used. It goes when it is not for `ttl_ms`; 0 is never.
    pub fn note_use(&mut self, index: SlotIx, group: GroupIx, ttl_ms: u64, now: Now) {
        let slot = self.slots.in_use_mut(index);
        self.journal.touch(index);
        let Some(slot) = slot.group_mut(group) else { return };
        slot.used_ms = now.mono_ms;
        // A timer that comes too early finds out and is set again: cheaper than to move it at each use.
        if ttl_ms > 0 && slot.idle.is_none() {
            self.look_at_use(index, group, now.mono_ms.saturating_add(ttl_ms));
        }
    }

    /// Whether a group is still used is looked at then.
    pub fn look_at_use(&mut self, index: SlotIx, group: GroupIx, at_ms: u64) {
        let number = self.number(index);
        let slot = self.slots.in_use_mut(index);
        let slot = slot.known_group_mut(group);
        let timer = Timer { number, id: group.to_timer(), slot: index, purpose: Purpose::Idle };
        let old = slot.idle.replace(self.timers.mono.insert(at_ms, timer));
        debug_assert!(old.is_none(), "one timer for a group");
    }

    /// Messages were given to a member, to hold and maybe to keep besides what it held. Returns how many
    /// others it held until then.
    pub fn deliver(
        &mut self,
        index: SlotIx,
        group: GroupIx,
        member: &Member,
        deliveries: impl IntoIterator<Item = Delivered>,
        hold: Option<Hold>,
        keeps: bool,
    ) -> usize {
        let slot = self.slots.in_use_mut(index);
        self.journal.touch(index);
        let slot = slot.known_group_mut(group);
        let deliveries = slot.counts.noting(deliveries, hold.is_some());
        slot.group.apply_delivered(member, deliveries, hold, keeps)
    }

    /// Messages were given to a member, and the record of that is lost.
    pub fn recover_deliveries(
        &mut self,
        index: SlotIx,
        group: GroupIx,
        deliveries: Vec<Delivered>,
    ) {
        let slot = self.slots.in_use_mut(index).known_group_mut(group);
        slot.group.recover_deliveries(deliveries);
    }

    /// Messages were confirmed by a group.
    pub fn confirm(&mut self, index: SlotIx, group: GroupIx, msg_ids: impl Iterator<Item = u64>) {
        self.journal.touch(index);
        self.slots.in_use_mut(index).known_group_mut(group).group.apply_acked(msg_ids);
    }

    /// A message was returned undone, to be delivered again not before `until_ms` of the monotonic
    /// clock. False if it was not out.
    pub fn give_back(
        &mut self,
        index: SlotIx,
        group: GroupIx,
        msg_id: u64,
        until_ms: Option<u64>,
    ) -> bool {
        self.journal.touch(index);
        self.slots.in_use_mut(index).known_group_mut(group).group.nak(msg_id, until_ms)
    }

    /// Arms the timer of a group's earliest lease.
    pub fn arm_leases(&mut self, index: SlotIx, group: GroupIx) {
        let slot = self.slots.in_use_mut(index);
        let number = slot.mailbox.number;
        let Some(slot) = slot.group_mut(group) else { return };
        // Those of an inbox end with connections only.
        let wanted = slot.group.next_deadline_ms().filter(|&at| at != u64::MAX);
        match (wanted, slot.timer) {
            // An earlier timer finds nothing ended and arms again: cheaper than moving it each time.
            (Some(at), Some((_, armed))) if armed <= at => {}
            (wanted, armed) => {
                if let Some((timer, _)) = armed {
                    self.timers.mono.cancel(timer);
                }
                let purpose = Purpose::Lease;
                let timer = Timer { number, id: group.to_timer(), slot: index, purpose };
                slot.timer = wanted.map(|at| (self.timers.mono.insert(at, timer), at));
            }
        }
    }
}

pub(super) fn cancel_timers(group: &mut GroupSlot, timers: &mut Timers) {
    let lease = group.timer.take().map(|(timer, _)| timer);
    for timer in lease.into_iter().chain(group.idle.take()) {
        timers.mono.cancel(timer);
    }
}
