//! The policy of a mailbox: kept from creation on, with the mailbox.
//!
//! On disk a policy is a list of the fields that differ from the default, each a tag and a value:
//! tags below 128 carry eight bytes, others a short text. Tags are never reused.

use super::address::check_address;
use super::level::{LEVELS, Level};
use crate::error::{Error, Result};
use crate::wire::bytes::{Put, Reader};

/// What happens to a message when the mailbox is at a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discard {
    /// The oldest message makes room.
    #[default]
    Old,
    /// The new one is refused.
    New,
}

/// Where messages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tier {
    /// In the log.
    #[default]
    Durable,
    /// In memory only: they never touch the disk and do not survive a restart.
    Memory,
}

/// How a mailbox behaves. Zero means no limit wherever a limit is meant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Keep only the newest message.
    pub latest: bool,
    /// Remove messages once a group has acknowledged them.
    pub work_queue: bool,
    /// Listed for everyone.
    pub public: bool,
    /// Where messages are kept.
    pub tier: Tier,
    /// What makes room at a limit.
    pub discard: Discard,
    /// Most messages held.
    pub max_msgs: u64,
    /// Most bytes held, as stored.
    pub max_bytes: u64,
    /// Largest message, as stored.
    pub max_msg_size: u64,
    /// Longest life of a message.
    pub max_age_ms: u64,
    /// Life of a message that says nothing of it itself, by its level.
    pub message_ttls: MessageTtls,
    /// How long a member may hold a message; 0 is the default of the store.
    pub ack_wait_ms: u64,
    /// Deliveries after which a message is dead.
    pub max_deliver: u32,
    /// Most unacknowledged messages of a group.
    pub max_ack_pending: u32,
    /// How long a group lives that nobody uses; 0 is the default of the store, [`Policy::NEVER`] for ever.
    pub group_ttl_ms: u64,
    /// How long the id of a send is remembered; 0 is [`DEDUP_WINDOW_MS`].
    pub dedup_window_ms: u64,
    /// Where dead messages go.
    pub dead_letter: Option<Box<str>>,
    /// The user who created the mailbox.
    pub owner: Option<Box<str>>,
    /// The stream that the mailbox holds the messages of.
    pub stream: Option<Box<str>>,
    /// Most messages of one subject, where it is a stream.
    pub max_per_subject: u64,
    /// A stream that keeps messages only for consumers that have not acknowledged them.
    pub interest: bool,
    /// The `msg_id` of the first message of a stream.
    pub first_id: u64,
}

/// A life for messages of each level; 0 is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageTtls(Option<Box<[u64; LEVELS]>>);

impl MessageTtls {
    /// That of a level, in ms.
    pub fn get(&self, level: Level) -> u64 {
        self.0.as_ref().map_or(0, |all| all[level.index()])
    }

    /// Sets that of a level.
    pub fn set(&mut self, level: Level, ttl_ms: u64) {
        let all = self.0.get_or_insert_default();
        all[level.index()] = ttl_ms;
        // None at all has one form.
        if all.iter().all(|&ttl_ms| ttl_ms == 0) {
            self.0 = None;
        }
    }

    /// The levels that have one, with it.
    pub fn iter(&self) -> impl Iterator<Item = (Level, u64)> {
        let all = Level::all().map(|level| (level, self.get(level)));
        all.filter(|(_, ttl_ms)| *ttl_ms > 0)
    }
}

/// How long the id of a send is remembered where the mailbox does not say.
pub const DEDUP_WINDOW_MS: u64 = 120_000;

/// The longest name of an owner, in bytes.
const MAX_OWNER: usize = 255;

/// The tag of the life of messages of a level is this and the number of the level.
const MESSAGE_TTL: u8 = 17;
const TEXT: u8 = 128;
const DEAD_LETTER: u8 = TEXT;
const OWNER: u8 = TEXT + 1;
const STREAM: u8 = TEXT + 2;

impl Policy {
    /// A time that does not come.
    pub const NEVER: u64 = u64::MAX;

