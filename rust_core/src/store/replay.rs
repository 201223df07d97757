//! Reading the log's tail back into the state.
//!
//! Replay trusts nothing but checksums: records may be missing before or between those it sees. What
//! a record refers to and is not there is made up from the record itself where that keeps messages,
//! and reported where it does not.

use hashbrown::HashMap;

use super::consumers::ConsumerKey;
use super::damage::{Damage, DamageKind};
use super::fetch::MAX_NAME;
use super::indexes::{GroupIx, SlotIx};
use super::state::{Place, State};
use crate::error::{Error, Result};
use crate::group::ranges::{DeliveryRanges, IdRanges};
use crate::group::{Delivered, Member};
use crate::log::{Log, Lsn, names};
use crate::mailbox::{LEVELS, Level, Mailbox, Policy, check_name};
use crate::time::Now;
use crate::wire::mailbox_ops::Updated;
use crate::wire::op::{MAX_ID, MemberName, Message, Op, kind};
use crate::wire::record::{FLAG_MORE, FLAG_REST, FLAGS, Record};
use crate::wire::stamp::cause;
use crate::wire::stream_ops::{NO_CONSUMER, decode_runs};

/// More messages than this are not lost without a trace: a larger id is no sane one.
const MAX_LOST: u64 = 1 << 20;

/// Slot and capture position of each mailbox by number.
#[derive(Default)]
pub struct Known(HashMap<u64, (SlotIx, Lsn), foldhash::fast::RandomState>);

impl Known {
    /// All mailboxes of a state that includes every record.
    pub fn all(state: &State) -> Known {
        let mut known = Known::default();
        for (index, slot) in state.slots() {
            known.add(slot.mailbox.number, index, Lsn::NONE);
        }
        known
    }

    /// The slot of a mailbox.
    pub fn slot(&self, number: u64) -> Option<SlotIx> {
        self.0.get(&number).map(|(index, _)| *index)
    }

    /// Adds a mailbox whose state includes every record before `captured_at`.
    pub fn add(&mut self, number: u64, index: SlotIx, captured_at: Lsn) {
        self.0.insert(number, (index, captured_at));
    }

    /// The mailbox is gone.
    pub fn forget(&mut self, number: u64) {
        self.0.remove(&number);
    }

    /// Whether the mailbox was added.
    pub fn has(&self, number: u64) -> bool {
        self.0.contains_key(&number)
    }
}

/// A record of an atomic unit that is not complete yet.
struct Held {
    at: Lsn,
    kind: u8,
    mailbox: u64,
    body: Vec<u8>,
}

/// A replay in progress.
pub struct Replay<'s> {
    state: &'s mut State,
    known: Known,
    unit: Vec<Held>,
    /// Where the last record ended that counts or may still count.
    counted_until: Lsn,
    /// Records whose mailbox is unknown, until its removal explains why.
    orphans: Vec<(u64, Damage)>,
    /// Records about unknown mailboxes, until a message brings the mailbox back.
    early: HashMap<u64, Vec<Held>, foldhash::fast::RandomState>,
    damage: Vec<Damage>,
    now: Now,
}

