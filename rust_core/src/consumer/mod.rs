//! A consumer of a stream: what it was given, what it has done with, and what it is to be given again.
//!
//! Owns positions, outstanding messages and their deadlines. A message is known by its `msg_id`; clients see that plus
//! one. Must not know files, connections beyond their number, or who asks. Each `apply_*` method is the effect of a
//! record; deadlines and the order of what returns are volatile: whoever opens a store says when all that is out comes
//! back. What was returned comes back when whoever returned it said, over restarts as well.

mod codec;
mod finished;
mod given_up;
mod invariants;
mod policy;

use std::collections::{BTreeMap, BTreeSet};

pub use codec::ConsumerSnapshot;
pub use policy::{AckPolicy, ConsumerPolicy, MAX_POLICY, MAX_TEXT};

use self::finished::{End, Finished};
use self::given_up::GivenUp;
use crate::mailbox::{ById, LEVELS, Level, SubjectIx};
use crate::nats;

/// Where a consumer stands: a number of its own deliveries, and one of the stream. Both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Deliveries.
    pub consumer: u64,
    /// Messages of the stream.
    pub stream: u64,
}

/// A message that is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Out {
    /// The number of its first delivery.
    number: u64,
    /// How often it was delivered.
    count: u32,
    /// Its level.
    level: Level,
    /// When it comes back, by the monotonic clock; from [`QUEUED`] on its place among those that have: its level, and
    /// which of that it is.
    back: u64,
}

/// From here on it is no deadline: it waits to be given again.
const QUEUED: u64 = 1 << 63;
/// Where the level stands in such a place.
const LEVEL_SHIFT: u32 = 56;

/// What is remembered of a subject: nothing, or whether it is wanted.
const UNKNOWN: u8 = 0;
const UNWANTED: u8 = 1;
const WANTED: u8 = 2;

/// A consumer.
#[derive(Debug)]
pub struct Consumer {
    /// How it behaves.
    pub policy: ConsumerPolicy,
    /// Its configuration as its creator said it.
    pub config: Box<str>,
    /// Wall time of creation.
    pub created_ms: u64,
    /// How many requests wait for messages.
    pub waiting: usize,
    /// It has looked at no message from here on.
    next: u64,
    /// The first message of each level that it has not looked at: `next`, unless others were more urgent.
    cursors: [u64; LEVELS],
    /// Messages before that which it is given first.
    early: BTreeSet<u64>,
    /// Deliveries so far.
    given: u64,
    /// The highest number of a message that was given, or that of the one before its start.
    last: u64,
    floor: Position,
    out: ById<Out>,
    /// The numbers of their deliveries, once these are in another order than the messages.
    numbers: Option<BTreeSet<u64>>,
    /// Those of them that were delivered more than once.
    redelivered: usize,
    /// Messages that are stored, were delivered as often as allowed, and that nobody has done with.
    given_up: GivenUp,
    /// Messages to come: wanted, and not delivered yet.
    pending: u64,
    /// When what is out comes back, by `back`: first deadlines, then what is to be given again, in its order.
    back: BTreeSet<(u64, u64)>,
    queued: usize,
    /// The next place among what is to be given again.
    next_place: u64,
    /// What was returned and not given again, with the wall time at which it is to come back.
    returned: BTreeMap<u64, u64>,
    /// Which connection holds a message that was given more than once. Volatile.
    holders: BTreeMap<u64, u64>,
    /// Messages that it has done with after others held them.
    finished: Finished,
    wanted: Vec<u8>,
}

impl Consumer {
    /// A consumer that was given nothing: first the messages of `early`, then those from `next` on.
    pub fn new(
        policy: ConsumerPolicy,
        config: &str,
        created_ms: u64,
        next: u64,
        early: BTreeSet<u64>,
    ) -> Consumer {
        let start = early.first().copied().unwrap_or(next);
        Consumer {
            policy,
            config: config.into(),
            created_ms,
            waiting: 0,
            next,
            cursors: [next; LEVELS],
            early,
            given: 0,
            last: start,
            floor: Position { consumer: 0, stream: start },
            out: ById::default(),
            numbers: None,
            redelivered: 0,
            given_up: GivenUp::default(),
            pending: 0,
            back: BTreeSet::new(),
            queued: 0,
            next_place: 0,
            returned: BTreeMap::new(),
            holders: BTreeMap::new(),
            finished: Finished::default(),
            wanted: Vec::new(),
        }
    }

