//! Moving messages that were delivered too often, or given up, to the dead-letter mailbox.

use super::create::NewMailbox;
use super::indexes::{GroupIx, SlotIx};
use super::{Send, Store, space_for_unit};
use crate::error::{Error, Result};
use crate::group::{Pick, ranges};
use crate::log::Space;
use crate::mailbox::{Entry, Policy};
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{DeadLetter, Stamp, cause};

/// Why a message is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Delivered `max_deliver` times without acknowledgement.
    MaxDeliver,
    /// A member asked to never have it again.
    Terminated,
}

impl Reason {
    fn cause(self) -> u8 {
        match self {
            Reason::MaxDeliver => cause::MAX_DELIVER,
            Reason::Terminated => cause::TERMINATED,
        }
    }
}

/// What became of messages that were delivered too often.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Buried {
    /// Moved now.
    pub count: usize,
    /// There are others, and some could be moved.
    pub more: bool,
}

impl Store {
    /// Moves the returned messages of a group that have reached `max_deliver`, at most so many. An inbox has no such
    /// limit: what was not read stays unread, however many connections broke.
    pub(super) fn bury_exhausted(
        &mut self,
        index: SlotIx,
        at: GroupIx,
        max_deliver: u32,
        most: usize,
        now: Now,
    ) -> Buried {
        if self.is_inbox(index, at) {
            return Buried::default();
        }
        let slot = self.state.in_use(index);
        let group = slot.known_group(at);
        let exhausted = group.group.exhausted(slot.mailbox.lanes(), max_deliver, most + 1);
        let mut buried = Buried::default();
        for pick in exhausted.iter().take(most) {
            // What cannot be moved now stays available, undelivered, until it can.
            let moved = self.dead_letter(index, at, pick, Reason::MaxDeliver, now).is_ok();
            buried.count += usize::from(moved);
        }
        buried.more = buried.count > 0 && exhausted.len() > most;
        buried
    }

