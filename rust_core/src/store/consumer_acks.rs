//! Acknowledgements of consumers: done, returned, at work, never again; and messages that are given up.

use std::sync::Arc;

use super::activity::GroupCounts;
use super::consume::MOST_GIVEN;
use super::consumers::ConsumerKey;
use super::stream_dead_letters::{Death, Fate, Grave};
use super::stream_state::{AboutMessage, StreamEvent};
use super::timers::Timer;
use super::{Store, space_for, space_for_unit};
use crate::consumer::AckPolicy;
use crate::error::Result;
use crate::group::ranges;
use crate::log::Space;
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};
use crate::wire::stream_ops::{ConsumerDone, ConsumerReturned, encode_runs};

/// Most deadlines that end at once.
const ENDED_AT_ONCE: usize = 1024;
/// Most records of messages that are given up at once.
const GIVEN_UP_AT_ONCE: usize = 8;

/// What a consumer says of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumerAck {
    /// It has done with it.
    Done,
    /// It returns it, to be given again after a while or at once.
    Return(Option<u64>),
    /// It is still at work.
    Progress,
    /// It never wants it again, and why.
    Terminate(String),
    /// The same, and it becomes a dead letter.
    Bury(String, Grave),
}

/// A delivery that a consumer says something of.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delivery {
    /// The message.
    pub msg_id: u64,
    /// The number of the delivery.
    pub number: u64,
    /// How often the message was delivered then.
    pub count: u32,
    /// The connection that says it.
    pub conn: u64,
    /// It waits for an answer: if others were given the message since, it is told.
    pub wants_to_know: bool,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acked {
    /// It counts.
    Heard,
    /// Another connection was given the message since: nothing has changed.
    Late,
    /// The message has become a dead letter: nothing has changed.
    DeadLetter,
    /// The message was never given to the consumer.
    NeverGiven,
}

impl Store {
    /// A consumer says something of a message that it was given.
    pub fn consumer_ack(
        &mut self,
        key: ConsumerKey,
        of: &Delivery,
        ack: &ConsumerAck,
        now: Now,
    ) -> Result<Acked> {
        self.tick(now);
        let Some(slot) = self.state.consumer(key) else { return Ok(Acked::NeverGiven) };
        let policy = &slot.consumer.policy;
        let (kind, msg_id) = (policy.ack, of.msg_id);
        if self.is_to_come(key, msg_id) {
            return Ok(Acked::NeverGiven);
        }
        let moves_it = matches!(ack, ConsumerAck::Return(_) | ConsumerAck::Progress);
        if slot.consumer.is_dead_letter(msg_id) {
            return Ok(Acked::DeadLetter);
        }
        let is_late = slot.consumer.is_late(msg_id, of.count, of.conn);
        if is_late && (moves_it || of.wants_to_know) {
            return Ok(Acked::Late);
        }
        let out = slot.consumer.count(msg_id);
        let about = AboutMessage {
            stream: self.stream_name(key.slot),
            consumer: Arc::clone(&slot.name),
            stream_seq: msg_id + 1,
            consumer_seq: of.number,
            deliveries: out.unwrap_or(of.count),
            fate: Fate::Plain,
        };
        let hold_ms = policy.ack_wait_ms.max(policy.backoff_ms.first().copied().unwrap_or(0));
        self.state.note_consumer_use(key, now);
        if let Some(slot) = self.state.consumer_mut(key)
            && matches!(ack, ConsumerAck::Done | ConsumerAck::Terminate(_) | ConsumerAck::Bury(..))
        {
            slot.acked_ms = now.wall_ms;
        }
        match ack {
            ConsumerAck::Done => {
                let first = if kind == AckPolicy::All { 0 } else { msg_id };
                let all = self.given_within(key, first, msg_id);
                self.finish(key, &all, cause::CONSUMED, now)?;
            }
            ConsumerAck::Terminate(reason) => {
                let one = self.given_within(key, msg_id, msg_id);
                self.finish(key, &one, cause::TERMINATED, now)?;
                let event = StreamEvent::Terminated(about, reason.clone());
                self.state.stream_events.push_back(event);
            }
            ConsumerAck::Bury(reason, grave) => {
                let death = Death { cause: cause::TERMINATED, error: reason };
                let fate = match out.is_some() || self.was_left(key, msg_id) {
                    true => self.bury(key, &about, grave, &death, now)?,
                    false => Some(Fate::Plain),
                };
                if let Some(fate) = fate {
                    let about = AboutMessage { fate, ..about };
                    let event = StreamEvent::Terminated(about, reason.clone());
                    self.state.stream_events.push_back(event);
                }
            }
            ConsumerAck::Return(delay_ms) => {
                if out.is_some() {
                    self.take_back(key, msg_id, delay_ms.unwrap_or(0), now)?;
                    self.state.stream_events.push_back(StreamEvent::Returned(about));
                    self.count_of_consumer(key, |counts| counts.returned += 1);
                }
            }
            ConsumerAck::Progress if self.is_returned(key, msg_id) => {
                self.take_back(key, msg_id, hold_ms, now)?;
            }
            ConsumerAck::Progress => {
                if let Some(slot) = self.state.consumer_mut(key) {
                    slot.consumer.set_deadline(msg_id, now.mono_ms.saturating_add(hold_ms));
                }
                self.state.arm_consumer(key);
            }
        }
        Ok(Acked::Heard)
    }

