//! A message and a note about it, in one unit: a crash leaves both or none.
//!
//! Owns where the note lies: it is a message of another mailbox and replaces the one before it of the same key. What it
//! says, whoever keeps it knows.

use super::indexes::SlotIx;
use super::state::Place;
use super::stream::StreamKey;
use super::{NotPublished, Once, Publish, Published, Send, Store};
use crate::error::Error;
use crate::log::{Log, Lsn};
use crate::mailbox::Tier;
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};

/// What is noted when a message is stored.
#[derive(Debug, Clone, Copy)]
pub struct Note<'a> {
    /// The mailbox of notes; it is durable, and no message goes there with a note.
    pub address: &'a str,
    /// What it is about.
    pub key: &'a str,
    /// What it says.
    pub text: &'a [u8],
}

impl Store {
    /// Sends a message with an id, and notes it. If the id was sent before, only the note is stored.
    pub fn send_noted(
        &mut self,
        address: &str,
        id: &str,
        send: &Send<'_>,
        note: &Note<'_>,
        now: Now,
    ) -> Result<Once, Error> {
        self.with_note(note, now, |store, with| {
            let once = store.send_once_with(address, id, send, with, now)?;
            Ok((once, once.duplicate))
        })
    }

    /// The same for a message of a stream.
    pub fn publish_noted(
        &mut self,
        key: StreamKey,
        publish: &Publish<'_>,
        note: &Note<'_>,
        now: Now,
    ) -> Result<Published, NotPublished> {
        self.with_note(note, now, |store, with| {
            let published = store.publish_with(key, publish, None, with, now)?;
            Ok((published, published.duplicate))
        })
    }

    /// Stores what `send` stores and the note in one unit. `send` is given the records of the note, to be the last of
    /// its unit, and says whether it stored nothing.
    fn with_note<T, E: From<Error>>(
        &mut self,
        note: &Note<'_>,
        now: Now,
        send: impl FnOnce(&mut Store, &[(SlotIx, &Op<'_>)]) -> Result<(T, bool), E>,
    ) -> Result<T, E> {
        self.tick(now);
        let index = self.lookup(note.address, now)?;
        let text = Send { key: note.key, ..Send::new(note.text) };
        self.check_message(index, &text, now)?;
        let mailbox = &self.state.in_use(index).mailbox;
        let (policy, msg_id) = (mailbox.policy(), mailbox.next_id);
        debug_assert!(policy.tier == Tier::Durable && policy.max_msgs == 0, "notes are kept");
        let address = mailbox.address.clone();
        let message = text.message(&address, msg_id, policy, now);
        let len = Log::record_len(message.encoded_len());
        let replaced = self.replaced_by(index, note.key);
        let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
        let removed = Op::Removed { stamp, cause: cause::REPLACED, ranges: &replaced };
        let op = Op::Message(message);
        let both = [(index, &removed), (index, &op)];
        let (sent, is_nothing) = send(self, &both[usize::from(replaced.is_empty())..])?;
        if is_nothing {
            self.send_to(index, &address, &text, &[], now)?;
            return Ok(sent);
        }
        debug_assert_eq!(self.state.in_use(index).mailbox.next_id, msg_id, "a note on a note");
        let at = Lsn::from_number(self.log.end().number() - len as u64);
        self.state.put_message(index, &message, Place { at, len: len as u32 });
        self.mark_ready(index);
        Ok(sent)
    }
}
