//! What happens by itself as time passes: expiry, delayed messages, ended leases, waits.

use super::damage::{Damage, DamageKind};
use super::state::Place;
use super::timers::{Purpose, Timer};
use super::{Store, space_for, space_for_unit};
use crate::error::Result;
use crate::log::{Log, Lsn, ReadError, Space};
use crate::mailbox::Delayed;
use crate::time::Now;
use crate::wire::op::{Message, Op};

/// Most deadlines handled at once, so that a hundred thousand expiries do not stall a client.
const AT_ONCE: usize = 1024;

/// How long a delayed message that could not be logged waits for the next try.
const RETRY_MS: u64 = 1000;

impl Store {
    /// Does what is due. Every command does this first; the event loop does it when
    /// [`Store::sleep_ms`] has passed. True if more is due already.
    pub fn tick(&mut self, now: Now) -> bool {
        let mut due = Vec::new();
        let more = self.state.timers.advance(now, AT_ONCE, &mut due);
        for timer in due {
            if self.state.slot_of(timer.slot, timer.number).is_some() {
                self.on_due(timer, now);
            }
        }
        let graves = self.state.settle_graves(AT_ONCE);
        more || graves
    }

    /// How long nothing will be due.
    pub fn sleep_ms(&self, now: Now) -> Option<u64> {
        self.state.timers.sleep_ms(now)
    }

    fn on_due(&mut self, timer: Timer, now: Now) {
        match timer.purpose {
            Purpose::Mailbox => self.expire_mailbox(timer.slot, now),
            Purpose::Message => {
                self.state.remove_message(timer.slot, timer.id);
                self.mark_ready(timer.slot);
            }
            Purpose::Delay => self.on_delay_due(timer, now),
            Purpose::Lease => self.on_lease_ended(timer, now),
            Purpose::Wait => self.end_wait(timer.id),
        }
    }

    fn expire_mailbox(&mut self, index: u32, now: Now) {
        let op = Op::MailboxRemoved;
        // Without space the expiry goes unrecorded; the next open finds it expired again.
        if self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms).is_ok() {
            self.append(index, 0, &op);
        }
        self.drop_mailbox(index);
    }

    fn on_delay_due(&mut self, timer: Timer, now: Now) {
        let (index, delay_id) = (timer.slot, timer.id);
        let slot = self.state.slot(index);
        let delayed = slot.and_then(|s| s.mailbox.sideline()?.delayed.get(&delay_id));
        let Some(expires_ms) = delayed.map(|delayed| delayed.expires_ms) else { return };
        if expires_ms != 0 && now.wall_ms >= expires_ms {
            self.state.end_delay(index, delay_id);
        } else if self.publish(index, delay_id, now).is_err() {
            let retry = now.wall_ms.saturating_add(RETRY_MS);
            let key = self.state.timers.wall.insert(retry, timer);
            if let Some(slot) = self.state.slot_mut(index)
                && let Some(delayed) = slot.mailbox.sideline_mut().delayed.get_mut(&delay_id)
            {
                delayed.timer = key;
            }
        }
    }

    /// A delayed message gets its `msg_id` and enters its lane.
    fn publish(&mut self, index: u32, delay_id: u64, now: Now) -> Result<()> {
        let Some(body) = self.read_delayed(index, delay_id)? else { return Ok(()) };
        let Some(stored) = Message::decode(&body) else { return Ok(()) };
        let msg_id = self.state.slot(index).map_or(0, |slot| slot.mailbox.next_id);
        let message = Message { msg_id, create_ms: now.wall_ms, ..stored };
        if self.state.in_memory(index) {
            self.reserve_memory_ids(index, msg_id, now)?;
            let len = Log::record_len(message.encoded_len()) as u32;
            self.state.end_delay(index, delay_id);
            self.state.put_message(index, &message, Place { at: Lsn::NONE, len });
        } else {
            let (stored, ended) = (Op::Message(message), Op::DelayEnded { delay_id });
            let unit = [(index, &stored), (index, &ended)];
            self.log.reserve(space_for_unit(&unit), Space::Reclaim, now.wall_ms)?;
            let placed = self.append_unit(&unit);
            self.state.end_delay(index, delay_id);
            if let Some(placed) = placed {
                self.state.put_message(index, &message, placed.into());
            }
        }
        self.mark_ready(index);
        Ok(())
    }

    /// The encoded body of a delayed message. One that is damaged is reported and taken out.
    fn read_delayed(&mut self, index: u32, delay_id: u64) -> Result<Option<Vec<u8>>> {
        let Some(slot) = self.state.slot(index) else { return Ok(None) };
        let Some(sideline) = slot.mailbox.sideline() else { return Ok(None) };
        if let Some(body) = sideline.memory_delayed.get(&delay_id) {
            return Ok(Some(body.to_vec()));
        }
        let Some(&Delayed { at, len, .. }) = sideline.delayed.get(&delay_id) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        match self.log.read(at, len, &mut bytes) {
            Ok(record) => Ok(Some(record.body.to_vec())),
            Err(ReadError::Failed(e)) => Err(e),
            Err(ReadError::Damaged) => {
                let damage = Damage::at(at, u64::from(len), DamageKind::Record);
                self.report(damage, &bytes);
                self.state.end_delay(index, delay_id);
                Ok(None)
            }
        }
    }

    fn on_lease_ended(&mut self, timer: Timer, now: Now) {
        let (index, at) = (timer.slot, timer.id as usize);
        let Some(slot) = self.state.slot_mut(index) else { return };
        let max_deliver = slot.mailbox.policy().max_deliver;
        let Some(group) = slot.groups_mut().get_mut(at) else { return };
        group.timer = None;
        let returned = group.group.expire_leases(now.mono_ms);
        if returned > 0 {
            if max_deliver > 0 {
                self.bury_exhausted(index, at, max_deliver, now);
            }
            self.mark_ready(index);
        }
        self.state.arm_leases(index, at);
    }
}
