//! A mailbox: its lanes, keys, delayed messages and limits. Knows nothing of groups, files or clocks.

mod address;
mod blocks;
mod by_id;
mod chunk;
mod chunks;
mod extras;
mod invariants;
pub mod lane;
mod lane_codec;
mod level;
mod packing;
mod policy;
mod sent_ids;
mod subjects;

use std::ops::Range;
use std::sync::LazyLock;

use smallvec::SmallVec;
use smol_str::SmolStr;

use crate::timer::TimerKey;

pub use address::{MAX_ADDRESS, check_address, check_name};
pub use by_id::ById;
pub use extras::{Delayed, Extras};
pub use lane::{Entry, Lane};
pub use lane_codec::{LanePart, LaneSnapshot};
pub use level::{LEVELS, Level};
pub use policy::{DEDUP_WINDOW_MS, Discard, MessageTtls, Policy, Tier};
pub use sent_ids::{MAX_SENT_IDS, Sent, SentIds};
pub use subjects::{SubjectIx, Subjects, SubjectsSnapshot};

/// Entry flag: the message has a key.
pub const KEYED: u8 = 1;
/// Entry flag: the message has an expiry of its own.
pub const EXPIRES: u8 = 2;

/// Addresses of the mailboxes of streams begin like this: no client can name them.
pub const STREAM_PREFIX: &str = "$js.";

static DEFAULT_POLICY: LazyLock<Policy> = LazyLock::new(Policy::default);

/// A mailbox and the index of its messages. Small while empty: a million of them must fit.
#[derive(Debug)]
pub struct Mailbox {
    /// Its number in the log, never reused.
    pub number: u64,
    /// Its address.
    pub address: SmolStr,
    /// Wall time of creation.
    pub created_ms: u64,
    /// Wall time of expiry; 0 is never.
    pub expires_ms: u64,
    /// The `msg_id` of the next message.
    pub next_id: u64,
    /// Bytes of its messages as stored, delayed ones included.
    pub bytes: u64,
    /// One lane per level that has ever been used, most important first. Most mailboxes only ever have one.
    lanes: SmallVec<[(Level, Lane); 1]>,
    policy: Option<Box<Policy>>,
    extras: Option<Box<Extras>>,
}

/// So many subjects are looked at before messages are.
const FEW_SUBJECTS: usize = 256;
/// Most messages that are looked at before all subjects are.
const NEWEST_MESSAGES: usize = 4096;

/// It would take too long to look at all subjects that may match.
#[derive(Debug)]
pub struct TooManySubjects;

impl Mailbox {
    /// An empty mailbox.
    pub fn new(number: u64, address: &str, created_ms: u64, expires_ms: u64) -> Mailbox {
        Mailbox {
            number,
            address: address.into(),
            created_ms,
            expires_ms,
            next_id: 0,
            bytes: 0,
            lanes: SmallVec::new(),
            policy: None,
            extras: None,
        }
    }

    /// Its policy.
    pub fn policy(&self) -> &Policy {
        self.policy.as_deref().unwrap_or(&DEFAULT_POLICY)
    }

