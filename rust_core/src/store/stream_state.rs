//! Changes of streams and their consumers: the effects of their records, and what follows from those of messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::consumers::{ConsumerKey, ConsumerSlot};
use super::indexes::SlotIx;
use super::slot::Slot;
use super::state::State;
use super::stream_dead_letters::Fate;
use super::timers::{Purpose, Timer, Timers};
use crate::consumer::{Consumer, ConsumerPolicy};
use crate::mailbox::{Entry, Lane, Level, Mailbox, Subjects};
use crate::time::Now;
use crate::wire::op::MAX_ID;
use crate::wire::stamp::cause;
use crate::wire::stream_ops::{
    ConsumerDone, ConsumerGiven, ConsumerReturned, ConsumerSet, decode_runs,
};

/// Something that happened to a consumer and that others are told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// A message was delivered as often as allowed.
    MaxDeliveries(AboutMessage),
    /// A consumer has said to never have a message again, and why.
    Terminated(AboutMessage, String),
    /// A consumer has returned a message.
    Returned(AboutMessage),
    /// A consumer was removed: whoever waits for its messages waits in vain.
    ConsumerGone {
        /// Which.
        key: ConsumerKey,
        /// Its stream.
        stream: Arc<str>,
        /// Its name.
        consumer: Arc<str>,
        /// Nobody asked for it: it was not used for too long.
        idle: bool,
    },
}

/// A message that a consumer was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AboutMessage {
    /// The stream.
    pub stream: Arc<str>,
    /// The consumer.
    pub consumer: Arc<str>,
    /// The number of the message in the stream, from 1.
    pub stream_seq: u64,
    /// The number of its first delivery.
    pub consumer_seq: u64,
    /// How often it was delivered.
    pub deliveries: u32,
    /// What became of it.
    pub fate: Fate,
}

impl State {
    /// The slot of a stream's mailbox.
    pub fn find_stream(&self, name: &str) -> Option<SlotIx> {
        self.streams.get(name).copied()
    }

    /// What a stream has besides its messages goes with it.
    pub(super) fn bury_stream(&mut self, index: SlotIx, slot: &mut Slot) {
        if let Some(name) = &slot.mailbox.policy().stream
            && self.streams.get(&**name) == Some(&index)
        {
            self.streams.remove(&**name);
        }
        if let Some(timer) = slot.mailbox.take_age_timer() {
            self.timers.wall.cancel(timer);
        }
        for (id, mut consumer) in slot.take_consumers() {
            self.ready_consumers.remove(&ConsumerKey { slot: index, id });
            cancel_consumer_timers(&mut consumer, &mut self.timers);
        }
    }

    /// A consumer of the stream in a slot.
    pub fn consumer(&self, key: ConsumerKey) -> Option<&ConsumerSlot> {
        self.slot(key.slot)?.consumers()?.get(key.id)
    }

    /// The same, to change it.
    pub fn consumer_mut(&mut self, key: ConsumerKey) -> Option<&mut ConsumerSlot> {
        self.journal.touch(key.slot);
        self.slot_mut(key.slot)?.consumers_mut()?.get_mut(key.id)
    }

    /// A consumer is created, or is like this from now on. `None` if the record is malformed, `Err` names a tag that
    /// this version does not know.
    pub fn set_consumer(
        &mut self,
        index: SlotIx,
        set: &ConsumerSet<'_>,
    ) -> Result<Option<ConsumerKey>, u8> {
        let Some(policy) = ConsumerPolicy::decode(set.policy)? else { return Ok(None) };
        let (early, rest) = set.early.as_chunks::<8>();
        let early: BTreeSet<u64> = early.iter().map(|id| u64::from_le_bytes(*id)).collect();
        if !rest.is_empty() || early.iter().any(|id| *id >= MAX_ID) || set.consumer.is_empty() {
            return Ok(None);
        }
        let next_id = self.next_consumer;
        self.journal.touch(index);
        let Some(slot) = self.slot_mut(index) else { return Ok(None) };
        let (mailbox, consumers) = slot.with_consumers();
        if let Some(id) = consumers.find(set.consumer) {
            if let Some(there) = consumers.get_mut(id) {
                let has_other_filters = there.consumer.policy.filters != policy.filters;
                there.consumer.change(policy, set.config);
                if has_other_filters {
                    self.begin_sweep(index);
                }
            }
            return Ok(Some(ConsumerKey { slot: index, id }));
        }
        let created_ms = set.stamp.time_ms;
        let next = set.next.min(mailbox.next_id.max(set.next));
        let consumer = Consumer::new(policy, set.config, created_ms, next, early);
        consumers.add(next_id, set.consumer, consumer);
        self.next_consumer += 1;
        let key = ConsumerKey { slot: index, id: next_id };
        self.count_pending(key);
        Ok(Some(key))
    }

