//! The format of sections of a checkpoint. The byte tables are in `docs/formats.md`.

use std::sync::Arc;

use hashbrown::HashMap;

use super::super::slot::Slot;
use crate::consumer::ConsumerSnapshot;
use crate::group::{Group, GroupSnapshot};
use crate::log::Lsn;
use crate::mailbox::{
    ById, Delayed, Lane, LanePart, LaneSnapshot, Level, Mailbox, Sent, Subjects, SubjectsSnapshot,
    Tier,
};
use crate::timer::TimerKey;
use crate::wire::bytes::{Put, Reader};
use crate::wire::mailbox_ops::SentOnce;
use crate::wire::op::MAX_ID;
use crate::wire::section;

/// The first bytes of a checkpoint.
pub const MAGIC: &[u8; 8] = b"MQ9CKPT\0";
/// The version of the format. Lanes are packed since version 2; both forms tell themselves apart.
pub const VERSION: u32 = 2;
/// The first section.
pub const HEAD: u8 = 1;
/// A section for each mailbox.
pub const MAILBOX: u8 = 2;
/// The last section.
pub const END: u8 = 3;
/// A section for each further part of a lane, after its mailbox's.
pub const LANE: u8 = 4;
/// A section that says where each segment's records end, after the head.
pub const SEGMENTS: u8 = 5;
/// Sections with ids of sends, after their mailbox's.
pub const SENT_IDS: u8 = 6;

/// A section that ties the checkpoint to the stream of a cluster, after the head; only there, and then the version is 3.
pub const TIE: u8 = 16;
/// The version with such a section.
pub const TIED_VERSION: u32 = 3;
/// Sections with the subjects of a stream's messages, after their mailbox's.
pub const SUBJECTS: u8 = 10;
/// A section for each consumer of a stream, after its mailbox's.
pub const CONSUMER: u8 = 11;
/// The same, of one that has looked further in some levels than in others.
pub const UNEVEN_CONSUMER: u8 = 12;
/// The same, of one that has given up messages that are stored.
pub const GIVING_UP_CONSUMER: u8 = 13;

/// Most messages whose subjects are in a section.
const SUBJECTS_IN_A_SECTION: usize = 4096;

/// Most ids of a section.
const IDS_IN_A_SECTION: usize = 1024;

/// The first section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub version: u32,
    pub start: Lsn,
    pub epoch: u32,
    pub next_number: u64,
}

impl Head {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.version);
        out.put_u64(self.start.number());
        out.put_u32(self.epoch);
        out.put_u64(self.next_number);
    }

    pub fn decode(body: &[u8]) -> Option<Head> {
        let mut from = Reader::new(body);
        Some(Head {
            version: from.u32()?,
            start: Lsn::from_number(from.u64()?),
            epoch: from.u32()?,
            next_number: read_id(&mut from)?,
        })
    }
}

/// Where the records of each segment end. They are durable before the checkpoint counts: a segment
/// found shorter has lost some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends(pub Vec<(u32, u32)>);

impl Ends {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.0.len() as u32);
        for (number, end) in &self.0 {
            out.put_u32(*number);
            out.put_u32(*end);
        }
    }

    pub fn decode(body: &[u8]) -> Option<Ends> {
        let from = &mut Reader::new(body);
        let ends = list(from, |from| Some((from.u32()?, from.u32()?)))?;
        from.is_empty().then_some(Ends(ends))
    }
}

/// A mailbox captured for a checkpoint: little is copied, the rest is shared with the live index.
pub struct Captured {
    fixed: Vec<u8>,
    keyed: ById<Arc<str>>,
    expiries: ById<(u64, TimerKey)>,
    delayed: ById<Delayed>,
    lanes: Vec<(Level, LaneSnapshot)>,
    groups: Vec<(Arc<str>, GroupSnapshot)>,
    sent_ids: ById<Sent>,
    subjects: Option<SubjectsSnapshot>,
    consumers: Vec<(Arc<str>, ConsumerSnapshot)>,
}

