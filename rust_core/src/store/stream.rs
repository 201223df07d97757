//! Streams: a stream is a mailbox that clients cannot name, with the subjects of its messages.

use super::indexes::SlotIx;
use super::update::SURPLUS_AT_ONCE;
use super::{Changes, NewMailbox, Store};
use crate::error::{Error, Result};
use crate::mailbox::{Policy, STREAM_PREFIX};
use crate::time::Now;

/// The longest configuration of a stream or consumer, in bytes.
pub const MAX_CONFIG: usize = 60_000;

/// A stream while the store is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(super) slot: SlotIx,
    pub(super) number: u64,
}

/// A stream to be created.
#[derive(Debug, Clone, Default)]
pub struct NewStream<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its configuration as its creator said it.
    pub config: &'a str,
    /// How it behaves, and who created it; its name is put in.
    pub policy: Policy,
}

impl Store {
    /// The stream of this name.
    pub fn find_stream(&self, name: &str) -> Option<StreamKey> {
        let slot = self.state.find_stream(name)?;
        Some(StreamKey { slot, number: self.state.number(slot) })
    }

    /// All streams.
    pub fn streams(&self) -> impl Iterator<Item = (&str, StreamKey)> {
        self.state.streams.iter().map(|(name, slot)| {
            (&**name, StreamKey { slot: *slot, number: self.state.number(*slot) })
        })
    }

    /// The slot of a stream that is still there.
    pub(super) fn stream_slot(&self, key: StreamKey) -> Option<SlotIx> {
        self.state.slot_of(key.slot, key.number).map(|_| key.slot)
    }

    fn stream_address(&self, key: StreamKey) -> Result<String> {
        let slot = self.state.slot_of(key.slot, key.number);
        let missing = || Error::MailboxNotFound(format!("{STREAM_PREFIX}{}", key.number));
        slot.map(|slot| slot.mailbox.address.to_string()).ok_or_else(missing)
    }

    /// Creates a stream; the name must be free.
    pub fn create_stream(&mut self, new: &NewStream<'_>, now: Now) -> Result<StreamKey> {
        self.tick(now);
        debug_assert!(self.find_stream(new.name).is_none(), "a stream of this name is there");
        check_config(new.config)?;
        let address = format!("{STREAM_PREFIX}{}", self.state.next_number);
        let policy = Policy { stream: Some(new.name.into()), ..new.policy.clone() };
        let mailbox = NewMailbox { address: &address, ttl_ms: 0, desc: new.config, policy };
        self.check_mailboxes(&mailbox)?;
        let slot = self.add_mailbox(&mailbox, now)?;
        Ok(StreamKey { slot, number: self.state.number(slot) })
    }

    /// A stream is like this from now on. Its name, and where it began, stay.
    pub fn update_stream(
        &mut self,
        key: StreamKey,
        config: &str,
        policy: Policy,
        now: Now,
    ) -> Result<()> {
        check_config(config)?;
        let address = self.stream_address(key)?;
        let changes = Changes { ttl_ms: None, desc: Some(config) };
        let change = |old: &mut Policy| {
            let (stream, owner, first_id) = (old.stream.take(), old.owner.take(), old.first_id);
            *old = Policy { stream, owner, first_id, ..policy };
        };
        self.update_mailbox(&address, changes, change, now)?;
        self.retime_age(key.slot, now);
        Ok(())
    }

    /// Removes a stream with its messages and consumers.
    pub fn remove_stream(&mut self, key: StreamKey, now: Now) -> Result<()> {
        let address = self.stream_address(key)?;
        self.remove_mailbox(&address, now)
    }

    /// Removes a message of a stream; false if it is not there.
    pub fn remove_from_stream(&mut self, key: StreamKey, msg_id: u64, now: Now) -> Result<bool> {
        let address = self.stream_address(key)?;
        match self.delete(&address, msg_id, now) {
            Ok(()) => Ok(true),
            Err(Error::MessageNotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Messages of a stream that are too old go, some at a time.
    pub(super) fn on_age(&mut self, index: SlotIx, now: Now) {
        let Some(slot) = self.state.slot_mut(index) else { return };
        slot.mailbox.extras_mut().age_timer = None;
        let max_age_ms = slot.mailbox.policy().max_age_ms;
        if max_age_ms == 0 {
            return;
        }
        let all = slot.mailbox.iter_from(0).take(SURPLUS_AT_ONCE);
        let over =
            all.take_while(|(_, entry)| entry.create_ms.saturating_add(max_age_ms) <= now.wall_ms);
        let over: Vec<u64> = over.map(|(_, entry)| entry.msg_id).collect();
        if !over.is_empty() {
            self.expire_messages(index, &over, now);
        }
        self.time_oldest(index);
    }

    /// Sets the timer of the oldest message.
    fn time_oldest(&mut self, index: SlotIx) {
        let Some(mailbox) = self.state.slot(index).map(|slot| &slot.mailbox) else { return };
        let (max_age_ms, oldest) = (mailbox.policy().max_age_ms, mailbox.oldest());
        let oldest = oldest.and_then(|msg_id| mailbox.get(msg_id));
        if max_age_ms > 0
            && let Some((_, entry)) = oldest
        {
            self.state.time_age(index, entry.create_ms.saturating_add(max_age_ms));
        }
    }

    fn retime_age(&mut self, index: SlotIx, _now: Now) {
        let Some(slot) = self.state.slot_mut(index) else { return };
        if let Some(timer) = slot.mailbox.take_age_timer() {
            self.state.timers.wall.cancel(timer);
        }
        self.time_oldest(index);
    }
}

/// Refuses a configuration that is too long.
pub(super) fn check_config(config: &str) -> Result<()> {
    if config.len() > MAX_CONFIG {
        let problem = format!("it has {} bytes, at most {MAX_CONFIG} are allowed", config.len());
        return Err(Error::InvalidField { field: "config", problem });
    }
    Ok(())
}
