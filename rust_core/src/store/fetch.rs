//! Fetching: for a group, with its position kept, or for nobody in particular.

use std::sync::Arc;

use super::damage::{Damage, DamageKind};
use super::dead_letter::Reason;
use super::fetched::Fetched;
use super::indexes::{GroupIx, SlotIx};
use super::push::INBOX_GROUP;
use super::slot::Slot;
use super::{Store, space_for};
use crate::error::{Error, Result};
use crate::group::{FetchLimits, Hold, Member, Pick, Plan, ranges};
use crate::log::{Lsn, Space};
use crate::mailbox::{EXPIRES, Entry, LEVELS, Level, Mailbox};
use crate::time::Now;
use crate::wire::op::{MemberName, Op};
use crate::wire::record::HEADER;
use crate::wire::stamp::Stamp;

/// The longest name of a group or member, in bytes.
pub const MAX_NAME: usize = 255;

/// Most dead messages moved by one fetch.
const DEAD_AT_ONCE: usize = 64;

/// Where reading starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With what comes from now on.
    Latest,
    /// With the oldest message.
    Earliest,
    /// With messages created at or after this wall time.
    Since(u64),
    /// With this `msg_id`.
    Id(u64),
}

/// Who fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberId {
    /// A member with a name of its own.
    Named(String),
    /// The connection itself.
    Conn,
}

/// The group a fetch is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFetch {
    /// The group's name.
    pub name: String,
    /// The member.
    pub member: MemberId,
    /// Pin the group anew at `start`, whatever it has consumed.
    pub force: bool,
}

/// A request for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// The mailbox.
    pub address: String,
    /// The group, if the position is to be kept.
    pub group: Option<GroupFetch>,
    /// Where to start; for a group only when it is new or forced.
    pub start: Start,
    /// Most messages wanted.
    pub max_msgs: usize,
    /// Most bytes wanted, never below one message.
    pub max_bytes: u64,
    /// The least important level wanted.
    pub max_level: Level,
    /// How long the member may hold the messages; 0 is the mailbox's or store's default.
    pub ack_wait_ms: u64,
    /// A member of a group gets what it holds again; else only others, besides.
    pub held: bool,
    /// How long to wait if there is nothing.
    pub wait_ms: u64,
    /// The connection that asks.
    pub conn: u64,
    /// The user it belongs to, to whom a wait is counted.
    pub user: Option<Arc<str>>,
}

impl Fetch {
    /// A request without a group for everything from the oldest message on.
    pub fn all(address: &str) -> Fetch {
        Fetch {
            address: address.to_owned(),
            group: None,
            start: Start::Earliest,
            max_msgs: usize::MAX,
            max_bytes: u64::MAX,
            max_level: Level::LOWEST,
            ack_wait_ms: 0,
            held: true,
            wait_ms: 0,
            conn: 0,
            user: None,
        }
    }

    /// A request for a group, by the connection itself.
    pub fn group(address: &str, group: &str, max_msgs: usize) -> Fetch {
        let (name, member) = (group.to_owned(), MemberId::Conn);
        let group = Some(GroupFetch { name, member, force: false });
        Fetch { group, max_msgs, ..Fetch::all(address) }
    }
}

/// The answer to a fetch.
#[derive(Debug)]
pub enum FetchOutcome {
    /// Messages, or none.
    Messages(Fetched),
    /// Nothing yet: the answer comes as the [`super::Completion`] of this waiter.
    Waiting(u64),
}

/// Why messages could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// Some were damaged. They have been taken out and reported: ask again.
    Damaged,
    /// The disk did not answer.
    Failed(Error),
}

impl Store {
    /// Fetches messages, or waits for some.
    pub fn fetch(&mut self, mut request: Fetch, now: Now) -> Result<FetchOutcome> {
        self.tick(now);
        let index = self.lookup(&request.address, now)?;
        check_names(&request)?;
        let cursors = self.begin(index, &request, now)?;
        if let Some(group) = &mut request.group {
            group.force = false;
            let slot = self.state.slot(index);
            if let Some(at) = slot.and_then(|slot| slot.find_group(&group.name)) {
                self.note_use(index, at, now);
            }
        }
        let batch = self.try_fetch(index, &request, &cursors, now)?;
        if batch.is_empty() && request.wait_ms > 0 && request.max_msgs > 0 {
            return Ok(FetchOutcome::Waiting(self.wait(index, request, cursors, now)));
        }
        Ok(FetchOutcome::Messages(batch))
    }