impl Captured {
    /// Captures a mailbox; `at` is the end of the log now.
    pub fn new(slot: &Slot, at: Lsn) -> Captured {
        let mailbox = &slot.mailbox;
        let mut fixed = Vec::new();
        fixed.put_u64(at.number());
        fixed.put_u64(mailbox.number);
        fixed.put_short(mailbox.address.as_bytes());
        fixed.put_u64(mailbox.created_ms);
        fixed.put_u64(mailbox.expires_ms);
        fixed.put_u64(mailbox.next_id);
        let mut policy = Vec::new();
        mailbox.policy().encode(&mut policy);
        fixed.put_medium(&policy);
        let empty = Default::default();
        let extras = mailbox.extras().unwrap_or(&empty);
        fixed.put_medium(extras.desc.as_bytes());
        fixed.put_u64(extras.reserved_ids);
        fixed.put_u64(extras.next_delay);
        let mut captured = Captured {
            fixed,
            keyed: ById::default(),
            expiries: ById::default(),
            delayed: ById::default(),
            lanes: Vec::new(),
            groups: Vec::new(),
            sent_ids: ById::default(),
            subjects: mailbox.subjects().map(Subjects::snapshot),
            consumers: Vec::new(),
        };
        if let Some(consumers) = slot.consumers() {
            let all = consumers.iter();
            captured.consumers =
                all.map(|(_, c)| (Arc::clone(&c.name), c.consumer.snapshot())).collect();
        }
        // What is in memory only ends with the process.
        if mailbox.policy().tier == Tier::Memory {
            return captured;
        }
        captured.keyed.clone_from(&extras.keyed);
        captured.expiries.clone_from(&extras.expiries);
        captured.delayed.clone_from(&extras.delayed);
        if let Some(sent_ids) = &extras.sent_ids {
            captured.sent_ids = sent_ids.snapshot();
        }
        let lanes = mailbox.lanes().iter().filter(|(_, lane)| !lane.is_empty());
        captured.lanes = lanes.map(|(level, lane)| (*level, lane.snapshot())).collect();
        let groups = slot.groups();
        captured.groups = groups.map(|g| (Arc::clone(&g.name), g.group.snapshot())).collect();
        captured
    }

    /// Appends the mailbox's section, with the beginning of each lane. Equal mailboxes give equal
    /// bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        section::append(out, MAILBOX, |out| {
            out.extend_from_slice(&self.fixed);
            out.put_u32(self.keyed.len() as u32);
            for (msg_id, key) in self.keyed.iter() {
                out.put_u64(msg_id);
                out.put_medium(key.as_bytes());
            }
            out.put_u32(self.expiries.len() as u32);
            for (msg_id, (expires_ms, _)) in self.expiries.iter() {
                out.put_u64(msg_id);
                out.put_u64(*expires_ms);
            }
            out.put_u32(self.delayed.len() as u32);
            for (delay_id, delayed) in self.delayed.iter() {
                out.put_u64(delay_id);
                out.put_u64(delayed.due_ms);
                out.put_u64(delayed.expires_ms);
                out.put_u64(delayed.at.number());
                out.put_u32(delayed.len);
            }
            out.put_u32(self.groups.len() as u32);
            for (name, group) in &self.groups {
                out.put_short(name.as_bytes());
                put_counted(out, |out| group.encode(out));
            }
            let firsts =
                || self.lanes.iter().filter_map(|(l, lane)| Some((l, lane.parts().next()?)));
            out.put_u8(firsts().count() as u8);
            for (level, part) in firsts() {
                out.put_u8(level.number());
                put_counted(out, |out| part.encode(out));
            }
        });
    }

    /// The ids of sends in their order, so many at a time as [`encode_sent_ids`] makes a section of.
    pub fn sent_ids(&self) -> impl Iterator<Item = Vec<&Sent>> {
        let mut ids = self.sent_ids.iter().map(|(_, sent)| sent);
        std::iter::from_fn(move || {
            let some: Vec<&Sent> = ids.by_ref().take(IDS_IN_A_SECTION).collect();
            (!some.is_empty()).then_some(some)
        })
    }

    /// The subjects of a stream's messages, so many at a time as [`encode_subjects`] makes a section of.
    pub fn subjects(&self) -> impl Iterator<Item = Vec<(u64, &Arc<str>)>> {
        let mut all = self.subjects.iter().flat_map(SubjectsSnapshot::iter);
        std::iter::from_fn(move || {
            let some: Vec<_> = all.by_ref().take(SUBJECTS_IN_A_SECTION).collect();
            (!some.is_empty()).then_some(some)
        })
    }

    /// The consumers of a stream; [`encode_consumer`] makes a section of each.
    pub fn consumers(&self) -> impl Iterator<Item = (&str, &ConsumerSnapshot)> {
        self.consumers.iter().map(|(name, consumer)| (&**name, consumer))
    }

    /// The rest of the lanes; [`encode_part`] makes a section of each.
    pub fn further_parts(&self) -> impl Iterator<Item = (Level, LanePart<'_>)> {
        self.lanes.iter().flat_map(|(level, lane)| lane.parts().skip(1).map(|part| (*level, part)))
    }
}

