//! Sending: into a lane now, or later.

use smallvec::SmallVec;

use super::indexes::SlotIx;
use super::state::Place;
use super::update::SURPLUS_AT_ONCE;
use super::{Store, space_for, space_for_unit};
use crate::error::{Error, Result};
use crate::group::ranges;
use crate::log::{Log, Lsn, Placed, Space};
use crate::mailbox::{Discard, Level, Mailbox, Policy};
use crate::time::Now;
use crate::wire::op::{Message, Op};
use crate::wire::record::FLAG_REST;
use crate::wire::stamp::{Stamp, cause};

/// The longest key, in bytes.
pub const MAX_KEY: usize = 1024;
/// The longest list of tags, in bytes.
pub const MAX_TAGS: usize = 4096;
/// The most header bytes.
pub const MAX_HEADERS: usize = 64 * 1024;

/// How many `msg_id`s of a memory mailbox are recorded as used at a time.
const RESERVED_IDS: u64 = 65_536;

/// The same where others are durable: fewer, for they are passed over after a restart.
const RESERVED_AMONG_DURABLE: u64 = 1024;

/// Encoded ids, mostly of one message.
pub(super) type Encoded = SmallVec<[u8; ranges::ONE_ID]>;

/// A message to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Send<'a> {
    /// Its level.
    pub level: Level,
    /// Compaction key; empty is none.
    pub key: &'a str,
    /// Tags, joined by commas.
    pub tags: &'a str,
    /// Header lines, `Name: value` each with CRLF.
    pub headers: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// How long it stays invisible; 0 is not at all.
    pub delay_ms: u64,
    /// How long it lives, from now; 0 is as long as the mailbox says for its level, [`Policy::NEVER`] as long as the
    /// mailbox.
    pub ttl_ms: u64,
    /// Keep it in memory only, whatever the mailbox does.
    pub memory: bool,
}

impl<'a> Send<'a> {
    /// A plain message.
    pub fn new(payload: &'a [u8]) -> Send<'a> {
        let level = Level::NORMAL;
        Send {
            level,
            key: "",
            tags: "",
            headers: b"",
            payload,
            delay_ms: 0,
            ttl_ms: 0,
            memory: false,
        }
    }

    fn check(&self) -> Result<()> {
        let lengths = [
            ("key", self.key.len(), MAX_KEY),
            ("tags", self.tags.len(), MAX_TAGS),
            ("headers", self.headers.len(), MAX_HEADERS),
        ];
        for (field, len, most) in lengths {
            if len > most {
                let problem = format!("it has {len} bytes, at most {most} are allowed");
                return Err(Error::InvalidField { field, problem });
            }
        }
        Ok(())
    }

    /// The message as stored under `msg_id`, with the life that it or the policy says.
    pub(super) fn message<'m>(
        &'m self,
        address: &'m str,
        msg_id: u64,
        policy: &Policy,
        now: Now,
    ) -> Message<'m> {
        let ttl_ms =
            if self.ttl_ms > 0 { self.ttl_ms } else { policy.message_ttls.get(self.level) };
        Message {
            msg_id,
            sent_ms: now.wall_ms,
            create_ms: now.wall_ms.saturating_add(self.delay_ms),
            expires_ms: earliest(now.wall_ms, ttl_ms, policy.max_age_ms),
            level: self.level.number(),
            address,
            key: self.key,
            tags: self.tags,
            headers: self.headers,
            payload: self.payload,
        }
    }
}

impl Store {
    /// Stores a message and returns its `msg_id`, or `None` if it is delayed.
    pub fn send(&mut self, address: &str, send: &Send<'_>, now: Now) -> Result<Option<u64>> {
        self.tick(now);
        self.send_now(address, self.likely(address), send, now)
    }

    /// The same when what is due has been done; `likely` may be the mailbox's slot.
    pub(super) fn send_now(
        &mut self,
        address: &str,
        likely: Option<SlotIx>,
        send: &Send<'_>,
        now: Now,
    ) -> Result<Option<u64>> {
        let index = self.lookup_from(likely, address, now)?;
        let len = self.check_message(index, send, now)?;
        self.check_bytes(index, send, len, 0)?;
        self.send_to(index, address, send, &[], now)
    }

