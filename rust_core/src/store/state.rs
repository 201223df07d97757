//! The store's state in memory, and every way in which it changes durably.
//!
//! Each public `&mut` method is the effect of one kind of record. Commands call it after appending
//! the record, recovery when it reads the record back: the same code gives the same state. It knows
//! no policy decision and writes no log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;

use super::activity::Journal;
use super::addresses::Addresses;
use super::consumers::{ConsumerKey, Consumers};
use super::fetch::is_expired;
use super::indexes::SlotIx;
use super::live::{LiveBytes, Tally};
use super::lost::{Losses, Lost};
use super::slot::Slot;
use super::slots::Slots;
use super::stream_state::StreamEvent;
use super::timers::{Purpose, Timer, Timers};
use super::update::SURPLUS_AT_ONCE;
use super::usage::Usage;
use crate::group::Group;
use crate::log::{Lsn, Segment};
use crate::mailbox::{Delayed, EXPIRES, Entry, KEYED, Level, Mailbox, Policy, Tier};
use crate::time::Now;
use crate::wire::op::Message;

/// Where a stored record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where it begins; [`Lsn::NONE`] in the memory tier.
    pub at: Lsn,
    /// Its length with the frame.
    pub len: u32,
}

/// All mailboxes, their groups and deadlines.
pub struct State {
    pub(super) slots: Slots,
    by_address: Addresses,
    /// Removed mailboxes, and what purged ones held, of which not all messages have been counted out yet.
    pub(super) removed_slots: VecDeque<Slot>,
    /// Removed groups, of which not all deliveries have been dropped yet.
    pub(super) removed_groups: VecDeque<Group>,
    /// Deadlines.
    pub timers: Timers,
    /// Live bytes by segment.
    pub live: LiveBytes,
    /// What clients have.
    pub usage: Usage,
    /// Which mailboxes have changed.
    pub journal: Journal,
    /// The slots of streams, by name.
    pub(super) streams: HashMap<Arc<str>, SlotIx, foldhash::fast::RandomState>,
    /// Consumers that may have something for those who wait.
    pub(super) ready_consumers: BTreeSet<ConsumerKey>,
    /// Messages that were delivered as often as allowed and are to become dead letters.
    pub(super) exhausted: BTreeSet<(ConsumerKey, u64)>,
    /// The number of the next consumer.
    pub(super) next_consumer: u64,
    /// What others are to be told of consumers.
    pub(super) stream_events: VecDeque<StreamEvent>,
    /// How many times the store has been opened.
    pub epoch: u32,
    /// The number of the next mailbox.
    pub next_number: u64,
}

impl State {
    /// An empty store.
    pub fn new(now: Now) -> State {
        State {
            slots: Slots::default(),
            by_address: Addresses::default(),
            removed_slots: VecDeque::new(),
            removed_groups: VecDeque::new(),
            timers: Timers::new(now),
            live: LiveBytes::default(),
            usage: Usage::default(),
            journal: Journal::default(),
            streams: HashMap::default(),
            ready_consumers: BTreeSet::new(),
            exhausted: BTreeSet::new(),
            next_consumer: 0,
            stream_events: VecDeque::new(),
            epoch: 0,
            next_number: 1,
        }
    }

    /// How many mailboxes there are.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// The indexes of all slots from number `from` on, used or free.
    pub fn indexes(&self, from: u32) -> impl Iterator<Item = SlotIx> + use<> {
        self.slots.indexes(from)
    }

    /// The slot of an address.
    pub fn find(&self, address: &str) -> Option<SlotIx> {
        self.by_address.find(address, |at| self.has(at, address))
    }

    /// True if a slot has this address.
    #[inline]
    pub fn has(&self, index: SlotIx, address: &str) -> bool {
        self.slot(index).is_some_and(|slot| *slot.mailbox.address == *address)
    }

    /// The hash of an address, for [`State::likely_slot`].
    pub fn hash(&self, address: &str) -> u32 {
        self.by_address.hash(address)
    }