    /// Behaves like this from now on. What it was given stays.
    pub fn change(&mut self, policy: ConsumerPolicy, config: &str) {
        self.policy = policy;
        self.config = config.into();
        self.wanted.clear();
    }

    /// The last delivery.
    pub fn delivered(&self) -> Position {
        Position { consumer: self.given, stream: self.last }
    }

    /// Everything up to here that it was given is done with.
    pub fn floor(&self) -> Position {
        self.floor
    }

    /// Messages that are out.
    pub fn outstanding(&self) -> usize {
        self.out.len()
    }

    /// Messages that were delivered more than once and that nobody has done with.
    pub fn redelivered(&self) -> usize {
        self.redelivered + self.given_up.redelivered()
    }

    /// Messages to come.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Sets how many messages are to come.
    pub fn set_pending(&mut self, pending: u64) {
        self.pending = pending;
    }

    /// Messages that are to be given again.
    pub fn returned(&self) -> usize {
        self.queued
    }

    /// It has looked at no message from here on.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The first message of a level that it has not looked at.
    pub fn next_in(&self, level: Level) -> u64 {
        self.cursors[level.index()]
    }

    /// Whether it has looked further in some level than in another.
    pub fn is_uneven(&self) -> bool {
        self.cursors.iter().any(|cursor| *cursor != self.next)
    }

    /// Whether it has not looked at a message of this level.
    pub fn is_new(&self, level: Level, msg_id: u64) -> bool {
        msg_id >= self.next_in(level)
    }

    /// The message before [`Consumer::next`] that is the next to be given.
    pub fn next_early(&self) -> Option<u64> {
        self.early.first().copied()
    }

    /// There is nothing for it before `next` in this level; in none of them, without a level.
    pub fn pass_over(&mut self, level: Option<Level>, next: u64) {
        match level {
            Some(level) => {
                let cursor = &mut self.cursors[level.index()];
                *cursor = next.max(*cursor);
            }
            None => {
                self.next = self.next.max(next);
                self.cursors = self.cursors.map(|cursor| cursor.max(next));
            }
        }
    }

    /// How often a message that is out was delivered.
    pub fn count(&self, msg_id: u64) -> Option<u32> {
        self.out.get(msg_id).map(|out| out.count)
    }

    /// The number of the first delivery of a message that is out.
    pub fn number(&self, msg_id: u64) -> Option<u64> {
        self.out.get(msg_id).map(|out| out.number)
    }

    /// The level of a message that is out.
    pub fn level(&self, msg_id: u64) -> Option<Level> {
        self.out.get(msg_id).map(|out| out.level)
    }

    /// The messages that are out among these.
    pub fn out_within(&self, first: u64, len: u64) -> Vec<u64> {
        let within = self.out.iter_from(first).map(|(id, _)| id);
        within.take_while(|id| *id - first < len).collect()
    }

    /// The messages among these that are out or given up: of all that it was given, those that it has not done with.
    pub fn open_within(&self, first: u64, len: u64) -> Vec<u64> {
        let mut open = self.out_within(first, len);
        if !self.given_up.is_empty() {
            open.extend(self.given_up.within(first, len));
            open.sort_unstable();
        }
        open
    }

    /// Whether a message was delivered as often as allowed, and nobody has done with it.
    pub fn has_given_up(&self, msg_id: u64) -> bool {
        self.given_up.contains(msg_id)
    }

    /// Whether it has not done with a message, though it is before what it will look at.
    pub fn has_before_it(&self, msg_id: u64) -> bool {
        self.out.get(msg_id).is_some()
            || self.early.contains(&msg_id)
            || self.given_up.contains(msg_id)
    }