    /// Sets its policy.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = (policy != Policy::default()).then(|| Box::new(policy));
    }

    /// Whether it holds the messages of a stream: what other mailboxes have as a key is a subject there.
    pub fn is_stream(&self) -> bool {
        self.address.starts_with(STREAM_PREFIX)
    }

    /// The subjects of a stream's messages.
    pub fn subjects(&self) -> Option<&Subjects> {
        self.extras.as_ref()?.subjects.as_deref()
    }

    /// The subjects of a stream's messages that match.
    pub fn matching(&self, filter: &str) -> Vec<SubjectIx> {
        let Some(subjects) = self.subjects() else { return Vec::new() };
        if !crate::nats::has_wildcard(filter.as_bytes()) {
            return subjects.find(filter).map(|(ix, _)| ix).into_iter().collect();
        }
        let matches = |s: &str| crate::nats::matches(filter.as_bytes(), s.as_bytes());
        subjects.beginning_as(filter).filter(|(_, name)| matches(name)).map(|(ix, _)| ix).collect()
    }

    /// The messages of a stream that have this subject, from `from` on.
    pub fn of_subject(&self, ix: SubjectIx, from: u64) -> impl Iterator<Item = u64> + '_ {
        let ids = self.iter_from(from).map(|(_, entry)| entry.msg_id);
        let subjects = self.subjects();
        ids.filter(move |id| subjects.and_then(|subjects| subjects.of(*id)) == Some(ix))
    }

    /// The last message of a stream that has this subject.
    pub fn last_of(&self, subject: &str) -> Option<u64> {
        let subjects = self.subjects()?;
        let (ix, known) = subjects.find(subject)?;
        let mut ids = self.iter_back(known.last + 1).map(|(_, entry)| entry.msg_id);
        ids.find(|msg_id| subjects.of(*msg_id) == Some(ix))
    }

    /// The last message of a stream whose subject matches. Fails if more than `most` subjects would have to be looked at to
    /// find it: others wait meanwhile.
    pub fn last_matching(&self, filter: &str, most: usize) -> Result<Option<u64>, TooManySubjects> {
        if !crate::nats::has_wildcard(filter.as_bytes()) {
            return Ok(self.last_of(filter));
        }
        let Some(subjects) = self.subjects() else { return Ok(None) };
        let matches = |name: &str| crate::nats::matches(filter.as_bytes(), name.as_bytes());
        if subjects.beginning_as(filter).nth(FEW_SUBJECTS).is_some() {
            // Of many subjects mostly one of the newest messages has one that matches.
            let name = |id: &u64| subjects.get(subjects.of(*id)?).map(|known| &known.subject);
            let newest = self.iter_back(self.next_id).map(|(_, entry)| entry.msg_id);
            let mut newest = newest.take(NEWEST_MESSAGES);
            if let Some(id) = newest.find(|id| name(id).is_some_and(|name| matches(name))) {
                return Ok(Some(id));
            }
        }
        let (mut end, mut wanted) = (0, Vec::new());
        for (nth, (ix, name)) in subjects.beginning_as(filter).enumerate() {
            if nth == most {
                return Err(TooManySubjects);
            }
            if matches(name) {
                end = end.max(subjects.get(ix).map_or(0, |known| known.last + 1));
                wanted.resize(wanted.len().max(ix as usize + 1), false);
                wanted[ix as usize] = true;
            }
        }
        let is_it = |id: &u64| subjects.of(*id).and_then(|ix| wanted.get(ix as usize).copied());
        let mut ids = self.iter_back(end).map(|(_, entry)| entry.msg_id);
        Ok(ids.find(|id| is_it(id) == Some(true)))
    }

    /// Takes the timer of the oldest message of a stream.
    pub fn take_age_timer(&mut self) -> Option<TimerKey> {
        self.extras.as_mut()?.age_timer.take()
    }

    /// What only some mailboxes have: keys, expiries, delayed messages, memory payloads.
    pub fn extras(&self) -> Option<&Extras> {
        self.extras.as_deref()
    }

    /// The same, made on first use.
    pub fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// The ids of sends, if there are any.
    pub fn sent_ids_mut(&mut self) -> Option<&mut SentIds> {
        self.extras.as_mut()?.sent_ids.as_deref_mut()
    }

    /// True once `now_ms` has reached its expiry.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms != 0 && now_ms >= self.expires_ms
    }

    /// Its lanes, most important first.
    pub fn lanes(&self) -> &[(Level, Lane)] {
        &self.lanes
    }

    /// Messages that have a `msg_id`.
    pub fn visible(&self) -> usize {
        self.lanes.iter().map(|(_, lane)| lane.len()).sum()
    }

    /// All messages held, delayed ones included.
    pub fn messages(&self) -> usize {
        self.visible() + self.extras().map_or(0, |s| s.delayed.len())
    }

    /// Messages and bytes that count to its limits. In a stream, what waits for its time has limits of its own.
    pub fn limited(&self) -> (u64, u64) {
        if self.is_stream() {
            (self.visible() as u64, self.bytes.saturating_sub(self.delayed_bytes()))
        } else {
            (self.messages() as u64, self.bytes)
        }
    }

    /// The bytes of delayed messages.
    pub fn delayed_bytes(&self) -> u64 {
        self.extras().map_or(0, |extras| extras.delayed_bytes)
    }

    /// Replaces all lanes, as read from a checkpoint. Their bytes are counted when all is read.
    pub fn set_lanes(&mut self, mut lanes: Vec<(Level, Lane)>) {
        lanes.sort_by_key(|(level, _)| *level);
        self.lanes = lanes.into_iter().collect();
    }

    /// The lane of `level`, made on first use.
    pub fn lane_mut(&mut self, level: Level) -> &mut Lane {
        let at = match self.lanes.binary_search_by_key(&level, |(l, _)| *l) {
            Ok(at) => at,
            Err(at) => {
                self.lanes.insert(at, (level, Lane::default()));
                at
            }
        };
        &mut self.lanes[at].1
    }

    /// Appends what a checkpoint holds of a lane; false if it does not follow what is there.
    pub fn extend_lane(&mut self, level: Level, part: Lane) -> bool {
        let known = part.last().is_none_or(|entry| entry.msg_id < self.next_id);
        known && self.lane_mut(level).append(part)
    }

    /// The level and entry of a message.
    pub fn get(&self, msg_id: u64) -> Option<(Level, Entry)> {
        self.lanes.iter().find_map(|(level, lane)| Some((*level, lane.get(msg_id)?)))
    }

    /// The messages of a level with ids in `ids`, ascending.
    pub fn ids_in(&self, level: Level, ids: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let lane = self.lanes.binary_search_by_key(&level, |(l, _)| *l).ok();
        let lane = lane.filter(|_| !ids.is_empty()).map(|at| &self.lanes[at].1);
        let found = lane.into_iter().flat_map(move |lane| lane.iter_from(ids.start));
        found.map(|entry| entry.msg_id).take_while(move |msg_id| *msg_id < ids.end)
    }

    /// Puts a message into its lane and counts it.
    pub fn put(&mut self, level: Level, entry: Entry) {
        self.next_id = self.next_id.max(entry.msg_id + 1);
        self.bytes += u64::from(entry.len);
        self.lane_mut(level).put(entry);
    }

    /// Takes a message out of its lane, with its key and memory payload.
    pub fn take(&mut self, msg_id: u64) -> Option<(Level, Entry)> {
        let mut lanes = self.lanes.iter_mut();
        let (level, entry) =
            lanes.find_map(|(level, lane)| Some((*level, lane.remove(msg_id)?)))?;
        self.bytes = self.bytes.saturating_sub(u64::from(entry.len));
        if let Some(extras) = &mut self.extras {
            extras.forget(&entry);
        }
        Some((level, entry))
    }

    /// Takes out all messages, delayed ones too, as a mailbox that no address leads to. What is left is empty, and goes on
    /// with the same numbers.
    pub fn take_messages(&mut self) -> Mailbox {
        let Mailbox { number, created_ms, expires_ms, next_id, .. } = *self;
        Mailbox {
            number,
            address: self.address.clone(),
            created_ms,
            expires_ms,
            next_id,
            bytes: std::mem::take(&mut self.bytes),
            lanes: std::mem::take(&mut self.lanes),
            policy: None,
            extras: self.extras.as_mut().map(|extras| Box::new(extras.take_messages())),
        }
    }

    /// Reads the mailbox itself. What this and the next return means nothing: they are there to have the memory read
    /// that a new message needs, the second from where the first says.
    #[inline]
    pub fn read(&self) -> u64 {
        let own = self.number ^ self.next_id ^ self.bytes ^ self.expires_ms;
        own ^ self.address.len() as u64
            ^ self.lanes.first().map_or(0, |(_, lane)| lane.len() as u64)
    }

    /// Reads its address and the end of its first lane: most mailboxes have one.
    #[inline]
    pub fn read_parts(&self) -> u64 {
        let letter = self.address.as_bytes().last().copied().unwrap_or(0);
        u64::from(letter) ^ self.lanes.first().map_or(0, |(_, lane)| lane.read_tail())
    }

    /// The oldest message.
    pub fn oldest(&self) -> Option<u64> {
        self.lanes.iter().filter_map(|(_, lane)| lane.first()).map(|e| e.msg_id).min()
    }

    /// Where a group starts so that it gets only what comes from now on.
    pub fn start_latest(&self) -> [u64; LEVELS] {
        [self.next_id; LEVELS]
    }

    /// Where a group starts so that it gets, in each lane, the first message created at or after
    /// `ms` and everything behind it.
    pub fn start_since(&self, ms: u64) -> [u64; LEVELS] {
        let mut start = self.start_latest();
        for (level, lane) in &self.lanes {
            if let Some(id) = lane.first_since(ms) {
                start[level.index()] = id;
            }
        }
        start
    }

    /// Messages in `msg_id` order from `from` on, whatever their levels.
    pub fn iter_from(&self, from: u64) -> impl Iterator<Item = (Level, Entry)> + '_ {
        merge(self.lanes.iter().map(move |(l, lane)| (*l, lane.iter_from(from))), |e| e.msg_id)
    }

    /// Messages in descending `msg_id` order from before `end` on.
    pub fn iter_back(&self, end: u64) -> impl Iterator<Item = (Level, Entry)> + '_ {
        merge(self.lanes.iter().map(move |(l, lane)| (*l, lane.iter_back(end))), |e| !e.msg_id)
    }
}

/// Merges at most [`LEVELS`] sorted lanes into one sequence, smallest `rank` first.
fn merge<I: Iterator<Item = Entry>>(
    lanes: impl Iterator<Item = (Level, I)>,
    rank: impl Fn(&Entry) -> u64,
) -> impl Iterator<Item = (Level, Entry)> {
    let mut heads: Vec<_> = lanes.map(|(level, lane)| (level, lane.peekable())).collect();
    std::iter::from_fn(move || {
        let ranked = heads.iter_mut().filter_map(|(level, lane)| {
            let rank = rank(lane.peek()?);
            Some((rank, *level, lane))
        });
        let (_, level, lane) = ranked.min_by_key(|(rank, ..)| *rank)?;
        Some((level, lane.next()?))
    })
}