/// Appends a section with ids of sends.
pub fn encode_sent_ids(ids: &[&Sent], out: &mut Vec<u8>) {
    section::append(out, SENT_IDS, |out| {
        out.put_u32(ids.len() as u32);
        for Sent { id, sent_ms, msg_id } in ids {
            SentOnce { sent_ms: *sent_ms, msg_id: *msg_id, id }.encode(out);
        }
    });
}

/// Reads a section with ids of sends; `None` if it does not follow the layout.
pub fn decode_sent_ids(body: &[u8]) -> Option<Vec<Sent>> {
    let from = &mut Reader::new(body);
    let ids = list(from, |from| {
        let SentOnce { sent_ms, msg_id, id } = SentOnce::decode(from)?;
        Some(Sent { id: id.into(), sent_ms, msg_id })
    })?;
    from.is_empty().then_some(ids)
}

/// Appends a section with subjects: each once, then the messages with the place of theirs in that list.
pub fn encode_subjects(of: &[(u64, &Arc<str>)], out: &mut Vec<u8>) {
    let mut places: HashMap<&str, u32, foldhash::fast::RandomState> = HashMap::default();
    let mut names: Vec<&str> = Vec::new();
    for (_, subject) in of {
        places.entry(subject).or_insert_with(|| {
            names.push(subject);
            names.len() as u32 - 1
        });
    }
    section::append(out, SUBJECTS, |out| {
        out.put_u32(names.len() as u32);
        for name in names {
            out.put_medium(name.as_bytes());
        }
        out.put_u32(of.len() as u32);
        for (msg_id, subject) in of {
            out.put_u64(*msg_id);
            out.put_u32(places.get(&***subject).copied().unwrap_or(0));
        }
    });
}

/// Reads a section with subjects; `None` if it does not follow the layout.
pub fn decode_subjects(body: &[u8]) -> Option<Vec<(u64, Arc<str>)>> {
    let from = &mut Reader::new(body);
    let names: Vec<Arc<str>> = list(from, |from| Some(from.medium_str()?.into()))?;
    let of = list(from, |from| {
        let msg_id = read_id(from)?;
        Some((msg_id, Arc::clone(names.get(from.u32()? as usize)?)))
    })?;
    from.is_empty().then_some(of)
}

/// Appends the section of a consumer.
pub fn encode_consumer(name: &str, consumer: &ConsumerSnapshot, out: &mut Vec<u8>) {
    let kind = match consumer.has_cursors() {
        _ if consumer.has_given_up() => GIVING_UP_CONSUMER,
        true => UNEVEN_CONSUMER,
        false => CONSUMER,
    };
    section::append(out, kind, |out| {
        out.put_short(name.as_bytes());
        consumer.encode(out);
    });
}

/// Appends the section of a part of a lane.
pub fn encode_part(level: Level, part: LanePart<'_>, out: &mut Vec<u8>) {
    section::append(out, LANE, |out| {
        out.put_u8(level.number());
        part.encode(out);
    });
}

