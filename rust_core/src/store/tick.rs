//! Effects of time alone: expiry, delayed messages, ended leases, waits.

use super::damage::{Damage, DamageKind};
use super::indexes::{GroupIx, SlotIx};
use super::publish::is_full_for;
use super::state::Place;
use super::timers::{Purpose, Timer};
use super::update::SURPLUS_AT_ONCE;
use super::{Store, space_for, space_for_unit};
use crate::error::{Error, Result};
use crate::group::ranges;
use crate::log::{Log, Lsn, ReadError, Space};
use crate::mailbox::Delayed;
use crate::time::Now;
use crate::wire::op::{Message, Op, kind};
use crate::wire::stamp::{Stamp, cause};

/// Most deadlines handled at once, so that a hundred thousand expiries do not stall a client.
const AT_ONCE: usize = 1024;

/// Most expired messages that one record names: it fits the smallest segment.
const IN_A_RECORD: usize = 256;

/// Most mailboxes that let surplus messages go at once.
const TRIMMED_AT_ONCE: usize = 4;

/// How long a delayed message that could not be logged waits for the next try.
const RETRY_MS: u64 = 1000;

impl Store {
    /// Does what is due. Every command does this first; the event loop does it when
    /// [`Store::sleep_ms`] has passed. True if more is due already.
    pub fn tick(&mut self, now: Now) -> bool {
        if self.is_follower() || self.log.stands_still() {
            // Only a leader decides, and what it decides must go to the others. What was removed before is counted out
            // all the same.
            return self.state.count_out_removed(AT_ONCE);
        }
        let mut due = Vec::new();
        let more = self.state.timers.advance(now, AT_ONCE, &mut due);
        if !due.is_empty() {
            self.expire_due(&due, now);
        }
        let mut trimmed = 0;
        for timer in due {
            if self.state.slot_of(timer.slot, timer.number).is_none() {
                continue;
            }
            let is_long = matches!(timer.purpose, Purpose::Surplus | Purpose::Unwanted);
            trimmed += usize::from(is_long);
            if is_long && trimmed > TRIMMED_AT_ONCE {
                self.state.timers.mono.insert(now.mono_ms, timer);
            } else {
                self.on_due(timer, now);
            }
        }
        let removed_slots = self.state.count_out_removed(AT_ONCE);
        more || removed_slots
    }

    /// How long nothing will be due.
    pub fn sleep_ms(&self, now: Now) -> Option<u64> {
        // What is due then waits for the stream, which says when it moves.
        let least = if self.log.stands_still() { RETRY_MS } else { 0 };
        self.state.timers.sleep_ms(now).map(|ms| ms.max(least))
    }

    fn on_due(&mut self, timer: Timer, now: Now) {
        match timer.purpose {
            Purpose::Mailbox => self.expire_mailbox(timer.slot, now),
            // Done with the others of its mailbox.
            Purpose::Message => {}
            Purpose::Delay => self.on_delay_due(timer, now),
            Purpose::SentIds => self.state.forget_sent_ids(timer.slot, now),
            Purpose::Lease => self.on_lease_ended(timer, now),
            Purpose::Idle => self.on_idle(timer, now),
            Purpose::Surplus => self.on_surplus(timer.slot, now),
            Purpose::Wait => self.end_wait(timer.id, now),
            Purpose::Age => self.on_age(timer.slot, now),
            Purpose::Consumer => self.on_consumer_due(timer, now),
            Purpose::ConsumerIdle => self.on_consumer_idle(timer, now),
            Purpose::Unwanted => self.on_unwanted(timer.slot, now),
        }
    }

    /// Messages of one mailbox whose time is over go together, in few records.
    fn expire_due(&mut self, due: &[Timer], now: Now) {
        let over = due.iter().filter(|timer| {
            // What a purge took has its timer until it is counted out.
            let slot = || self.state.slot_of(timer.slot, timer.number);
            timer.purpose == Purpose::Message
                && slot().is_some_and(|slot| slot.mailbox.get(timer.id).is_some())
        });
        let mut over: Vec<(SlotIx, u64)> = over.map(|timer| (timer.slot, timer.id)).collect();
        over.sort_unstable();
        for of_one in over.chunk_by(|a, b| a.0 == b.0) {
            let msg_ids: Vec<u64> = of_one.iter().map(|(_, msg_id)| *msg_id).collect();
            let index = of_one[0].0;
            self.expire_messages(index, &msg_ids, now);
            self.mark_ready(index);
        }
    }

