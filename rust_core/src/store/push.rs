//! What a reader is to be given next, and the group of those who read a mailbox as its inbox.
//!
//! Owns the choice: by level, then `msg_id`, only what is durable. Must not know connections beyond their number.

use std::collections::BTreeSet;

use super::fetch::{Unread, is_expired, member_name};
use super::fetched::Fetched;
use super::indexes::SlotIx;
use super::{Store, space_for};
use crate::error::Result;
use crate::group::{Delivered, Hold, Member, Pick, ranges};
use crate::log::{Lsn, Space};
use crate::mailbox::{Entry, LEVELS, Lane, Level, Mailbox};
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::Stamp;

/// The group of those who read a mailbox as its inbox. No client can name it.
pub const INBOX_GROUP: &str = "$inbox";

/// Messages in one record of an inbox: it fits the smallest segment.
pub const IDS_AT_ONCE: usize = 128;

/// Levels, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelSet(u16);

impl LevelSet {
    /// All of them.
    pub const ALL: LevelSet = LevelSet((1 << LEVELS) - 1);

    /// One level.
    pub fn of(level: Level) -> LevelSet {
        LevelSet(1 << level.index())
    }

    /// Those for which it holds.
    pub fn filter(self, holds: impl Fn(Level) -> bool) -> LevelSet {
        let kept = Level::all().filter(|level| self.has(*level) && holds(*level));
        kept.fold(LevelSet(0), |set, level| set.with(LevelSet::of(level)))
    }

    /// Whether a level is among them.
    pub fn has(self, level: Level) -> bool {
        self.0 & (1 << level.index()) != 0
    }

    /// The same by the level's index.
    pub fn has_index(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// Those of both.
    pub fn both(self, other: LevelSet) -> LevelSet {
        LevelSet(self.0 & other.0)
    }

    /// Those of either.
    pub fn with(self, other: LevelSet) -> LevelSet {
        LevelSet(self.0 | other.0)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// How far somebody has read, besides the inbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// Per level, the first `msg_id` not yet given.
    pub cursors: [u64; LEVELS],
    /// Messages before that to be given again.
    pub again: BTreeSet<(Level, u64)>,
}

impl Position {
    /// A message was given.
    pub fn pass(&mut self, level: Level, msg_id: u64) {
        let cursor = &mut self.cursors[level.index()];
        if msg_id >= *cursor {
            *cursor = msg_id + 1;
        } else {
            self.again.remove(&(level, msg_id));
        }
    }
}

/// Who reads.
#[derive(Debug, Clone, Copy)]
pub enum Reading<'a> {
    /// Somebody who keeps the position.
    At(&'a Position),
    /// The inbox, whose position is its group's.
    Inbox,
}

/// How much may be given at once.
#[derive(Debug, Clone, Copy)]
pub struct PushLimits {
    /// Most messages.
    pub max_msgs: usize,
    /// Most bytes of records, but never less than one message.
    pub max_bytes: u64,
}

/// What is to be given next.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The messages.
    pub batch: Fetched,
    /// There is more that is durable.
    pub more: bool,
    /// There is more that is not durable yet.
    pub waits: bool,
}

impl Store {
    /// What a reader of a mailbox is to be given next of these levels. Nothing is changed, but for damaged messages, which
    /// are taken out.
    pub fn look_ahead(
        &mut self,
        slot: SlotIx,
        reading: Reading<'_>,
        levels: LevelSet,
        limits: PushLimits,
        now: Now,
    ) -> Result<Ahead> {
        let until = self.acknowledged();
        self.look_until(until, slot, reading, levels, limits, now)
    }

    /// The same with what is logged before `until`, be it durable or not.
    fn look_until(
        &mut self,
        until: Lsn,
        slot: SlotIx,
        reading: Reading<'_>,
        levels: LevelSet,
        limits: PushLimits,
        now: Now,
    ) -> Result<Ahead> {
        loop {
            let (picks, more, waits) = self.plan_push(until, slot, reading, levels, limits, now);
            match self.read(slot, &picks) {
                Ok(batch) => return Ok(Ahead { batch, more, waits }),
                Err(Unread::Damaged) => {}
                Err(Unread::Failed(error)) => return Err(error),
            }
        }
    }

