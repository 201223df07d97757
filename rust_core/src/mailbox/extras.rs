//! Extras of some mailboxes: keys, expiries, delayed messages, payloads in memory. What a checkpoint captures is in
//! maps by id, which it need not copy.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{ById, Entry, KEYED, SentIds, Subjects};
use crate::log::Lsn;
use crate::timer::TimerKey;

type Hash = foldhash::fast::RandomState;

/// A message that has no `msg_id` yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delayed {
    /// Wall time at which it enters its lane.
    pub due_ms: u64,
    /// Wall time at which it expires; 0 is never.
    pub expires_ms: u64,
    /// Where its record lies; [`Lsn::NONE`] in the memory tier.
    pub at: Lsn,
    /// Length of its record.
    pub len: u32,
    /// The timer of its due time.
    pub timer: TimerKey,
}

/// Rarely used parts of a mailbox.
#[derive(Debug, Default)]
pub struct Extras {
    /// Free text.
    pub desc: Box<str>,
    /// The message of each key.
    pub keys: HashMap<Arc<str>, u64, Hash>,
    /// The key of each keyed message.
    pub keyed: ById<Arc<str>>,
    /// Expiry time and timer of each message that has its own.
    pub expiries: ById<(u64, TimerKey)>,
    /// Delayed messages by delay number.
    pub delayed: ById<Delayed>,
    /// The bytes of all of them.
    pub delayed_bytes: u64,
    /// The next delay number.
    pub next_delay: u64,
    /// Encoded messages of the memory tier by `msg_id`.
    pub memory: HashMap<u64, Box<[u8]>, Hash>,
    /// Encoded delayed messages of the memory tier by delay number.
    pub memory_delayed: HashMap<u64, Box<[u8]>, Hash>,
    /// `msg_id`s below this are recorded as used, for the memory tier.
    pub reserved_ids: u64,
    /// Where the log ended when that was recorded.
    pub reserved_at: Lsn,
    /// Ids of sends, so that one that comes again is known.
    pub sent_ids: Option<Box<SentIds>>,
    /// It holds more than it may since its limits were lowered: a timer lets the surplus go.
    pub is_trimmed: bool,
    /// The subjects of a stream's messages.
    pub subjects: Option<Box<Subjects>>,
    /// What will let the oldest messages of a stream go when they are too old.
    pub age_timer: Option<TimerKey>,
    /// When the newest message of a stream came, be it there or not. A restart forgets it of those that are gone.
    pub last_ms: u64,
}

impl Extras {
    /// Makes `msg_id` the message of `key`; returns the one it replaces, which is to leave its lane.
    pub fn set_key(&mut self, key: &str, msg_id: u64) -> Option<u64> {
        let key: Arc<str> = match self.keys.get_key_value(key) {
            Some((key, _)) => Arc::clone(key),
            None => key.into(),
        };
        self.keyed.insert(msg_id, Arc::clone(&key));
        self.keys.insert(key, msg_id)
    }

    /// Takes out what is kept of messages; what is kept of the mailbox stays.
    pub(super) fn take_messages(&mut self) -> Extras {
        let kept = Extras {
            desc: std::mem::take(&mut self.desc),
            next_delay: self.next_delay,
            reserved_ids: self.reserved_ids,
            reserved_at: self.reserved_at,
            sent_ids: self.sent_ids.take(),
            is_trimmed: self.is_trimmed,
            age_timer: self.age_timer.take(),
            last_ms: self.last_ms,
            ..Extras::default()
        };
        std::mem::replace(self, kept)
    }

    /// What the ids of sends take.
    pub fn sent_id_bytes(&self) -> u64 {
        self.sent_ids.as_ref().map_or(0, |ids| ids.bytes())
    }

    /// How much of it a checkpoint copies.
    pub fn unshared(&self) -> usize {
        let sent_ids = self.sent_ids.as_ref().map_or(0, |ids| ids.unshared());
        let subjects = self.subjects.as_ref().map_or(0, |subjects| subjects.unshared());
        let (keyed, expiries) = (self.keyed.unshared(), self.expiries.unshared());
        keyed + expiries + self.delayed.unshared() + sent_ids + subjects
    }

    /// Drops what is kept for a message that left its lane. Its expiry is the caller's, for the timer.
    pub(super) fn forget(&mut self, entry: &Entry) {
        if entry.flags & KEYED != 0
            && let Some(key) = self.keyed.remove(entry.msg_id)
            && self.keys.get(&key) == Some(&entry.msg_id)
        {
            self.keys.remove(&key);
        }
        if entry.at == Lsn::NONE {
            self.memory.remove(&entry.msg_id);
        }
    }
}