    /// A consumer is there, as a checkpoint holds it; false if one of its name is there already.
    pub(super) fn add_consumer(&mut self, index: SlotIx, name: &str, consumer: Consumer) -> bool {
        let id = self.next_consumer;
        self.next_consumer += 1;
        let Some(slot) = self.slot_mut(index) else { return false };
        let (_, consumers) = slot.with_consumers();
        let is_new = consumers.find(name).is_none();
        if is_new {
            consumers.add(id, name, consumer);
        }
        is_new
    }

    /// A consumer goes, with all it remembers.
    pub fn remove_consumer(&mut self, key: ConsumerKey) -> Option<ConsumerSlot> {
        self.journal.touch(key.slot);
        let removed = self.slot_mut(key.slot)?.consumers_mut()?.remove(key.id);
        self.ready_consumers.remove(&key);
        let mut removed = removed?;
        cancel_consumer_timers(&mut removed, &mut self.timers);
        self.begin_sweep(key.slot);
        Some(removed)
    }

    /// Messages were given to a consumer; those that it must acknowledge come back in their time. `None` if the record
    /// is malformed.
    pub fn give(&mut self, key: ConsumerKey, given: &ConsumerGiven<'_>, now: Now) -> Option<()> {
        let runs = decode_runs(given.runs)?;
        self.journal.touch(key.slot);
        let Some(slot) = self.slot_mut(key.slot) else { return Some(()) };
        let Some((mailbox, slot)) = slot.consumer_and_mailbox(key.id) else { return Some(()) };
        let consumer = &mut slot.consumer;
        let only = only_level(mailbox);
        for run in runs {
            let deadline_ms = now.mono_ms.saturating_add(consumer.policy.hold_ms(run.count));
            for msg_id in run.first..run.first + u64::from(run.len) {
                let level = only.or_else(|| mailbox.get(msg_id).map(|(level, _)| level));
                consumer.apply_given(msg_id, level, run.count, deadline_ms);
            }
            if only.is_some() {
                consumer.pass_over(None, run.first + u64::from(run.len));
            }
        }
        Some(())
    }

    /// A consumer has done with messages. `None` if the record is malformed.
    pub fn done(&mut self, key: ConsumerKey, done: &ConsumerDone<'_>) -> Option<()> {
        let runs = decode_runs(done.runs)?;
        let Some(slot) = self.consumer_mut(key) else { return Some(()) };
        for run in runs {
            // A record may name any number of messages; those that are out or given up are no more than are stored.
            for msg_id in slot.consumer.open_within(run.first, u64::from(run.len)) {
                match done.cause {
                    cause::MAX_DELIVER => slot.consumer.apply_given_up(msg_id),
                    cause::MOVED => slot.consumer.apply_moved(msg_id),
                    _ => drop(slot.consumer.apply_done(msg_id)),
                }
            }
        }
        Some(())
    }

    /// A consumer has returned messages; when they come back counts over restarts. `None` if the record is malformed.
    pub fn take_back(&mut self, key: ConsumerKey, returned: &ConsumerReturned<'_>) -> Option<()> {
        let runs = decode_runs(returned.runs)?;
        let Some(slot) = self.consumer_mut(key) else { return Some(()) };
        for run in runs {
            for msg_id in slot.consumer.out_within(run.first, u64::from(run.len)) {
                slot.consumer.apply_returned(msg_id, returned.due_ms);
            }
        }
        Some(())
    }