    /// Refuses a message that the mailbox would not take even if it were empty, so that a batch can
    /// be looked through before any of it is stored.
    pub fn check_send(&self, address: &str, send: &Send<'_>, now: Now) -> Result<()> {
        let index = self.lookup(address, now)?;
        self.check_message(index, send, now)?;
        Ok(())
    }

    /// The bytes of the message as stored.
    pub(super) fn check_message(&self, index: SlotIx, send: &Send<'_>, now: Now) -> Result<u64> {
        send.check()?;
        let slot = self.state.in_use(index);
        let message = send.message(&slot.mailbox.address, 0, slot.mailbox.policy(), now);
        let len = Log::record_len(message.encoded_len()) as u64;
        check_size(len, slot.mailbox.policy().max_msg_size)?;
        let record = if send.memory || self.state.in_memory(index) {
            0
        } else {
            self.log.max_record() as u64
        };
        check_size(len, record)?;
        Ok(len)
    }

    /// Stores a message that has been checked in a slot known to be in use, by `address`. The records of `with`
    /// count if the message does, and only then; carrying out what they say is left to the caller.
    pub(super) fn send_to(
        &mut self,
        index: SlotIx,
        address: &str,
        send: &Send<'_>,
        with: &[(SlotIx, &Op<'_>)],
        now: Now,
    ) -> Result<Option<u64>> {
        let slot = self.state.in_use(index);
        let mailbox = &slot.mailbox;
        let policy = mailbox.policy();
        let delayed = send.delay_ms > 0;
        let msg_id = match mailbox.extras() {
            Some(extras) if delayed => extras.next_delay,
            None if delayed => 0,
            _ => mailbox.next_id,
        };
        let message = send.message(address, msg_id, policy, now);
        let len = Log::record_len(message.encoded_len()) as u64;
        // A delayed message replaces nothing until it is due.
        let evicted = make_room(mailbox, if delayed { "" } else { send.key }, len)?;
        let may_have_surplus = evicted.len() >= SURPLUS_AT_ONCE;
        if send.memory || self.state.in_memory(index) {
            self.store_in_memory(index, &message, delayed, evicted, with, now)?;
        } else {
            self.store_durably(index, &message, delayed, evicted, with, now)?;
        }
        if may_have_surplus {
            self.note_surplus(index, now);
        }
        self.mark_ready(index);
        Ok((!delayed).then_some(msg_id))
    }

    /// Stores a message that leaves no trace in the log. What it takes the place of may have left one.
    fn store_in_memory(
        &mut self,
        index: SlotIx,
        message: &Message<'_>,
        delayed: bool,
        evicted: Vec<u64>,
        with: &[(SlotIx, &Op<'_>)],
        now: Now,
    ) -> Result<()> {
        if !delayed {
            self.reserve_memory_ids(index, message.msg_id, now)?;
        }
        let removes =
            !evicted.is_empty() || !(delayed || self.replaced_by(index, message.key).is_empty());
        if removes && !self.state.in_memory(index) {
            self.append_removals(index, &evicted, message.key, now)?;
        }
        self.log.reserve(space_for_unit(with), Space::Store, now.wall_ms)?;
        self.append_unit(with);
        let len = Log::record_len(message.encoded_len()) as u32;
        self.store(index, message, delayed, Place { at: Lsn::NONE, len });
        for msg_id in evicted {
            self.state.remove_message(index, msg_id);
        }
        Ok(())
    }

    /// Records that messages go for one that has no record itself.
    pub(super) fn append_removals(
        &mut self,
        index: SlotIx,
        evicted: &[u64],
        key: &str,
        now: Now,
    ) -> Result<()> {
        let address = self.state.in_use(index).mailbox.address.clone();
        let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
        let (mut room, replaced) = (Vec::new(), self.replaced_by(index, key));
        ranges::encode_ids(evicted.iter().copied(), &mut room);
        let room = Op::Removed { stamp, cause: cause::EVICTED, ranges: &room };
        let replaced_op = Op::Removed { stamp, cause: cause::REPLACED, ranges: &replaced };
        let mut unit: SmallVec<[(SlotIx, &Op<'_>); 2]> = SmallVec::new();
        unit.extend((!evicted.is_empty()).then_some((index, &room)));
        unit.extend((!replaced.is_empty()).then_some((index, &replaced_op)));
        self.log.reserve(space_for_unit(&unit), Space::Store, now.wall_ms)?;
        self.append_unit(&unit);
        Ok(())
    }

    fn store_durably(
        &mut self,
        index: SlotIx,
        message: &Message<'_>,
        delayed: bool,
        evicted: Vec<u64>,
        with: &[(SlotIx, &Op<'_>)],
        now: Now,
    ) -> Result<()> {
        let op = if delayed { Op::Delayed(*message) } else { Op::Message(*message) };
        let replaced = if delayed { Encoded::new() } else { self.replaced_by(index, message.key) };
        let placed = if evicted.is_empty() && replaced.is_empty() && with.is_empty() {
            self.log.reserve(space_for(&[&op]), Space::Store, now.wall_ms)?;
            Some(self.append(index, 0, &op))
        } else {
            self.append_with_removals(index, &op, &evicted, &replaced, with, now)?
        };
        if let Some(placed) = placed {
            self.store(index, message, delayed, placed.into());
        }
        for msg_id in evicted {
            self.state.remove_message(index, msg_id);
        }
        Ok(())
    }

    /// Appends a message, what goes with it, and `with`.
    pub(super) fn append_with_removals(
        &mut self,
        index: SlotIx,
        op: &Op<'_>,
        evicted: &[u64],
        replaced: &[u8],
        with: &[(SlotIx, &Op<'_>)],
        now: Now,
    ) -> Result<Option<Placed>> {
        let address = self.state.in_use(index).mailbox.address.clone();
        let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
        let mut room = Vec::new();
        if !evicted.is_empty() {
            ranges::encode_ids(evicted.iter().copied(), &mut room);
        }
        let evicted = Op::Removed { stamp, cause: cause::EVICTED, ranges: &room };
        let replacement = Op::Removed { stamp, cause: cause::REPLACED, ranges: replaced };
        let mut removals: SmallVec<[&Op<'_>; 2]> = SmallVec::new();
        removals.extend((!room.is_empty()).then_some(&evicted));
        removals.extend((!replaced.is_empty()).then_some(&replacement));
        let space = space_for(&[op]) + space_for(&removals) + space_for_unit(with);
        self.log.reserve(space, Space::Store, now.wall_ms)?;
        if with.is_empty() {
            // The message counts even if damage takes a removal; not the other way round.
            let placed = self.append(index, 0, op);
            for removal in removals {
                self.append(index, FLAG_REST, removal);
            }
            return Ok(Some(placed));
        }
        let mut unit = vec![(index, op)];
        unit.extend(removals.into_iter().map(|removal| (index, removal)));
        unit.extend(with);
        Ok(self.append_unit(&unit))
    }

    /// The encoded ids of what a message of this key takes the place of; empty if there is nothing. That they go is
    /// an effect of the message; who reads the log for what went on is told so.
    pub(super) fn replaced_by(&self, index: SlotIx, key: &str) -> Encoded {
        let mut encoded = Encoded::new();
        let mailbox = &self.state.in_use(index).mailbox;
        if mailbox.policy().latest {
            let all = mailbox.iter_from(0).map(|(_, entry)| entry.msg_id);
            let mut all = all.take(SURPLUS_AT_ONCE).peekable();
            if all.peek().is_some() {
                let mut ids = Vec::new();
                ranges::encode_ids(all, &mut ids);
                encoded.extend_from_slice(&ids);
            }
        } else if !key.is_empty()
            && let Some(&old) = mailbox.extras().and_then(|extras| extras.keys.get(key))
        {
            encoded.extend_from_slice(&ranges::encode_id(old));
        }
        encoded
    }

    fn store(&mut self, index: SlotIx, message: &Message<'_>, delayed: bool, place: Place) {
        if delayed {
            self.state.put_delayed(index, message, place);
        } else {
            self.state.put_message(index, message, place);
        }
    }

    /// Messages in memory leave no trace in the log, so their `msg_id`s are reserved in blocks.
    pub(super) fn reserve_memory_ids(
        &mut self,
        index: SlotIx,
        msg_id: u64,
        now: Now,
    ) -> Result<()> {
        let reserved = self.state.slot(index).and_then(|slot| slot.mailbox.extras());
        if reserved.is_some_and(|extras| msg_id < extras.reserved_ids) {
            return Ok(());
        }
        let ids = if self.state.in_memory(index) { RESERVED_IDS } else { RESERVED_AMONG_DURABLE };
        let below = msg_id + ids;
        let op = Op::IdsReserved { below };
        self.log.reserve(space_for(&[&op]), Space::Store, now.wall_ms)?;
        self.append(index, 0, &op);
        self.state.reserve_ids(index, below);
        let reserved_at = self.end();
        if let Some(slot) = self.state.slot_mut(index) {
            slot.mailbox.extras_mut().reserved_at = reserved_at;
        }
        Ok(())
    }
}

/// Refuses a message of `size` bytes where `limit` is set and smaller.
fn check_size(size: u64, limit: u64) -> Result<()> {
    match limit {
        1.. if size > limit => Err(Error::MessageTooLarge { size, limit }),
        _ => Ok(()),
    }
}

pub(super) fn earliest(now_ms: u64, ttl_ms: u64, max_age_ms: u64) -> u64 {
    let life = [ttl_ms, max_age_ms].into_iter().filter(|&ms| ms > 0 && ms < Policy::NEVER).min();
    life.map_or(0, |ms| now_ms.saturating_add(ms))
}

/// The messages that must go for one of `len` bytes to fit, oldest first.
pub(super) fn make_room(mailbox: &Mailbox, key: &str, len: u64) -> Result<Vec<u64>> {
    let policy = mailbox.policy();
    let unlimited = policy.max_msgs == 0 && policy.max_bytes == 0;
    if unlimited || policy.latest {
        return Ok(Vec::new());
    }
    let replaced = mailbox.extras().and_then(|s| s.keys.get(key)).copied();
    let freed = replaced.and_then(|msg_id| mailbox.get(msg_id)).map(|(_, entry)| entry);
    let mut messages = mailbox.messages() as u64 + 1 - u64::from(freed.is_some());
    let mut bytes = mailbox.bytes + len - freed.map_or(0, |entry| u64::from(entry.len));
    if !policy.is_exceeded(messages, bytes) {
        return Ok(Vec::new());
    }
    // The surplus of lowered limits goes by itself: no send waits for all of it.
    let had_surplus = policy.is_exceeded(mailbox.messages() as u64, mailbox.bytes);
    if policy.is_exceeded(1, len) {
        // Nothing that goes would make room enough.
        let limit = format!("max_bytes {}", policy.max_bytes);
        return Err(Error::MailboxFull { mailbox: mailbox.address.to_string(), limit });
    }
    let most = if had_surplus { SURPLUS_AT_ONCE } else { usize::MAX };
    let mut evicted = Vec::new();
    let mut oldest = mailbox.iter_from(0).filter(|(_, entry)| Some(entry.msg_id) != replaced);
    while policy.is_exceeded(messages, bytes) && evicted.len() < most {
        let next = (policy.discard == Discard::Old).then(|| oldest.next()).flatten();
        let Some((_, entry)) = next else {
            let limit = match policy.max_msgs {
                most if most > 0 && messages > most => format!("max_msgs {most}"),
                _ => format!("max_bytes {}", policy.max_bytes),
            };
            return Err(Error::MailboxFull { mailbox: mailbox.address.to_string(), limit });
        };
        evicted.push(entry.msg_id);
        messages -= 1;
        bytes -= u64::from(entry.len);
    }
    Ok(evicted)
}
