//! Activity of mailboxes, for an operator who watches: counters of groups, and which mailboxes have changed.
//!
//! Owns the journal of changes and what a row of it says. Nothing here is durable: counters begin with the process.
//! While nobody watches, a change costs one comparison. While somebody does, a mailbox is listed once between two
//! looks, however often it changes.

use std::collections::VecDeque;

use serde::{Serialize, Serializer};

use super::Store;
use super::consumers::{ConsumerSlot, Consumers};
use super::indexes::{GroupIx, SlotIx};
use super::slot::{GroupSlot, Slot};
use super::stream_info::floor_of;
use crate::group::Delivered;
use crate::mailbox::Mailbox;
use crate::time::Now;

/// Entries kept for a second watcher who is behind the first.
const KEPT: usize = 1 << 16;
/// Groups that a row tells of; of more it tells how many there are, and whoever wants them asks for them.
const GROUPS: usize = 32;
/// Durations are counted by powers of two of a millisecond.
const BUCKETS: usize = 32;

/// Which mailboxes have changed, in the order of their first change since the last look.
#[derive(Debug, Default)]
pub struct Journal {
    entries: VecDeque<SlotIx>,
    /// The number of the first entry; numbers begin at 1.
    base: u64,
    /// A mailbox whose last entry is older than this one is listed anew; 0 while nobody watches.
    fence: u64,
    /// By place, the number of the last entry of the mailbox there. Not in the slot, which has no room; not read while
    /// nobody watches.
    listed: Vec<u64>,
}

impl Journal {
    fn next(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// A mailbox has changed, come or gone.
    #[inline]
    pub fn touch(&mut self, index: SlotIx) {
        if self.fence > 0 {
            self.list(index);
        }
    }

    fn list(&mut self, index: SlotIx) {
        let (at, next) = (index.0 as usize, self.next());
        if at >= self.listed.len() {
            self.listed.resize(at + 1, 0);
        }
        if self.listed[at] < self.fence {
            self.listed[at] = next;
            self.entries.push_back(index);
        }
    }

    /// Whether this is the last entry of the mailbox in a place.
    fn is_last(&self, index: SlotIx, number: u64) -> bool {
        self.listed.get(index.0 as usize) == Some(&number)
    }

    /// Lets the next look begin here, and forgets what no watcher is likely to ask for.
    fn look(&mut self, read_to: u64, mailboxes: usize) {
        if self.base == 0 {
            self.base = 1;
        }
        // What was read may change again at once, also while the rest is not read yet.
        let read_all = if read_to == 0 { self.next() } else { read_to };
        self.fence = self.fence.max(read_all);
        let read = read_to.saturating_sub(self.base) as usize;
        let spare = read.saturating_sub(KEPT.max(mailboxes));
        self.entries.drain(..spare);
        self.base += spare as u64;
    }
}

/// What a group has done since the broker started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GroupCounts {
    /// Messages given out, those given again included.
    pub delivered: u64,
    /// Of these, messages given again.
    pub redelivered: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Messages returned undone.
    pub returned: u64,
    /// Messages given up.
    pub dead: u64,
    /// From the creation of a message to its acknowledgement: one message of each ACK.
    #[serde(serialize_with = "up_to_last")]
    durations: Option<Box<[u32; BUCKETS]>>,
}

/// Without the zeros at the end.
fn up_to_last<S: Serializer>(
    durations: &Option<Box<[u32; BUCKETS]>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let counts = durations.as_deref().map_or(&[][..], |counts| &counts[..]);
    let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    to.collect_seq(&counts[..used])
}

impl GroupCounts {
    /// The same deliveries, counted as they pass. Those that recovery reads (not `live`) were counted by the process
    /// that wrote them.
    pub fn noting<'a>(
        &'a mut self,
        deliveries: impl IntoIterator<Item = Delivered> + 'a,
        live: bool,
    ) -> impl Iterator<Item = Delivered> + 'a {
        let step = u64::from(live);
        deliveries.into_iter().inspect(move |delivered| {
            self.delivered += step;
            self.redelivered += step * u64::from(delivered.count > 1);
        })
    }

    /// A message was acknowledged so long after its creation.
    pub fn note_duration(&mut self, ms: u64) {
        let bucket = (u64::BITS - ms.leading_zeros()) as usize;
        let durations = self.durations.get_or_insert_with(|| Box::new([0; BUCKETS]));
        let count = &mut durations[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(1);
    }

    /// How many took less than 1 ms, 2 ms, 4 ms, and so on; empty if none was measured.
    pub fn durations(&self) -> &[u32] {
        self.durations.as_deref().map_or(&[], |counts| &counts[..])
    }
}

