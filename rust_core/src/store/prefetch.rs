//! Sending many messages, to any mailboxes: memory is read for all of them at once.
//!
//! A mailbox that has not been used for a while is in main memory, in several places each of which says where
//! the next is. One command after the other waits for each of them. Here the first place of some dozens of mailboxes
//! is read, then the second of all: reads that do not depend on each other overlap in the processor.

use std::hint::black_box;

use super::indexes::SlotIx;
use super::slot::Slot;
use super::{Send, Store};
use crate::error::Result;
use crate::mailbox::Mailbox;
use crate::time::Now;

/// Mailboxes at once: what is read of them fits the nearest cache.
const AT_ONCE: usize = 32;

impl Store {
    /// Stores messages in order, as [`Store::send`] does one; each has an outcome of its own.
    pub fn send_many(
        &mut self,
        messages: &[(&str, Send<'_>)],
        now: Now,
    ) -> Vec<Result<Option<u64>>> {
        self.tick(now);
        let mut outcomes = Vec::with_capacity(messages.len());
        for some in messages.chunks(AT_ONCE) {
            let likely = self.read_ahead(some);
            for ((address, send), likely) in some.iter().zip(likely) {
                outcomes.push(self.send_now(address, likely, send, now));
            }
        }
        outcomes
    }

    /// The slot that an address most likely has, with all that a message to it needs in the processor's cache.
    #[inline]
    pub(super) fn likely(&self, address: &str) -> Option<SlotIx> {
        let likely = self.state.likely_slot(self.state.hash(address))?;
        let mailbox = &self.state.slot(likely)?.mailbox;
        black_box(mailbox.read() ^ mailbox.read_parts());
        Some(likely)
    }

    /// Has the mailboxes in the processor's cache; returns the slots that they most likely have.
    fn read_ahead(&self, messages: &[(&str, Send<'_>)]) -> [Option<SlotIx>; AT_ONCE] {
        let mut hashes = [0; AT_ONCE];
        for (hash, (address, _)) in hashes.iter_mut().zip(messages) {
            *hash = self.state.hash(address);
        }
        let mut likely = [None; AT_ONCE];
        for (slot, hash) in likely.iter_mut().zip(&hashes[..messages.len()]) {
            *slot = self.state.likely_slot(*hash);
        }
        let mut slots: [Option<&Slot>; AT_ONCE] = [None; AT_ONCE];
        for (slot, likely) in slots.iter_mut().zip(likely) {
            *slot = likely.and_then(|index| self.state.slot(index));
        }
        read(&slots, Mailbox::read);
        read(&slots, Mailbox::read_parts);
        likely
    }
}

/// Reads one place of every mailbox. What is read means nothing.
#[inline]
fn read(slots: &[Option<&Slot>], place: impl Fn(&Mailbox) -> u64) {
    black_box(slots.iter().flatten().fold(0, |sum, slot| sum ^ place(&slot.mailbox)));
}