    /// The slot that an address of this hash most likely has, without a look at the slot.
    pub fn likely_slot(&self, hash: u32) -> Option<SlotIx> {
        self.by_address.find_hash(hash, |_| true)
    }

    /// A used slot.
    pub fn slot(&self, index: SlotIx) -> Option<&Slot> {
        self.slots.get(index)
    }

    /// A slot that somebody knows to be in use.
    pub fn in_use(&self, index: SlotIx) -> &Slot {
        self.slots.in_use(index)
    }

    /// A used slot, to change it.
    pub fn slot_mut(&mut self, index: SlotIx) -> Option<&mut Slot> {
        self.slots.get_mut(index)
    }

    /// A slot, if it still belongs to mailbox `number`.
    pub fn slot_of(&self, index: SlotIx, number: u64) -> Option<&Slot> {
        self.slot(index).filter(|slot| slot.mailbox.number == number)
    }

    /// All used slots with their indexes.
    pub fn slots(&self) -> impl Iterator<Item = (SlotIx, &Slot)> {
        self.slots.iter()
    }

    /// Removed mailboxes of which not all messages have been counted out yet.
    pub fn removed_slots(&self) -> impl Iterator<Item = &Slot> {
        self.removed_slots.iter()
    }

    /// Panics unless every mailbox is found by its address. For tests.
    pub fn check_index(&self) {
        self.slots.check_invariants();
        let all = self.slots.iter().map(|(index, slot)| (&*slot.mailbox.address, index));
        self.by_address.check_invariants(all);
    }

    /// Adds a mailbox. One that holds the address already has expired unrecorded: it goes.
    pub fn add_mailbox(&mut self, mut mailbox: Mailbox, desc: &str, policy: Policy) -> SlotIx {
        if let Some(old) = self.find(&mailbox.address) {
            self.remove_mailbox(old);
        }
        self.next_number = self.next_number.max(mailbox.number + 1);
        mailbox.set_policy(policy);
        if !desc.is_empty() {
            mailbox.extras_mut().desc = desc.into();
        }
        let owner = self.usage.owner_of(&mailbox.address, mailbox.policy().owner.as_deref());
        self.usage.add_mailbox(owner);
        let index = self.slots.next();
        if let Some(name) = &mailbox.policy().stream {
            self.streams.insert(name.as_ref().into(), index);
            mailbox.next_id = mailbox.next_id.max(mailbox.policy().first_id);
        }
        self.by_address.add(&mailbox.address, index);
        self.slots.add(Slot::new(mailbox, owner));
        self.journal.touch(index);
        self.time_mailbox(index);
        index
    }

    /// Sets the timer of a mailbox's expiry.
    pub fn time_mailbox(&mut self, index: SlotIx) {
        let slot = self.slots.in_use_mut(index);
        let Mailbox { number, expires_ms, .. } = slot.mailbox;
        if expires_ms != 0 {
            let timer = Timer { number, id: 0, slot: index, purpose: Purpose::Mailbox };
            slot.expiry = Some(self.timers.wall.insert(expires_ms, timer));
        }
    }

    /// Removes a mailbox at once; its messages are counted out by [`State::count_out_removed`].
    pub fn remove_mailbox(&mut self, index: SlotIx) {
        if let Some(mut slot) = self.slots.take(index) {
            self.by_address.remove(&slot.mailbox.address, index);
            self.journal.touch(index);
            self.usage.remove_mailbox(slot.owner, counted_bytes(&slot.mailbox));
            let sent_ids = slot.mailbox.sent_ids_mut();
            let ids_timer = sent_ids.and_then(|sent_ids| sent_ids.timer.take());
            for timer in slot.expiry.into_iter().chain(ids_timer) {
                self.timers.wall.cancel(timer);
            }
            self.bury_stream(index, &mut slot);
            self.removed_slots.push_back(slot);
        }
    }

