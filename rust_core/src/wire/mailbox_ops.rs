//! Operations on a mailbox as a whole, between its creation and its end.

use super::bytes::{Put, Reader};
use super::op::MAX_ID;
use super::stamp::Stamp;

/// A mailbox was changed: what it is like from then on, be it changed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updated<'a> {
    /// When and which.
    pub stamp: Stamp<'a>,
    /// When it expires; 0 is never.
    pub expires_ms: u64,
    /// Free text.
    pub desc: &'a str,
    /// Its policy, encoded by the mailbox module.
    pub policy: &'a [u8],
}

impl<'a> Updated<'a> {
    /// An upper bound of the bytes that [`Updated::encode`] will append.
    pub fn max_len(&self) -> usize {
        16 + self.stamp.max_len() + self.desc.len() + self.policy.len()
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        out.put_u64(self.expires_ms);
        out.put_medium(self.desc.as_bytes());
        out.put_medium(self.policy);
    }

    /// Reads what [`Updated::encode`] wrote.
    pub fn decode(from: &mut Reader<'a>) -> Option<Updated<'a>> {
        let (stamp, expires_ms) = (Stamp::decode(from)?, from.u64()?);
        Some(Updated { stamp, expires_ms, desc: from.medium_str()?, policy: from.medium()? })
    }
}

/// All messages of a mailbox went at once, delayed ones too. Later ones have other numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged<'a> {
    /// When and which.
    pub stamp: Stamp<'a>,
    /// The `msg_id` of the next message at that time.
    pub next_id: u64,
    /// The delay number of the next delayed message at that time.
    pub next_delay: u64,
}

impl<'a> Purged<'a> {
    /// An upper bound of the bytes that [`Purged::encode`] will append.
    pub fn max_len(&self) -> usize {
        16 + self.stamp.max_len()
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        out.put_u64(self.next_id);
        out.put_u64(self.next_delay);
    }

    /// Reads what [`Purged::encode`] wrote.
    pub fn decode(from: &mut Reader<'a>) -> Option<Purged<'a>> {
        let (stamp, next_id, next_delay) = (Stamp::decode(from)?, from.u64()?, from.u64()?);
        (next_id < MAX_ID && next_delay < MAX_ID).then_some(Purged { stamp, next_id, next_delay })
    }
}

/// A message was sent with an id: the same id again is the same send, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentOnce<'a> {
    /// Wall time of the send.
    pub sent_ms: u64,
    /// The `msg_id` it was answered with; none if the message was delayed.
    pub msg_id: Option<u64>,
    /// The id.
    pub id: &'a str,
}

/// Stands for no `msg_id`.
const NO_ID: u64 = u64::MAX;

impl<'a> SentOnce<'a> {
    /// An upper bound of the bytes that [`SentOnce::encode`] will append.
    pub fn max_len(&self) -> usize {
        17 + self.id.len()
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.sent_ms);
        out.put_u64(self.msg_id.unwrap_or(NO_ID));
        out.put_short(self.id.as_bytes());
    }

    /// Takes one off the front.
    pub fn decode(from: &mut Reader<'a>) -> Option<SentOnce<'a>> {
        let (sent_ms, msg_id, id) = (from.u64()?, from.u64()?, from.short_str()?);
        let msg_id = (msg_id != NO_ID).then_some(msg_id);
        let sane = !id.is_empty() && msg_id.is_none_or(|msg_id| msg_id < MAX_ID);
        sane.then_some(SentOnce { sent_ms, msg_id, id })
    }
}
