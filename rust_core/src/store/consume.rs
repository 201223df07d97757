//! Consumers of streams: made, given messages, told what became of them, and removed.

use std::ops::Bound;
use std::sync::Arc;

use super::consumers::ConsumerKey;
use super::fetch::Unread;
use super::fetched::Fetched;
use super::indexes::SlotIx;
use super::stream::{StreamKey, check_config};
use super::stream_dead_letters::Fate;
use super::stream_state::{AboutMessage, StreamEvent};
use super::timers::Timer;
use super::{Store, space_for, space_for_unit};
use crate::consumer::{AckPolicy, Consumer, ConsumerPolicy};
use crate::error::{Error, Result};
use crate::group::ranges;
use crate::log::{Lsn, Space};
use crate::mailbox::{Entry, Level, Mailbox};
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};
use crate::wire::stream_ops::{ConsumerGiven, ConsumerRemoved, ConsumerSet, encode_runs};

/// Most messages looked at for a consumer at once, wanted or not.
const LOOKED_AT: usize = 4096;
/// Most messages that a record names: so many are given at once, all or none.
pub const MOST_GIVEN: usize = 128;
/// How long a consumer that could not be removed waits for the next try.
const RETRY_MS: u64 = 1000;

/// A consumer to be created, or changed.
#[derive(Debug, Clone)]
pub struct NewConsumer<'a> {
    /// Its name.
    pub name: &'a str,
    /// How it behaves.
    pub policy: ConsumerPolicy,
    /// Its configuration as its creator said it.
    pub config: &'a str,
    /// The first message it may be given.
    pub next: u64,
    /// Messages before that which it is given first.
    pub early: Vec<u64>,
}

/// A message that a consumer may be given next.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    level: Level,
    entry: Entry,
    /// How often it will have been delivered then.
    pub count: u32,
}

impl Offer {
    /// Which message.
    pub fn msg_id(&self) -> u64 {
        self.entry.msg_id
    }

    /// Its bytes as stored.
    pub fn bytes(&self) -> u64 {
        u64::from(self.entry.len)
    }
}

impl Store {
    /// Creates a consumer, or changes the one of this name.
    pub fn set_consumer(
        &mut self,
        stream: StreamKey,
        new: &NewConsumer<'_>,
        now: Now,
    ) -> Result<ConsumerKey> {
        self.tick(now);
        check_config(new.config)?;
        let missing = || Error::MailboxNotFound(format!("stream {}", stream.number));
        let index = self.stream_slot(stream).ok_or_else(missing)?;
        if let Some(problem) = new.policy.problem() {
            return Err(Error::InvalidField { field: "consumer", problem });
        }
        let address = self.address_of(index);
        let mut policy = Vec::new();
        new.policy.encode(&mut policy);
        let early: Vec<u8> = new.early.iter().flat_map(|id| id.to_le_bytes()).collect();
        let set = ConsumerSet {
            stamp: Stamp { time_ms: now.wall_ms, address: &address },
            consumer: new.name,
            next: new.next,
            policy: &policy,
            config: new.config,
            early: &early,
        };
        let op = Op::ConsumerSet(set);
        self.log.reserve(space_for(&[&op]), Space::Store, now.wall_ms)?;
        self.append(index, 0, &op);
        let key = self.state.set_consumer(index, &set).ok().flatten().ok_or_else(missing)?;
        self.state.count_pending(key);
        self.state.note_consumer_use(key, now);
        self.state.ready_consumers.insert(key);
        self.state.time_sweep(index, now.mono_ms);
        Ok(key)
    }