    /// A message with this subject has entered the stream in a slot.
    pub(super) fn note_stored(
        &mut self,
        index: SlotIx,
        msg_id: u64,
        subject: &str,
        create_ms: u64,
    ) {
        let Some(slot) = self.slot_mut(index) else { return };
        let max_age_ms = slot.mailbox.policy().max_age_ms;
        let extras = slot.mailbox.extras_mut();
        let timed = extras.age_timer.is_some();
        extras.last_ms = create_ms;
        let ix = extras.subjects.get_or_insert_default().put(msg_id, subject);
        let mut ready = Vec::new();
        if let Some(consumers) = slot.consumers_mut() {
            for (id, consumer) in consumers.iter_mut() {
                let consumer = &mut consumer.consumer;
                if consumer.note_stored(msg_id, ix, subject) && consumer.waiting > 0 {
                    ready.push(ConsumerKey { slot: index, id });
                }
            }
        }
        self.ready_consumers.extend(ready);
        if max_age_ms > 0 && !timed {
            self.time_age(index, create_ms.saturating_add(max_age_ms));
        }
    }

    /// A message has gone from the stream in a slot.
    pub(super) fn note_removed(&mut self, index: SlotIx, level: Level, msg_id: u64) {
        let now_ms = self.timers.wall.now();
        let Some(slot) = self.slot_mut(index) else { return };
        let Some(subjects) = slot.mailbox.extras_mut().subjects.as_deref_mut() else { return };
        let subject = subjects.of(msg_id).and_then(|ix| subjects.get(ix));
        let Some(subject) = subject.map(|known| Arc::clone(&known.subject)) else { return };
        let Some((ix, last)) = subjects.remove(msg_id) else { return };
        let mut ready = Vec::new();
        if let Some(consumers) = slot.consumers_mut() {
            for (id, slot) in consumers.iter_mut() {
                let consumer = &mut slot.consumer;
                if consumer.note_removed((level, msg_id), ix, &subject) {
                    slot.acked_ms = now_ms;
                    // Where something was out, there is room for something else.
                    if consumer.waiting > 0 {
                        ready.push(ConsumerKey { slot: index, id });
                    }
                }
                if last {
                    consumer.forget_subject(ix);
                }
            }
        }
        self.ready_consumers.extend(ready);
    }

    /// Sets the timer that lets the oldest messages of a stream go.
    pub(super) fn time_age(&mut self, index: SlotIx, due_ms: u64) {
        let timer = Timer { number: self.number(index), id: 0, slot: index, purpose: Purpose::Age };
        let timer = self.timers.wall.insert(due_ms, timer);
        if let Some(slot) = self.slot_mut(index) {
            let before = slot.mailbox.extras_mut().age_timer.replace(timer);
            debug_assert!(before.is_none(), "one timer for the age of a stream's messages");
        }
    }

    /// Arms the timer of a consumer's earliest deadline.
    pub fn arm_consumer(&mut self, key: ConsumerKey) {
        let number = self.number(key.slot);
        let Some(slot) = self.consumer(key) else { return };
        let (wanted, armed) = (slot.consumer.next_deadline_ms(), slot.timer);
        let timer = match (wanted, armed) {
            // An earlier timer finds nothing due and arms again: cheaper than moving it each time.
            (Some(at), Some((_, armed))) if armed <= at => return,
            (None, None) => return,
            (wanted, armed) => {
                if let Some((timer, _)) = armed {
                    self.timers.mono.cancel(timer);
                }
                let purpose = Purpose::Consumer;
                let timer = Timer { number, id: key.id, slot: key.slot, purpose };
                wanted.map(|at| (self.timers.mono.insert(at, timer), at))
            }
        };
        if let Some(slot) = self.consumer_mut(key) {
            slot.timer = timer;
        }
    }