/// Reads the section of a part of a lane; `None` if it does not follow the layout.
pub fn decode_part(body: &[u8]) -> Option<(Level, Lane)> {
    let (level, part) = body.split_first()?;
    Some((Level::new(*level)?, Lane::decode(part)?))
}

/// Appends how many bytes `put` appends, and those.
fn put_counted(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let length_at = out.len();
    out.put_u64(0);
    put(out);
    let len = (out.len() - length_at - 8) as u64;
    out[length_at..length_at + 8].copy_from_slice(&len.to_le_bytes());
}

/// A delayed message read back.
pub struct StoredDelay {
    pub delay_id: u64,
    pub due_ms: u64,
    pub expires_ms: u64,
    pub at: Lsn,
    pub len: u32,
}

/// A mailbox read back.
pub struct StoredMailbox {
    pub captured_at: Lsn,
    pub mailbox: Mailbox,
    pub desc: Box<str>,
    pub reserved_ids: u64,
    pub next_delay: u64,
    pub keys: Vec<(u64, Box<str>)>,
    pub expiries: Vec<(u64, u64)>,
    pub delayed: Vec<StoredDelay>,
    pub groups: Vec<(Box<str>, Group)>,
    pub lanes: Vec<(Level, Lane)>,
}

impl StoredMailbox {
    /// Reads a mailbox's section and its policy, still encoded: what that says may be newer than
    /// this version. `None` if it does not follow the layout.
    pub fn decode(body: &[u8]) -> Option<(StoredMailbox, &[u8])> {
        let from = &mut Reader::new(body);
        let captured_at = Lsn::from_number(from.u64()?);
        let number = read_id(from)?;
        let address = from.short_str()?;
        let (created_ms, expires_ms) = (from.u64()?, from.u64()?);
        let mut mailbox = Mailbox::new(number, address, created_ms, expires_ms);
        mailbox.next_id = read_id(from)?;
        let next_id = mailbox.next_id;
        let policy = from.medium()?;
        let stored = StoredMailbox {
            captured_at,
            mailbox,
            desc: from.medium_str()?.into(),
            reserved_ids: read_id(from)?,
            next_delay: read_id(from)?,
            keys: list(from, |from| Some((from.u64()?, from.medium_str()?.into())))?,
            expiries: list(from, |from| Some((from.u64()?, from.u64()?)))?,
            delayed: list(from, |from| {
                Some(StoredDelay {
                    delay_id: read_id(from)?,
                    due_ms: from.u64()?,
                    expires_ms: from.u64()?,
                    at: Lsn::from_number(from.u64()?),
                    len: from.u32()?,
                })
            })?,
            groups: list(from, |from| {
                let name = from.short_str()?.into();
                let len = usize::try_from(from.u64()?).ok()?;
                Some((name, Group::decode(from.take(len)?)?))
            })?,
            lanes: read_lanes(from, next_id)?,
        };
        Some((stored, policy))
    }
}

fn list<'a, T>(
    from: &mut Reader<'a>,
    mut item: impl FnMut(&mut Reader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = from.u32()?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(from)?);
    }
    Some(items)
}

fn read_id(from: &mut Reader<'_>) -> Option<u64> {
    from.u64().filter(|id| *id < MAX_ID)
}

fn read_lanes(from: &mut Reader<'_>, next_id: u64) -> Option<Vec<(Level, Lane)>> {
    let mut lanes: Vec<(Level, Lane)> = Vec::new();
    for _ in 0..from.u8()? {
        let level = Level::new(from.u8()?)?;
        let len = usize::try_from(from.u64()?).ok()?;
        let lane = Lane::decode(from.take(len)?)?;
        let ascends = lanes.last().is_none_or(|(last, _)| *last < level);
        if !ascends || lane.last().is_some_and(|entry| entry.msg_id >= next_id) {
            return None;
        }
        lanes.push((level, lane));
    }
    from.is_empty().then_some(lanes)
}