    fn plan_push(
        &self,
        until: Lsn,
        index: SlotIx,
        reading: Reading<'_>,
        levels: LevelSet,
        limits: PushLimits,
        now: Now,
    ) -> (Vec<(Level, Entry, u32)>, bool, bool) {
        let mut picks = Vec::new();
        let mut waits = false;
        let Some(slot) = self.state.in_use(index) else { return (picks, false, false) };
        let group = slot.find_group(INBOX_GROUP).and_then(|at| slot.group(at));
        let mailbox = &slot.mailbox;
        let mut bytes = 0;
        for (level, lane) in mailbox.lanes().iter().filter(|(level, _)| levels.has(*level)) {
            let (cursor, again): (u64, Box<dyn Iterator<Item = u64> + '_>) = match reading {
                Reading::At(position) => {
                    let range = (*level, 0)..=(*level, u64::MAX);
                    let again = position.again.range(range).map(|(_, msg_id)| *msg_id);
                    (position.cursors[level.index()], Box::new(again))
                }
                Reading::Inbox => match group {
                    Some(group) => {
                        let cursor = group.group.cursors()[level.index()];
                        (cursor, Box::new(group.group.available_at(*level)))
                    }
                    None => (0, Box::new(std::iter::empty())),
                },
            };
            let again = again.filter_map(|msg_id| lane.get(msg_id));
            for entry in again.chain(lane.iter_from(cursor)) {
                if is_expired(mailbox, &entry, now) {
                    continue;
                }
                if !is_durable(mailbox, &entry, until) {
                    waits = true;
                    break;
                }
                bytes += u64::from(entry.len);
                let too_much = bytes > limits.max_bytes && !picks.is_empty();
                if picks.len() >= limits.max_msgs || too_much {
                    return (picks, true, waits);
                }
                picks.push((*level, entry, 0));
            }
        }
        (picks, false, waits)
    }