    /// Where reading starts. A new or forced group is pinned there.
    fn begin(&mut self, index: SlotIx, request: &Fetch, now: Now) -> Result<[u64; LEVELS]> {
        let slot = self.state.in_use(index);
        let start = start(&slot.mailbox, request.start);
        let Some(group) = &request.group else { return Ok(start) };
        let known = slot.find_group(&group.name).is_some();
        if known && !group.force {
            return Ok(start);
        }
        if !known && slot.group_count() >= self.options.max_groups {
            let (mailbox, limit) = (request.address.clone(), self.options.max_groups);
            return Err(Error::TooManyGroups { mailbox, limit });
        }
        if !self.state.in_memory(index) {
            let next_id = slot.mailbox.next_id;
            let op = Op::GroupReset { group: &group.name, start, next_id };
            self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        let at = self.state.reset_group(index, &group.name, start);
        self.state.arm_leases(index, at);
        if known {
            self.mark_ready(index);
        }
        Ok(start)
    }

    /// What the request gets now; empty if there is nothing.
    pub(super) fn try_fetch(
        &mut self,
        index: SlotIx,
        request: &Fetch,
        cursors: &[u64; LEVELS],
        now: Now,
    ) -> Result<Fetched> {
        loop {
            let outcome = match &request.group {
                Some(group) => self.fetch_for_group(index, request, group, now),
                None => self.fetch_for_nobody(index, request, cursors, now),
            };
            match outcome {
                Ok(mut batch) => {
                    batch.note(self.end());
                    return Ok(batch);
                }
                Err(Unread::Damaged) => {}
                Err(Unread::Failed(e)) => return Err(e),
            }
        }
    }

    fn fetch_for_nobody(
        &mut self,
        index: SlotIx,
        request: &Fetch,
        cursors: &[u64; LEVELS],
        now: Now,
    ) -> std::result::Result<Fetched, Unread> {
        let slot = self.state.in_use(index);
        let mut picks = Vec::new();
        let mut bytes = 0;
        let lanes = slot.mailbox.lanes().iter();
        'lanes: for (level, lane) in lanes.filter(|(level, _)| *level <= request.max_level) {
            for entry in lane.iter_from(cursors[level.index()]) {
                if is_expired(&slot.mailbox, &entry, now) {
                    continue;
                }
                bytes += u64::from(entry.len);
                let too_much = bytes > request.max_bytes && !picks.is_empty();
                if picks.len() >= request.max_msgs || too_much {
                    break 'lanes;
                }
                picks.push((*level, entry, 0));
            }
        }
        self.read(index, &picks)
    }