/// What an operator sees of a mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Activity {
    /// Its place; free for another mailbox once it has gone.
    pub slot: u32,
    /// Its address.
    pub address: String,
    /// The stream that it holds; then its groups are the consumers of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Wall time of creation.
    pub created_ms: u64,
    /// Wall time of expiry; 0 is never.
    pub expires_ms: u64,
    /// The `msg_id` of the next message: how many there have ever been.
    pub next_id: u64,
    /// Messages that are not due yet.
    pub delayed: u64,
    /// Bytes of all messages as stored.
    pub bytes: u64,
    /// When the oldest message was created; 0 without one.
    pub oldest_ms: u64,
    /// Messages of each level in use.
    pub levels: Vec<(u8, u64)>,
    /// Whether acknowledged messages go.
    pub work_queue: bool,
    /// Where dead letters go; empty if nowhere.
    pub dead_letter: String,
    /// How many groups it has.
    pub group_count: u64,
    /// The first of them; [`Store::group_activities`] tells the others.
    pub groups: Vec<GroupActivity>,
}

/// What an operator sees of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupActivity {
    /// Its name.
    pub name: String,
    /// Messages that it was not given yet.
    pub lag: u64,
    /// Messages given out and not acknowledged.
    pub outstanding: u64,
    /// Members whose time to work on what they hold is not over, and fetches that wait.
    pub members: u64,
    /// When the oldest message was created that it has not done with; 0 without one.
    pub oldest_ms: u64,
    /// Wall time at which it was last used.
    pub used_ms: u64,
    /// What subjects of its dead letters begin with, if it is a consumer that asks for some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<Box<str>>,
    /// What it has done.
    #[serde(flatten)]
    pub counts: GroupCounts,
}

impl GroupActivity {
    /// As JSON, with the names of its fields.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Activity {
    /// As JSON, with the names of its fields.
    pub fn to_json(&self) -> Vec<u8> {
        // Numbers and texts can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Mailboxes that have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Whether changes are missing: everything has to be read anew, then what comes after `next`.
    pub reset: bool,
    /// Where the next look begins.
    pub next: u64,
    /// Whether there are more already.
    pub more: bool,
    /// Those that are there.
    pub changed: Vec<Activity>,
    /// Places of those that are not.
    pub gone: Vec<u32>,
}

impl Store {
    /// Mailboxes that changed after the look that said `next`, at most `limit` of them; with 0, where to begin.
    pub fn changes(&mut self, after: u64, limit: usize, now: Now) -> Watched {
        self.tick(now);
        let mailboxes = self.state.len();
        let journal = &mut self.state.journal;
        if after < journal.base || after > journal.next() || journal.fence == 0 {
            journal.look(0, mailboxes);
            let next = journal.next();
            return Watched { reset: true, next, more: false, changed: vec![], gone: vec![] };
        }
        let from = (after - journal.base) as usize;
        let found: Vec<_> = journal.entries.range(from..).take(limit).copied().collect();
        let next = after + found.len() as u64;
        let more = next < journal.next();
        let mut watched = Watched { reset: false, next, more, changed: vec![], gone: vec![] };
        for (number, index) in (after..).zip(found) {
            // One that changed again since is listed further on.
            if self.state.journal.is_last(index, number) {
                match self.state.slot(index) {
                    None => watched.gone.push(index.0),
                    Some(slot) => watched.changed.push(self.activity(index, slot, now)),
                }
            }
        }
        self.state.journal.look(next, mailboxes);
        watched
    }

    /// Up to `limit` mailboxes from place `from` on, and the place to go on with. Looks at no more than 16 times as many
    /// places.
    pub fn activities(&self, from: u32, limit: usize, now: Now) -> (Vec<Activity>, Option<u32>) {
        let mut list = Vec::new();
        for (seen, index) in self.state.indexes(from).enumerate() {
            if list.len() >= limit || seen >= limit.saturating_mul(16) {
                return (list, Some(index.0));
            }
            if let Some(slot) = self.state.slot(index) {
                list.push(self.activity(index, slot, now));
            }
        }
        (list, None)
    }

    fn activity(&self, index: SlotIx, slot: &Slot, now: Now) -> Activity {
        let mailbox = &slot.mailbox;
        let lanes = mailbox.lanes();
        let oldest = lanes.iter().filter_map(|(_, lane)| lane.first());
        let used = lanes.iter().filter(|(_, lane)| !lane.is_empty());
        let policy = mailbox.policy();
        Activity {
            slot: index.0,
            address: mailbox.address.to_string(),
            stream: policy.stream.as_deref().map(str::to_owned),
            created_ms: mailbox.created_ms,
            expires_ms: mailbox.expires_ms,
            next_id: mailbox.next_id,
            delayed: mailbox.extras().map_or(0, |extras| extras.delayed.len() as u64),
            bytes: mailbox.bytes,
            oldest_ms: oldest.map(|entry| entry.create_ms).min().unwrap_or(0),
            levels: used.map(|(level, lane)| (level.number(), lane.len() as u64)).collect(),
            work_queue: policy.work_queue,
            dead_letter: policy.dead_letter.as_deref().unwrap_or_default().to_owned(),
            group_count: (slot.group_count() + slot.consumers().map_or(0, Consumers::len)) as u64,
            groups: self.groups_from(index, slot, 0, now).take(GROUPS).collect(),
        }
    }