    /// The same as [`ConsumerAck::Done`] for each of these messages, said by connections that wait for no answer: all of
    /// it is recorded at once. Its policy is [`AckPolicy::Explicit`].
    pub fn consumer_done(
        &mut self,
        key: ConsumerKey,
        mut msg_ids: Vec<u64>,
        now: Now,
    ) -> Result<()> {
        self.tick(now);
        let Some(slot) = self.state.consumer(key) else { return Ok(()) };
        let consumer = &slot.consumer;
        debug_assert_eq!(
            consumer.policy.ack,
            AckPolicy::Explicit,
            "each is acknowledged by itself"
        );
        msg_ids.retain(|id| !self.is_to_come(key, *id) && !consumer.is_dead_letter(*id));
        let Some(slot) = self.state.consumer_mut(key).filter(|_| !msg_ids.is_empty()) else {
            return Ok(());
        };
        msg_ids.sort_unstable();
        msg_ids.dedup();
        slot.acked_ms = now.wall_ms;
        self.state.note_consumer_use(key, now);
        let mut all = Vec::with_capacity(msg_ids.len());
        for run in msg_ids.chunk_by(|id, next| id + 1 == *next) {
            let given = self.given_within(key, run[0], run[run.len() - 1]);
            if given.len() == run.len() {
                all.extend(given);
            } else {
                run.iter().for_each(|id| all.extend(self.given_within(key, *id, *id)));
            }
        }
        self.finish(key, &all, cause::CONSUMED, now)
    }

    /// Whether a consumer was not given a message yet, nor has passed it over.
    fn is_to_come(&self, key: ConsumerKey, msg_id: u64) -> bool {
        let Some(slot) = self.state.consumer(key) else { return true };
        let consumer = &slot.consumer;
        let stored = || self.state.slot(key.slot)?.mailbox.get(msg_id);
        let is_behind = |(level, _)| consumer.is_new(level, msg_id);
        msg_id >= consumer.next() || (consumer.is_uneven() && stored().is_some_and(is_behind))
    }

    fn is_returned(&self, key: ConsumerKey, msg_id: u64) -> bool {
        self.state.consumer(key).is_some_and(|slot| slot.consumer.is_returned(msg_id))
    }