    fn fetch_for_group(
        &mut self,
        index: SlotIx,
        request: &Fetch,
        group: &GroupFetch,
        now: Now,
    ) -> std::result::Result<Fetched, Unread> {
        let member = self.member(&group.member, request.conn);
        let (at, plan) = loop {
            let Some((at, plan)) = self.plan(index, request, group, &member, now) else {
                return Ok(Fetched::default());
            };
            let mut moved = false;
            for dead in plan.dead.iter().take(DEAD_AT_ONCE) {
                // What cannot be moved stays undelivered until it can be.
                moved |= self.dead_letter(index, at, dead, Reason::MaxDeliver, now).is_ok();
            }
            match plan.picks.is_empty() {
                false => break (at, plan),
                // With max_ack_pending, what was moved made room for another.
                true if moved => {}
                true => return Ok(Fetched::default()),
            }
        };
        let picks: Vec<_> = plan.picks.iter().map(|p| (p.level, p.entry, p.count)).collect();
        let mut batch = self.read(index, &picks)?;
        batch.note(self.end());
        batch.note_last(self.state.slot(index).map_or(0, |slot| slot.mailbox.policy().max_deliver));
        let deliveries = plan.picks.iter().map(Pick::delivered);
        if !self.state.in_memory(index) {
            let mut encoded = Vec::new();
            ranges::encode_picks(&plan.picks, &mut encoded);
            let (member, keeps) = (member_name(&member), !request.held);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &request.address });
            let op = Op::Delivered { stamp, group: &group.name, member, keeps, ranges: &encoded };
            let space = space_for(&[&op]);
            self.log.reserve(space, Space::Deliver, now.wall_ms).map_err(Unread::Failed)?;
            self.append(index, 0, &op);
        }
        let until = now.mono_ms.saturating_add(self.ack_wait(index, request.ack_wait_ms));
        let hold = Some(Hold { until_mono_ms: until, conn: request.conn });
        if self.state.deliver(index, at, &member, deliveries, hold, !request.held) > 0 {
            // What the member held and was not given again is anybody's now.
            self.mark_ready(index);
        }
        self.state.arm_leases(index, at);
        self.note_use(index, at, now);
        if let Member::Conn { conn, .. } = member {
            self.waiters.note_holder(conn, index, self.state.number(index), at);
        }
        Ok(batch)
    }

    /// What a group would give a member now: messages to deliver, and dead ones. Messages found
    /// expired go on the way.
    fn plan(
        &mut self,
        index: SlotIx,
        request: &Fetch,
        group: &GroupFetch,
        member: &Member,
        now: Now,
    ) -> Option<(GroupIx, Plan)> {
        loop {
            let slot = self.state.slot(index)?;
            let at = slot.find_group(&group.name)?;
            let limits = fetch_limits(slot, request);
            let lanes = slot.mailbox.lanes();
            let plan = slot.group(at)?.group.plan_fetch(member, lanes, &limits);
            let both = plan.picks.iter().chain(&plan.dead);
            let expired: Vec<u64> = both
                .filter(|pick| is_expired(&slot.mailbox, &pick.entry, now))
                .map(|pick| pick.entry.msg_id)
                .collect();
            if expired.is_empty() {
                return Some((at, plan));
            }
            self.expire_messages(index, &expired, now);
        }
    }

    /// Reads messages. Damaged ones are reported and taken out of the mailbox.
    pub(super) fn read(
        &mut self,
        index: SlotIx,
        picks: &[(Level, Entry, u32)],
    ) -> std::result::Result<Fetched, Unread> {
        if picks.iter().any(|(_, entry, _)| entry.at == Lsn::NONE) {
            return self.read_mixed(index, picks);
        }
        self.read_durable(index, picks)
    }

    fn read_durable(
        &mut self,
        index: SlotIx,
        picks: &[(Level, Entry, u32)],
    ) -> std::result::Result<Fetched, Unread> {
        let places: Vec<_> = picks.iter().map(|(_, entry, _)| (entry.at, entry.len)).collect();
        let mut bytes = Vec::with_capacity(places.iter().map(|(_, len)| *len as usize).sum());
        let starts = self.log.read_many(&places, &mut bytes).map_err(Unread::Failed)?;
        let number = self.state.number(index);
        let mut damaged = Vec::new();
        for ((_, entry, _), &start) in picks.iter().zip(&starts) {
            let record = bytes.get(start..start + entry.len as usize);
            let record = record.and_then(|record| self.log.verify(entry.at, record));
            if record.is_none_or(|r| r.mailbox != number || r.len() != entry.len as usize) {
                damaged.push(*entry);
            }
        }
        if !damaged.is_empty() {
            for entry in damaged {
                self.lose(index, &entry);
            }
            return Err(Unread::Damaged);
        }
        let mut batch = Fetched::new(bytes, picks.len());
        for ((level, entry, count), start) in picks.iter().zip(starts) {
            batch.push(*level, entry, *count, start + HEADER, start + entry.len as usize);
        }
        Ok(batch)
    }

    /// The same where some are in memory.
    fn read_mixed(
        &mut self,
        index: SlotIx,
        picks: &[(Level, Entry, u32)],
    ) -> std::result::Result<Fetched, Unread> {
        let logged: Vec<_> =
            picks.iter().filter(|(_, entry, _)| entry.at != Lsn::NONE).copied().collect();
        let durable = self.read_durable(index, &logged)?;
        let extras = self.state.slot(index).and_then(|slot| slot.mailbox.extras());
        let payload = |entry: &Entry| extras.and_then(|s| s.memory.get(&entry.msg_id));
        let mut batch = Fetched::new(Vec::new(), picks.len());
        let mut bodies = durable.bodies();
        for (level, entry, count) in picks {
            let body = match entry.at {
                Lsn::NONE => payload(entry).map(|bytes| &bytes[..]),
                _ => bodies.next(),
            };
            batch.add(*level, entry, *count, body.unwrap_or_default());
        }
        Ok(batch)
    }

    /// Reports an unreadable message, sets its bytes aside and takes it out.
    fn lose(&mut self, index: SlotIx, entry: &Entry) {
        let mailbox = self
            .state
            .slot(index)
            .map_or_else(String::new, |slot| slot.mailbox.address.to_string());
        let kind = DamageKind::Message { mailbox, msg_id: entry.msg_id };
        let mut bytes = Vec::new();
        let _ = self.log.read_many(&[(entry.at, entry.len)], &mut bytes);
        self.report(Damage::at(entry.at, u64::from(entry.len), kind), &bytes);
        self.state.remove_message(index, entry.msg_id);
    }

    /// The member as the log knows it.
    pub(super) fn member(&self, id: &MemberId, conn: u64) -> Member {
        match id {
            MemberId::Named(name) => Member::Named(name.as_str().into()),
            MemberId::Conn => Member::Conn { epoch: self.state.epoch, conn },
        }
    }

    /// How long a member may hold messages of a mailbox.
    pub(super) fn ack_wait(&self, index: SlotIx, asked_ms: u64) -> u64 {
        let policy = self.state.slot(index).map_or(0, |slot| slot.mailbox.policy().ack_wait_ms);
        [asked_ms, policy].into_iter().find(|&ms| ms > 0).unwrap_or(self.options.ack_wait_ms)
    }
}

