//! Messages of a stream that wait for their time: they have no number yet, and enter the stream when they are due.
//!
//! Owns what of the limits counts for them. When they are due, the clock says.

use super::indexes::SlotIx;
use super::publish::{Beside, make_room};
use super::{NotPublished, Publish, Store, space_for_unit};
use crate::error::{Error, Result};
use crate::group::ranges;
use crate::log::{Log, Space};
use crate::time::Now;
use crate::wire::op::{Message, Op};
use crate::wire::stamp::{Stamp, cause};

impl Store {
    /// A message is stored to enter the stream later. As many may wait as a stream may have, and nothing goes for them.
    pub(super) fn delay_in_stream(
        &mut self,
        index: SlotIx,
        publish: &Publish<'_>,
        beside: &Beside<'_>,
        now: Now,
    ) -> std::result::Result<(), NotPublished> {
        let slot = self.state.slot(index).ok_or(NotPublished::NoStream)?;
        let (mailbox, policy) = (&slot.mailbox, slot.mailbox.policy());
        publish.check_size(policy)?;
        let address = mailbox.address.clone();
        let delay_id = mailbox.extras().map_or(0, |extras| extras.next_delay);
        let message = publish.message(&address, delay_id, now);
        let len = Log::record_len(message.encoded_len()) as u64;
        let waiting = mailbox.extras().map_or(0, |extras| extras.delayed.len() as u64);
        if policy.is_exceeded(waiting + 1, 0) {
            return Err(NotPublished::MaxMessages);
        }
        if policy.is_exceeded(0, mailbox.delayed_bytes() + len) {
            return Err(NotPublished::MaxBytes);
        }
        self.check_more_bytes(index, len + beside.bytes, |_| Ok(0))?;
        let op = Op::Delayed(message);
        let mut unit = vec![(index, &op)];
        unit.extend(beside.records);
        self.log.reserve(space_for_unit(&unit), Space::Store, now.wall_ms)?;
        if let Some(placed) = self.append_unit(&unit) {
            self.state.put_delayed(index, &message, placed.into());
        }
        Ok(())
    }

    /// Why a stream takes no message now.
    pub(super) fn full(&self, index: SlotIx) -> Error {
        let mailbox = self.stream_name(index).to_string();
        Error::MailboxFull { mailbox, limit: "its limits".to_owned() }
    }

    /// A message that is due gets its number. A full stream that refuses messages lets it wait.
    pub(super) fn enter_stream(
        &mut self,
        index: SlotIx,
        delay_id: u64,
        delayed: &Message<'_>,
        now: Now,
    ) -> Result<()> {
        let Some(slot) = self.state.slot(index) else { return Ok(()) };
        let mailbox = &slot.mailbox;
        let msg_id = mailbox.next_id;
        let message = Message { msg_id, create_ms: now.wall_ms, ..*delayed };
        let len = Log::record_len(message.encoded_len()) as u64;
        let mut gone = make_room(mailbox, message.key, len, None).map_err(|_| self.full(index))?;
        let nobody_wants_it = mailbox.policy().interest && !slot.is_of_interest(message.key);
        if nobody_wants_it && gone.last() != Some(&msg_id) {
            gone.push(msg_id);
        }
        let mut encoded = Vec::new();
        ranges::encode_ids(gone.iter().copied(), &mut encoded);
        let stamp = Some(Stamp { time_ms: now.wall_ms, address: message.address });
        let removed = Op::Removed { stamp, cause: cause::EVICTED, ranges: &encoded };
        let (stored, ended) = (Op::Message(message), Op::DelayEnded { delay_id });
        let all = [(index, &stored), (index, &ended), (index, &removed)];
        let unit = if gone.is_empty() { &all[..2] } else { &all[..] };
        self.log.reserve(space_for_unit(unit), Space::Reclaim, now.wall_ms)?;
        let placed = self.append_unit(unit);
        self.state.end_delay(index, delay_id);
        if let Some(placed) = placed {
            self.state.put_message(index, &message, placed.into());
        }
        for msg_id in gone {
            self.state.remove_message(index, msg_id);
        }
        Ok(())
    }
}