    /// Whether a message is for it, and it has not done with it.
    pub fn needs(&mut self, msg_id: u64, ix: SubjectIx, subject: &str) -> bool {
        (msg_id >= self.next || self.has_before_it(msg_id)) && self.wants(ix, subject)
    }

    /// The messages that it is given first.
    pub fn early(&self) -> impl Iterator<Item = u64> + '_ {
        self.early.iter().copied()
    }

    /// Whether a new delivery would be one too many to be out.
    pub fn is_full(&self) -> bool {
        let most = self.policy.max_ack_pending as usize;
        most > 0 && self.out.len() >= most
    }

    /// Whether messages of a subject are for it. The answer is remembered.
    pub fn wants(&mut self, ix: SubjectIx, subject: &str) -> bool {
        if self.policy.filters.is_empty() {
            return true;
        }
        let at = ix as usize;
        if self.wanted.len() <= at {
            self.wanted.resize(at + 1, UNKNOWN);
        }
        if self.wanted[at] == UNKNOWN {
            let wanted = self.policy.wants(subject);
            self.wanted[at] = if wanted { WANTED } else { UNWANTED };
        }
        self.wanted[at] == WANTED
    }

    /// The short name of a subject will be another's.
    pub fn forget_subject(&mut self, ix: SubjectIx) {
        if let Some(wanted) = self.wanted.get_mut(ix as usize) {
            *wanted = UNKNOWN;
        }
    }

    /// A message was stored; true if it is for this consumer.
    pub fn note_stored(&mut self, msg_id: u64, ix: SubjectIx, subject: &str) -> bool {
        let is_new = msg_id >= self.next && self.wants(ix, subject);
        self.pending += u64::from(is_new);
        is_new
    }

    /// A message has gone from the stream: whoever had it has done with it. True if it was out.
    pub fn note_removed(
        &mut self,
        (level, msg_id): (Level, u64),
        ix: SubjectIx,
        subject: &str,
    ) -> bool {
        if self.early.remove(&msg_id) || (self.is_new(level, msg_id) && self.wants(ix, subject)) {
            self.pending = self.pending.saturating_sub(1);
        }
        self.apply_done(msg_id)
    }

    /// All messages before `next` have gone from the stream: there is nothing more to do with them.
    pub fn apply_purged(&mut self, next: u64) {
        self.early.clear();
        self.out = ById::default();
        self.numbers = None;
        (self.redelivered, self.queued, self.pending) = (0, 0, 0);
        self.back.clear();
        self.returned.clear();
        self.holders.clear();
        self.given_up = GivenUp::default();
        self.finished = Finished::default();
        // Short names of subjects begin anew.
        self.wanted.clear();
        self.pass_over(None, next);
        self.last = self.next;
        self.floor = self.delivered();
    }

    /// A message was given to it for the n-th time; if it must be acknowledged, it comes back at `deadline_ms`. Without a
    /// level it is not there any more.
    pub fn apply_given(&mut self, msg_id: u64, level: Option<Level>, count: u32, deadline_ms: u64) {
        self.given += 1;
        self.returned.remove(&msg_id);
        self.holders.remove(&msg_id);
        self.given_up.remove(msg_id);
        let back = deadline_ms.min(QUEUED - 1);
        if let Some(out) = self.out.get_mut(msg_id) {
            let before = std::mem::replace(out, Out { count, back, ..*out });
            self.redelivered += usize::from(before.count == 1 && count > 1);
            self.end_wait(msg_id, before.back);
            self.begin_wait(msg_id, back);
            return;
        }
        self.pending = self.pending.saturating_sub(1);
        let is_behind = msg_id < self.last.saturating_sub(1);
        self.last = self.last.max(msg_id + 1);
        self.floor.stream = self.floor.stream.min(msg_id);
        self.early.remove(&msg_id);
        self.next = self.next.max(msg_id + 1);
        if level.is_some() {
            self.pass_over(level, msg_id + 1);
        }
        if self.policy.ack == AckPolicy::None {
            self.floor = self.delivered();
            return;
        }
        self.out.insert(
            msg_id,
            Out { number: self.given, count, level: level.unwrap_or_default(), back },
        );
        if is_behind && self.numbers.is_none() {
            self.numbers = Some(self.out.iter().map(|(_, out)| out.number).collect());
        } else if let Some(numbers) = &mut self.numbers {
            numbers.insert(self.given);
        }
        self.redelivered += usize::from(count > 1);
        self.begin_wait(msg_id, back);
    }

    /// A message that is out was returned, to come back at this wall time.
    pub fn apply_returned(&mut self, msg_id: u64, due_ms: u64) {
        if self.out.get(msg_id).is_some() {
            self.returned.insert(msg_id, due_ms);
        }
    }

    /// This connection holds a message that is out.
    pub fn note_holder(&mut self, msg_id: u64, conn: u64) {
        if self.out.get(msg_id).is_some_and(|out| out.count > 1) {
            self.holders.insert(msg_id, conn);
        }
    }

    /// Whether somebody else was given a message after this connection was given it for the n-th time.
    /// That the message is done with by now changes nothing.
    pub fn is_late(&self, msg_id: u64, count: u32, conn: u64) -> bool {
        let (last, holder) = match (self.out.get(msg_id), self.finished.get(msg_id)) {
            (Some(out), _) => (out.count, self.holders.get(&msg_id).copied()),
            (None, Some(End::Done { count, holder })) => (count, holder),
            _ => return false,
        };
        count < last && holder != Some(conn)
    }

    /// Whether nobody has done with a message before it became a dead letter.
    pub fn is_dead_letter(&self, msg_id: u64) -> bool {
        self.finished.get(msg_id) == Some(End::DeadLetter)
    }

    /// It has done with a message, or with one that it had given up; false if that was not out.
    pub fn apply_done(&mut self, msg_id: u64) -> bool {
        self.given_up.remove(msg_id);
        let Some(out) = self.take(msg_id) else { return false };
        match self.out.iter().next() {
            None => self.floor = self.delivered(),
            Some((first, next)) if out.number == self.floor.consumer + 1 => {
                let least = self.numbers.as_ref().and_then(|numbers| numbers.first().copied());
                let number = least.unwrap_or(next.number);
                self.floor = Position { consumer: number - 1, stream: first };
            }
            Some((first, _)) if self.numbers.is_some() && msg_id < first => {
                self.floor.stream = first;
            }
            Some(_) => {}
        }
        true
    }

    /// A message was delivered as often as allowed, and is a dead letter from now on.
    pub fn apply_moved(&mut self, msg_id: u64) {
        if self.apply_done(msg_id) {
            self.finished.note(msg_id, End::DeadLetter);
        }
    }

    /// A message will not be given again, though nobody has done with it: the floor stays.
    pub fn apply_given_up(&mut self, msg_id: u64) {
        if let Some(out) = self.take(msg_id) {
            self.given_up.insert(msg_id, out.count > 1);
        }
    }

    fn take(&mut self, msg_id: u64) -> Option<Out> {
        let out = self.out.remove(msg_id)?;
        self.redelivered -= usize::from(out.count > 1);
        if let Some(numbers) = &mut self.numbers {
            numbers.remove(&out.number);
        }
        if self.out.is_empty() {
            self.numbers = None;
        }
        self.returned.remove(&msg_id);
        let holder = self.holders.remove(&msg_id);
        if out.count > 1 {
            self.finished.note(msg_id, End::Done { count: out.count, holder });
        }
        self.end_wait(msg_id, out.back);
        Some(out)
    }

    fn begin_wait(&mut self, msg_id: u64, back: u64) {
        self.queued += usize::from(back >= QUEUED);
        self.back.insert((back, msg_id));
    }

    fn end_wait(&mut self, msg_id: u64, back: u64) {
        self.queued -= usize::from(back >= QUEUED);
        self.back.remove(&(back, msg_id));
    }

    /// A message that is out comes back then, by the monotonic clock; false if it is not out.
    pub fn set_deadline(&mut self, msg_id: u64, deadline_ms: u64) -> bool {
        self.set_back(msg_id, deadline_ms.min(QUEUED - 1))
    }

    /// Whether a message was returned and not given again since.
    pub fn is_returned(&self, msg_id: u64) -> bool {
        self.returned.contains_key(&msg_id)
    }

    /// A message that is out has come back, behind those of its level that have already; false if it is not out.
    pub fn come_back(&mut self, msg_id: u64) -> bool {
        let Some(out) = self.out.get(msg_id) else { return false };
        if out.back >= QUEUED {
            return true;
        }
        let level = (out.level.index() as u64) << LEVEL_SHIFT;
        self.next_place += 1;
        self.set_back(msg_id, QUEUED + level + self.next_place - 1)
    }

    fn set_back(&mut self, msg_id: u64, back: u64) -> bool {
        let Some(out) = self.out.get_mut(msg_id) else { return false };
        let before = std::mem::replace(&mut out.back, back);
        self.end_wait(msg_id, before);
        self.begin_wait(msg_id, back);
        true
    }

    /// When the next message comes back.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.back.first().map(|&(back, _)| back).filter(|back| *back < QUEUED)
    }

    /// Lets messages come back whose deadline has come, up to `most`, and says which.
    pub fn end_deadlines(&mut self, now_mono_ms: u64, most: usize) -> Vec<u64> {
        let until = now_mono_ms.min(QUEUED - 1);
        let due = self.back.iter().take_while(|(back, _)| *back <= until);
        let due: Vec<u64> = due.map(|&(_, msg_id)| msg_id).take(most).collect();
        for &msg_id in &due {
            self.come_back(msg_id);
        }
        due
    }

    /// Whether a message waits to be given again.
    pub fn is_back(&self, msg_id: u64) -> bool {
        self.out.get(msg_id).is_some_and(|out| out.back >= QUEUED)
    }

    /// Messages to be given again: the most urgent first, those of a level as they came back.
    pub fn all_again(&self) -> impl Iterator<Item = u64> + '_ {
        self.back.range((QUEUED, 0)..).map(|&(_, msg_id)| msg_id)
    }

    /// After a recovery: forgets what is out or given up of messages that are not there and so have no level, and lets what
    /// is out come back then, or when whoever returned it said.
    pub fn recover(
        &mut self,
        level_of: impl Fn(u64) -> Option<Level>,
        deadline_ms: u64,
        wall_to_mono: impl Fn(u64) -> u64,
    ) {
        let all: Vec<u64> = self.out.iter().map(|(msg_id, _)| msg_id).collect();
        for msg_id in all {
            let Some(level) = level_of(msg_id) else {
                self.apply_done(msg_id);
                continue;
            };
            if let Some(out) = self.out.get_mut(msg_id) {
                out.level = level;
            }
            match self.returned.get(&msg_id) {
                Some(due_ms) => {
                    self.set_deadline(msg_id, wall_to_mono(*due_ms));
                }
                None => {
                    self.set_deadline(msg_id, deadline_ms);
                }
            }
        }
        self.early.retain(|msg_id| level_of(*msg_id).is_some());
        self.given_up.retain(|msg_id| level_of(msg_id).is_some());
    }

    /// How much a snapshot copies.
    pub fn unshared(&self) -> usize {
        let shared_in_part = self.out.unshared() + self.given_up.unshared();
        1 + shared_in_part + self.early.len() + self.returned.len()
    }
}

impl ConsumerPolicy {
    /// Whether messages of a subject are for the consumer.
    pub fn wants(&self, subject: &str) -> bool {
        let matches = |filter: &str| nats::matches(filter.as_bytes(), subject.as_bytes());
        self.filters.is_empty() || self.filters.iter().any(|filter| matches(filter))
    }
}