    /// Refuses combinations that would lose messages silently.
    pub fn check(&self) -> Result<()> {
        if self.max_deliver > 0 && self.dead_letter.is_none() {
            return Err(Error::InvalidField {
                field: "max_deliver",
                problem: "it needs a dead_letter mailbox to move messages to".to_owned(),
            });
        }
        if self.owner.as_ref().is_some_and(|owner| owner.len() > MAX_OWNER) {
            let problem = format!("it must have at most {MAX_OWNER} bytes");
            return Err(Error::InvalidField { field: "owner", problem });
        }
        self.dead_letter.as_deref().map_or(Ok(()), check_address)
    }

    /// Whether so much is more than the mailbox may hold.
    pub fn is_exceeded(&self, messages: u64, bytes: u64) -> bool {
        (self.max_msgs > 0 && messages > self.max_msgs)
            || (self.max_bytes > 0 && bytes > self.max_bytes)
    }

    /// How long the id of a send is remembered.
    pub fn dedup_window(&self) -> u64 {
        if self.dedup_window_ms > 0 { self.dedup_window_ms } else { DEDUP_WINDOW_MS }
    }

    fn numbers(&self) -> [(u8, u64); 17] {
        [
            (1, self.latest.into()),
            (2, self.work_queue.into()),
            (3, self.public.into()),
            (4, (self.tier == Tier::Memory).into()),
            (5, (self.discard == Discard::New).into()),
            (6, self.max_msgs),
            (7, self.max_bytes),
            (8, self.max_msg_size),
            (9, self.max_age_ms),
            (10, self.ack_wait_ms),
            (11, self.max_deliver.into()),
            (12, self.max_ack_pending.into()),
            (13, self.group_ttl_ms),
            (14, self.dedup_window_ms),
            (15, self.max_per_subject),
            (16, self.interest.into()),
            (17, self.first_id),
        ]
    }

    /// Appends the encoded policy.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for (tag, value) in self.numbers() {
            if value != 0 {
                out.put_u8(tag);
                out.put_u64(value);
            }
        }
        for (level, ttl_ms) in self.message_ttls.iter() {
            out.put_u8(MESSAGE_TTL + level.number());
            out.put_u64(ttl_ms);
        }
        let texts =
            [(DEAD_LETTER, &self.dead_letter), (OWNER, &self.owner), (STREAM, &self.stream)];
        for (tag, text) in texts {
            if let Some(text) = text {
                out.put_u8(tag);
                out.put_short(text.as_bytes());
            }
        }
    }

    /// Reads an encoded policy; `Err` names a tag that this version does not know.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Option<Policy>, u8> {
        let mut from = Reader::new(bytes);
        let mut policy = Policy::default();
        while let Some(tag) = from.u8() {
            let known = if tag < TEXT {
                let Some(value) = from.u64() else { return Ok(None) };
                policy.set_number(tag, value)
            } else {
                let Some(text) = from.short_str() else { return Ok(None) };
                policy.set_text(tag, text)
            };
            if !known {
                return Err(tag);
            }
        }
        Ok(Some(policy))
    }

    fn set_text(&mut self, tag: u8, text: &str) -> bool {
        match tag {
            DEAD_LETTER => self.dead_letter = Some(text.into()),
            OWNER => self.owner = Some(text.into()),
            STREAM => self.stream = Some(text.into()),
            _ => return false,
        }
        true
    }

    fn set_number(&mut self, tag: u8, value: u64) -> bool {
        match tag {
            1 => self.latest = value != 0,
            2 => self.work_queue = value != 0,
            3 => self.public = value != 0,
            4 => self.tier = if value != 0 { Tier::Memory } else { Tier::Durable },
            5 => self.discard = if value != 0 { Discard::New } else { Discard::Old },
            6 => self.max_msgs = value,
            7 => self.max_bytes = value,
            8 => self.max_msg_size = value,
            9 => self.max_age_ms = value,
            10 => self.ack_wait_ms = value,
            11 => self.max_deliver = u32::try_from(value).unwrap_or(u32::MAX),
            12 => self.max_ack_pending = u32::try_from(value).unwrap_or(u32::MAX),
            13 => self.group_ttl_ms = value,
            14 => self.dedup_window_ms = value,
            15 => self.max_per_subject = value,
            16 => self.interest = value != 0,
            17 => self.first_id = value.min(crate::wire::op::MAX_ID - 1),
            _ => match tag.checked_sub(MESSAGE_TTL).and_then(Level::new) {
                Some(level) => self.message_ttls.set(level, value),
                None => return false,
            },
        }
        true
    }
}
