//! Operations in records: the physical effects that make up the store's durable state.
//!
//! Records hold effects, not commands: replaying them needs neither clock nor policy. The byte
//! tables are in `docs/formats.md`. Kind numbers are never reused.

use super::bytes::{Put, Reader};
use super::mailbox_ops::{Purged, SentOnce, Updated};
use super::stamp::{DeadLetter, Stamp, cause};
use super::stream_ops::{
    ConsumerDone, ConsumerGiven, ConsumerRemoved, ConsumerReturned, ConsumerSet,
};
use super::tie::TieRecord;

/// Kind numbers.
pub mod kind {
    /// A store was opened.
    pub const OPENED: u8 = 1;
    /// A mailbox was created.
    pub const MAILBOX_CREATED: u8 = 2;
    /// A mailbox and all it holds went away.
    pub const MAILBOX_REMOVED: u8 = 3;
    /// A message entered its lane.
    pub const MESSAGE: u8 = 4;
    /// A message was stored to enter its lane later.
    pub const DELAYED: u8 = 5;
    /// A delayed message stopped being one: it entered its lane or was lost.
    pub const DELAY_ENDED: u8 = 6;
    /// Messages were deleted, evicted or consumed.
    pub const REMOVED: u8 = 7;
    /// `msg_id`s of a memory mailbox that may have been used.
    pub const IDS_RESERVED: u8 = 8;
    /// A group was created or pinned anew.
    pub const GROUP_RESET: u8 = 9;
    /// Messages were given to a member of a group.
    pub const DELIVERED: u8 = 10;
    /// Messages were confirmed by a group.
    pub const ACKED: u8 = 11;
    /// Messages were returned by a group's member.
    pub const RETURNED: u8 = 12;
    /// [`REMOVED`] with time, address and cause.
    pub const REMOVED_AT: u8 = 13;
    /// [`DELIVERED`] with time and address.
    pub const DELIVERED_AT: u8 = 14;
    /// [`ACKED`] with time and address.
    pub const ACKED_AT: u8 = 15;
    /// [`RETURNED`] with time and address.
    pub const RETURNED_AT: u8 = 16;
    /// [`MAILBOX_REMOVED`] with time, address and cause.
    pub const MAILBOX_REMOVED_AT: u8 = 17;
    /// A group is done with a message that it could not process.
    pub const DEAD_LETTERED: u8 = 18;
    /// A group was removed.
    pub const GROUP_REMOVED: u8 = 19;
    /// A mailbox was changed.
    pub const UPDATED: u8 = 20;
    /// All messages of a mailbox went at once.
    pub const PURGED: u8 = 21;
    /// A message was sent with an id.
    pub const SENT_ONCE: u8 = 22;
    /// A consumer of a stream was created or changed.
    pub const CONSUMER_SET: u8 = 23;
    /// Messages were given to a consumer.
    pub const CONSUMER_GIVEN: u8 = 24;
    /// A consumer has done with messages.
    pub const CONSUMER_DONE: u8 = 25;
    /// A consumer was removed.
    pub const CONSUMER_REMOVED: u8 = 26;
    /// A consumer has returned messages.
    pub const CONSUMER_RETURNED: u8 = 27;

    /// The log up to here is what the stream of a cluster holds up to a place.
    pub const TIED: u8 = 32;

    /// Whether this version knows a kind.
    pub fn is_known(kind: u8) -> bool {
        matches!(kind, OPENED..=CONSUMER_RETURNED | TIED)
    }
}

/// Ids of messages and mailboxes and delay numbers are below this; a larger one is no sane record. The
/// room above keeps every next id a number.
pub const MAX_ID: u64 = 1 << 63;

/// Levels a group has cursors for.
pub const LANES: usize = 10;