    /// Removes a consumer; false if it is not there.
    pub fn remove_consumer(&mut self, key: ConsumerKey, idle: bool, now: Now) -> Result<bool> {
        let Some(slot) = self.state.consumer(key) else { return Ok(false) };
        let (name, address) = (Arc::clone(&slot.name), self.address_of(key.slot));
        let stamp = Stamp { time_ms: now.wall_ms, address: &address };
        let cause = if idle { cause::EXPIRED } else { cause::DELETED };
        let op = Op::ConsumerRemoved(ConsumerRemoved { stamp, consumer: &name, cause });
        self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms)?;
        self.append(key.slot, 0, &op);
        self.state.remove_consumer(key);
        let stream = self.stream_name(key.slot);
        let gone = StreamEvent::ConsumerGone { key, stream, consumer: name, idle };
        self.state.stream_events.push_back(gone);
        self.on_unwanted(key.slot, now);
        Ok(true)
    }

    /// How a consumer behaves.
    pub fn consumer_policy(&self, key: ConsumerKey) -> Option<&ConsumerPolicy> {
        self.state.consumer(key).map(|slot| &slot.consumer.policy)
    }

    /// So many requests wait for messages of a consumer.
    pub fn set_waiting(&mut self, key: ConsumerKey, waiting: usize, now: Now) {
        if let Some(slot) = self.state.consumer_mut(key) {
            slot.consumer.waiting = waiting;
            self.state.note_consumer_use(key, now);
        }
    }

    /// Takes a consumer that may have something for those who wait: the next one behind `last`, all in turns.
    pub fn next_ready_consumer(&mut self, last: Option<ConsumerKey>) -> Option<ConsumerKey> {
        let ready = &mut self.state.ready_consumers;
        let behind = last.and_then(|last| {
            ready.range((Bound::Excluded(last), Bound::Unbounded)).next().copied()
        });
        let next = behind.or_else(|| ready.first().copied())?;
        ready.remove(&next).then_some(next)
    }

    /// How many consumers may have something for those who wait.
    pub fn ready_consumers(&self) -> usize {
        self.state.ready_consumers.len()
    }

    /// A consumer may have something for those who wait.
    pub fn mark_consumer(&mut self, key: ConsumerKey) {
        self.state.ready_consumers.insert(key);
    }

    /// The next thing that others are to be told of consumers.
    pub fn next_stream_event(&mut self) -> Option<StreamEvent> {
        self.state.stream_events.pop_front()
    }

    /// What a consumer may be given next, up to `most`: the most urgent first, and of a level what comes again before what
    /// is new. Nothing is given yet.
    pub fn offers(&mut self, key: ConsumerKey, most: usize, now: Now) -> Result<Vec<Offer>> {
        self.give_up_on_returned(key, most, now)?;
        let Some(slot) = self.state.slot_mut(key.slot) else { return Ok(Vec::new()) };
        let Some((mailbox, slot)) = slot.consumer_and_mailbox(key.id) else {
            return Ok(Vec::new());
        };
        let consumer = &mut slot.consumer;
        let (again, stop) = offer_again(mailbox, consumer, most);
        let (offers, more) = offer_new(mailbox, consumer, again, stop, most);
        if more || stop.is_some() {
            self.state.ready_consumers.insert(key);
        }
        Ok(offers)
    }

    /// Reads what may be given. `None` if some was damaged and is gone: ask for offers again.
    pub fn read_offers(&mut self, key: ConsumerKey, offers: &[Offer]) -> Result<Option<Fetched>> {
        let picks: Vec<_> = offers.iter().map(|o| (o.level, o.entry, o.count)).collect();
        let end = self.log.end();
        match self.read(key.slot, &picks) {
            Ok(mut batch) => {
                batch.note(end);
                Ok(Some(batch))
            }
            Err(Unread::Damaged) => Ok(None),
            Err(Unread::Failed(error)) => Err(error),
        }
    }

    /// Messages are given to a consumer, [`MOST_GIVEN`] in one step. Returns the number of the first of these deliveries and how many messages are to
    /// come behind the last.
    pub fn give(&mut self, key: ConsumerKey, offers: &[Offer], now: Now) -> Result<(u64, u64)> {
        let Some(slot) = self.state.consumer(key) else { return Ok((0, 0)) };
        let (name, address) = (Arc::clone(&slot.name), self.address_of(key.slot));
        let first = slot.consumer.delivered().consumer + 1;
        let stamp = Stamp { time_ms: now.wall_ms, address: &address };
        let none_answers = slot.consumer.policy.ack == AckPolicy::None;
        for some in offers.chunks(MOST_GIVEN) {
            let mut runs = Vec::new();
            encode_runs(some.iter().map(|offer| (offer.msg_id(), offer.count)), &mut runs);
            let given = ConsumerGiven { stamp, consumer: &name, runs: &runs };
            let msg_ids: Vec<u64> = some.iter().map(Offer::msg_id).collect();
            // Who acknowledges nothing has done with what it is given.
            let stored = if none_answers { self.stored_of(key, &msg_ids) } else { Vec::new() };
            let gone = self.gone_with(key, &stored);
            let mut encoded = Vec::new();
            ranges::encode_ids(gone.iter().copied(), &mut encoded);
            let removed =
                Op::Removed { stamp: Some(stamp), cause: cause::CONSUMED, ranges: &encoded };
            let op = Op::ConsumerGiven(given);
            let both = [(key.slot, &op), (key.slot, &removed)];
            let unit = if gone.is_empty() { &both[..1] } else { &both[..] };
            self.log.reserve(space_for_unit(unit), Space::Deliver, now.wall_ms)?;
            self.append_unit(unit);
            self.state.give(key, &given, now);
            for msg_id in gone {
                self.state.remove_message(key.slot, msg_id);
            }
        }
        self.state.arm_consumer(key);
        self.state.note_consumer_use(key, now);
        if let Some(slot) = self.state.consumer_mut(key)
            && !offers.is_empty()
        {
            slot.delivered_ms = now.wall_ms;
            slot.counts.delivered += offers.len() as u64;
            slot.counts.redelivered += offers.iter().filter(|offer| offer.count > 1).count() as u64;
        }
        Ok((first, self.state.consumer(key).map_or(0, |slot| slot.consumer.pending())))
    }

    /// A consumer goes if nobody has used it for long enough.
    pub(super) fn on_consumer_idle(&mut self, timer: Timer, now: Now) {
        let key = ConsumerKey { slot: timer.slot, id: timer.id };
        let Some(slot) = self.state.consumer_mut(key) else { return };
        slot.idle = None;
        let inactive_ms = slot.consumer.policy.inactive_ms;
        if inactive_ms == 0 {
            return;
        }
        let used_ms = if slot.consumer.waiting > 0 { now.mono_ms } else { slot.used_ms };
        let over_ms = used_ms.saturating_add(inactive_ms);
        if now.mono_ms < over_ms {
            self.state.look_at_consumer(key, over_ms);
        } else if self.remove_consumer(key, true, now).is_err() {
            self.state.look_at_consumer(key, now.mono_ms.saturating_add(RETRY_MS));
        }
    }

    pub(super) fn about(&self, key: ConsumerKey, msg_id: u64) -> Option<AboutMessage> {
        let slot = self.state.consumer(key)?;
        Some(AboutMessage {
            stream: self.stream_name(key.slot),
            consumer: Arc::clone(&slot.name),
            stream_seq: msg_id + 1,
            consumer_seq: slot.consumer.number(msg_id)?,
            deliveries: slot.consumer.count(msg_id)?,
            fate: Fate::Plain,
        })
    }

    pub(super) fn stream_name(&self, index: SlotIx) -> Arc<str> {
        let name = self.state.slot(index).and_then(|slot| slot.mailbox.policy().stream.as_deref());
        name.unwrap_or_default().into()
    }

    pub(super) fn address_of(&self, index: SlotIx) -> smol_str::SmolStr {
        self.state.slot(index).map(|slot| slot.mailbox.address.clone()).unwrap_or_default()
    }

    /// Where the log ends before what is done next.
    pub fn known(&self) -> Lsn {
        self.log.end()
    }
}