    /// A message comes back after a while, or at once. That is recorded: a restart does not bring it sooner or later.
    fn take_back(&mut self, key: ConsumerKey, msg_id: u64, wait_ms: u64, now: Now) -> Result<()> {
        let Some(slot) = self.state.consumer(key) else { return Ok(()) };
        let (name, address) = (Arc::clone(&slot.name), self.address_of(key.slot));
        let stamp = Stamp { time_ms: now.wall_ms, address: &address };
        let mut runs = Vec::new();
        encode_runs([(msg_id, 1)], &mut runs);
        let due_ms = now.wall_ms.saturating_add(wait_ms);
        let returned = ConsumerReturned { stamp, consumer: &name, due_ms, runs: &runs };
        let op = Op::ConsumerReturned(returned);
        self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms)?;
        self.append(key.slot, 0, &op);
        self.state.take_back(key, &returned);
        if let Some(slot) = self.state.consumer_mut(key) {
            if wait_ms > 0 {
                slot.consumer.set_deadline(msg_id, now.mono_ms.saturating_add(wait_ms));
            } else {
                slot.consumer.come_back(msg_id);
            }
        }
        self.state.arm_consumer(key);
        if wait_ms == 0 {
            self.note_exhausted(key, &[msg_id]);
            self.state.ready_consumers.insert(key);
        }
        Ok(())
    }

    /// Connections hold messages that were just given to a consumer: `msg_id` and connection.
    pub fn note_holders(
        &mut self,
        key: ConsumerKey,
        holders: impl IntoIterator<Item = (u64, u64)>,
    ) {
        if let Some(slot) = self.state.consumer_mut(key) {
            holders.into_iter().for_each(|(msg_id, conn)| slot.consumer.note_holder(msg_id, conn));
        }
    }

    pub(super) fn count_of_consumer(
        &mut self,
        key: ConsumerKey,
        count: impl FnOnce(&mut GroupCounts),
    ) {
        if let Some(slot) = self.state.consumer_mut(key) {
            count(&mut slot.counts);
        }
    }

    /// The messages from `first` to `last` that a consumer was given and has not done with: they are out, or given up.
    /// Checkpoints of earlier builds do not say what was given up. So where messages are kept for consumers alone, all that
    /// it was given counts that is still stored.
    fn given_within(&mut self, key: ConsumerKey, first: u64, last: u64) -> Vec<u64> {
        let Some(slot) = self.state.slot_mut(key.slot) else { return Vec::new() };
        let policy = slot.mailbox.policy();
        let keeps_for_consumers = policy.work_queue || policy.interest;
        let Some((mailbox, consumer)) = slot.consumer_and_mailbox(key.id) else {
            return Vec::new();
        };
        let consumer = &mut consumer.consumer;
        let len = last - first + 1;
        // A stream that keeps messages anyway may hold any number that were given up. One word for all of them does not
        // reach those, as with nats-server.
        let mut given = match keeps_for_consumers || len == 1 {
            true => consumer.open_within(first, len),
            false => consumer.out_within(first, len),
        };
        if !keeps_for_consumers || given.len() as u64 == len {
            return given;
        }
        let begin = first.max(consumer.floor().stream.min(last));
        let Some(subjects) = mailbox.subjects() else { return given };
        let is_uneven = consumer.is_uneven();
        for (msg_id, ix) in subjects.iter_from(begin).take_while(|(id, _)| *id <= last) {
            let wants = subjects.get(ix).is_some_and(|known| consumer.wants(ix, &known.subject));
            let is_behind = |(level, _)| consumer.is_new(level, msg_id);
            let is_new = msg_id >= consumer.next()
                || (is_uneven && mailbox.get(msg_id).is_some_and(is_behind));
            if wants && !is_new && !consumer.has_before_it(msg_id) {
                given.push(msg_id);
            }
        }
        given.sort_unstable();
        given
    }

    /// Whether a message was given up and is stored because consumers want it. A stream that keeps messages for other
    /// reasons keeps it, whatever becomes of it.
    fn was_left(&mut self, key: ConsumerKey, msg_id: u64) -> bool {
        let policy = self.state.slot(key.slot).map(|slot| slot.mailbox.policy());
        let keeps_for_consumers = policy.is_some_and(|policy| policy.work_queue || policy.interest);
        let consumer = self.state.consumer(key).map(|slot| &slot.consumer);
        if consumer.is_some_and(|consumer| consumer.has_given_up(msg_id)) {
            return keeps_for_consumers;
        }
        !self.given_within(key, msg_id, msg_id).is_empty()
            && !self.gone_with(key, &self.stored_of(key, &[msg_id])).is_empty()
    }

    /// Messages that were given are done with. Where the stream keeps them only for that, they go in the same step.
    fn finish(&mut self, key: ConsumerKey, msg_ids: &[u64], cause: u8, now: Now) -> Result<()> {
        let Some(slot) = self.state.consumer(key) else { return Ok(()) };
        let name = Arc::clone(&slot.name);
        let address = self.address_of(key.slot);
        let stamp = Stamp { time_ms: now.wall_ms, address: &address };
        let kind = slot.consumer.policy.ack;
        let (mut count, mut took_ms) = (0, Vec::<u64>::new());
        for some in msg_ids.chunks(MOST_GIVEN) {
            let Some(slot) = self.state.consumer(key) else { return Ok(()) };
            let consumer = &slot.consumer;
            let is_out = |id: &u64| consumer.count(*id).is_some();
            let out: Vec<u64> = some.iter().copied().filter(is_out).collect();
            // That somebody has done with what was given up counts over restarts, though others still want it.
            let is_open = |id: &u64| is_out(id) || consumer.has_given_up(*id);
            let open: Vec<u64> = some.iter().copied().filter(is_open).collect();
            let mut runs = Vec::new();
            encode_runs(open.iter().map(|id| (*id, 1)), &mut runs);
            let done = ConsumerDone { stamp, consumer: &name, cause, runs: &runs };
            let stored = self.stored_of(key, some);
            let ages = stored.iter().map(|(_, create_ms)| now.wall_ms.saturating_sub(*create_ms));
            // Where one acknowledgement is for many messages, the last counts.
            match kind {
                AckPolicy::All => took_ms = ages.rev().take(1).collect(),
                AckPolicy::None | AckPolicy::Explicit => took_ms.extend(ages),
            }
            let gone = self.gone_with(key, &stored);
            let mut encoded = Vec::new();
            ranges::encode_ids(gone.iter().copied(), &mut encoded);
            let removed =
                Op::Removed { stamp: Some(stamp), cause: cause::CONSUMED, ranges: &encoded };
            let op = Op::ConsumerDone(done);
            let both = [(key.slot, &op), (key.slot, &removed)];
            let unit = &both[usize::from(open.is_empty())..2 - usize::from(gone.is_empty())];
            if unit.is_empty() {
                continue;
            }
            self.log.reserve(space_for_unit(unit), Space::Reclaim, now.wall_ms)?;
            self.append_unit(unit);
            if cause == cause::TERMINATED {
                self.note_dead(key, &out);
            }
            self.state.done(key, &done);
            for msg_id in gone {
                self.state.remove_message(key.slot, msg_id);
            }
            count += out.len() as u64;
        }
        self.count_of_consumer(key, |counts| match cause {
            cause::TERMINATED => counts.dead += count,
            _ => {
                counts.acked += count;
                took_ms.into_iter().for_each(|ms| counts.note_duration(ms));
            }
        });
        self.state.arm_consumer(key);
        if self.state.consumer(key).is_some_and(|slot| slot.consumer.waiting > 0) {
            self.state.ready_consumers.insert(key);
        }
        Ok(())
    }

    /// The messages among these stored ones that go from the stream once this consumer has done with them.
    pub(super) fn gone_with(&mut self, key: ConsumerKey, stored: &[(u64, u64)]) -> Vec<u64> {
        let Some(slot) = self.state.slot(key.slot) else { return Vec::new() };
        let policy = slot.mailbox.policy();
        let (work_queue, interest) = (policy.work_queue, policy.interest);
        let stored = stored.iter().map(|(id, _)| *id);
        match interest {
            _ if work_queue => stored.collect(),
            true => stored.filter(|id| !self.state.is_wanted_by_others(key, *id)).collect(),
            false => Vec::new(),
        }
    }

    /// Those of these messages that are stored, and when they were created.
    pub(super) fn stored_of(&self, key: ConsumerKey, msg_ids: &[u64]) -> Vec<(u64, u64)> {
        let Some(slot) = self.state.slot(key.slot) else { return Vec::new() };
        let created = |id: &u64| Some((*id, slot.mailbox.get(*id)?.1.create_ms));
        msg_ids.iter().filter_map(created).collect()
    }

    /// Lets messages be that have come back and were delivered as often as allowed, among the next `most`.
    pub(super) fn give_up_on_returned(
        &mut self,
        key: ConsumerKey,
        most: usize,
        now: Now,
    ) -> Result<()> {
        for _ in 0..GIVEN_UP_AT_ONCE {
            let Some(slot) = self.state.consumer(key) else { return Ok(()) };
            let next: Vec<u64> = slot.consumer.all_again().take(most.min(MOST_GIVEN)).collect();
            if !self.give_up_some(key, &next, now)? {
                break;
            }
        }
        Ok(())
    }

    /// Gives up those of these messages that were delivered as often as allowed. False if there are none.
    fn give_up_some(&mut self, key: ConsumerKey, msg_ids: &[u64], now: Now) -> Result<bool> {
        if self.note_exhausted(key, msg_ids) {
            return Ok(false);
        }
        let Some(slot) = self.state.consumer(key) else { return Ok(false) };
        let consumer = &slot.consumer;
        let most = consumer.policy.max_deliver;
        let is_over = |id: &u64| most > 0 && consumer.count(*id) >= Some(most);
        let over: Vec<u64> = msg_ids.iter().copied().filter(is_over).collect();
        let events: Vec<_> = over.iter().filter_map(|id| self.about(key, *id)).collect();
        self.give_up_all(key, &over, now)?;
        self.state.stream_events.extend(events.into_iter().map(StreamEvent::MaxDeliveries));
        Ok(!over.is_empty())
    }

    pub(super) fn give_up_all(
        &mut self,
        key: ConsumerKey,
        msg_ids: &[u64],
        now: Now,
    ) -> Result<()> {
        let Some(slot) = self.state.consumer(key) else { return Ok(()) };
        let (name, address) = (Arc::clone(&slot.name), self.address_of(key.slot));
        let stamp = Stamp { time_ms: now.wall_ms, address: &address };
        for some in msg_ids.chunks(MOST_GIVEN) {
            let mut runs = Vec::new();
            encode_runs(some.iter().map(|id| (*id, 1)), &mut runs);
            let cause = cause::MAX_DELIVER;
            let done = ConsumerDone { stamp, consumer: &name, cause, runs: &runs };
            let op = Op::ConsumerDone(done);
            self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms)?;
            self.append(key.slot, 0, &op);
            self.note_dead(key, some);
            self.state.done(key, &done);
            self.count_of_consumer(key, |counts| counts.dead += some.len() as u64);
        }
        self.state.arm_consumer(key);
        Ok(())
    }

    /// Deadlines of a consumer have come: messages come back, or are given up.
    pub(super) fn on_consumer_due(&mut self, timer: Timer, now: Now) {
        let key = ConsumerKey { slot: timer.slot, id: timer.id };
        let Some(slot) = self.state.consumer_mut(key) else { return };
        slot.timer = None;
        let ended = slot.consumer.end_deadlines(now.mono_ms, ENDED_AT_ONCE);
        if !ended.is_empty() {
            // What cannot be written now is given up with the next look.
            let _ = self.give_up_some(key, &ended, now);
            self.state.ready_consumers.insert(key);
        }
        self.state.arm_consumer(key);
    }
}
