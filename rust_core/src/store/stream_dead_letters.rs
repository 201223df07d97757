//! Messages that a consumer gives up for good become dead letters: copies in a stream, with what became of them in their
//! headers.
//!
//! Owns that a message is either with its consumer or a dead letter, and what the headers say. Which stream has which
//! subjects, others know.

use std::sync::Arc;

use super::consumers::ConsumerKey;
use super::fetch::Unread;
use super::publish::{Beside, is_full_for};
use super::stream_state::{AboutMessage, StreamEvent};
use super::{NotPublished, Publish, Store, StreamKey};
use crate::error::{Error, Result};
use crate::group::ranges;
use crate::time::{Moment, Now};
use crate::wire::op::{Message, Op};
use crate::wire::stamp::{Stamp, cause};
use crate::wire::stream_ops::{ConsumerDone, encode_runs};

/// How long a message that could not be moved waits for the next try.
const RETRY_MS: u64 = 1000;
/// Headers that tell of a death begin like this.
const HEADER: &[u8] = b"mq9-dead-";

/// Where a dead letter goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grave {
    /// The stream that has its subject, or why there is none.
    pub to: std::result::Result<StreamKey, String>,
    /// The subject it gets.
    pub subject: String,
    /// Whether it is as urgent there as it was.
    pub keeps_level: bool,
}

/// What became of a message that a consumer has given up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Fate {
    /// What becomes of others: nobody asked for a dead letter.
    #[default]
    Plain,
    /// It is a dead letter of this subject.
    Moved(Box<str>),
    /// It stays where it is, for this reason.
    Kept(Box<str>),
}

/// Why a message is given up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Death<'a> {
    /// One of [`cause`]: terminated, or delivered too often.
    pub cause: u8,
    /// In the words of its consumer.
    pub error: &'a str,
}

impl Store {
    /// The subject of a message of a consumer's stream.
    pub fn subject_of(&self, key: ConsumerKey, msg_id: u64) -> Option<Arc<str>> {
        let subjects = self.state.slot(key.slot)?.mailbox.subjects()?;
        Some(Arc::clone(&subjects.get(subjects.of(msg_id)?)?.subject))
    }

    /// Takes a message that was delivered as often as allowed, and is to become a dead letter.
    pub fn next_exhausted(&mut self) -> Option<(ConsumerKey, u64)> {
        self.state.exhausted.pop_first()
    }

    /// Notes which of these messages were delivered as often as allowed, where they are to become dead letters. False
    /// where they are not.
    pub(super) fn note_exhausted(&mut self, key: ConsumerKey, msg_ids: &[u64]) -> bool {
        let Some(slot) = self.state.consumer(key) else { return false };
        let consumer = &slot.consumer;
        let most = consumer.policy.max_deliver;
        let is_over = |id: &u64| most > 0 && consumer.count(*id) >= Some(most);
        let over: Vec<_> = msg_ids.iter().filter(|id| is_over(id)).map(|id| (key, *id)).collect();
        let asked = consumer.policy.dead_letter_prefix.is_some();
        if asked {
            self.state.exhausted.extend(over);
        }
        asked
    }

    /// A message that was delivered as often as allowed becomes a dead letter, unless it is in somebody's hands. What
    /// cannot be moved now is tried again later.
    pub fn move_exhausted(&mut self, key: ConsumerKey, msg_id: u64, grave: &Grave, now: Now) {
        let Some(slot) = self.state.consumer(key) else { return };
        let most = slot.consumer.policy.max_deliver;
        let is_over = most > 0 && slot.consumer.count(msg_id) >= Some(most);
        if !is_over || !slot.consumer.is_back(msg_id) {
            return;
        }
        let Some(about) = self.about(key, msg_id) else { return };
        let death = Death { cause: cause::MAX_DELIVER, error: "" };
        match self.bury(key, &about, grave, &death, now) {
            Ok(None) => {}
            Ok(Some(fate)) => {
                let event = StreamEvent::MaxDeliveries(AboutMessage { fate, ..about });
                self.state.stream_events.push_back(event);
            }
            Err(_) => {
                if let Some(slot) = self.state.consumer_mut(key) {
                    slot.consumer.set_deadline(msg_id, now.mono_ms.saturating_add(RETRY_MS));
                }
                self.state.arm_consumer(key);
            }
        }
    }

