//! Describes a stream, its messages and its consumers.

use std::sync::Arc;

use super::fetch::Unread;
use super::stream::StreamKey;
use super::{ConsumerKey, Fetched, Store};
use crate::consumer::{Consumer, Position};
use crate::error::Result;
use crate::mailbox::{Lane, Level, Mailbox, SubjectIx};

/// Most messages that are looked at to find the first that is to come.
const LOOKED_AT: usize = 4096;

/// A stream as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its configuration as its creator said it.
    pub config: String,
    /// When it was created.
    pub created_ms: u64,
    /// Messages it holds.
    pub messages: u64,
    /// Their bytes as stored.
    pub bytes: u64,
    /// The number of the first message, or of the next one if there is none; 0 if there never was any.
    pub first_seq: u64,
    /// When that came; 0 without messages.
    pub first_ms: u64,
    /// The number of the last message there was.
    pub last_seq: u64,
    /// When that came; 0 if there never was any.
    pub last_ms: u64,
    /// How many subjects they have.
    pub subjects: u64,
    /// Messages that enter it later.
    pub delayed: u64,
    /// Consumers.
    pub consumers: usize,
}

impl StreamInfo {
    /// Messages between the first and the last that are not there.
    pub fn deleted(&self) -> u64 {
        (self.last_seq + 1).saturating_sub(self.first_seq).saturating_sub(self.messages)
    }
}

/// A consumer as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its configuration as its creator said it.
    pub config: String,
    /// When it was created.
    pub created_ms: u64,
    /// The last delivery.
    pub delivered: Position,
    /// When that was, since the store was opened; 0 without one.
    pub delivered_ms: u64,
    /// Everything up to here is done with.
    pub floor: Position,
    /// When something was last acknowledged, since the store was opened; 0 without one.
    pub acked_ms: u64,
    /// Messages that are out.
    pub ack_pending: u64,
    /// Those of them that were delivered more than once.
    pub redelivered: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Messages to come.
    pub pending: u64,
}

impl Store {
    /// A stream as it is now.
    pub fn stream_info(&self, key: StreamKey) -> Option<StreamInfo> {
        let slot = self.state.slot_of(key.slot, key.number)?;
        let mailbox = &slot.mailbox;
        let oldest = mailbox.oldest().and_then(|msg_id| mailbox.get(msg_id));
        let extras = mailbox.extras();
        let last_seq = mailbox.next_id;
        let is_unused = last_seq == 0;
        Some(StreamInfo {
            config: extras.map_or_else(String::new, |extras| extras.desc.to_string()),
            created_ms: mailbox.created_ms,
            messages: mailbox.visible() as u64,
            bytes: mailbox.limited().1,
            first_seq: match &oldest {
                Some((_, entry)) => entry.msg_id + 1,
                None if is_unused => 0,
                None => last_seq + 1,
            },
            first_ms: oldest.map_or(0, |(_, entry)| entry.create_ms),
            last_seq,
            last_ms: extras.map_or(0, |extras| extras.last_ms),
            delayed: extras.map_or(0, |extras| extras.delayed.len() as u64),
            subjects: mailbox.subjects().map_or(0, |subjects| subjects.len() as u64),
            consumers: slot.consumers().map_or(0, |consumers| consumers.len()),
        })
    }

    /// What all streams take, in bytes.
    pub fn stream_bytes(&self) -> u64 {
        let slots = self.state.streams.values().filter_map(|index| self.state.slot(*index));
        slots.map(|slot| slot.mailbox.bytes).sum()
    }

    /// Subjects of a stream's messages that match, with how many messages each has, by name.
    pub fn stream_subjects(&self, key: StreamKey, filter: &str) -> Vec<(Arc<str>, u64)> {
        let slot = self.state.slot_of(key.slot, key.number);
        let subjects = slot.and_then(|slot| slot.mailbox.subjects());
        let all = subjects.into_iter().flat_map(|subjects| subjects.iter());
        let matching = all
            .filter(|(_, known)| crate::nats::matches(filter.as_bytes(), known.subject.as_bytes()));
        let mut found: Vec<_> =
            matching.map(|(_, known)| (Arc::clone(&known.subject), known.count)).collect();
        found.sort_unstable();
        found
    }