    /// Messages go because their time is over. It is recorded, so that they stay away though the clock be set
    /// back; without space it is not, and the next open finds them expired again.
    pub(super) fn expire_messages(&mut self, index: SlotIx, msg_ids: &[u64], now: Now) {
        let slot = self.state.slot(index).filter(|_| !self.state.in_memory(index));
        if let Some(address) = slot.map(|slot| slot.mailbox.address.clone()) {
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
            let mut ranges = Vec::new();
            for some in msg_ids.chunks(IN_A_RECORD) {
                ranges.clear();
                ranges::encode_ids(some.iter().copied(), &mut ranges);
                let op = Op::Removed { stamp, cause: cause::EXPIRED, ranges: &ranges };
                // Half of the reserve is left to acknowledgements.
                if self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms).is_ok() {
                    self.append(index, 0, &op);
                }
            }
        }
        for &msg_id in msg_ids {
            self.state.remove_message(index, msg_id);
        }
    }

    pub(super) fn expire_mailbox(&mut self, index: SlotIx, now: Now) {
        let slot = self.state.in_use(index);
        let address = slot.mailbox.address.clone();
        let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
        let op = Op::MailboxRemoved { stamp, cause: cause::EXPIRED };
        // Without space the expiry goes unrecorded; the next open finds it expired again.
        if self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms).is_ok() {
            self.append(index, 0, &op);
        }
        self.drop_mailbox(index);
    }

    fn on_delay_due(&mut self, timer: Timer, now: Now) {
        let (index, delay_id) = (timer.slot, timer.id);
        let slot = self.state.slot(index);
        let delayed = slot.and_then(|s| s.mailbox.extras()?.delayed.get(delay_id));
        let Some(expires_ms) = delayed.map(|delayed| delayed.expires_ms) else { return };
        if expires_ms != 0 && now.wall_ms >= expires_ms {
            self.drop_delayed(index, delay_id, now);
        } else if self.publish(index, delay_id, now).is_err() {
            let retry = now.wall_ms.saturating_add(RETRY_MS);
            let key = self.state.timers.wall.insert(retry, timer);
            if let Some(slot) = self.state.slot_mut(index)
                && let Some(delayed) = slot.mailbox.extras_mut().delayed.get_mut(delay_id)
            {
                delayed.timer = key;
            }
        }
    }

    /// A delayed message goes because its time was over before it was due.
    fn drop_delayed(&mut self, index: SlotIx, delay_id: u64, now: Now) {
        let op = Op::DelayEnded { delay_id };
        if !self.state.in_memory(index)
            && self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms).is_ok()
        {
            self.append(index, 0, &op);
        }
        self.state.end_delay(index, delay_id);
    }

    /// A delayed message gets its `msg_id` and enters its lane.
    fn publish(&mut self, index: SlotIx, delay_id: u64, now: Now) -> Result<()> {
        if let Some(slot) = self.state.slot(index)
            && slot.mailbox.is_stream()
            && let Some(delayed) = slot.mailbox.extras().and_then(|of| of.delayed.get(delay_id))
            && is_full_for(&slot.mailbox, delayed.len)
        {
            return Err(self.full(index));
        }
        let Some(body) = self.read_delayed(index, delay_id)? else { return Ok(()) };
        // It is tried again: passed over, it would stay for ever.
        let stored = Message::decode(&body).ok_or(Error::Internal("a delayed message is none"))?;
        if self.state.slot(index).is_some_and(|slot| slot.mailbox.is_stream()) {
            return self.enter_stream(index, delay_id, &stored, now);
        }
        let msg_id = self.state.slot(index).map_or(0, |slot| slot.mailbox.next_id);
        let message = Message { msg_id, create_ms: now.wall_ms, ..stored };
        if self.is_delayed_in_memory(index, delay_id) {
            self.reserve_memory_ids(index, msg_id, now)?;
            let replaces = !self.replaced_by(index, message.key).is_empty();
            if replaces && !self.state.in_memory(index) {
                self.append_removals(index, &[], message.key, now)?;
            }
            let len = Log::record_len(message.encoded_len()) as u32;
            self.state.end_delay(index, delay_id);
            self.state.put_message(index, &message, Place { at: Lsn::NONE, len });
        } else {
            let (stored, ended) = (Op::Message(message), Op::DelayEnded { delay_id });
            let ranges = self.replaced_by(index, message.key);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: message.address });
            let removed = Op::Removed { stamp, cause: cause::REPLACED, ranges: &ranges };
            let all = [(index, &stored), (index, &ended), (index, &removed)];
            let unit = if ranges.is_empty() { &all[..2] } else { &all[..] };
            self.log.reserve(space_for_unit(unit), Space::Reclaim, now.wall_ms)?;
            let placed = self.append_unit(unit);
            self.state.end_delay(index, delay_id);
            if let Some(placed) = placed {
                self.state.put_message(index, &message, placed.into());
            }
        }
        self.mark_ready(index);
        Ok(())
    }

    /// Whether a delayed message has no record.
    fn is_delayed_in_memory(&self, index: SlotIx, delay_id: u64) -> bool {
        let extras = self.state.slot(index).and_then(|slot| slot.mailbox.extras());
        let delayed = extras.and_then(|extras| extras.delayed.get(delay_id));
        delayed.is_some_and(|delayed| delayed.at == Lsn::NONE)
    }

    /// The encoded body of a delayed message. One that is damaged is reported and taken out.
    pub(super) fn read_delayed(&mut self, index: SlotIx, delay_id: u64) -> Result<Option<Vec<u8>>> {
        let slot = self.state.in_use(index);
        let Some(extras) = slot.mailbox.extras() else { return Ok(None) };
        if let Some(body) = extras.memory_delayed.get(&delay_id) {
            return Ok(Some(body.to_vec()));
        }
        let Some(&Delayed { at, len, .. }) = extras.delayed.get(delay_id) else {
            return Ok(None);
        };
        let (number, mut bytes) = (slot.mailbox.number, Vec::new());
        let read = self.log.read(at, len, &mut bytes).map(|record| {
            // Another record would stand in its way for ever.
            let is_it = record.kind == kind::DELAYED
                && (record.mailbox, record.len()) == (number, len as usize)
                && Message::decode(record.body).is_some_and(|message| message.msg_id == delay_id);
            is_it.then(|| record.body.to_vec())
        });
        match read {
            Ok(Some(body)) => Ok(Some(body)),
            Err(ReadError::Failed(e)) => Err(e),
            Ok(None) | Err(ReadError::Damaged) => {
                let damage = Damage::at(at, u64::from(len), DamageKind::Record);
                self.report(damage, &bytes);
                self.state.end_delay(index, delay_id);
                Ok(None)
            }
        }
    }

    fn on_lease_ended(&mut self, timer: Timer, now: Now) {
        let (index, at) = (timer.slot, GroupIx::from_timer(timer.id));
        if let Some(group) = self.state.slot_mut(index).and_then(|slot| slot.group_mut(at)) {
            group.timer = None;
            self.end_leases(index, at, now);
            self.state.arm_leases(index, at);
        }
    }

    /// Ends the leases of a group whose time is over.
    pub(super) fn end_leases(&mut self, index: SlotIx, at: GroupIx, now: Now) {
        let Some(slot) = self.state.slot_mut(index) else { return };
        let max_deliver = slot.mailbox.policy().max_deliver;
        let Some(group) = slot.group_mut(at) else { return };
        let returned = group.group.expire_leases(now.mono_ms);
        if returned > 0 {
            self.state.journal.touch(index);
            if max_deliver > 0 {
                // However many there are, others do not wait for all of them.
                if self.bury_exhausted(index, at, max_deliver, SURPLUS_AT_ONCE, now).more {
                    self.let_go_at(index, now.mono_ms);
                }
            }
            self.mark_ready(index);
        }
    }
}