/// A message as stored. In a delayed record `msg_id` is the delay number and `create_ms` is when the
/// message is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Offset in the mailbox.
    pub msg_id: u64,
    /// Wall time of the send.
    pub sent_ms: u64,
    /// Wall time at which it got its `msg_id`.
    pub create_ms: u64,
    /// Wall time at which it expires; 0 is never.
    pub expires_ms: u64,
    /// Priority level, 1 to 10.
    pub level: u8,
    /// Address of the mailbox, so that a record can be understood alone.
    pub address: &'a str,
    /// Compaction key; empty is none.
    pub key: &'a str,
    /// Tags, joined by commas.
    pub tags: &'a str,
    /// Header lines as they came, opaque to the store.
    pub headers: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

/// Bytes of a message body before its variable fields.
const MESSAGE_FIXED: usize = 4 * 8 + 1 + 1 + 2 + 2 + 4;

impl<'a> Message<'a> {
    /// Bytes that [`Message::encode`] will append.
    pub fn encoded_len(&self) -> usize {
        MESSAGE_FIXED
            + self.address.len()
            + self.key.len()
            + self.tags.len()
            + self.headers.len()
            + self.payload.len()
    }

    /// Appends the body of a message or delayed record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut fixed = [0u8; MESSAGE_FIXED];
        fixed[0..8].copy_from_slice(&self.msg_id.to_le_bytes());
        fixed[8..16].copy_from_slice(&self.sent_ms.to_le_bytes());
        fixed[16..24].copy_from_slice(&self.create_ms.to_le_bytes());
        fixed[24..32].copy_from_slice(&self.expires_ms.to_le_bytes());
        fixed[32] = self.level;
        fixed[33] = self.address.len() as u8;
        fixed[34..36].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        fixed[36..38].copy_from_slice(&(self.tags.len() as u16).to_le_bytes());
        fixed[38..42].copy_from_slice(&(self.headers.len() as u32).to_le_bytes());
        out.extend_from_slice(&fixed);
        out.extend_from_slice(self.address.as_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(self.tags.as_bytes());
        out.extend_from_slice(self.headers);
        out.extend_from_slice(self.payload);
    }

    /// Reads what [`Message::encode`] wrote.
    pub fn decode(body: &'a [u8]) -> Option<Message<'a>> {
        let mut fixed = Reader::new(body);
        let (msg_id, sent_ms) = (fixed.u64()?, fixed.u64()?);
        let (create_ms, expires_ms) = (fixed.u64()?, fixed.u64()?);
        let level = fixed.u8()?;
        let address_len = usize::from(fixed.u8()?);
        let key_len = usize::from(fixed.u16()?);
        let tags_len = usize::from(fixed.u16()?);
        let headers_len = fixed.u32()? as usize;
        let mut text = fixed;
        let address = std::str::from_utf8(text.take(address_len)?).ok()?;
        let key = std::str::from_utf8(text.take(key_len)?).ok()?;
        let tags = std::str::from_utf8(text.take(tags_len)?).ok()?;
        let headers = text.take(headers_len)?;
        let payload = text.rest();
        let sane = (1..=LANES as u8).contains(&level) && msg_id < MAX_ID;
        sane.then_some(Message {
            msg_id,
            sent_ms,
            create_ms,
            expires_ms,
            level,
            address,
            key,
            tags,
            headers,
            payload,
        })
    }
}

/// In the first byte of a member: it keeps what it held.
const KEEPS: u8 = 2;

/// Who received a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberName<'a> {
    /// A name given by the client.
    Named(&'a str),
    /// A connection of the `epoch`-th opening of the store.
    Conn {
        /// Opening of the store.
        epoch: u32,
        /// The connection's number in it.
        conn: u64,
    },
}

impl<'a> MemberName<'a> {
    /// Appends the name, and whether the member keeps what it held.
    pub fn encode(&self, keeps: bool, out: &mut Vec<u8>) {
        let keeps = if keeps { KEEPS } else { 0 };
        match self {
            MemberName::Named(name) => {
                out.put_u8(keeps);
                out.put_short(name.as_bytes());
            }
            MemberName::Conn { epoch, conn } => {
                out.put_u8(1 | keeps);
                out.put_u32(*epoch);
                out.put_u64(*conn);
            }
        }
    }

