//! Broadcasts that are stored: a mailbox of the broker's own, in the order in which they were told.
//!
//! Owns its address, its limits, and where the subject of a broadcast is kept: in the tags of its message, which have
//! no other use there. Must not know who listens.

use super::indexes::SlotIx;
use super::position::Position;
use super::push::{Ahead, LevelSet, PushLimits, Reading};
use super::send::earliest;
use super::{Changes, NewMailbox, Send, Store};
use crate::error::{Error, Result};
use crate::mailbox::{Level, Policy};
use crate::time::Now;

/// The mailbox of stored broadcasts. No client can name it.
pub const BROADCASTS: &str = "$broadcasts";

/// How many broadcasts are stored, and for how long: the oldest go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroadcastLimits {
    /// Most broadcasts; 0 for none at all.
    pub max_msgs: u64,
    /// Most bytes of them, as stored; 0 for any number.
    pub max_bytes: u64,
    /// Their longest life; 0 is for ever.
    pub max_age_ms: u64,
}

impl Default for BroadcastLimits {
    fn default() -> Self {
        Self { max_msgs: 10_000, max_bytes: 64 << 20, max_age_ms: 24 * 3_600_000 }
    }
}

impl BroadcastLimits {
    fn policy(&self) -> Policy {
        let BroadcastLimits { max_msgs, max_bytes, max_age_ms } = *self;
        Policy { max_msgs, max_bytes, max_age_ms, ..Policy::default() }
    }
}

/// A broadcast to be stored.
#[derive(Debug, Clone, Copy)]
pub struct Broadcast<'a> {
    /// Where it is told.
    pub subject: &'a str,
    /// Header lines, each with CRLF.
    pub headers: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// How long it is stored, if that is less than the limit; 0 is as long as that.
    pub ttl_ms: u64,
    /// What makes it the same when it is told again; empty for nothing.
    pub id: &'a str,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBroadcast {
    /// Its number among stored broadcasts.
    pub msg_id: u64,
    /// When it goes; 0 for never.
    pub expires_ms: u64,
    /// It was there already: it is not to be told again.
    pub duplicate: bool,
}

impl Store {
    /// Stores a broadcast.
    pub fn store_broadcast(
        &mut self,
        broadcast: &Broadcast<'_>,
        limits: &BroadcastLimits,
        now: Now,
    ) -> Result<StoredBroadcast> {
        if limits.max_msgs == 0 {
            let problem = "the broker stores no broadcasts: its max_broadcasts is 0".to_owned();
            return Err(Error::InvalidField { field: "mq9-persist", problem });
        }
        let Broadcast { subject, headers, payload, ttl_ms, id } = *broadcast;
        let send = Send { tags: subject, headers, ttl_ms, ..Send::new(payload) };
        if self.lookup(BROADCASTS, now).is_err() {
            let policy = limits.policy();
            let new = NewMailbox { address: BROADCASTS, policy, ..NewMailbox::default() };
            self.create_mailbox(&new, now)?;
        }
        self.limit_broadcasts(limits, now)?;
        let (msg_id, duplicate) = match id {
            "" => (self.send(BROADCASTS, &send, now)?, false),
            id => {
                let once = self.send_once(BROADCASTS, id, &send, now)?;
                (once.msg_id, once.duplicate)
            }
        };
        let expires_ms = earliest(now.wall_ms, ttl_ms, limits.max_age_ms);
        Ok(StoredBroadcast { msg_id: msg_id.unwrap_or_default(), expires_ms, duplicate })
    }

    /// Whether some broadcast may be stored, after limits that have changed have been applied as far as that is possible.
    pub fn has_broadcasts(&mut self, limits: &BroadcastLimits, now: Now) -> bool {
        let Ok(index) = self.lookup(BROADCASTS, now) else { return false };
        // What cannot be recorded now goes with the next broadcast.
        let _ = self.limit_broadcasts(limits, now);
        let slot = self.state.slot(index);
        limits.max_msgs > 0 && slot.is_some_and(|slot| slot.mailbox.messages() > 0)
    }

    /// The mailbox has these limits from now on.
    fn limit_broadcasts(&mut self, limits: &BroadcastLimits, now: Now) -> Result<()> {
        let BroadcastLimits { max_msgs, max_bytes, max_age_ms } = *limits;
        let index = self.lookup(BROADCASTS, now)?;
        let known = self.state.slot(index).map(|slot| slot.mailbox.policy());
        let is_set = |policy: &Policy| {
            (policy.max_msgs, policy.max_bytes, policy.max_age_ms)
                == (max_msgs, max_bytes, max_age_ms)
        };
        // No limit at all would be none stored: those that are there go with their age.
        if max_msgs == 0 || known.is_none_or(is_set) {
            return Ok(());
        }
        let change = |policy: &mut Policy| {
            (policy.max_msgs, policy.max_bytes, policy.max_age_ms) =
                (max_msgs, max_bytes, max_age_ms);
        };
        self.update_mailbox(BROADCASTS, Changes::default(), change, now)
    }

    /// Stored broadcasts from a number on, only what is durable. The tags of each message are its subject.
    pub fn broadcasts_from(&mut self, msg_id: u64, limits: PushLimits, now: Now) -> Result<Ahead> {
        let Ok(index): Result<SlotIx> = self.lookup(BROADCASTS, now) else {
            return Ok(Ahead::default());
        };
        let mut position = Position::default();
        position.cursors[Level::NORMAL.index()] = msg_id;
        let levels = LevelSet::of(Level::NORMAL);
        self.look_ahead(index, Reading::At(&position), levels, limits, now)
    }
}
