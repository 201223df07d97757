//! Messages that no consumer wants any more go from a stream that keeps them only for those, some at a time.
//!
//! Owns how far that has come, over restarts as well. The record of a removal begins it, and that of other filters, and
//! so does one that follows the capture of the mailbox for a checkpoint. The last step says in its unit that it has ended.

use super::consumers::{Consumers, Sweep};
use super::indexes::SlotIx;
use super::state::State;
use super::timers::{Purpose, Timer};
use super::update::SURPLUS_AT_ONCE;
use super::{Store, space_for, space_for_unit};
use crate::error::Result;
use crate::group::ranges;
use crate::log::Space;
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};
use crate::wire::stream_ops::{ConsumerRemoved, NO_CONSUMER};

/// Most questions whether a consumer wants a message, in one step.
const ASKED: usize = 4096;
/// Fewest messages that are looked at in one step, however many consumers there are.
const FEWEST: usize = 16;
/// How long a step that could not be logged waits for the next try.
const RETRY_MS: u64 = 1000;

impl Store {
    /// Removes some of the messages of a stream that no consumer wants. More, or what cannot be logged, goes later.
    pub(super) fn on_unwanted(&mut self, index: SlotIx, now: Now) {
        if let Some(sweep) = self.state.sweep_mut(index) {
            sweep.timed = false;
        }
        match self.let_unwanted_go(index, now) {
            Ok(false) => {}
            Ok(true) => self.state.time_sweep(index, now.mono_ms),
            Err(_) => self.state.time_sweep(index, now.mono_ms.saturating_add(RETRY_MS)),
        }
    }

    /// One step. True if there is more to look at.
    fn let_unwanted_go(&mut self, index: SlotIx, now: Now) -> Result<bool> {
        let Some(&mut sweep) = self.state.sweep_mut(index) else { return Ok(false) };
        let Some(slot) = self.state.slot(index) else { return Ok(false) };
        let consumers = slot.consumers().map_or(0, Consumers::len);
        let most = (ASKED / consumers.max(1)).max(FEWEST);
        let ids = slot.mailbox.iter_from(sweep.next).map(|(_, entry)| entry.msg_id);
        let ids: Vec<u64> = ids.take_while(|id| *id < sweep.end).take(most).collect();
        let mut more = ids.len() == most;
        let mut next = sweep.end;
        let mut gone = Vec::new();
        for msg_id in ids {
            if gone.len() == SURPLUS_AT_ONCE {
                more = true;
                break;
            }
            next = msg_id + 1;
            if !self.state.is_wanted(index, msg_id) {
                gone.push(msg_id);
            }
        }
        let address = self.address_of(index);
        let stamp = Stamp { time_ms: now.wall_ms, address: &address };
        let mut encoded = Vec::new();
        ranges::encode_ids(gone.iter().copied(), &mut encoded);
        let removed = Op::Removed { stamp: Some(stamp), cause: cause::CONSUMED, ranges: &encoded };
        let cause = cause::CONSUMED;
        let ended = Op::ConsumerRemoved(ConsumerRemoved { stamp, consumer: NO_CONSUMER, cause });
        let both = [(index, &removed), (index, &ended)];
        let unit = &both[usize::from(gone.is_empty())..2 - usize::from(more)];
        if !unit.is_empty() {
            self.log.reserve(space_for_unit(unit), Space::Reclaim, now.wall_ms)?;
            self.append_unit(unit);
        }
        for &msg_id in &gone {
            self.state.remove_message(index, msg_id);
        }
        match self.state.sweep_mut(index) {
            Some(sweep) if more => sweep.next = next,
            _ => self.state.end_sweep(index),
        }
        Ok(more)
    }

    /// The mailbox of a stream was captured for a checkpoint, which does not hold that a look is under way.
    pub(super) fn note_sweep(&mut self, index: SlotIx) {
        if self.is_follower() || self.log.stands_still() {
            return;
        }
        let (address, time_ms) = (self.address_of(index), self.state.timers.wall.now());
        let (stamp, cause) = (Stamp { time_ms, address: &address }, cause::DELETED);
        let begun = Op::ConsumerRemoved(ConsumerRemoved { stamp, consumer: NO_CONSUMER, cause });
        // A checkpoint without it is better than none: it makes space.
        if self.log.reserve(space_for(&[&begun]), Space::Reclaim, time_ms).is_ok() {
            self.append(index, 0, &begun);
        }
    }
}

impl State {
    /// A consumer of a stream was removed or wants others: what nobody wants any more is looked for, from the first
    /// message on.
    pub(super) fn begin_sweep(&mut self, index: SlotIx) {
        let Some(slot) = self.slot_mut(index) else { return };
        if !slot.mailbox.policy().interest {
            return;
        }
        let (mailbox, consumers) = slot.with_consumers();
        let timed = consumers.sweep.is_some_and(|sweep| sweep.timed);
        consumers.sweep = Some(Sweep { next: 0, end: mailbox.next_id, timed });
    }

    /// All was looked at.
    pub(super) fn end_sweep(&mut self, index: SlotIx) {
        if let Some(consumers) = self.slot_mut(index).and_then(|slot| slot.consumers_mut()) {
            consumers.sweep = None;
        }
    }

    fn sweep_mut(&mut self, index: SlotIx) -> Option<&mut Sweep> {
        self.slot_mut(index)?.consumers_mut()?.sweep.as_mut()
    }

    /// A look that was under way before a recovery goes on then.
    pub(super) fn time_sweep_anew(&mut self, index: SlotIx, at_ms: u64) {
        if let Some(sweep) = self.sweep_mut(index) {
            sweep.timed = false;
        }
        self.time_sweep(index, at_ms);
    }

    /// A look that is under way goes on then.
    pub(super) fn time_sweep(&mut self, index: SlotIx, at_ms: u64) {
        let Some(sweep) = self.sweep_mut(index) else { return };
        if std::mem::replace(&mut sweep.timed, true) {
            return;
        }
        let number = self.number(index);
        let timer = Timer { number, id: 0, slot: index, purpose: Purpose::Unwanted };
        self.timers.mono.insert(at_ms, timer);
    }
}