    /// Takes a name off the front, and whether the member keeps what it held.
    pub fn decode(from: &mut Reader<'a>) -> Option<(MemberName<'a>, bool)> {
        let first = from.u8()?;
        let member = match first & !KEEPS {
            0 => MemberName::Named(from.short_str()?),
            1 => MemberName::Conn { epoch: from.u32()?, conn: from.u64()? },
            _ => return None,
        };
        Some((member, first & KEEPS != 0))
    }
}

/// The meaning of one record. Where a stamp can be missing, it is in records that earlier versions wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// A store was opened.
    Opened {
        /// How many times it has been opened.
        epoch: u32,
        /// When.
        wall_ms: u64,
    },
    /// A mailbox was created.
    MailboxCreated {
        /// When.
        created_ms: u64,
        /// When it expires; 0 is never.
        expires_ms: u64,
        /// Its address.
        address: &'a str,
        /// Free text.
        desc: &'a str,
        /// Its policy, encoded by the mailbox module.
        policy: &'a [u8],
    },
    /// The mailbox and all it holds went away.
    MailboxRemoved {
        /// When and which.
        stamp: Option<Stamp<'a>>,
        /// Why.
        cause: u8,
    },
    /// A message entered its lane.
    Message(Message<'a>),
    /// A message was stored to enter its lane later.
    Delayed(Message<'a>),
    /// A delayed message stopped being one: it entered its lane or was lost.
    DelayEnded {
        /// The delay number of the delayed record.
        delay_id: u64,
    },
    /// Messages went away; encoded id ranges.
    Removed {
        /// When and where.
        stamp: Option<Stamp<'a>>,
        /// Why.
        cause: u8,
        /// Ranges of `msg_id`s.
        ranges: &'a [u8],
    },
    /// `msg_id`s below this may have been used.
    IdsReserved {
        /// The first one that was not.
        below: u64,
    },
    /// A group was created or pinned anew.
    GroupReset {
        /// The group.
        group: &'a str,
        /// Where each lane starts.
        start: [u64; LANES],
        /// The `msg_id` of the next message at that time.
        next_id: u64,
    },
    /// Messages were given to a member.
    Delivered {
        /// When and where.
        stamp: Option<Stamp<'a>>,
        /// The group.
        group: &'a str,
        /// The member.
        member: MemberName<'a>,
        /// It keeps what it held besides; else that went back.
        keeps: bool,
        /// Encoded delivery ranges in delivery order.
        ranges: &'a [u8],
    },
    /// Messages were confirmed.
    Acked {
        /// When and where.
        stamp: Option<Stamp<'a>>,
        /// The group.
        group: &'a str,
        /// Ranges of `msg_id`s.
        ranges: &'a [u8],
    },
    /// Messages were returned undone by the member that had them.
    Returned {
        /// When and where.
        stamp: Option<Stamp<'a>>,
        /// The group.
        group: &'a str,
        /// Ranges of `msg_id`s.
        ranges: &'a [u8],
    },
    /// A group is done with a message that it could not process.
    DeadLettered(DeadLetter<'a>),
    /// A group was removed, with all it remembered.
    GroupRemoved {
        /// When and where.
        stamp: Stamp<'a>,
        /// The group.
        group: &'a str,
        /// Why.
        cause: u8,
    },
    /// The mailbox was changed.
    Updated(Updated<'a>),
    /// All messages of the mailbox went at once.
    Purged(Purged<'a>),
    /// A message was sent with an id.
    SentOnce(SentOnce<'a>),
    /// The log up to here is what the stream of a cluster holds up to a place.
    Tied(TieRecord),
    /// A consumer of the stream was created or changed.
    ConsumerSet(ConsumerSet<'a>),
    /// Messages were given to a consumer.
    ConsumerGiven(ConsumerGiven<'a>),
    /// A consumer has done with messages.
    ConsumerDone(ConsumerDone<'a>),
    /// A consumer was removed.
    ConsumerRemoved(ConsumerRemoved<'a>),
    /// A consumer has returned messages.
    ConsumerReturned(ConsumerReturned<'a>),
}

impl<'a> Op<'a> {
    /// The kind's number.
    pub fn kind(&self) -> u8 {
        match self {
            Op::Opened { .. } => kind::OPENED,
            Op::MailboxCreated { .. } => kind::MAILBOX_CREATED,
            Op::MailboxRemoved { stamp: None, .. } => kind::MAILBOX_REMOVED,
            Op::MailboxRemoved { .. } => kind::MAILBOX_REMOVED_AT,
            Op::Message(_) => kind::MESSAGE,
            Op::Delayed(_) => kind::DELAYED,
            Op::DelayEnded { .. } => kind::DELAY_ENDED,
            Op::Removed { stamp: None, .. } => kind::REMOVED,
            Op::Removed { .. } => kind::REMOVED_AT,
            Op::IdsReserved { .. } => kind::IDS_RESERVED,
            Op::GroupReset { .. } => kind::GROUP_RESET,
            Op::Delivered { stamp: None, .. } => kind::DELIVERED,
            Op::Delivered { .. } => kind::DELIVERED_AT,
            Op::Acked { stamp: None, .. } => kind::ACKED,
            Op::Acked { .. } => kind::ACKED_AT,
            Op::Returned { stamp: None, .. } => kind::RETURNED,
            Op::Returned { .. } => kind::RETURNED_AT,
            Op::DeadLettered(_) => kind::DEAD_LETTERED,
            Op::GroupRemoved { .. } => kind::GROUP_REMOVED,
            Op::Updated(_) => kind::UPDATED,
            Op::Purged(_) => kind::PURGED,
            Op::SentOnce(_) => kind::SENT_ONCE,
            Op::Tied(_) => kind::TIED,
            Op::ConsumerSet(_) => kind::CONSUMER_SET,
            Op::ConsumerGiven(_) => kind::CONSUMER_GIVEN,
            Op::ConsumerDone(_) => kind::CONSUMER_DONE,
            Op::ConsumerRemoved(_) => kind::CONSUMER_REMOVED,
            Op::ConsumerReturned(_) => kind::CONSUMER_RETURNED,
        }
    }

    /// An upper bound of the bytes that [`Op::encode`] will append.
    pub fn max_len(&self) -> usize {
        match self {
            Op::Message(message) | Op::Delayed(message) => message.encoded_len(),
            Op::MailboxCreated { address, desc, policy, .. } => {
                32 + address.len() + desc.len() + policy.len()
            }
            Op::GroupReset { group, .. } => 8 * LANES + 16 + group.len(),
            Op::Delivered { stamp, group, ranges, .. } => {
                300 + stamp_len(stamp) + group.len() + ranges.len()
            }
            Op::Removed { stamp, ranges, .. } => 8 + stamp_len(stamp) + ranges.len(),
            Op::Acked { stamp, group, ranges } | Op::Returned { stamp, group, ranges } => {
                8 + stamp_len(stamp) + group.len() + ranges.len()
            }
            Op::MailboxRemoved { stamp, .. } => 8 + stamp_len(stamp),
            Op::DeadLettered(dead) => dead.max_len(),
            Op::GroupRemoved { stamp, group, .. } => 8 + stamp.max_len() + group.len(),
            Op::Updated(updated) => updated.max_len(),
            Op::Purged(purged) => purged.max_len(),
            Op::SentOnce(sent) => sent.max_len(),
            Op::Tied(_) => TieRecord::MAX_LEN,
            Op::ConsumerSet(set) => set.max_len(),
            Op::ConsumerGiven(given) => given.max_len(),
            Op::ConsumerDone(done) => done.max_len(),
            Op::ConsumerRemoved(removed) => removed.max_len(),
            Op::ConsumerReturned(returned) => returned.max_len(),
            Op::Opened { .. } | Op::DelayEnded { .. } | Op::IdsReserved { .. } => 32,
        }
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Op::Opened { epoch, wall_ms } => {
                out.put_u32(*epoch);
                out.put_u64(*wall_ms);
            }
            Op::MailboxCreated { created_ms, expires_ms, address, desc, policy } => {
                out.put_u64(*created_ms);
                out.put_u64(*expires_ms);
                out.put_short(address.as_bytes());
                out.put_medium(desc.as_bytes());
                out.put_medium(policy);
            }
            Op::MailboxRemoved { stamp, cause } => put_stamp_and_cause(*stamp, *cause, out),
            Op::Message(message) | Op::Delayed(message) => message.encode(out),
            Op::DelayEnded { delay_id } => out.put_u64(*delay_id),
            Op::Removed { stamp, cause, ranges } => {
                put_stamp_and_cause(*stamp, *cause, out);
                out.extend_from_slice(ranges);
            }
            Op::IdsReserved { below } => out.put_u64(*below),
            Op::GroupReset { group, start, next_id } => {
                out.put_short(group.as_bytes());
                for id in start {
                    out.put_u64(*id);
                }
                out.put_u64(*next_id);
            }
            Op::Delivered { stamp, group, member, keeps, ranges } => {
                put_stamp(*stamp, out);
                out.put_short(group.as_bytes());
                member.encode(*keeps, out);
                out.extend_from_slice(ranges);
            }
            Op::Acked { stamp, group, ranges } | Op::Returned { stamp, group, ranges } => {
                put_stamp(*stamp, out);
                out.put_short(group.as_bytes());
                out.extend_from_slice(ranges);
            }
            Op::DeadLettered(dead) => dead.encode(out),
            Op::GroupRemoved { stamp, group, cause } => {
                stamp.encode(out);
                out.put_short(group.as_bytes());
                out.put_u8(*cause);
            }
            Op::Updated(updated) => updated.encode(out),
            Op::Purged(purged) => purged.encode(out),
            Op::SentOnce(sent) => sent.encode(out),
            Op::Tied(tie) => tie.encode(out),
            Op::ConsumerSet(set) => set.encode(out),
            Op::ConsumerGiven(given) => given.encode(out),
            Op::ConsumerDone(done) => done.encode(out),
            Op::ConsumerRemoved(removed) => removed.encode(out),
            Op::ConsumerReturned(returned) => returned.encode(out),
        }
    }

    /// Reads the body of a record. `Ok(None)` is an unknown kind, `Err` a malformed body.
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Option<Op<'a>>, Malformed> {
        let mut from = Reader::new(body);
        let op = match kind {
            kind::MESSAGE => Message::decode(body).map(Op::Message),
            kind::DELAYED => Message::decode(body).map(Op::Delayed),
            kind::OPENED => Op::decode_opened(&mut from),
            kind::MAILBOX_CREATED => Op::decode_created(&mut from),
            kind::MAILBOX_REMOVED => {
                Some(Op::MailboxRemoved { stamp: None, cause: cause::UNKNOWN })
            }
            kind::MAILBOX_REMOVED_AT => Op::decode_mailbox_removed(&mut from),
            kind::DELAY_ENDED => from.u64().map(|delay_id| Op::DelayEnded { delay_id }),
            kind::REMOVED => Some(Op::Removed { stamp: None, cause: cause::UNKNOWN, ranges: body }),
            kind::REMOVED_AT => Op::decode_removed(&mut from),
            kind::IDS_RESERVED => {
                from.u64().filter(|id| *id < MAX_ID).map(|below| Op::IdsReserved { below })
            }
            kind::GROUP_RESET => Op::decode_group_reset(&mut from),
            kind::DELIVERED => Op::decode_delivered(None, &mut from),
            kind::ACKED => Op::decode_acked(None, &mut from),
            kind::RETURNED => Op::decode_returned(None, &mut from),
            kind::DELIVERED_AT | kind::ACKED_AT | kind::RETURNED_AT => {
                let stamp = Stamp::decode(&mut from);
                stamp.and_then(|stamp| match kind {
                    kind::DELIVERED_AT => Op::decode_delivered(Some(stamp), &mut from),
                    kind::ACKED_AT => Op::decode_acked(Some(stamp), &mut from),
                    _ => Op::decode_returned(Some(stamp), &mut from),
                })
            }
            kind::DEAD_LETTERED => DeadLetter::decode(&mut from).map(Op::DeadLettered),
            kind::GROUP_REMOVED => Op::decode_group_removed(&mut from),
            kind::UPDATED => Updated::decode(&mut from).map(Op::Updated),
            kind::PURGED => Purged::decode(&mut from).map(Op::Purged),
            kind::SENT_ONCE => SentOnce::decode(&mut from).map(Op::SentOnce),
            kind::TIED => TieRecord::decode(&mut from).map(Op::Tied),
            kind::CONSUMER_SET => ConsumerSet::decode(&mut from).map(Op::ConsumerSet),
            kind::CONSUMER_GIVEN => ConsumerGiven::decode(&mut from).map(Op::ConsumerGiven),
            kind::CONSUMER_DONE => ConsumerDone::decode(&mut from).map(Op::ConsumerDone),
            kind::CONSUMER_REMOVED => ConsumerRemoved::decode(&mut from).map(Op::ConsumerRemoved),
            kind::CONSUMER_RETURNED => {
                ConsumerReturned::decode(&mut from).map(Op::ConsumerReturned)
            }
            _ => return Ok(None),
        };
        op.map(Some).ok_or(Malformed)
    }

    fn decode_opened(from: &mut Reader<'a>) -> Option<Op<'a>> {
        Some(Op::Opened { epoch: from.u32()?, wall_ms: from.u64()? })
    }

    fn decode_created(from: &mut Reader<'a>) -> Option<Op<'a>> {
        Some(Op::MailboxCreated {
            created_ms: from.u64()?,
            expires_ms: from.u64()?,
            address: from.short_str()?,
            desc: from.medium_str()?,
            policy: from.medium()?,
        })
    }

    fn decode_group_reset(from: &mut Reader<'a>) -> Option<Op<'a>> {
        let group = from.short_str()?;
        let mut start = [0; LANES];
        for id in &mut start {
            *id = from.u64()?;
        }
        Some(Op::GroupReset { group, start, next_id: from.u64()? })
    }

    fn decode_group_removed(from: &mut Reader<'a>) -> Option<Op<'a>> {
        let stamp = Stamp::decode(from)?;
        Some(Op::GroupRemoved { stamp, group: from.short_str()?, cause: from.u8()? })
    }

    fn decode_mailbox_removed(from: &mut Reader<'a>) -> Option<Op<'a>> {
        Some(Op::MailboxRemoved { stamp: Some(Stamp::decode(from)?), cause: from.u8()? })
    }

    fn decode_removed(from: &mut Reader<'a>) -> Option<Op<'a>> {
        let (stamp, cause) = (Some(Stamp::decode(from)?), from.u8()?);
        Some(Op::Removed { stamp, cause, ranges: from.rest() })
    }

    fn decode_delivered(stamp: Option<Stamp<'a>>, from: &mut Reader<'a>) -> Option<Op<'a>> {
        let group = from.short_str()?;
        let (member, keeps) = MemberName::decode(from)?;
        Some(Op::Delivered { stamp, group, member, keeps, ranges: from.rest() })
    }

    fn decode_acked(stamp: Option<Stamp<'a>>, from: &mut Reader<'a>) -> Option<Op<'a>> {
        Some(Op::Acked { stamp, group: from.short_str()?, ranges: from.rest() })
    }

    fn decode_returned(stamp: Option<Stamp<'a>>, from: &mut Reader<'a>) -> Option<Op<'a>> {
        Some(Op::Returned { stamp, group: from.short_str()?, ranges: from.rest() })
    }
}

fn stamp_len(stamp: &Option<Stamp<'_>>) -> usize {
    stamp.as_ref().map_or(0, Stamp::max_len)
}

fn put_stamp(stamp: Option<Stamp<'_>>, out: &mut Vec<u8>) {
    if let Some(stamp) = stamp {
        stamp.encode(out);
    }
}

fn put_stamp_and_cause(stamp: Option<Stamp<'_>>, cause: u8, out: &mut Vec<u8>) {
    if let Some(stamp) = stamp {
        stamp.encode(out);
        out.put_u8(cause);
    }
}

/// A record whose checksum holds but whose body does not follow its kind's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;