    /// Counts live bytes anew after a recovery. Messages that lie in no segment are taken out and
    /// returned by segment, unless their time was over: expiry leaves no record, and may have been
    /// all that kept a segment.
    pub fn recount(
        &mut self,
        segments: &BTreeMap<u32, Segment>,
        now: Now,
    ) -> impl Iterator<Item = (u32, Lost)> + use<> {
        self.live = LiveBytes::default();
        let mut lost = Vec::new();
        let mut lost_delays = Vec::new();
        for index in self.indexes(0) {
            let slot = self.slots.get_mut(index);
            let Some(slot) = slot else { continue };
            let mailbox = &mut slot.mailbox;
            let over = mailbox.is_expired(now.wall_ms);
            let mut tally = Tally::new(segments, &mut self.live);
            for (_, lane) in mailbox.lanes() {
                for entry in lane.iter_from(0) {
                    if !tally.count(entry.at, entry.len) {
                        // What was in memory when a checkpoint was made is not missed.
                        let over = over || entry.at == Lsn::NONE;
                        lost.push((index, entry, over || is_expired(mailbox, &entry, now)));
                    }
                }
            }
            for (delay_id, delayed) in mailbox.extras().into_iter().flat_map(|s| s.delayed.iter()) {
                if !tally.count(delayed.at, delayed.len) {
                    let over = over || delayed.at == Lsn::NONE;
                    let expired = over || (1..=now.wall_ms).contains(&delayed.expires_ms);
                    lost_delays.push((index, delay_id, *delayed, expired));
                }
            }
            mailbox.bytes = tally.finish();
        }
        let mut losses = Losses::default();
        let address = |state: &State, index| {
            state.slot(index).map_or_else(String::new, |s| s.mailbox.address.to_string())
        };
        for (index, entry, expired) in lost {
            if !expired {
                let (segment, msg_id) = (entry.at.segment(), Some(entry.msg_id));
                losses.add(segment, index, msg_id, || address(self, index));
            }
            self.remove_message(index, entry.msg_id);
        }
        for (index, delay_id, delayed, expired) in lost_delays {
            if !expired {
                losses.add(delayed.at.segment(), index, None, || address(self, index));
            }
            self.end_delay(index, delay_id);
        }
        self.usage.forget_bytes();
        for slot in self.slots.iter_mut() {
            slot.forget_lost_deliveries();
            self.usage.change(slot.owner, 0, counted_bytes(&slot.mailbox));
        }
        losses.finish()
    }

    /// A message enters its lane.
    pub fn put_message(&mut self, index: SlotIx, message: &Message<'_>, place: Place) {
        let slot = self.slots.in_use_mut(index);
        if place.at == Lsn::NONE {
            let mut bytes = Vec::with_capacity(message.encoded_len());
            message.encode(&mut bytes);
            slot.mailbox.extras_mut().memory.insert(message.msg_id, bytes.into());
        }
        let mailbox = &mut slot.mailbox;
        let Message { msg_id, create_ms, expires_ms, .. } = *message;
        let Place { at, len } = place;
        let before = mailbox.bytes;
        self.live.add(at, len);
        self.journal.touch(index);
        let newest = msg_id >= mailbox.next_id;
        if !newest && let Some((level, entry)) = mailbox.get(msg_id) {
            // A copy made by compaction, found again by recovery: only its place is news.
            self.live.sub(entry.at, entry.len);
            mailbox.bytes = mailbox.bytes.saturating_sub(u64::from(entry.len));
            mailbox.put(level, Entry { at, len, ..entry });
            self.usage.change(slot.owner, before, slot.mailbox.bytes);
            return;
        }
        let mut flags = 0;
        let mut replaced = None;
        let is_stream = !message.key.is_empty() && mailbox.is_stream();
        if !message.key.is_empty() && !is_stream {
            flags |= KEYED;
            replaced = mailbox.extras_mut().set_key(message.key, msg_id);
        }
        if expires_ms != 0 {
            flags |= EXPIRES;
        }
        let level = Level::new(message.level).unwrap_or(Level::NORMAL);
        mailbox.put(level, Entry { msg_id, at, len, create_ms, flags });
        self.usage.change(slot.owner, before, mailbox.bytes);
        let latest = mailbox.policy().latest;
        if expires_ms != 0 {
            self.set_expiry(index, msg_id, expires_ms);
        }
        if is_stream {
            self.note_stored(index, msg_id, message.key, create_ms);
        }
        if let Some(old) = replaced {
            self.remove_message(index, old);
        }
        if newest && latest {
            // More than one is there only since the mailbox has become one for the latest.
            for _ in 0..SURPLUS_AT_ONCE {
                let Some(old) = self.oldest(index).filter(|&old| old < msg_id) else { break };
                self.remove_message(index, old);
            }
        }
    }