    /// The mailbox has an inbox from now on: a group that nobody has read anything for.
    pub fn open_inbox(&mut self, index: SlotIx, now: Now) -> Result<()> {
        let Some(slot) = self.state.in_use(index) else { return Ok(()) };
        if slot.find_group(INBOX_GROUP).is_some() {
            return Ok(());
        }
        let start = [0; LEVELS];
        if !self.state.in_memory(index) {
            let next_id = slot.mailbox.next_id;
            let op = Op::GroupReset { group: INBOX_GROUP, start, next_id };
            self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        self.state.reset_group(index, INBOX_GROUP, start);
        Ok(())
    }

    /// Gives messages of the inbox that nobody was given, all of which are read by this: how many there were, and as
    /// many of them as the limits allow. What they promise is true once the log is durable.
    pub fn read_inbox(
        &mut self,
        address: &str,
        limits: PushLimits,
        now: Now,
    ) -> Result<(u64, Fetched)> {
        let is_behind = self.tick(now);
        let index = self.lookup(address, now)?;
        self.open_inbox(index, now)?;
        let unread = if is_behind { self.unread_at(index, now) } else { self.unread(index) };
        let (max_msgs, end) = (limits.max_msgs.min(IDS_AT_ONCE), self.end());
        let limits = PushLimits { max_msgs, ..limits };
        let ahead = self.look_until(end, index, Reading::Inbox, LevelSet::ALL, limits, now)?;
        let given: Vec<_> = ahead.batch.iter().map(|(meta, _)| (meta.level, meta.msg_id)).collect();
        if !given.is_empty() {
            self.give_inbox(index, None, &given, now)?;
            let msg_ids: Vec<u64> = given.iter().map(|(_, msg_id)| *msg_id).collect();
            self.inbox_read(index, self.state.number(index), &msg_ids, now)?;
        }
        Ok((unread, ahead.batch))
    }

    /// How many messages of the inbox nobody was given.
    fn unread(&self, index: SlotIx) -> u64 {
        let Some(slot) = self.state.in_use(index) else { return 0 };
        let group = slot.find_group(INBOX_GROUP).and_then(|at| slot.group(at));
        let count = |(level, lane): &(Level, Lane)| match group {
            Some(group) => {
                let cursor = group.group.cursors()[level.index()];
                lane.count_from(cursor) + group.group.available_at(*level).count()
            }
            None => lane.len(),
        };
        slot.mailbox.lanes().iter().map(count).sum::<usize>() as u64
    }

    /// The same where expired messages are still to be taken out: one by one.
    fn unread_at(&self, index: SlotIx, now: Now) -> u64 {
        let Some(slot) = self.state.in_use(index) else { return 0 };
        let group = slot.find_group(INBOX_GROUP).and_then(|at| slot.group(at));
        let mut unread = 0;
        for (level, lane) in slot.mailbox.lanes() {
            let cursor = group.map_or(0, |group| group.group.cursors()[level.index()]);
            let again = group.into_iter().flat_map(|group| group.group.available_at(*level));
            let again = again.filter_map(|msg_id| lane.get(msg_id));
            let all = again.chain(lane.iter_from(cursor));
            unread += all.filter(|entry| !is_expired(&slot.mailbox, entry, now)).count() as u64;
        }
        unread
    }

    /// Messages of the inbox are being written to a connection. Until [`Store::inbox_read`] or the end of the connection
    /// they are nobody else's.
    pub fn inbox_given(
        &mut self,
        index: SlotIx,
        conn: u64,
        given: &[(Level, u64)],
        now: Now,
    ) -> Result<()> {
        self.open_inbox(index, now)?;
        self.give_inbox(index, Some(conn), given, now)
    }

    fn give_inbox(
        &mut self,
        index: SlotIx,
        conn: Option<u64>,
        given: &[(Level, u64)],
        now: Now,
    ) -> Result<()> {
        let Some(slot) = self.state.in_use(index) else { return Ok(()) };
        let Some(at) = slot.find_group(INBOX_GROUP) else { return Ok(()) };
        let Some(group) = slot.known_group(at) else { return Ok(()) };
        let picks: Vec<Pick> = given
            .iter()
            .filter_map(|&(level, msg_id)| {
                let (_, entry) = slot.mailbox.get(msg_id)?;
                let before = group.group.pending(msg_id).map_or(0, |p| p.delivered.count);
                Some(Pick { level, entry, count: before.saturating_add(1), again: false })
            })
            .collect();
        let member = Member::Conn { epoch: self.state.epoch, conn: conn.unwrap_or(0) };
        if !self.state.in_memory(index) {
            let address = slot.mailbox.address.clone();
            let mut encoded = Vec::new();
            ranges::encode_picks(&picks, &mut encoded);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
            let (group, member) = (INBOX_GROUP, member_name(&member));
            let op = Op::Delivered { stamp, group, member, keeps: true, ranges: &encoded };
            self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        // It ends with the connection, not with time.
        let hold = conn.map(|conn| Hold { until_mono_ms: u64::MAX, conn });
        let deliveries: Vec<Delivered> = picks.iter().map(Pick::delivered).collect();
        self.state.deliver(index, at, &member, deliveries, hold, true);
        if let Some(conn) = conn {
            self.waiters.note_holder(conn, index, self.state.number(index), at);
        }
        Ok(())
    }

    /// Messages of the inbox have been read: they do not come again.
    pub fn inbox_read(
        &mut self,
        index: SlotIx,
        number: u64,
        msg_ids: &[u64],
        now: Now,
    ) -> Result<()> {
        let Some(slot) = self.state.slot_of(index, number) else { return Ok(()) };
        let Some(at) = slot.find_group(INBOX_GROUP) else { return Ok(()) };
        let Some(group) = slot.known_group(at) else { return Ok(()) };
        let pending = |msg_id: &u64| group.group.pending(*msg_id).is_some();
        let read: Vec<u64> = msg_ids.iter().copied().filter(pending).collect();
        if read.is_empty() {
            return Ok(());
        }
        if !self.state.in_memory(index) {
            let address = slot.mailbox.address.clone();
            let mut encoded = Vec::new();
            ranges::encode_ids(read.iter().copied(), &mut encoded);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
            let op = Op::Acked { stamp, group: INBOX_GROUP, ranges: &encoded };
            self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        self.state.confirm(index, at, read.into_iter());
        Ok(())
    }
}

/// Whether a message may be shown: it will be there after a crash, or is not meant to be.
fn is_durable(mailbox: &Mailbox, entry: &Entry, until: Lsn) -> bool {
    if entry.at != Lsn::NONE {
        return entry.at < until;
    }
    // That its number is used up must be known for good.
    mailbox.extras().is_none_or(|extras| extras.reserved_at <= until)
}