    /// Numbers between the first and the last message of a stream that are not there, up to `most`.
    pub fn stream_gaps(&self, key: StreamKey, most: usize) -> Vec<u64> {
        let Some(slot) = self.state.slot_of(key.slot, key.number) else { return Vec::new() };
        let Some(mut next) = slot.mailbox.oldest() else { return Vec::new() };
        let mut gaps = Vec::new();
        let subjects = slot.mailbox.subjects();
        let first = next;
        for (msg_id, _) in subjects.into_iter().flat_map(|subjects| subjects.iter_from(first)) {
            gaps.extend((next + 1..=msg_id).take(most - gaps.len()));
            if gaps.len() == most {
                return gaps;
            }
            next = msg_id + 1;
        }
        gaps.extend((next + 1..=slot.mailbox.next_id).take(most - gaps.len()));
        gaps
    }

    /// A message of a stream.
    pub fn stream_message(&mut self, key: StreamKey, msg_id: u64) -> Result<Option<Fetched>> {
        loop {
            let Some(slot) = self.state.slot_of(key.slot, key.number) else { return Ok(None) };
            let Some((level, entry)) = slot.mailbox.get(msg_id) else { return Ok(None) };
            match self.read(key.slot, &[(level, entry, 0)]) {
                Ok(batch) => return Ok(Some(batch)),
                Err(Unread::Damaged) => {}
                Err(Unread::Failed(error)) => return Err(error),
            }
        }
    }

    /// The first message from `from` on whose subject matches.
    pub fn next_of_subject(&self, key: StreamKey, filter: &str, from: u64) -> Option<u64> {
        let mailbox = &self.state.slot_of(key.slot, key.number)?.mailbox;
        let matching = mailbox.matching(filter);
        let subjects = mailbox.subjects()?;
        let known = matching.iter().filter_map(|ix| subjects.get(*ix));
        let (first, last) = known.fold((u64::MAX, 0), |(first, last), known| {
            (first.min(known.first), last.max(known.last))
        });
        let matching = bitmap(&matching);
        let mut ahead = subjects.iter_from(from.max(first)).take_while(|(id, _)| *id <= last);
        ahead.find(|(_, ix)| matching.get(*ix as usize) == Some(&true)).map(|(msg_id, _)| msg_id)
    }

    /// The last message whose subject matches.
    pub fn last_of_subject(&self, key: StreamKey, filter: &str) -> Option<u64> {
        let mailbox = &self.state.slot_of(key.slot, key.number)?.mailbox;
        mailbox.last_matching(filter, usize::MAX).ok().flatten()
    }

    /// The first message of a stream that came then or later.
    pub fn first_since(&self, key: StreamKey, time_ms: u64) -> Option<u64> {
        let mailbox = &self.state.slot_of(key.slot, key.number)?.mailbox;
        mailbox.lanes().iter().filter_map(|(_, lane)| lane.first_since(time_ms)).min()
    }

    /// The last message of each subject that matches one of these, oldest first.
    pub fn last_of_each(&self, key: StreamKey, filters: &[&str]) -> Vec<u64> {
        let slot = self.state.slot_of(key.slot, key.number);
        let subjects = slot.and_then(|slot| slot.mailbox.subjects());
        let all = subjects.into_iter().flat_map(|subjects| subjects.iter());
        let matches = |subject: &str| {
            let matches = |f: &&str| crate::nats::matches(f.as_bytes(), subject.as_bytes());
            filters.iter().any(matches)
        };
        let mut last: Vec<u64> =
            all.filter(|(_, known)| matches(&known.subject)).map(|(_, known)| known.last).collect();
        last.sort_unstable();
        last
    }

    /// How many messages a consumer could be given, were there no limit to what is out.
    pub fn deliverable(&self, key: ConsumerKey) -> u64 {
        let consumer = self.state.consumer(key).map(|slot| &slot.consumer);
        consumer.map_or(0, |consumer| consumer.pending() + consumer.returned() as u64)
    }

    /// Whether as much is out with a consumer as may be.
    pub fn is_full(&self, key: ConsumerKey) -> bool {
        self.state.consumer(key).is_some_and(|slot| slot.consumer.is_full())
    }