    /// A message that is out, or was left where it is, becomes a dead letter: the copy is stored, the consumer has done
    /// with the original, and this goes where that makes messages go, all in one step. `None` if the message is damaged
    /// and gone.
    pub(super) fn bury(
        &mut self,
        key: ConsumerKey,
        about: &AboutMessage,
        grave: &Grave,
        death: &Death<'_>,
        now: Now,
    ) -> Result<Option<Fate>> {
        let msg_id = about.stream_seq - 1;
        let to = match &grave.to {
            Ok(to) => *to,
            Err(why) => return self.leave_in_place(key, msg_id, why, now),
        };
        let Some(index) = self.stream_slot(to) else {
            return self.leave_in_place(key, msg_id, "the stream has gone", now);
        };
        let Some(entry) = self.entry(key, msg_id) else { return Ok(None) };
        let target = self.state.slot(index).map(|slot| &slot.mailbox);
        if index != key.slot && target.is_some_and(|target| is_full_for(target, entry.1.len)) {
            return Err(self.full(index));
        }
        let fetched = match self.read(key.slot, &[(entry.0, entry.1, about.deliveries)]) {
            Ok(fetched) => fetched,
            Err(Unread::Damaged) => return Ok(None),
            Err(Unread::Failed(error)) => return Err(error),
        };
        let Some((_, message)) = fetched.iter().next() else { return Ok(None) };
        let headers = headers(&message, about, death, now);
        let (name, address) = (Arc::clone(&about.consumer), self.address_of(key.slot));
        let stamp = Stamp { time_ms: now.wall_ms, address: &address };
        let mut runs = Vec::new();
        encode_runs([(msg_id, 1)], &mut runs);
        let done = match death.cause {
            cause::MAX_DELIVER => cause::MOVED,
            other => other,
        };
        let done = ConsumerDone { stamp, consumer: &name, cause: done, runs: &runs };
        let gone = self.gone_with(key, &self.stored_of(key, &[msg_id]));
        let mut encoded = Vec::new();
        ranges::encode_ids(gone.iter().copied(), &mut encoded);
        let removed = Op::Removed { stamp: Some(stamp), cause: cause::CONSUMED, ranges: &encoded };
        let op = Op::ConsumerDone(done);
        let both = [(key.slot, &op), (key.slot, &removed)];
        let records = if gone.is_empty() { &both[..1] } else { &both[..] };
        let beside = Beside {
            records,
            leaving: gone.first().copied().filter(|_| index == key.slot),
            freed: if gone.is_empty() || index == key.slot { 0 } else { entry.1.len.into() },
            bytes: 0,
            must_stay: true,
        };
        let publish = Publish {
            subject: &grave.subject,
            level: Some(entry.0).filter(|_| grave.keeps_level).unwrap_or_default(),
            headers: &headers,
            payload: message.payload,
            ..Publish::default()
        };
        match self.put_in_stream(index, &publish, &beside, now) {
            Ok(()) => {}
            Err(NotPublished::Failed(Error::MessageTooLarge { .. }) | NotPublished::TooLarge) => {
                let why = format!("stream {} does not take it", self.stream_name(index));
                return self.leave_in_place(key, msg_id, &why, now);
            }
            Err(NotPublished::Failed(error)) => return Err(error),
            Err(_) => return Err(self.full(index)),
        }
        if self.is_out(key, msg_id) {
            self.count_of_consumer(key, |counts| counts.dead += 1);
            self.dead.add(message.key);
        }
        self.state.done(key, &done);
        for msg_id in gone {
            self.state.remove_message(key.slot, msg_id);
        }
        self.state.arm_consumer(key);
        if self.state.consumer(key).is_some_and(|slot| slot.consumer.waiting > 0) {
            self.state.ready_consumers.insert(key);
        }
        Ok(Some(Fate::Moved(grave.subject.as_str().into())))
    }