    /// A consumer is being used; it goes when it is not for as long as its policy says.
    pub fn note_consumer_use(&mut self, key: ConsumerKey, now: Now) {
        let Some(slot) = self.consumer_mut(key) else { return };
        slot.used_ms = now.mono_ms;
        let (inactive_ms, timed) = (slot.consumer.policy.inactive_ms, slot.idle.is_some());
        if inactive_ms > 0 && !timed {
            self.look_at_consumer(key, now.mono_ms.saturating_add(inactive_ms));
        }
    }

    /// Whether a consumer is still used is looked at then.
    pub(super) fn look_at_consumer(&mut self, key: ConsumerKey, at_ms: u64) {
        let number = self.number(key.slot);
        let timer = Timer { number, id: key.id, slot: key.slot, purpose: Purpose::ConsumerIdle };
        let timer = self.timers.mono.insert(at_ms, timer);
        if let Some(slot) = self.consumer_mut(key) {
            let before = slot.idle.replace(timer);
            debug_assert!(before.is_none(), "one timer for a consumer");
        }
    }

    /// Counts anew how many messages a consumer has before it.
    pub(super) fn count_pending(&mut self, key: ConsumerKey) {
        let Some(slot) = self.slot_mut(key.slot) else { return };
        let Some((mailbox, consumer)) = slot.consumer_and_mailbox(key.id) else { return };
        let consumer = &mut consumer.consumer;
        let early = consumer.early().filter(|id| mailbox.get(*id).is_some()).count() as u64;
        let lanes = mailbox.lanes().iter();
        let pending = if consumer.policy.filters.is_empty() {
            lanes.map(|(level, lane)| lane.count_from(consumer.next_in(*level)) as u64).sum()
        } else {
            mailbox.subjects().map_or(0, |subjects| count_wanted(mailbox, subjects, consumer))
        };
        consumer.set_pending(pending + early);
    }

    /// After a recovery: what was out comes back after a while, and pending messages are counted.
    pub fn recover_streams(&mut self, now: Now) {
        self.find_streams();
        let slots: Vec<SlotIx> = self.streams.values().copied().collect();
        for index in slots {
            let Some(slot) = self.slot_mut(index) else { continue };
            let policy = slot.mailbox.policy();
            let (max_age_ms, oldest) = (policy.max_age_ms, slot.mailbox.oldest());
            let oldest = oldest.and_then(|id| slot.mailbox.get(id));
            let newest = slot.mailbox.iter_back(u64::MAX).next();
            if let Some((_, entry)) = newest {
                slot.mailbox.extras_mut().last_ms = entry.create_ms;
            }
            let timer = slot.mailbox.take_age_timer();
            let (mailbox, consumers) = slot.with_consumers();
            let mut keys = Vec::new();
            for (id, consumer) in consumers.iter_mut() {
                let consumer = &mut consumer.consumer;
                let deadline_ms = now.mono_ms.saturating_add(consumer.policy.hold_ms(1));
                let mono = |ms: u64| now.mono_ms.saturating_add(ms.saturating_sub(now.wall_ms));
                let level_of = |msg_id| mailbox.get(msg_id).map(|(level, _)| level);
                consumer.recover(level_of, deadline_ms, mono);
                keys.push(ConsumerKey { slot: index, id });
            }
            for key in keys {
                self.count_pending(key);
                self.arm_consumer(key);
                self.note_consumer_use(key, now);
            }
            self.time_sweep_anew(index, now.mono_ms);
            // A message of the log may have set it, and one of the checkpoint be older.
            if let Some(timer) = timer {
                self.timers.wall.cancel(timer);
            }
            if max_age_ms > 0
                && let Some((_, entry)) = oldest
            {
                self.time_age(index, entry.create_ms.saturating_add(max_age_ms));
            }
        }
    }