    /// A message in its lane will expire.
    pub fn set_expiry(&mut self, index: SlotIx, msg_id: u64, expires_ms: u64) {
        let slot = self.slots.in_use_mut(index);
        let (number, purpose) = (slot.mailbox.number, Purpose::Message);
        let timer = Timer { number, id: msg_id, slot: index, purpose };
        let timer = self.timers.wall.insert(expires_ms, timer);
        slot.mailbox.extras_mut().expiries.insert(msg_id, (expires_ms, timer));
    }

    fn oldest(&self, index: SlotIx) -> Option<u64> {
        self.slot(index)?.mailbox.oldest()
    }

    /// A message is stored to enter its lane later.
    pub fn put_delayed(&mut self, index: SlotIx, message: &Message<'_>, place: Place) {
        let (delay_id, due_ms) = (message.msg_id, message.create_ms);
        if place.at == Lsn::NONE {
            let slot = self.slots.in_use_mut(index);
            let mut bytes = Vec::with_capacity(message.encoded_len());
            message.encode(&mut bytes);
            slot.mailbox.extras_mut().memory_delayed.insert(delay_id, bytes.into());
        }
        self.set_delay(index, delay_id, due_ms, message.expires_ms, place);
    }

    /// A message waits for its due time.
    pub fn set_delay(
        &mut self,
        index: SlotIx,
        delay_id: u64,
        due_ms: u64,
        expires_ms: u64,
        place: Place,
    ) {
        let slot = self.slots.in_use_mut(index);
        self.journal.touch(index);
        let mailbox = &mut slot.mailbox;
        let (number, purpose) = (mailbox.number, Purpose::Delay);
        let Place { at, len } = place;
        let before = mailbox.bytes;
        mailbox.bytes += u64::from(len);
        self.live.add(at, len);
        let extras = mailbox.extras_mut();
        extras.delayed_bytes += u64::from(len);
        extras.next_delay = extras.next_delay.max(delay_id + 1);
        let timer = match extras.delayed.remove(delay_id) {
            // A copy made by compaction keeps its turn among those due at the same time.
            Some(moved) => {
                extras.delayed_bytes -= u64::from(moved.len);
                self.live.sub(moved.at, moved.len);
                mailbox.bytes = mailbox.bytes.saturating_sub(u64::from(moved.len));
                moved.timer
            }
            None => {
                let timer = Timer { number, id: delay_id, slot: index, purpose };
                self.timers.wall.insert(due_ms, timer)
            }
        };
        let delayed = Delayed { due_ms, expires_ms, at, len, timer };
        mailbox.extras_mut().delayed.insert(delay_id, delayed);
        self.usage.change(slot.owner, before, mailbox.bytes);
    }

    /// A delayed message is one no longer.
    pub fn end_delay(&mut self, index: SlotIx, delay_id: u64) {
        let slot = self.slots.in_use_mut(index);
        let before = slot.mailbox.bytes;
        self.journal.touch(index);
        take_delayed(&mut slot.mailbox, delay_id, &mut self.timers, &mut self.live);
        self.usage.change(slot.owner, before, slot.mailbox.bytes);
    }

