//! Publishing to a stream: what is expected of it, its limits, and ids that came before.

use super::indexes::SlotIx;
use super::send::earliest;
use super::send_once::MAX_SEND_ID;
use super::stream::StreamKey;
use super::update::SURPLUS_AT_ONCE;
use super::{Store, space_for};
use hashbrown::HashSet;
use smallvec::SmallVec;

use crate::error::Error;
use crate::group::ranges;
use crate::log::{Log, Space};
use crate::mailbox::{Discard, Level, Mailbox, Policy, SentIds};
use crate::time::Now;
use crate::wire::mailbox_ops::SentOnce;
use crate::wire::op::{Message, Op};
use crate::wire::stamp::{Stamp, cause};

/// The longest subject of a stored message, in bytes.
pub const MAX_SUBJECT: usize = 8192;

/// Most subjects that are looked at for what one publisher expects: the next one waits meanwhile.
const MOST_SUBJECTS: usize = 1 << 16;

/// A message for a stream, and what its publisher expects of the stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct Publish<'a> {
    /// Its subject.
    pub subject: &'a str,
    /// How urgent it is.
    pub level: Level,
    /// Header lines, each with CRLF.
    pub headers: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// How long it stays out of the stream; 0 is not at all.
    pub delay_ms: u64,
    /// How long it lives, from now; 0 is as long as the stream says.
    pub ttl_ms: u64,
    /// Its id; empty for none.
    pub id: &'a str,
    /// The number of the last message before it.
    pub last_seq: Option<u64>,
    /// The id of the last message before it that has one.
    pub last_id: Option<&'a str>,
    /// The number of the last message before it whose subject is this, or matches it.
    pub last_of_subject: Option<(u64, &'a str)>,
}

/// What happens in one step with a message that enters a stream.
#[derive(Debug, Default)]
pub(super) struct Beside<'a> {
    /// What is recorded with it.
    pub records: &'a [(SlotIx, &'a Op<'a>)],
    /// The message of the same stream that goes.
    pub leaving: Option<u64>,
    /// Bytes that it frees elsewhere.
    pub freed: u64,
    /// Bytes that are remembered with it.
    pub bytes: u64,
    /// A stream that would let it go at once does not take it.
    pub must_stay: bool,
}

/// What became of a published message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its number in the stream, from 1; 0 if it was to enter the stream later.
    pub seq: u64,
    /// It was there already.
    pub duplicate: bool,
}

/// Why a message was not stored.
#[derive(Debug)]
pub enum NotPublished {
    /// The stream is not there.
    NoStream,
    /// The message is larger than the stream allows.
    TooLarge,
    /// Its id is longer than can be remembered.
    IdTooLong,
    /// The stream has as many messages as it may, and discards new ones.
    MaxMessages,
    /// The stream has as many bytes as it may, and discards new ones.
    MaxBytes,
    /// The last message has another number, this.
    LastSeq(u64),
    /// The last message has another id, this.
    LastId(String),
    /// It would take too long to find the last message of what is expected.
    TooManySubjects,
    /// It could not be written.
    Failed(Error),
}

impl From<Error> for NotPublished {
    fn from(error: Error) -> NotPublished {
        NotPublished::Failed(error)
    }
}

impl Publish<'_> {
    pub(super) fn check_size(&self, policy: &Policy) -> Result<(), NotPublished> {
        let size = (self.headers.len() + self.payload.len()) as u64;
        let is_too_large = policy.max_msg_size > 0 && size > policy.max_msg_size;
        if is_too_large || self.subject.len() > MAX_SUBJECT {
            return Err(NotPublished::TooLarge);
        }
        Ok(())
    }

    /// The message as stored under `msg_id`.
    pub(super) fn message<'m>(&'m self, address: &'m str, msg_id: u64, now: Now) -> Message<'m> {
        Message {
            msg_id,
            sent_ms: now.wall_ms,
            create_ms: now.wall_ms.saturating_add(self.delay_ms),
            expires_ms: earliest(now.wall_ms, self.ttl_ms, 0),
            level: self.level.number(),
            address,
            key: self.subject,
            tags: "",
            headers: self.headers,
            payload: self.payload,
        }
    }
}

impl Store {
    /// Stores a message in a stream.
    pub fn publish_to(
        &mut self,
        key: StreamKey,
        publish: &Publish<'_>,
        now: Now,
    ) -> Result<Published, NotPublished> {
        self.tick(now);
        self.publish_with(key, publish, None, &[], now)
    }

