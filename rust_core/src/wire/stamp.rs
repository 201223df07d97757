//! The stamp of a record about messages: when it happened, in which mailbox, and why.
//!
//! Recovery needs none of it. Whoever reads the log for what went on does: a record can be understood alone,
//! though those before it are gone.

use super::bytes::{Put, Reader};

/// When and where something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// Wall time.
    pub time_ms: u64,
    /// Address of the mailbox.
    pub address: &'a str,
}

impl<'a> Stamp<'a> {
    /// An upper bound of the bytes that [`Stamp::encode`] will append.
    pub fn max_len(&self) -> usize {
        16 + self.address.len()
    }

    /// Appends the stamp.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.time_ms);
        out.put_short(self.address.as_bytes());
    }

    /// Takes a stamp off the front.
    pub fn decode(from: &mut Reader<'a>) -> Option<Stamp<'a>> {
        Some(Stamp { time_ms: from.u64()?, address: from.short_str()? })
    }
}

/// Why messages or a mailbox went away. No effect depends on it: a cause that is not listed is no error.
pub mod cause {
    /// Nothing is said.
    pub const UNKNOWN: u8 = 0;
    /// Somebody asked for it.
    pub const DELETED: u8 = 1;
    /// A limit of the mailbox was met.
    pub const EVICTED: u8 = 2;
    /// A work queue was told that it is done.
    pub const CONSUMED: u8 = 3;
    /// A newer message of the same key came, or any where only the newest is kept.
    pub const REPLACED: u8 = 4;
    /// Its time was over.
    pub const EXPIRED: u8 = 5;
    /// Delivered as often as allowed without acknowledgement.
    pub const MAX_DELIVER: u8 = 6;
    /// A member asked to never have it again.
    pub const TERMINATED: u8 = 7;
    /// Delivered as often as allowed; a copy is kept as a dead letter.
    pub const MOVED: u8 = 8;

    /// The name of a cause.
    pub fn name(cause: u8) -> Option<&'static str> {
        Some(match cause {
            DELETED => "deleted",
            EVICTED => "evicted",
            CONSUMED => "consumed",
            REPLACED => "replaced",
            EXPIRED => "expired",
            MAX_DELIVER => "max_deliver",
            TERMINATED => "terminated",
            MOVED => "moved",
            _ => return None,
        })
    }
}

/// A message that a group will not have again, and where a copy of it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetter<'a> {
    /// When, and the mailbox it lies in.
    pub stamp: Stamp<'a>,
    /// The group.
    pub group: &'a str,
    /// The mailbox that has the copy; empty if there is none.
    pub target: &'a str,
    /// The message.
    pub msg_id: u64,
    /// Its level.
    pub level: u8,
    /// How often it was delivered.
    pub count: u32,
    /// One of [`cause`].
    pub cause: u8,
}

impl<'a> DeadLetter<'a> {
    /// An upper bound of the bytes that [`DeadLetter::encode`] will append.
    pub fn max_len(&self) -> usize {
        32 + self.stamp.max_len() + self.group.len() + self.target.len()
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        out.put_short(self.group.as_bytes());
        out.put_short(self.target.as_bytes());
        out.put_u64(self.msg_id);
        out.put_u8(self.level);
        out.put_u32(self.count);
        out.put_u8(self.cause);
    }

    /// Reads what [`DeadLetter::encode`] wrote.
    pub fn decode(from: &mut Reader<'a>) -> Option<DeadLetter<'a>> {
        Some(DeadLetter {
            stamp: Stamp::decode(from)?,
            group: from.short_str()?,
            target: from.short_str()?,
            msg_id: from.u64()?,
            level: from.u8()?,
            count: from.u32()?,
            cause: from.u8()?,
        })
    }
}