    /// A dead letter becomes a message of a stream again, in one step with its removal: a crash leaves either of them.
    /// Returns its number.
    pub fn send_letter_back(
        &mut self,
        (letters, msg_id): (StreamKey, u64),
        to: StreamKey,
        publish: &Publish<'_>,
        now: Now,
    ) -> Result<u64> {
        self.tick(now);
        let from = self.stream_slot(letters).ok_or(Error::MessageNotFound)?;
        let known = self.state.slot(from).and_then(|slot| slot.mailbox.get(msg_id));
        let (_, entry) = known.ok_or(Error::MessageNotFound)?;
        let target = self.stream_slot(to).ok_or(Error::MessageNotFound)?;
        match self.publish_with(to, publish, Some((from, msg_id)), &[], now) {
            Ok(published) => Ok(published.seq),
            Err(NotPublished::Failed(error)) => Err(error),
            Err(NotPublished::TooLarge) => {
                let policy = self.state.slot(target).map(|slot| slot.mailbox.policy());
                let limit = policy.map_or(0, |policy| policy.max_msg_size);
                Err(Error::MessageTooLarge { size: entry.len.into(), limit })
            }
            Err(_) => Err(self.full(target)),
        }
    }

    /// There is no place for it as a dead letter: it is given up, and stays in its stream.
    fn leave_in_place(
        &mut self,
        key: ConsumerKey,
        msg_id: u64,
        why: &str,
        now: Now,
    ) -> Result<Option<Fate>> {
        if self.is_out(key, msg_id) {
            self.give_up_all(key, &[msg_id], now)?;
        }
        if self.state.consumer(key).is_some_and(|slot| slot.consumer.waiting > 0) {
            self.state.ready_consumers.insert(key);
        }
        Ok(Some(Fate::Kept(why.into())))
    }

    /// Counts these messages as given up, each by its subject.
    pub(super) fn note_dead(&mut self, key: ConsumerKey, msg_ids: &[u64]) {
        for msg_id in msg_ids {
            if let Some(subject) = self.subject_of(key, *msg_id) {
                self.dead.add(&subject);
            }
        }
    }

    fn is_out(&self, key: ConsumerKey, msg_id: u64) -> bool {
        self.state.consumer(key).is_some_and(|slot| slot.consumer.count(msg_id).is_some())
    }

    fn entry(
        &self,
        key: ConsumerKey,
        msg_id: u64,
    ) -> Option<(crate::mailbox::Level, crate::mailbox::Entry)> {
        self.state.slot(key.slot)?.mailbox.get(msg_id)
    }
}

/// The headers of a message as a dead letter: its own, without what tells of another death, and what became of it.
fn headers(message: &Message<'_>, about: &AboutMessage, death: &Death<'_>, now: Now) -> Vec<u8> {
    let is_other = |line: &&[u8]| {
        let start = line.get(..HEADER.len()).unwrap_or_default();
        !start.eq_ignore_ascii_case(HEADER)
    };
    let mut headers: Vec<u8> = message
        .headers
        .split_inclusive(|&byte| byte == b'\n')
        .filter(is_other)
        .flatten()
        .copied()
        .collect();
    let time = |wall_ms: u64| Moment { wall_us: wall_ms * 1000, mono_us: 0 }.timestamp();
    let history = [
        ("reason", cause::name(death.cause).unwrap_or_default().to_owned()),
        ("error", death.error.to_owned()),
        ("deliveries", about.deliveries.to_string()),
        ("first-time", time(message.create_ms)),
        ("last-time", time(now.wall_ms)),
        ("consumer", about.consumer.to_string()),
        ("stream", about.stream.to_string()),
        ("subject", message.key.to_owned()),
        ("sequence", about.stream_seq.to_string()),
    ];
    if !headers.is_empty() && !headers.ends_with(b"\r\n") {
        headers.extend_from_slice(b"\r\n");
    }
    for (name, value) in history.iter().filter(|(_, value)| !value.is_empty()) {
        // What somebody says may hold what would end the line and begin another.
        let value = value.replace(|c: char| c.is_control(), " ");
        headers.extend_from_slice(HEADER);
        headers.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    headers
}