    /// The name of a consumer's stream.
    pub fn stream_of_consumer(&self, key: ConsumerKey) -> Arc<str> {
        let name = self.state.slot(key.slot).and_then(|s| s.mailbox.policy().stream.as_deref());
        name.unwrap_or_default().into()
    }

    /// Whether some consumer may have something for those who wait, or for the stream of its dead letters.
    pub fn has_ready_consumers(&self) -> bool {
        !self.state.ready_consumers.is_empty() || !self.state.exhausted.is_empty()
    }

    /// A consumer as it is now.
    pub fn consumer_info(&self, key: ConsumerKey) -> Option<ConsumerInfo> {
        let slot = self.state.consumer(key)?;
        let consumer = &slot.consumer;
        let mailbox = &self.state.slot(key.slot)?.mailbox;
        Some(ConsumerInfo {
            name: Arc::clone(&slot.name),
            config: consumer.config.to_string(),
            created_ms: consumer.created_ms,
            delivered: consumer.delivered(),
            delivered_ms: slot.delivered_ms,
            floor: floor_of(mailbox, consumer),
            acked_ms: slot.acked_ms,
            ack_pending: consumer.outstanding() as u64,
            redelivered: consumer.redelivered() as u64,
            waiting: consumer.waiting as u64,
            pending: consumer.pending(),
        })
    }

    /// The name of a consumer, its last delivery, and how many messages are to come. What [`Store::consumer_info`] says, for
    /// less.
    pub fn consumer_progress(&self, key: ConsumerKey) -> Option<(Arc<str>, Position, u64)> {
        let slot = self.state.consumer(key)?;
        let consumer = &slot.consumer;
        Some((Arc::clone(&slot.name), consumer.delivered(), consumer.pending()))
    }

    /// A consumer of a stream, by its name.
    pub fn find_consumer(&self, key: StreamKey, name: &str) -> Option<ConsumerKey> {
        let slot = self.state.slot_of(key.slot, key.number)?;
        Some(ConsumerKey { slot: key.slot, id: slot.consumers()?.find(name)? })
    }

    /// All consumers of a stream, oldest first.
    pub fn consumers(&self, key: StreamKey) -> Vec<(Arc<str>, ConsumerKey)> {
        let slot = self.state.slot_of(key.slot, key.number);
        let all = slot.and_then(|slot| slot.consumers()).into_iter().flat_map(|all| all.iter());
        all.map(|(id, c)| (Arc::clone(&c.name), ConsumerKey { slot: key.slot, id })).collect()
    }
}

/// Up to where a consumer has done with everything. Where more urgent messages were given before others, the first of
/// these is behind it, or what was looked at to find that.
pub(super) fn floor_of(mailbox: &Mailbox, consumer: &Consumer) -> Position {
    let floor = consumer.floor();
    let wants = |msg_id: u64| {
        let subjects = mailbox.subjects();
        let known = subjects.and_then(|subjects| subjects.get(subjects.of(msg_id)?));
        known.is_some_and(|known| consumer.policy.wants(&known.subject))
    };
    let first = |(level, lane): &(Level, Lane)| {
        let ids = lane.iter_from(consumer.next_in(*level)).map(|entry| entry.msg_id);
        let mut ids = ids.take_while(|msg_id| *msg_id < floor.stream).enumerate();
        ids.find(|(ix, msg_id)| *ix == LOOKED_AT || wants(*msg_id)).map(|(_, msg_id)| msg_id)
    };
    let behind = |(level, _): &&(Level, Lane)| consumer.next_in(*level) < floor.stream;
    let to_come = mailbox.lanes().iter().filter(behind).filter_map(first).min();
    Position { stream: to_come.unwrap_or(floor.stream), ..floor }
}

/// Whether a subject is among these, by its short name.
fn bitmap(subjects: &[SubjectIx]) -> Vec<bool> {
    let len = subjects.iter().max().map_or(0, |most| *most as usize + 1);
    let mut bitmap = vec![false; len];
    subjects.iter().for_each(|ix| bitmap[*ix as usize] = true);
    bitmap
}
