//! Sending with an id: the same id again, within the mailbox's window, is the same send.

use smallvec::SmallVec;

use super::indexes::SlotIx;
use super::state::State;
use super::timers::{Purpose, Timer};
use super::{Send, Store};
use crate::error::{Error, Result};
use crate::mailbox::SentIds;
use crate::time::Now;
use crate::wire::mailbox_ops::SentOnce;
use crate::wire::op::Op;

/// The longest id, in bytes.
pub const MAX_SEND_ID: usize = 255;

/// Most ids that are forgotten at once, so that nobody waits for it.
const AT_ONCE: usize = 1024;

/// Ids are forgotten together, not each at its own time.
const TOGETHER_MS: u64 = 1000;

/// What a send with an id is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Once {
    /// The `msg_id`, or `None` if the message was delayed when it was sent.
    pub msg_id: Option<u64>,
    /// It had been sent before: nothing was stored.
    pub duplicate: bool,
}

impl Store {
    /// Stores a message unless one with this id was stored within the window of the mailbox. That it was is recorded
    /// in one unit with the message, so that a crash loses both or none.
    pub fn send_once(
        &mut self,
        address: &str,
        id: &str,
        send: &Send<'_>,
        now: Now,
    ) -> Result<Once> {
        self.tick(now);
        self.send_once_with(address, id, send, &[], now)
    }

    /// The same when what is due has been done, in one unit with `records`. Carrying out what they say is left to the
    /// caller.
    pub(super) fn send_once_with(
        &mut self,
        address: &str,
        id: &str,
        send: &Send<'_>,
        records: &[(SlotIx, &Op<'_>)],
        now: Now,
    ) -> Result<Once> {
        let index = self.lookup(address, now)?;
        if id.is_empty() || id.len() > MAX_SEND_ID {
            let problem = format!("it has {} bytes: 1 to {MAX_SEND_ID} are allowed", id.len());
            return Err(Error::InvalidField { field: "id", problem });
        }
        if let Some(msg_id) = self.state.sent_before(index, id, now) {
            return Ok(Once { msg_id, duplicate: true });
        }
        let len = self.check_message(index, send, now)?;
        self.check_bytes(index, send, len, SentIds::bytes_of(id))?;
        let next_id = self.state.slot(index).map(|slot| slot.mailbox.next_id);
        let msg_id = next_id.filter(|_| send.delay_ms == 0);
        let op = Op::SentOnce(SentOnce { sent_ms: now.wall_ms, msg_id, id });
        let mut with: SmallVec<[(SlotIx, &Op<'_>); 3]> = SmallVec::new();
        // What is in memory only is lost with the process, and may be sent again then.
        with.extend((!self.state.in_memory(index)).then_some((index, &op)));
        with.extend_from_slice(records);
        let sent = self.send_to(index, address, send, &with, now)?;
        debug_assert_eq!(sent, msg_id, "what the record says");
        self.state.note_sent(index, id, now.wall_ms, sent);
        Ok(Once { msg_id: sent, duplicate: false })
    }
}

impl State {
    /// What a send with this id was answered with within the window of the mailbox.
    pub(super) fn sent_before(&self, index: SlotIx, id: &str, now: Now) -> Option<Option<u64>> {
        let mailbox = &self.slot(index)?.mailbox;
        let sent = mailbox.extras()?.sent_ids.as_ref()?.get(id)?;
        let until = sent.sent_ms.saturating_add(mailbox.policy().dedup_window());
        (now.wall_ms < until).then_some(sent.msg_id)
    }

    /// A message with an id was stored.
    pub fn note_sent(&mut self, index: SlotIx, id: &str, sent_ms: u64, msg_id: Option<u64>) {
        let Some(slot) = self.slot_mut(index) else { return };
        let owner = slot.owner;
        let sent_ids = slot.mailbox.extras_mut().sent_ids.get_or_insert_default();
        let before = sent_ids.bytes();
        sent_ids.add(id, sent_ms, msg_id);
        let (after, timed) = (sent_ids.bytes(), sent_ids.timer.is_some());
        self.usage.change(owner, before, after);
        if !timed {
            self.time_sent_ids(index, 0);
        }
    }

    /// Forgets ids that were sent before the window of the mailbox began.
    pub fn forget_sent_ids(&mut self, index: SlotIx, now: Now) {
        let Some(slot) = self.slot_mut(index) else { return };
        let window = slot.mailbox.policy().dedup_window();
        let owner = slot.owner;
        let extras = slot.mailbox.extras_mut();
        let Some(sent_ids) = &mut extras.sent_ids else { return };
        // Those of this very millisecond count no more.
        let begin = (now.wall_ms + 1).saturating_sub(window);
        let before = sent_ids.bytes();
        sent_ids.timer = None;
        sent_ids.forget_before(begin, AT_ONCE);
        let (after, oldest) = (sent_ids.bytes(), sent_ids.oldest().map(|oldest| oldest.sent_ms));
        if oldest.is_none() {
            extras.sent_ids = None;
        }
        self.usage.change(owner, before, after);
        match oldest {
            None => {}
            Some(oldest) if oldest < begin => self.time_sent_ids(index, now.wall_ms),
            Some(_) => self.time_sent_ids(index, now.wall_ms + TOGETHER_MS),
        }
    }

    /// The same without the timer, on nodes whose timers rest.
    pub fn forget_sent_ids_now(&mut self, index: SlotIx, now: Now) {
        let sent_ids = self.slot_mut(index).and_then(|slot| slot.mailbox.sent_ids_mut());
        if let Some(timer) = sent_ids.and_then(|sent_ids| sent_ids.timer.take()) {
            self.timers.wall.cancel(timer);
        }
        self.forget_sent_ids(index, now);
    }

    /// The window of a mailbox has changed: ids that are out of it go from now on.
    pub fn retime_sent_ids(&mut self, index: SlotIx) {
        let sent_ids = self.slot_mut(index).and_then(|slot| slot.mailbox.sent_ids_mut());
        if let Some(timer) = sent_ids.and_then(|sent_ids| sent_ids.timer.take()) {
            self.timers.wall.cancel(timer);
        }
        self.time_sent_ids(index, 0);
    }

    /// Sets the timer that forgets the oldest id, not before `earliest`.
    fn time_sent_ids(&mut self, index: SlotIx, earliest: u64) {
        let Some(mailbox) = self.slot(index).map(|slot| &slot.mailbox) else { return };
        let sent_ids = mailbox.extras().and_then(|extras| extras.sent_ids.as_ref());
        let Some(oldest) = sent_ids.and_then(|ids| ids.oldest()) else { return };
        let due = oldest.sent_ms.saturating_add(mailbox.policy().dedup_window()).max(earliest);
        let number = mailbox.number;
        let timer = Timer { number, id: 0, slot: index, purpose: Purpose::SentIds };
        let timer = self.timers.wall.insert(due, timer);
        if let Some(sent_ids) = self.slot_mut(index).and_then(|slot| slot.mailbox.sent_ids_mut()) {
            debug_assert!(sent_ids.timer.is_none(), "one timer for the ids of a mailbox");
            sent_ids.timer = Some(timer);
        }
    }
}
