//! Mailboxes that somebody reads as messages come: which of them have something new, and which have gone.
//!
//! Owns the list of watched mailboxes. Must not know who reads, nor how far: that is the caller's.

use hashbrown::{HashMap, HashSet};

use super::Store;
use super::indexes::SlotIx;
use crate::error::Result;
use crate::mailbox::Level;
use crate::time::Now;

type Hash = foldhash::fast::RandomState;

/// A mailbox that is watched, by its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailboxRef {
    /// Its slot.
    pub slot: SlotIx,
    /// Its number, which no other mailbox will ever have.
    pub number: u64,
}

/// What became of watched mailboxes.
#[derive(Debug, Default)]
pub struct News {
    /// Something may have become available in these.
    pub woken: Vec<MailboxRef>,
    /// These have gone, and are watched no more. Another mailbox may be in the slot by now.
    pub gone: Vec<MailboxRef>,
}

/// Which mailboxes are watched, and what became of them.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// By slot, with the number of the mailbox.
    watched: HashMap<SlotIx, u64, Hash>,
    woken: HashSet<SlotIx, Hash>,
    gone: Vec<MailboxRef>,
}

impl Readers {
    /// How many mailboxes are watched.
    #[inline]
    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// Something may have become available.
    pub fn wake(&mut self, slot: SlotIx) {
        if self.watched.contains_key(&slot) {
            self.woken.insert(slot);
        }
    }

    /// The mailbox goes.
    pub fn lose(&mut self, slot: SlotIx) {
        if let Some(number) = self.watched.remove(&slot) {
            self.woken.remove(&slot);
            self.gone.push(MailboxRef { slot, number });
        }
    }

    /// Panics unless watched mailboxes are there. For tests.
    pub fn check_invariants(&self, state: &super::state::State) {
        for (&slot, &number) in &self.watched {
            assert!(state.slot_of(slot, number).is_some(), "watched mailbox {number} has gone");
        }
        assert!(self.woken.iter().all(|slot| self.watched.contains_key(slot)), "news of no use");
    }
}

impl Store {
    /// Watches a mailbox: [`Store::take_news`] tells of it until it goes or [`Store::unwatch`] is called.
    pub fn watch(&mut self, address: &str, now: Now) -> Result<MailboxRef> {
        self.tick(now);
        let slot = self.lookup(address, now)?;
        let number = self.state.number(slot);
        self.readers.watched.insert(slot, number);
        Ok(MailboxRef { slot, number })
    }

    /// Tells of a mailbox no more.
    pub fn unwatch(&mut self, watched: MailboxRef) {
        if self.readers.watched.get(&watched.slot) == Some(&watched.number) {
            self.readers.watched.remove(&watched.slot);
            self.readers.woken.remove(&watched.slot);
        }
    }

    /// Whether a mailbox is watched.
    pub fn is_watched(&self, watched: MailboxRef) -> bool {
        self.readers.watched.get(&watched.slot) == Some(&watched.number)
    }

    /// The first message of a level in the mailbox of a slot, from this `msg_id` on.
    pub fn next_message(&self, slot: SlotIx, level: Level, from: u64) -> Option<u64> {
        let lanes = self.state.slot(slot)?.mailbox.lanes();
        let (_, lane) = lanes.iter().find(|(of, _)| *of == level)?;
        lane.iter_from(from).next().map(|entry| entry.msg_id)
    }

    /// Whether [`Store::take_news`] has something to tell.
    pub fn has_news(&self) -> bool {
        !self.readers.woken.is_empty() || !self.readers.gone.is_empty()
    }

    /// What became of watched mailboxes since this was last asked.
    pub fn take_news(&mut self) -> News {
        let Readers { watched, woken, .. } = &mut self.readers;
        let number = |slot: SlotIx| Some(MailboxRef { slot, number: *watched.get(&slot)? });
        let woken = woken.drain().filter_map(number).collect();
        News { woken, gone: std::mem::take(&mut self.readers.gone) }
    }

    /// Whether a mailbox of this address exists.
    pub fn exists(&self, address: &str, now: Now) -> bool {
        self.lookup(address, now).is_ok()
    }
}