    /// The same when what is due has been done, in one step with the removal of the message of a stream that it is made
    /// of, which has no id, and with `also`. Carrying out what these records say is left to the caller.
    pub(super) fn publish_with(
        &mut self,
        key: StreamKey,
        publish: &Publish<'_>,
        of: Option<(SlotIx, u64)>,
        also: &[(SlotIx, &Op<'_>)],
        now: Now,
    ) -> Result<Published, NotPublished> {
        let index = self.stream_slot(key).ok_or(NotPublished::NoStream)?;
        if publish.id.len() > MAX_SEND_ID {
            return Err(NotPublished::IdTooLong);
        }
        self.check_expectations(index, publish)?;
        if !publish.id.is_empty()
            && let Some(before) = self.state.sent_before(index, publish.id, now)
        {
            return Ok(Published { seq: before.map_or(0, |msg_id| msg_id + 1), duplicate: true });
        }
        let (sent_ms, delayed) = (now.wall_ms, publish.delay_ms > 0);
        let next_id = self.state.slot(index).map(|slot| slot.mailbox.next_id);
        let next_id = next_id.filter(|_| !delayed);
        let sent = Op::SentOnce(SentOnce { sent_ms, msg_id: next_id, id: publish.id });
        debug_assert!(of.is_none() || !delayed, "what is sent back is stored at once");
        let from = of.map(|(from, _)| self.address_of(from)).unwrap_or_default();
        let mut ranges = Vec::new();
        if let Some((_, msg_id)) = of {
            ranges::encode_ids([msg_id], &mut ranges);
        }
        let stamp = Some(Stamp { time_ms: now.wall_ms, address: &from });
        let removed = Op::Removed { stamp, cause: cause::DELETED, ranges: &ranges };
        let mut records: SmallVec<[(SlotIx, &Op<'_>); 3]> = SmallVec::new();
        let mut beside = Beside { must_stay: of.is_some(), ..Beside::default() };
        if !publish.id.is_empty() {
            records.push((index, &sent));
            beside.bytes = SentIds::bytes_of(publish.id);
        }
        if let Some((from, msg_id)) = of {
            records.push((from, &removed));
            let entry = self.state.slot(from).and_then(|slot| slot.mailbox.get(msg_id));
            match from == index {
                true => beside.leaving = Some(msg_id),
                false => beside.freed = entry.map_or(0, |(_, entry)| entry.len.into()),
            }
        }
        records.extend_from_slice(also);
        beside.records = &records;
        if delayed {
            self.delay_in_stream(index, publish, &beside, now)?;
        } else {
            self.put_in_stream(index, publish, &beside, now)?;
        }
        if let Some((from, msg_id)) = of {
            self.state.remove_message(from, msg_id);
        }
        if !publish.id.is_empty() {
            self.state.note_sent(index, publish.id, sent_ms, next_id);
        }
        Ok(Published { seq: next_id.map_or(0, |msg_id| msg_id + 1), duplicate: false })
    }

    /// A message enters a stream, together with what happens beside it. Carrying out what the records of that say is left
    /// to the caller.
    pub(super) fn put_in_stream(
        &mut self,
        index: SlotIx,
        publish: &Publish<'_>,
        beside: &Beside<'_>,
        now: Now,
    ) -> Result<(), NotPublished> {
        let slot = self.state.slot(index).ok_or(NotPublished::NoStream)?;
        let mailbox = &slot.mailbox;
        let policy = mailbox.policy();
        publish.check_size(policy)?;
        let address = mailbox.address.clone();
        let msg_id = mailbox.next_id;
        let message = publish.message(&address, msg_id, now);
        let len = Log::record_len(message.encoded_len()) as u64;
        let mut gone = make_room(mailbox, publish.subject, len, beside.leaving)?;
        let nobody_wants_it = policy.interest && !slot.is_of_interest(publish.subject);
        if nobody_wants_it && gone.last() != Some(&msg_id) {
            gone.push(msg_id);
        }
        if beside.must_stay && gone.last() == Some(&msg_id) {
            return Err(NotPublished::TooLarge);
        }
        self.check_more_bytes(index, len + beside.bytes, |mailbox| {
            let gone = gone.iter().filter_map(|msg_id| mailbox.get(*msg_id));
            Ok(beside.freed + gone.map(|(_, entry)| u64::from(entry.len)).sum::<u64>())
        })?;
        let op = Op::Message(message);
        let with = beside.records;
        let placed = if gone.is_empty() && with.is_empty() {
            self.log.reserve(space_for(&[&op]), Space::Store, now.wall_ms)?;
            Some(self.append(index, 0, &op))
        } else {
            self.append_with_removals(index, &op, &gone, &[], with, now)?
        };
        if let Some(placed) = placed {
            self.state.put_message(index, &message, placed.into());
        }
        for msg_id in gone {
            self.state.remove_message(index, msg_id);
        }
        Ok(())
    }

    fn check_expectations(&self, index: SlotIx, publish: &Publish<'_>) -> Result<(), NotPublished> {
        let Some(slot) = self.state.slot(index) else { return Err(NotPublished::NoStream) };
        let mailbox = &slot.mailbox;
        if let Some((expected, subject)) = publish.last_of_subject {
            let last = mailbox.last_matching(subject, MOST_SUBJECTS);
            let last = last.map_err(|_| NotPublished::TooManySubjects)?;
            let last = last.map_or(0, |msg_id| msg_id + 1);
            if expected != last {
                return Err(NotPublished::LastSeq(last));
            }
        }
        let last_seq = mailbox.next_id;
        if publish.last_seq.is_some_and(|expected| expected != last_seq) {
            return Err(NotPublished::LastSeq(last_seq));
        }
        if let Some(expected) = publish.last_id {
            let sent_ids = mailbox.extras().and_then(|extras| extras.sent_ids.as_ref());
            let newest = sent_ids.and_then(|ids| ids.newest()).map_or("", |sent| &sent.id);
            if newest != expected {
                return Err(NotPublished::LastId(newest.to_owned()));
            }
        }
        Ok(())
    }
}

/// Whether a stream surely takes no message whose record has about so many bytes. Asked before it is read: whatever waits
/// for room is tried again each second.
pub(super) fn is_full_for(mailbox: &Mailbox, len: u32) -> bool {
    let policy = mailbox.policy();
    let (had, had_bytes) = mailbox.limited();
    // Records of other kinds differ by some bytes.
    let least = u64::from(len.saturating_sub(64));
    policy.discard == Discard::New
        && policy.max_per_subject == 0
        && policy.is_exceeded(had + 1, had_bytes + least)
}

/// The messages that must go for one of `len` bytes to fit; it goes itself where it never fits.
pub(super) fn make_room(
    mailbox: &Mailbox,
    subject: &str,
    len: u64,
    leaving: Option<u64>,
) -> Result<Vec<u64>, NotPublished> {
    let policy = mailbox.policy();
    let most = policy.max_per_subject;
    let mut gone = Vec::new();
    if most > 0
        && let Some((ix, known)) = mailbox.subjects().and_then(|subjects| subjects.find(subject))
        && known.count >= most
    {
        let surplus = usize::try_from(known.count - most + 1).unwrap_or(usize::MAX);
        gone.extend(mailbox.of_subject(ix, known.first).take(surplus.min(SURPLUS_AT_ONCE)));
    }
    if policy.max_msgs == 0 && policy.max_bytes == 0 {
        return Ok(gone);
    }
    let of_subject: HashSet<u64, foldhash::fast::RandomState> = gone.iter().copied().collect();
    let going = gone.iter().chain(&leaving).filter_map(|msg_id| mailbox.get(*msg_id));
    let freed: u64 = going.map(|(_, entry)| u64::from(entry.len)).sum();
    let leaves = u64::from(leaving.is_some());
    let (had, had_bytes) = mailbox.limited();
    let mut messages = had + 1 - gone.len() as u64 - leaves;
    let mut bytes = had_bytes.saturating_sub(freed) + len;
    if policy.discard == Discard::New && policy.is_exceeded(messages, bytes) {
        let full = policy.max_msgs > 0 && messages > policy.max_msgs;
        return Err(if full { NotPublished::MaxMessages } else { NotPublished::MaxBytes });
    }
    // The surplus of lowered limits goes by itself: no publish waits for all of it.
    let had_surplus = policy.is_exceeded(had, had_bytes);
    let most = if had_surplus { SURPLUS_AT_ONCE } else { usize::MAX };
    let mut oldest = mailbox.iter_from(0).map(|(_, entry)| entry);
    while policy.is_exceeded(messages, bytes) && gone.len() < most {
        match oldest.next() {
            Some(entry) if of_subject.contains(&entry.msg_id) => {}
            Some(entry) if Some(entry.msg_id) == leaving => {}
            Some(entry) => {
                gone.push(entry.msg_id);
                messages -= 1;
                bytes -= u64::from(entry.len);
            }
            None => {
                gone.push(mailbox.next_id);
                break;
            }
        }
    }
    Ok(gone)
}