impl<'s> Replay<'s> {
    /// Continues from `state`, in which `known` mailboxes are.
    pub fn new(state: &'s mut State, known: Known, now: Now) -> Replay<'s> {
        Replay {
            state,
            known,
            unit: Vec::new(),
            counted_until: Lsn::NONE,
            orphans: Vec::new(),
            early: HashMap::default(),
            damage: Vec::new(),
            now,
        }
    }

    /// Takes the next record.
    pub fn record(&mut self, at: Lsn, record: &Record<'_>) -> Result<()> {
        // Before the record is held back: what is not understood is never passed over.
        if !kind::is_known(record.kind) {
            return Err(newer(at, format!("a record of kind {}", record.kind)));
        }
        if record.flags & !FLAGS != 0 {
            return Err(newer(at, format!("a record with flags {:#04x}", record.flags)));
        }
        if record.kind == kind::OPENED {
            // The store was opened over this unit once before and did without it.
            self.unit.clear();
        }
        if record.flags & FLAG_REST != 0 && at != self.counted_until {
            self.damage.push(Damage::at(at, record.len() as u64, DamageKind::Orphan));
            return Ok(());
        }
        if record.flags & FLAG_REST == 0 {
            // A unit that waits for its rest waits in vain.
            self.drop_unit();
        }
        self.counted_until = Lsn::new(at.segment(), at.offset() + record.len() as u32);
        if record.flags & FLAG_MORE != 0 {
            let (kind, mailbox) = (record.kind, record.mailbox);
            self.unit.push(Held { at, kind, mailbox, body: record.body.to_vec() });
            return Ok(());
        }
        self.finish_unit()?;
        self.apply(at, record.kind, record.mailbox, record.body)
    }

    /// Takes note of damage. A unit is like one record: damaged in part, none of it counts. Power cuts
    /// leave such units too, as sectors are written in any order.
    pub fn damaged(&mut self, damage: Damage) {
        self.damage.push(damage);
        self.drop_unit();
    }

    fn drop_unit(&mut self) {
        let lost = self.unit.drain(..).map(|held| {
            Damage::at(held.at, Log::record_len(held.body.len()) as u64, DamageKind::Orphan)
        });
        self.damage.extend(lost);
    }

    /// Takes note of a torn tail: the unit it cuts short never happened.
    pub fn torn(&mut self, damage: Damage) {
        self.damage.push(damage);
        self.unit.clear();
    }

    /// Ends the replay; an incomplete unit at the very end never happened. Returns the damage found.
    pub fn finish(self) -> Vec<Damage> {
        self.end().0
    }

    /// The same, and the mailboxes that are there now.
    pub fn end(mut self) -> (Vec<Damage>, Known) {
        self.damage.extend(self.orphans.into_iter().map(|(_, damage)| damage));
        (self.damage, self.known)
    }

    fn finish_unit(&mut self) -> Result<()> {
        for held in std::mem::take(&mut self.unit) {
            self.apply(held.at, held.kind, held.mailbox, &held.body)?;
        }
        Ok(())
    }

    fn apply(&mut self, at: Lsn, kind: u8, number: u64, body: &[u8]) -> Result<()> {
        let op = match Op::decode(kind, body) {
            Ok(Some(op)) => op,
            Ok(None) => return Err(newer(at, format!("a record of kind {kind}"))),
            Err(_) => {
                self.malformed(at, body);
                return Ok(());
            }
        };
        if number >= MAX_ID {
            self.malformed(at, body);
            return Ok(());
        }
        let place = Place { at, len: Log::record_len(body.len()) as u32 };
        match op {
            // Says where the stream of a cluster stands, and changes nothing.
            Op::Tied(_) => {}
            Op::Opened { epoch, .. } => self.state.epoch = self.state.epoch.max(epoch),
            Op::MailboxCreated { created_ms, expires_ms, address, desc, policy } => {
                let policy = match Policy::decode(policy) {
                    Ok(Some(policy)) => policy,
                    Ok(None) => {
                        self.malformed(at, body);
                        return Ok(());
                    }
                    Err(tag) => return Err(newer(at, format!("a mailbox policy of tag {tag}"))),
                };
                let mailbox = Mailbox::new(number, address, created_ms, expires_ms);
                self.create(mailbox, desc, policy);
            }
            Op::MailboxRemoved { .. } => self.remove_mailbox(number, at),
            Op::Message(message) => {
                if let Some(index) = self.mailbox_of(number, &message, at)? {
                    self.state.put_message(index, &message, place);
                }
            }
            Op::Delayed(message) => {
                if let Some(index) = self.mailbox_of(number, &message, at)? {
                    self.state.put_delayed(index, &message, place);
                }
            }
            Op::Updated(updated) if self.known.has(number) => {
                match Policy::decode(updated.policy) {
                    Ok(Some(policy)) => {
                        if let Some(index) = self.find(number, at) {
                            let Updated { expires_ms, desc, .. } = updated;
                            self.state.update_mailbox(index, expires_ms, desc, policy);
                            self.state.mark_trimmed(index);
                        }
                    }
                    Ok(None) => self.malformed(at, body),
                    Err(tag) => return Err(newer(at, format!("a mailbox policy of tag {tag}"))),
                }
            }
            Op::ConsumerSet(set) if self.known.has(number) => {
                if let Some(index) = self.find(number, at) {
                    match self.state.set_consumer(index, &set) {
                        Ok(Some(_)) => {}
                        Ok(None) => self.malformed(at, body),
                        Err(tag) => return Err(newer(at, format!("a consumer of tag {tag}"))),
                    }
                }
            }
            _ if !self.known.has(number) => {
                let held = Held { at, kind, mailbox: number, body: body.to_vec() };
                self.early.entry(number).or_default().push(held);
            }
            other => {
                if let Some(index) = self.find(number, at)
                    && self.change(index, &other).is_none()
                {
                    self.malformed(at, body);
                }
            }
        }
        Ok(())
    }

    /// Applies a record about the contents of a known mailbox; `None` if it is malformed.
    fn change(&mut self, index: SlotIx, op: &Op<'_>) -> Option<()> {
        match *op {
            Op::DelayEnded { delay_id } => self.state.end_delay(index, delay_id),
            Op::Removed { ranges, .. } => {
                for msg_id in self.present(index, ranges)? {
                    self.state.remove_message(index, msg_id);
                }
            }
            Op::IdsReserved { below } => {
                // Where others are durable, ids among them come yet: the rest is passed over in the end.
                self.state.reserve_ids(index, below);
                if self.state.in_memory(index) {
                    self.state.skip_ids(index, below);
                }
            }
            Op::GroupReset { group, start, next_id } => {
                let _ = self.note_assigned(index, next_id);
                self.state.reset_group(index, group, start);
            }
            Op::Delivered { group, member, keeps, ranges, .. } => {
                self.deliver(index, group, member, keeps, &DeliveryRanges::decode(ranges)?)?;
            }
            Op::Acked { group, ranges, .. } => {
                let msg_ids = self.present(index, ranges)?;
                let group = self.group_of(index, group)?;
                self.state.confirm(index, group, msg_ids.into_iter());
            }
            Op::Returned { group, ranges, .. } => {
                let msg_ids = self.present(index, ranges)?;
                let group = self.group_of(index, group)?;
                for msg_id in msg_ids {
                    self.state.give_back(index, group, msg_id, None);
                }
            }
            Op::GroupRemoved { group, .. } => {
                check_group_name(group)?;
                if let Some(at) = self.state.slot(index)?.find_group(group) {
                    self.state.remove_group(index, at);
                }
            }
            Op::DeadLettered(dead) => {
                self.note_assigned(index, dead.msg_id.checked_add(1)?)?;
                let is_there = self.state.slot(index)?.mailbox.get(dead.msg_id).is_some();
                let group = self.group_of(index, dead.group)?;
                let msg_id = is_there.then_some(dead.msg_id);
                self.state.confirm(index, group, msg_id.into_iter());
            }
            Op::Purged(purged) => {
                self.note_assigned(index, purged.next_id)?;
                self.state.purge(index, purged.next_id, purged.next_delay).then_some(())?;
            }
            Op::SentOnce(sent) => self.state.note_sent(index, sent.id, sent.sent_ms, sent.msg_id),
            Op::ConsumerGiven(given) => {
                if let Some(key) = self.consumer_of(index, given.consumer)? {
                    let last = decode_runs(given.runs)?.map(|run| run.first + u64::from(run.len));
                    self.note_assigned(index, last.max().unwrap_or(0))?;
                    self.state.give(key, &given, self.now)?;
                }
            }
            Op::ConsumerDone(done) => {
                if let Some(key) = self.consumer_of(index, done.consumer)? {
                    self.state.done(key, &done)?;
                }
            }
            Op::ConsumerReturned(returned) => {
                if let Some(key) = self.consumer_of(index, returned.consumer)? {
                    self.state.take_back(key, &returned)?;
                }
            }
            Op::ConsumerRemoved(removed) if removed.consumer == NO_CONSUMER => {
                if removed.cause == cause::CONSUMED {
                    self.state.end_sweep(index);
                } else {
                    self.state.begin_sweep(index);
                }
            }
            Op::ConsumerRemoved(removed) => {
                if let Some(key) = self.consumer_of(index, removed.consumer)? {
                    self.state.remove_consumer(key);
                }
            }
            Op::Opened { .. }
            | Op::MailboxCreated { .. }
            | Op::MailboxRemoved { .. }
            | Op::Updated(_)
            | Op::ConsumerSet(_)
            | Op::Message(_)
            | Op::Tied(_)
            | Op::Delayed(_) => {}
        }
        Some(())
    }

    /// Deliveries of messages that are still there. Those that a lane holds between the last
    /// delivery and this one were delivered too, in a record that is lost.
    fn deliver(
        &mut self,
        index: SlotIx,
        group: &str,
        member: MemberName<'_>,
        keeps: bool,
        ranges: &DeliveryRanges<'_>,
    ) -> Option<()> {
        self.note_assigned(index, ranges.runs().map(|(_, _, ids)| ids.end).max().unwrap_or(0))?;
        let group = self.group_of(index, group)?;
        let member = self.member(member);
        let slot = self.state.slot(index)?;
        let mut cursors = *slot.group(group)?.group.cursors();
        let (mut lost, mut delivered) = (Vec::new(), Vec::new());
        for (level, count, ids) in ranges.runs() {
            let cursor = &mut cursors[level.index()];
            for msg_id in slot.mailbox.ids_in(level, *cursor..ids.start) {
                lost.push(Delivered { level, msg_id, count: 1 });
            }
            *cursor = ids.end.max(*cursor);
            let found = slot.mailbox.ids_in(level, ids);
            delivered.extend(found.map(|msg_id| Delivered { level, msg_id, count }));
        }
        self.state.recover_deliveries(index, group, lost);
        self.state.deliver(index, group, &member, delivered, None, keeps);
        Some(())
    }

    /// The messages of a record that are still there; `None` if it is malformed.
    fn present(&mut self, index: SlotIx, encoded: &[u8]) -> Option<Vec<u64>> {
        let ranges = IdRanges::decode(encoded)?;
        self.note_assigned(index, ranges.runs().map(|ids| ids.end).max().unwrap_or(0))?;
        let mailbox = &self.state.slot(index)?.mailbox;
        let mut present = Vec::new();
        for ids in ranges.runs() {
            present.extend(Level::all().flat_map(|level| mailbox.ids_in(level, ids.clone())));
        }
        Some(present)
    }

    /// A record shows that ids below `end` have been assigned: they are not to be assigned again,
    /// even if the last message is lost. `None` if that cannot be.
    fn note_assigned(&mut self, index: SlotIx, end: u64) -> Option<()> {
        let mailbox = &mut self.state.slot_mut(index)?.mailbox;
        let reserved = mailbox.extras().map_or(0, |extras| extras.reserved_ids);
        if end.saturating_sub(mailbox.next_id.max(reserved)) > MAX_LOST || end >= MAX_ID {
            return None;
        }
        mailbox.next_id = mailbox.next_id.max(end);
        Some(())
    }

    fn create(&mut self, mailbox: Mailbox, desc: &str, policy: Policy) {
        let number = mailbox.number;
        if self.known.has(number) || self.is_superseded(number, &mailbox.address) {
            return;
        }
        if let Some(old) = self.state.find(&mailbox.address) {
            self.known.forget(self.state.number(old));
        }
        let index = self.state.add_mailbox(mailbox, desc, policy);
        self.known.add(number, index, Lsn::NONE);
    }

    /// True if a younger mailbox has the address: the one meant was gone by the checkpoint.
    fn is_superseded(&self, number: u64, address: &str) -> bool {
        self.state.find(address).is_some_and(|index| self.state.number(index) > number)
    }

    fn remove_mailbox(&mut self, number: u64, at: Lsn) {
        self.orphans.retain(|(orphan, _)| *orphan != number);
        self.early.remove(&number);
        if let Some(index) = self.find(number, at) {
            self.state.remove_mailbox(index);
            self.known.forget(number);
        }
    }

    /// The slot of a mailbox in which the record at `at` is still news.
    fn find(&self, number: u64, at: Lsn) -> Option<SlotIx> {
        let (index, captured_at) = *self.known.0.get(&number)?;
        (at >= captured_at).then_some(index)
    }

    /// The slot a message belongs to. If the mailbox's creation was lost, the message brings it back,
    /// without its policy, and what was recorded of it before.
    fn mailbox_of(
        &mut self,
        number: u64,
        message: &Message<'_>,
        at: Lsn,
    ) -> Result<Option<SlotIx>> {
        if self.known.has(number) {
            return Ok(self.find(number, at));
        }
        if check_name(message.address).is_err() || self.is_superseded(number, message.address) {
            return Ok(None);
        }
        self.orphans.push((number, Damage::at(at, 0, DamageKind::Orphan)));
        let mailbox = Mailbox::new(number, message.address, message.sent_ms, 0);
        self.create(mailbox, "", Policy::default());
        for held in self.early.remove(&number).unwrap_or_default() {
            self.apply(held.at, held.kind, held.mailbox, &held.body)?;
        }
        Ok(self.find(number, at))
    }

    /// The index of a group. If its start was lost it starts anew from the oldest message: better
    /// twice than never.
    fn group_of(&mut self, index: SlotIx, name: &str) -> Option<GroupIx> {
        check_group_name(name)?;
        match self.state.slot(index)?.find_group(name) {
            Some(at) => Some(at),
            None => Some(self.state.reset_group(index, name, [0; LEVELS])),
        }
    }

    /// A consumer, unless the record that made it is lost.
    fn consumer_of(&self, index: SlotIx, name: &str) -> Option<Option<ConsumerKey>> {
        check_group_name(name)?;
        let consumers = self.state.slot(index)?.consumers();
        let id = consumers.and_then(|consumers| consumers.find(name));
        Some(id.map(|id| ConsumerKey { slot: index, id }))
    }

    fn member(&mut self, name: MemberName<'_>) -> Member {
        match name {
            MemberName::Named(name) => Member::Named(name.into()),
            MemberName::Conn { epoch, conn } => {
                // A lost record of an opening must not give its epoch to the next one.
                self.state.epoch = self.state.epoch.max(epoch);
                Member::Conn { epoch, conn }
            }
        }
    }

    fn malformed(&mut self, at: Lsn, body: &[u8]) {
        self.damage.push(Damage::at(at, body.len() as u64, DamageKind::Record));
    }
}

/// `None` if no group can have this name.
fn check_group_name(name: &str) -> Option<()> {
    (1..=MAX_NAME).contains(&name.len()).then_some(())
}

fn newer(at: Lsn, what: String) -> Error {
    let (file, offset) = (names::segment(at.segment()), u64::from(at.offset()));
    Error::NewerFormat { file, offset, what }
}