/// What a consumer may be given again, the most urgent first. A level is where that ends because something is to be given
/// up before.
fn offer_again(mailbox: &Mailbox, consumer: &Consumer, most: usize) -> (Vec<Offer>, Option<Level>) {
    let mut offers = Vec::new();
    let max_deliver = consumer.policy.max_deliver;
    for msg_id in consumer.all_again().take(most) {
        let count = consumer.count(msg_id).unwrap_or(0).saturating_add(1);
        let is_over = max_deliver > 0 && count > max_deliver;
        let Some((level, entry)) = mailbox.get(msg_id) else { continue };
        if !is_over {
            offers.push(Offer { level, entry, count });
        } else if consumer.policy.dead_letter_prefix.is_none() {
            return (offers, Some(level));
        }
        // It becomes a dead letter as soon as it can; others do not wait for it.
    }
    (offers, None)
}

/// Puts what is new among what is to be given again: all of a level that is before `stop`, if there is a stop. Says
/// whether there is more to look at without anything to give.
fn offer_new(
    mailbox: &Mailbox,
    consumer: &mut Consumer,
    again: Vec<Offer>,
    stop: Option<Level>,
    most: usize,
) -> (Vec<Offer>, bool) {
    let mut room = match consumer.policy.max_ack_pending as usize {
        0 => most,
        _ if consumer.policy.ack == AckPolicy::None => most,
        limit => limit.saturating_sub(consumer.outstanding()),
    };
    let (lanes, subjects) = (mailbox.lanes(), mailbox.subjects());
    let (mut offers, mut again) = (Vec::new(), again.into_iter().peekable());
    let (mut looked_at, mut passed) = (0, false);
    for (level, lane) in lanes {
        while let Some(offer) = again.next_if(|offer| offer.level <= *level) {
            offers.push(offer);
        }
        let free = room.min(most.saturating_sub(offers.len()));
        if free == 0 || stop.is_some_and(|stop| stop <= *level) {
            continue;
        }
        let had = offers.len();
        let early = consumer.early().filter_map(|msg_id| lane.get(msg_id)).take(free);
        offers.extend(early.map(|entry| Offer { level: *level, entry, count: 1 }));
        let mut next = consumer.next_in(*level);
        for entry in lane.iter_from(next) {
            if offers.len() - had == free || looked_at == LOOKED_AT {
                break;
            }
            looked_at += 1;
            let wanted = consumer.policy.filters.is_empty()
                || subjects.is_some_and(|subjects| {
                    let ix = subjects.of(entry.msg_id);
                    let known = ix.and_then(|ix| Some((ix, subjects.get(ix)?)));
                    known.is_some_and(|(ix, known)| consumer.wants(ix, &known.subject))
                });
            if wanted {
                offers.push(Offer { level: *level, entry, count: 1 });
            } else if offers.len() == had {
                next = entry.msg_id + 1;
            }
        }
        room -= offers.len() - had;
        if offers.len() == had && next > consumer.next_in(*level) {
            consumer.pass_over(Some(*level).filter(|_| lanes.len() > 1), next);
            passed = true;
        }
        // Something more urgent may be behind what was looked at: what is less urgent waits.
        if looked_at == LOOKED_AT {
            let more = offers.is_empty() && (consumer.pending() > 0 || again.peek().is_some());
            return (offers, passed && more);
        }
    }
    offers.extend(again);
    offers.truncate(most);
    (offers, false)
}