    /// Moves one message: a copy with its history enters the dead-letter mailbox and the group has
    /// done with the original, in one atomic unit. Without a dead-letter mailbox it is only done with.
    pub(super) fn dead_letter(
        &mut self,
        index: SlotIx,
        at: GroupIx,
        pick: &Pick,
        reason: Reason,
        now: Now,
    ) -> Result<()> {
        let (slot, group) = self.state.group_of(index, at);
        let source = slot.mailbox.address.clone();
        let dead = DeadLetter {
            stamp: Stamp { time_ms: now.wall_ms, address: &source },
            group: &group,
            target: "",
            msg_id: pick.entry.msg_id,
            level: pick.level.number(),
            count: pick.count,
            cause: reason.cause(),
        };
        let Some(address) = slot.mailbox.policy().dead_letter.clone() else {
            return self.give_up(index, at, dead, now);
        };
        let work_queue = slot.mailbox.policy().work_queue;
        let owner = slot.mailbox.policy().owner.clone();
        let target = match self.lookup(&address, now) {
            Ok(target) => target,
            Err(_) => self.add_dead_letter_mailbox(&address, owner, now)?,
        };
        let Some(batch) = self.read_one(index, pick)? else { return Ok(()) };
        let (_, message) = batch.iter().next().ok_or(Error::Internal("a batch of one is empty"))?;
        let mut headers = message.headers.to_vec();
        let history = [
            ("mq9-dead-reason", cause::name(dead.cause).unwrap_or_default().to_owned()),
            ("mq9-dead-mailbox", source.to_string()),
            ("mq9-dead-group", group.to_string()),
            ("mq9-dead-msg-id", pick.entry.msg_id.to_string()),
            ("mq9-dead-deliveries", pick.count.to_string()),
            ("mq9-dead-key", message.key.to_owned()),
        ];
        for (name, value) in history.iter().filter(|(_, value)| !value.is_empty()) {
            // The name of a group may hold what would end the line and begin another.
            let value = value.replace(|c: char| c.is_control(), " ");
            headers.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        let copy = Send {
            memory: false,
            level: pick.level,
            key: "",
            tags: message.tags,
            headers: &headers,
            payload: message.payload,
            delay_ms: 0,
            ttl_ms: 0,
        };
        let mut ranges = Vec::new();
        ranges::encode_ids([pick.entry.msg_id], &mut ranges);
        let stamp = Some(dead.stamp);
        let dead = Op::DeadLettered(DeadLetter { target: &address, ..dead });
        let removed = Op::Removed { stamp, cause: cause::CONSUMED, ranges: &ranges };
        let both = [(index, &dead), (index, &removed)];
        let logged = match (self.state.in_memory(index), work_queue) {
            (true, _) => &both[..0],
            (false, false) => &both[..1],
            (false, true) => &both[..],
        };
        self.send_to(target, &address, &copy, logged, now)?;
        self.count(index, at, |counts| counts.dead += 1);
        self.dead.add(&source);
        self.confirmed(index, at, &[pick.entry.msg_id]);
        Ok(())
    }

    /// Sends a message back where it came from: the one of `address` that it is made of is deleted in one unit with
    /// it, so that a crash leaves either of them. Returns its `msg_id`.
    pub fn send_back(
        &mut self,
        address: &str,
        msg_id: u64,
        to: &str,
        send: &Send<'_>,
        now: Now,
    ) -> Result<u64> {
        self.tick(now);
        let from = self.lookup(address, now)?;
        self.check_stored(from, msg_id, now)?;
        let target = self.lookup(to, now)?;
        if target == from || send.delay_ms > 0 {
            let problem = "a message is sent back at once, and to another mailbox".to_owned();
            return Err(Error::InvalidField { field: "mail_address", problem });
        }
        let len = self.check_message(target, send, now)?;
        self.check_bytes(target, send, len, 0)?;
        let mut ranges = Vec::new();
        ranges::encode_ids([msg_id], &mut ranges);
        let stamp = Some(Stamp { time_ms: now.wall_ms, address });
        let deleted = Op::Removed { stamp, cause: cause::DELETED, ranges: &ranges };
        let unit = [(from, &deleted)];
        let with = if self.state.in_memory(from) { &unit[..0] } else { &unit[..] };
        let sent = self.send_to(target, to, send, with, now)?;
        self.state.remove_message(from, msg_id);
        self.mark_ready(from);
        sent.ok_or(Error::Internal("a message without a delay has an id"))
    }

    /// The group has done with a message for which there is no dead-letter mailbox.
    fn give_up(
        &mut self,
        index: SlotIx,
        at: GroupIx,
        dead: DeadLetter<'_>,
        now: Now,
    ) -> Result<()> {
        let work_queue =
            self.state.slot(index).is_some_and(|slot| slot.mailbox.policy().work_queue);
        if !self.state.in_memory(index) {
            let mut ranges = Vec::new();
            ranges::encode_ids([dead.msg_id], &mut ranges);
            let (stamp, cause) = (Some(dead.stamp), cause::CONSUMED);
            let (dead, removed) =
                (Op::DeadLettered(dead), Op::Removed { stamp, cause, ranges: &ranges });
            let both = [(index, &dead), (index, &removed)];
            let unit = if work_queue { &both[..] } else { &both[..1] };
            self.log.reserve(space_for_unit(unit), Space::Reclaim, now.wall_ms)?;
            self.append_unit(unit);
        }
        self.count(index, at, |counts| counts.dead += 1);
        self.dead.add(dead.stamp.address);
        self.confirmed(index, at, &[dead.msg_id]);
        Ok(())
    }

    /// It belongs to the owner of the mailbox whose letters it is for.
    fn add_dead_letter_mailbox(
        &mut self,
        address: &str,
        owner: Option<Box<str>>,
        now: Now,
    ) -> Result<SlotIx> {
        // An expired one that has not been swept yet still holds the address.
        if let Some(expired) = self.state.find(address) {
            self.expire_mailbox(expired, now);
        }
        let policy = Policy { owner, ..Policy::default() };
        self.add_mailbox(&NewMailbox { address, policy, ..NewMailbox::default() }, now)
    }

    /// Reads a single message; `None` if it is damaged and has been taken out.
    fn read_one(&mut self, index: SlotIx, pick: &Pick) -> Result<Option<super::Fetched>> {
        let picks: [(_, Entry, u32); 1] = [(pick.level, pick.entry, pick.count)];
        match self.read(index, &picks) {
            Ok(batch) => Ok(Some(batch)),
            Err(super::fetch::Unread::Damaged) => Ok(None),
            Err(super::fetch::Unread::Failed(e)) => Err(e),
        }
    }
}

impl From<super::fetch::Unread> for Error {
    fn from(unread: super::fetch::Unread) -> Error {
        match unread {
            super::fetch::Unread::Damaged => Error::MessageNotFound,
            super::fetch::Unread::Failed(e) => e,
        }
    }
}