    /// Of several streams of a name the newest counts: a checkpoint may hold one that was removed while it was made.
    fn find_streams(&mut self) {
        let mut newest = std::mem::take(&mut self.streams);
        newest.clear();
        for (index, slot) in self.slots() {
            let Some(name) = &slot.mailbox.policy().stream else { continue };
            let number = slot.mailbox.number;
            let other = newest.get(&**name).map(|other| self.number(*other));
            if other.is_none_or(|other| other < number) {
                newest.insert(name.as_ref().into(), index);
            }
        }
        self.streams = newest;
    }

    /// Whether some consumer of a stream has not done with a message that is for it.
    pub(super) fn is_wanted(&mut self, index: SlotIx, msg_id: u64) -> bool {
        let Some(slot) = self.slot_mut(index) else { return false };
        let (mailbox, consumers) = slot.with_consumers();
        let Some(subjects) = mailbox.subjects() else { return false };
        let Some(ix) = subjects.of(msg_id) else { return false };
        let Some(subject) = subjects.get(ix).map(|known| &known.subject) else { return false };
        consumers.iter_mut().any(|(_, slot)| slot.consumer.needs(msg_id, ix, subject))
    }

    /// The same, of all consumers but one.
    pub(super) fn is_wanted_by_others(&mut self, key: ConsumerKey, msg_id: u64) -> bool {
        let Some(slot) = self.slot_mut(key.slot) else { return false };
        let (mailbox, consumers) = slot.with_consumers();
        let Some(subjects) = mailbox.subjects() else { return false };
        let known = subjects.of(msg_id).and_then(|ix| Some((ix, subjects.get(ix)?)));
        let Some((ix, known)) = known else { return false };
        let mut others = consumers.iter_mut().filter(|(id, _)| *id != key.id);
        others.any(|(_, slot)| slot.consumer.needs(msg_id, ix, &known.subject))
    }
}

/// The level of all messages of a stream, where they have one.
fn only_level(mailbox: &Mailbox) -> Option<Level> {
    match mailbox.lanes() {
        [] => Some(Level::NORMAL),
        [(level, _)] => Some(*level),
        _ => None,
    }
}

/// Messages that a consumer wants, of those that it has not looked at.
fn count_wanted(mailbox: &Mailbox, subjects: &Subjects, consumer: &mut Consumer) -> u64 {
    let places = mailbox.lanes().iter().map(|(level, lane)| (lane, consumer.next_in(*level)));
    let places: Vec<(&Lane, u64)> = places.collect();
    let end = places.iter().map(|(_, next)| *next).max().unwrap_or(0);
    let mut wants = |ix, subject: &str| consumer.wants(ix, subject);
    if places.iter().all(|(_, next)| *next == end) {
        return subjects.count_from(end, wants);
    }
    // One by one are counted those that were passed by, or those that were not: whichever are fewer.
    let before = |(lane, next): &(&Lane, u64)| lane.len() - lane.count_from(*next);
    let between = |(lane, next): &(&Lane, u64)| lane.count_from(*next) - lane.count_from(end);
    let few_before =
        places.iter().map(before).sum::<usize>() < places.iter().map(between).sum::<usize>();
    let all = subjects.count_from(if few_before { 0 } else { end }, &mut wants);
    let mut is_wanted = |entry: &Entry| {
        let known = subjects.of(entry.msg_id).and_then(|ix| Some((ix, subjects.get(ix)?)));
        known.is_some_and(|(ix, known)| wants(ix, &known.subject))
    };
    let mut some = 0;
    for (lane, next) in places {
        let (from, end) = if few_before { (0, next) } else { (next, end) };
        let entries = lane.iter_from(from).take_while(|entry| entry.msg_id < end);
        some += entries.filter(|entry| is_wanted(entry)).count() as u64;
    }
    if few_before { all - some } else { all + some }
}

pub(super) fn cancel_consumer_timers(consumer: &mut ConsumerSlot, timers: &mut Timers) {
    let deadline = consumer.timer.take().map(|(timer, _)| timer);
    for timer in deadline.into_iter().chain(consumer.idle.take()) {
        timers.mono.cancel(timer);
    }
}