/// How much a request may take of a mailbox.
pub(super) fn fetch_limits(slot: &Slot, request: &Fetch) -> FetchLimits {
    let policy = slot.mailbox.policy();
    FetchLimits {
        max_msgs: request.max_msgs,
        max_bytes: request.max_bytes,
        max_level: request.max_level,
        max_deliver: policy.max_deliver,
        max_ack_pending: policy.max_ack_pending as usize,
        held: request.held,
        conn: request.conn,
    }
}

fn check_names(request: &Fetch) -> Result<()> {
    let Some(group) = &request.group else { return Ok(()) };
    let member = match &group.member {
        MemberId::Named(name) => name,
        MemberId::Conn => "-",
    };
    if group.name == INBOX_GROUP {
        let problem = format!("{INBOX_GROUP} is the broker's own");
        return Err(Error::InvalidField { field: "group_name", problem });
    }
    for (field, name) in [("group_name", group.name.as_str()), ("member", member)] {
        if name.is_empty() || name.len() > MAX_NAME {
            let problem = format!("it must have 1 to {MAX_NAME} bytes, not {}", name.len());
            return Err(Error::InvalidField { field, problem });
        }
    }
    Ok(())
}

fn start(mailbox: &Mailbox, start: Start) -> [u64; LEVELS] {
    match start {
        Start::Latest => mailbox.start_latest(),
        Start::Earliest => [0; LEVELS],
        Start::Since(ms) => mailbox.start_since(ms),
        Start::Id(id) => [id; LEVELS],
    }
}

/// True for a message whose time is over though its timer has not fired yet.
pub(super) fn is_expired(mailbox: &Mailbox, entry: &Entry, now: Now) -> bool {
    entry.flags & EXPIRES != 0
        && mailbox
            .extras()
            .and_then(|extras| extras.expiries.get(entry.msg_id))
            .is_some_and(|(expires_ms, _)| now.wall_ms >= *expires_ms)
}

pub(super) fn member_name(member: &Member) -> MemberName<'_> {
    match member {
        Member::Named(name) => MemberName::Named(name),
        Member::Conn { epoch, conn } => MemberName::Conn { epoch: *epoch, conn: *conn },
    }
}