    /// The address in a place and its groups from number `from` on, at most `limit`: for mailboxes with more than a row
    /// tells of. Nothing if the place is free.
    pub fn group_activities(
        &self,
        place: u32,
        from: usize,
        limit: usize,
        now: Now,
    ) -> Option<(String, Vec<GroupActivity>)> {
        let index = SlotIx(place);
        let slot = self.state.slot(index)?;
        let groups = self.groups_from(index, slot, from, now).take(limit).collect();
        Some((slot.mailbox.address.to_string(), groups))
    }

    /// Groups, then consumers, but for the first ones.
    fn groups_from<'a>(
        &'a self,
        index: SlotIx,
        slot: &'a Slot,
        from: usize,
        now: Now,
    ) -> impl Iterator<Item = GroupActivity> + 'a {
        let consumers = slot.consumers().into_iter().flat_map(Consumers::iter);
        let consumers = consumers.skip(from.saturating_sub(slot.group_count()));
        let groups = slot.groups().skip(from).map(move |g| self.of_group(index, slot, g, now));
        groups.chain(consumers.map(move |(_, c)| of_consumer(&slot.mailbox, c, now)))
    }

    fn of_group(&self, index: SlotIx, slot: &Slot, group: &GroupSlot, now: Now) -> GroupActivity {
        let cursors = group.group.cursors();
        let lanes = slot.mailbox.lanes().iter();
        let lag = lanes.map(|(level, lane)| lane.count_from(cursors[level.index()])).sum::<usize>();
        let waiting = self.waiters.waits_of_group(index, &group.name);
        let lanes = slot.mailbox.lanes().iter();
        let unread =
            lanes.filter_map(|(level, lane)| lane.iter_from(cursors[level.index()]).next());
        let held = group.group.first_outstanding().and_then(|msg_id| slot.mailbox.get(msg_id));
        let oldest = unread.chain(held.map(|(_, entry)| entry)).map(|entry| entry.create_ms).min();
        GroupActivity {
            name: group.name.to_string(),
            lag: lag as u64,
            outstanding: group.group.outstanding() as u64,
            members: (group.group.active_members() + waiting) as u64,
            oldest_ms: oldest.unwrap_or(0),
            used_ms: wall_ms(group.used_ms, now),
            dead_letter: None,
            counts: group.counts.clone(),
        }
    }

    /// Counts what a group did, unless the group is gone.
    pub(super) fn count(
        &mut self,
        index: SlotIx,
        at: GroupIx,
        count: impl FnOnce(&mut GroupCounts),
    ) {
        self.state.journal.touch(index);
        if let Some(group) = self.state.slot_mut(index).and_then(|slot| slot.group_mut(at)) {
            count(&mut group.counts);
        }
    }

    /// A group has acknowledged `msg_ids`: counts them, and how long the last one took.
    pub(super) fn count_acked(&mut self, index: SlotIx, at: GroupIx, msg_ids: &[u64], now: Now) {
        let Some(slot) = self.state.slot(index) else { return };
        let last = msg_ids.last().and_then(|&msg_id| slot.mailbox.get(msg_id));
        let took = last.map(|(_, entry)| now.wall_ms.saturating_sub(entry.create_ms));
        self.count(index, at, |counts| {
            counts.acked += msg_ids.len() as u64;
            if let Some(ms) = took {
                counts.note_duration(ms);
            }
        });
    }
}

fn of_consumer(mailbox: &Mailbox, slot: &ConsumerSlot, now: Now) -> GroupActivity {
    let consumer = &slot.consumer;
    let (pending, out) = (consumer.pending(), consumer.outstanding() as u64);
    // Numbers of a stream begin at 1: the first that is not done with has the number of the floor here.
    let first = floor_of(mailbox, consumer).stream;
    let undone = mailbox.lanes().iter().filter_map(|(_, lane)| lane.iter_from(first).next());
    let oldest = undone.map(|entry| entry.create_ms).min().filter(|_| pending + out > 0);
    let is_out = usize::from(consumer.next_deadline_ms().is_some());
    GroupActivity {
        name: slot.name.to_string(),
        lag: pending,
        outstanding: out,
        members: (consumer.waiting + is_out) as u64,
        oldest_ms: oldest.unwrap_or(0),
        used_ms: wall_ms(slot.used_ms, now),
        dead_letter: consumer.policy.dead_letter_prefix.clone(),
        counts: slot.counts.clone(),
    }
}

fn wall_ms(used_ms: u64, now: Now) -> u64 {
    now.wall_ms.saturating_sub(now.mono_ms.saturating_sub(used_ms))
}