    /// A message goes, from its lane and from every group.
    pub fn remove_message(&mut self, index: SlotIx, msg_id: u64) -> bool {
        let slot = self.slots.in_use_mut(index);
        let before = slot.mailbox.bytes;
        let taken = take_message(&mut slot.mailbox, msg_id, &mut self.timers, &mut self.live);
        if let Some(level) = taken {
            self.journal.touch(index);
            self.usage.change(slot.owner, before, slot.mailbox.bytes);
            for group in slot.groups_mut() {
                group.group.forget(msg_id);
            }
            if slot.mailbox.subjects().is_some() {
                self.note_removed(index, level, msg_id);
            }
        }
        taken.is_some()
    }

    /// All messages go at once, from their lanes, from every group, and those that are delayed; they are counted out by
    /// [`State::count_out_removed`]. False, and nothing is done, if some have come since these were the next numbers.
    pub fn purge(&mut self, index: SlotIx, next_id: u64, next_delay: u64) -> bool {
        let slot = self.slots.in_use_mut(index);
        let delays = slot.mailbox.extras().map_or(0, |extras| extras.next_delay);
        if next_id < slot.mailbox.next_id || next_delay < delays {
            return false;
        }
        self.usage.change(slot.owner, slot.mailbox.bytes, 0);
        self.journal.touch(index);
        let purged = slot.take_messages();
        let next_id = slot.mailbox.next_id;
        for (_, consumer) in slot.consumers_mut().into_iter().flat_map(Consumers::iter_mut) {
            consumer.consumer.apply_purged(next_id);
        }
        for group in slot.groups_mut() {
            if let Some((timer, _)) = group.timer.take() {
                self.timers.mono.cancel(timer);
            }
        }
        self.removed_slots.push_back(purged);
        true
    }

    /// The number of the mailbox in a slot, 0 if there is none.
    pub fn number(&self, index: SlotIx) -> u64 {
        self.slot(index).map_or(0, |slot| slot.mailbox.number)
    }

    /// Whether a mailbox keeps its messages in memory only.
    pub fn in_memory(&self, index: SlotIx) -> bool {
        self.slot(index).is_some_and(|slot| slot.mailbox.policy().tier == Tier::Memory)
    }
}

/// What counts to the quotas of its owner.
pub(super) fn counted_bytes(mailbox: &Mailbox) -> u64 {
    mailbox.bytes + mailbox.extras().map_or(0, |extras| extras.sent_id_bytes())
}

pub(super) fn first_delayed(mailbox: &Mailbox) -> Option<u64> {
    mailbox.extras()?.delayed.iter().next().map(|(id, _)| id)
}

pub(super) fn take_message(
    mb: &mut Mailbox,
    msg_id: u64,
    timers: &mut Timers,
    live: &mut LiveBytes,
) -> Option<Level> {
    let (level, entry) = mb.take(msg_id)?;
    live.sub(entry.at, entry.len);
    if entry.flags & EXPIRES != 0
        && let Some((_, timer)) = mb.extras_mut().expiries.remove(msg_id)
    {
        timers.wall.cancel(timer);
    }
    Some(level)
}

pub(super) fn take_delayed(
    mailbox: &mut Mailbox,
    delay_id: u64,
    timers: &mut Timers,
    live: &mut LiveBytes,
) -> Option<Delayed> {
    let extras = mailbox.extras_mut();
    let delayed = extras.delayed.remove(delay_id)?;
    extras.delayed_bytes -= u64::from(delayed.len);
    extras.memory_delayed.remove(&delay_id);
    timers.wall.cancel(delayed.timer);
    live.sub(delayed.at, delayed.len);
    mailbox.bytes = mailbox.bytes.saturating_sub(u64::from(delayed.len));
    Some(delayed)
}
