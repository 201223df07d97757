//! Finds what a reader is given next, and the group of those who read a mailbox as its inbox.
//!
//! Owns the choice: by level, then `msg_id`, only what is durable. Must not know connections beyond their number.

use super::fetch::{Unread, is_expired, member_name};
use super::fetched::Fetched;
use super::indexes::{GroupIx, SlotIx};
use super::position::Position;
use super::readers::MailboxRef;
use super::{Store, space_for, space_for_unit};
use crate::error::Result;
use crate::group::{Delivered, Hold, Member, ranges};
use crate::log::{Lsn, Space};
use crate::mailbox::{Entry, LEVELS, Lane, Level, Mailbox};
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};

/// The group of those who read a mailbox as its inbox. No client can name it.
pub const INBOX_GROUP: &str = "$inbox";

/// Runs of messages in one record of an inbox: it fits the smallest segment.
const RUNS_IN_RECORD: usize = 128;

/// Runs of messages to be given again that are looked at for one reading of a level.
const RUNS_AT_ONCE: usize = 4096;

/// Most bytes that the records of a read message take for it: given, read and removed.
const READ_BYTES: usize = 17 + 12 + 12;

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
        let slot = self.state.in_use(index);
        let group = slot.find_group(INBOX_GROUP).and_then(|at| slot.group(at));
        let mailbox = &slot.mailbox;
        let mut bytes = 0;
        for (level, lane) in mailbox.lanes().iter().filter(|(level, _)| levels.has(*level)) {
            let mut cut = false;
            let (cursor, again): (u64, Box<dyn Iterator<Item = Entry> + '_>) = match reading {
                Reading::At(position) => {
                    cut = position.again_at(*level).nth(RUNS_AT_ONCE).is_some();
                    let runs = position.again_at(*level).take(RUNS_AT_ONCE);
                    let again = runs.flat_map(|run| {
                        lane.iter_from(run.start).take_while(move |entry| entry.msg_id < run.end)
                    });
                    (position.cursors[level.index()], Box::new(again))
                }
                Reading::Inbox => match group {
                    Some(group) => {
                        let again = group.group.available_at(*level);
                        let again = again.filter_map(|msg_id| lane.get(msg_id));
                        (group.group.cursors()[level.index()], Box::new(again))
                    }
                    None => (0, Box::new(std::iter::empty())),
                },
            };
            // What is to be given again comes first, all of it.
            let cursor = if cut { u64::MAX } else { cursor };
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
            if cut {
                return (picks, true, waits);
            }
        }
        (picks, false, waits)
    }

    /// The mailbox has an inbox from now on: a group that nobody has read anything for.
    pub fn open_inbox(&mut self, index: SlotIx, now: Now) -> Result<GroupIx> {
        let slot = self.state.in_use(index);
        if let Some(at) = slot.find_group(INBOX_GROUP) {
            return Ok(at);
        }
        let start = [0; LEVELS];
        if !self.state.in_memory(index) {
            let next_id = slot.mailbox.next_id;
            let op = Op::GroupReset { group: INBOX_GROUP, start, next_id };
            self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        Ok(self.state.reset_group(index, INBOX_GROUP, start))
    }

    /// What of the inbox nobody was given: how many messages, and as many of them as the limits allow. Nothing changes.
    pub fn unread_of(
        &mut self,
        address: &str,
        limits: PushLimits,
        now: Now,
    ) -> Result<(MailboxRef, u64, Fetched)> {
        let is_behind = self.tick(now);
        let slot = self.lookup(address, now)?;
        let unread = if is_behind { self.unread_at(slot, now) } else { self.unread(slot) };
        // They are read by one unit of records, which lies in one segment.
        let most = self.options.segment_bytes as usize / 2 / READ_BYTES;
        let limits = PushLimits { max_msgs: limits.max_msgs.min(most), ..limits };
        let end = self.end();
        let ahead = self.look_until(end, slot, Reading::Inbox, LevelSet::ALL, limits, now)?;
        Ok((MailboxRef { slot, number: self.state.number(slot) }, unread, ahead.batch))
    }

    /// Messages that [`Store::unread_of`] has given are read by this, all of them or none. What that promises is true
    /// once the log is durable.
    pub fn take_unread(&mut self, of: MailboxRef, given: &[(Level, u64)], now: Now) -> Result<()> {
        let Some(slot) = self.state.slot_of(of.slot, of.number) else { return Ok(()) };
        let (address, work_queue) =
            (slot.mailbox.address.clone(), slot.mailbox.policy().work_queue);
        let at = self.open_inbox(of.slot, now)?;
        if given.is_empty() {
            return Ok(());
        }
        let deliveries: Vec<_> = self.inbox_deliveries(of.slot, at, given).collect();
        let member = Member::Conn { epoch: self.state.epoch, conn: 0 };
        let msg_ids: Vec<u64> = given.iter().map(|(_, msg_id)| *msg_id).collect();
        if !self.state.in_memory(of.slot) {
            let (mut taken, mut read) = (Vec::new(), Vec::new());
            ranges::encode_deliveries(deliveries.iter().copied(), &mut taken);
            ranges::encode_ids(msg_ids.iter().copied(), &mut read);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
            let (group, name) = (INBOX_GROUP, member_name(&member));
            let delivered =
                Op::Delivered { stamp, group, member: name, keeps: true, ranges: &taken };
            let acked = Op::Acked { stamp, group, ranges: &read };
            let removed = Op::Removed { stamp, cause: cause::CONSUMED, ranges: &read };
            let all = [(of.slot, &delivered), (of.slot, &acked), (of.slot, &removed)];
            let unit = if work_queue { &all[..] } else { &all[..2] };
            self.log.reserve(space_for_unit(unit), Space::Deliver, now.wall_ms)?;
            self.append_unit(unit);
        }
        self.state.deliver(of.slot, at, &member, deliveries, None, true);
        self.confirmed(of.slot, at, &msg_ids);
        Ok(())
    }

    /// How many messages of the inbox nobody was given.
    fn unread(&self, index: SlotIx) -> u64 {
        let slot = self.state.in_use(index);
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
        let slot = self.state.in_use(index);
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

    /// Messages of the inbox, which are there, are being written to a connection: as many of them as it returns, the
    /// first ones. Until [`Store::inbox_read`] or the end of the connection they are nobody else's.
    pub fn inbox_given(
        &mut self,
        index: SlotIx,
        conn: u64,
        given: &[(Level, u64)],
        now: Now,
    ) -> Result<usize> {
        let at = self.open_inbox(index, now)?;
        let mut deliveries: Vec<_> = self.inbox_deliveries(index, at, given).collect();
        let follows = |a: &Delivered, b: &Delivered| {
            (a.level, a.count, a.msg_id + 1) == (b.level, b.count, b.msg_id)
        };
        let runs = deliveries.chunk_by(follows).take(RUNS_IN_RECORD);
        deliveries.truncate(runs.map(<[_]>::len).sum());
        let count = deliveries.len();
        let slot = self.state.in_use(index);
        let member = Member::Conn { epoch: self.state.epoch, conn };
        if !self.state.in_memory(index) {
            let address = slot.mailbox.address.clone();
            let mut encoded = Vec::new();
            ranges::encode_deliveries(deliveries.iter().copied(), &mut encoded);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
            let (group, member) = (INBOX_GROUP, member_name(&member));
            let op = Op::Delivered { stamp, group, member, keeps: true, ranges: &encoded };
            self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        // It ends with the connection, not with time.
        let hold = Some(Hold { until_mono_ms: u64::MAX, conn });
        self.state.deliver(index, at, &member, deliveries, hold, true);
        self.waiters.note_holder(conn, index, self.state.number(index), at);
        Ok(count)
    }

    /// What it is to the group of an inbox that these messages are given.
    fn inbox_deliveries(
        &self,
        index: SlotIx,
        at: GroupIx,
        given: &[(Level, u64)],
    ) -> impl Iterator<Item = Delivered> {
        let slot = self.state.in_use(index);
        let group = &slot.known_group(at).group;
        given.iter().map(|&(level, msg_id)| {
            debug_assert!(slot.mailbox.get(msg_id).is_some(), "{msg_id} is given and not there");
            // What is pending is below the cursor.
            let was_given = msg_id < group.cursors()[level.index()];
            let before = was_given.then(|| group.pending(msg_id)).flatten();
            let before = before.map_or(0, |pending| pending.delivered.count);
            Delivered { level, msg_id, count: before.saturating_add(1) }
        })
    }

    /// A message of the inbox was written to a connection whose client passes over it: it is unread again, as it will be
    /// after a restart.
    pub fn inbox_passed_over(&mut self, of: MailboxRef, msg_id: u64) {
        let Some(slot) = self.state.slot_of(of.slot, of.number) else { return };
        let Some(at) = slot.find_group(INBOX_GROUP) else { return };
        if self.state.give_back(of.slot, at, msg_id, None) {
            self.mark_ready(of.slot);
        }
    }

    /// Messages of the inbox have been read: they do not come again, and leave a work queue.
    pub fn inbox_read(
        &mut self,
        index: SlotIx,
        number: u64,
        msg_ids: &[u64],
        now: Now,
    ) -> Result<()> {
        let Some(slot) = self.state.slot_of(index, number) else { return Ok(()) };
        let Some(at) = slot.find_group(INBOX_GROUP) else { return Ok(()) };
        let read = slot.known_group(at).group.pending_of(msg_ids);
        let mut rest = &read[..];
        while !rest.is_empty() {
            let runs = rest.chunk_by(|a, b| a + 1 == *b).take(RUNS_IN_RECORD);
            let (some, more) = rest.split_at(runs.map(<[_]>::len).sum());
            self.confirm(index, at, some, now)?;
            rest = more;
        }
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
