//! Operations on consumers of a stream: who they are, what they were given, and what they have done with.

use super::bytes::{Put, Reader};
use super::op::MAX_ID;
use super::stamp::Stamp;

/// A consumer was created, or is like this from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumerSet<'a> {
    /// When, and the mailbox of its stream.
    pub stamp: Stamp<'a>,
    /// Its name.
    pub consumer: &'a str,
    /// The first message it may be given; means nothing for one that is there already.
    pub next: u64,
    /// How it behaves, encoded by the consumer module.
    pub policy: &'a [u8],
    /// Its configuration as its creator said it.
    pub config: &'a str,
    /// Messages it is given before `next`, encoded as numbers of eight bytes: the last of each subject, say.
    pub early: &'a [u8],
}

impl<'a> ConsumerSet<'a> {
    /// An upper bound of the bytes that [`ConsumerSet::encode`] will append.
    pub fn max_len(&self) -> usize {
        32 + self.stamp.max_len()
            + self.consumer.len()
            + self.policy.len()
            + self.config.len()
            + self.early.len()
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        out.put_short(self.consumer.as_bytes());
        out.put_u64(self.next);
        out.put_medium(self.policy);
        out.put_medium(self.config.as_bytes());
        out.extend_from_slice(self.early);
    }

    /// Reads what [`ConsumerSet::encode`] wrote.
    pub fn decode(from: &mut Reader<'a>) -> Option<ConsumerSet<'a>> {
        Some(ConsumerSet {
            stamp: Stamp::decode(from)?,
            consumer: from.short_str()?,
            next: from.u64().filter(|next| *next < MAX_ID)?,
            policy: from.medium()?,
            config: from.medium_str()?,
            early: from.rest(),
        })
    }
}

/// Messages were given to a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumerGiven<'a> {
    /// When, and the mailbox of its stream.
    pub stamp: Stamp<'a>,
    /// Its name.
    pub consumer: &'a str,
    /// What it was given, as [`encode_runs`] writes it.
    pub runs: &'a [u8],
}

impl<'a> ConsumerGiven<'a> {
    /// An upper bound of the bytes that [`ConsumerGiven::encode`] will append.
    pub fn max_len(&self) -> usize {
        8 + self.stamp.max_len() + self.consumer.len() + self.runs.len()
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        out.put_short(self.consumer.as_bytes());
        out.extend_from_slice(self.runs);
    }

    /// Reads what [`ConsumerGiven::encode`] wrote.
    pub fn decode(from: &mut Reader<'a>) -> Option<ConsumerGiven<'a>> {
        let (stamp, consumer) = (Stamp::decode(from)?, from.short_str()?);
        let runs = from.rest();
        drop(decode_runs(runs)?);
        Some(ConsumerGiven { stamp, consumer, runs })
    }
}

/// A consumer has done with messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumerDone<'a> {
    /// When, and the mailbox of its stream.
    pub stamp: Stamp<'a>,
    /// Its name.
    pub consumer: &'a str,
    /// One of [`super::stamp::cause`]: consumed, terminated, moved, or delivered too often.
    pub cause: u8,
    /// Which, as [`encode_runs`] writes it; counts mean nothing.
    pub runs: &'a [u8],
}

impl<'a> ConsumerDone<'a> {
    /// An upper bound of the bytes that [`ConsumerDone::encode`] will append.
    pub fn max_len(&self) -> usize {
        8 + self.stamp.max_len() + self.consumer.len() + self.runs.len()
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        out.put_short(self.consumer.as_bytes());
        out.put_u8(self.cause);
        out.extend_from_slice(self.runs);
    }

    /// Reads what [`ConsumerDone::encode`] wrote.
    pub fn decode(from: &mut Reader<'a>) -> Option<ConsumerDone<'a>> {
        let (stamp, consumer, cause) = (Stamp::decode(from)?, from.short_str()?, from.u8()?);
        let runs = from.rest();
        drop(decode_runs(runs)?);
        Some(ConsumerDone { stamp, consumer, cause, runs })
    }
}

/// A consumer was removed, with all it remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumerRemoved<'a> {
    /// When, and the mailbox of its stream.
    pub stamp: Stamp<'a>,
    /// Its name.
    pub consumer: &'a str,
    /// One of [`super::stamp::cause`].
    pub cause: u8,
}

impl<'a> ConsumerRemoved<'a> {
    /// An upper bound of the bytes that [`ConsumerRemoved::encode`] will append.
    pub fn max_len(&self) -> usize {
        8 + self.stamp.max_len() + self.consumer.len()
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        out.put_short(self.consumer.as_bytes());
        out.put_u8(self.cause);
    }

    /// Reads what [`ConsumerRemoved::encode`] wrote.
    pub fn decode(from: &mut Reader<'a>) -> Option<ConsumerRemoved<'a>> {
        Some(ConsumerRemoved {
            stamp: Stamp::decode(from)?,
            consumer: from.short_str()?,
            cause: from.u8()?,
        })
    }
}

/// In the place of the name of a removed consumer: it is none. Messages that no consumer wants any more are looked for,
/// or all of them have gone, if the cause is that they were consumed. No consumer has such a name.
pub const NO_CONSUMER: &str = "*";

/// A consumer has returned messages, to be given them again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumerReturned<'a> {
    /// When, and the mailbox of its stream.
    pub stamp: Stamp<'a>,
    /// Its name.
    pub consumer: &'a str,
    /// Wall time at which they come back.
    pub due_ms: u64,
    /// Which, as [`encode_runs`] writes it; counts mean nothing.
    pub runs: &'a [u8],
}

impl<'a> ConsumerReturned<'a> {
    /// An upper bound of the bytes that [`ConsumerReturned::encode`] will append.
    pub fn max_len(&self) -> usize {
        16 + self.stamp.max_len() + self.consumer.len() + self.runs.len()
    }

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        out.put_short(self.consumer.as_bytes());
        out.put_u64(self.due_ms);
        out.extend_from_slice(self.runs);
    }

    /// Reads what [`ConsumerReturned::encode`] wrote.
    pub fn decode(from: &mut Reader<'a>) -> Option<ConsumerReturned<'a>> {
        let (stamp, consumer) = (Stamp::decode(from)?, from.short_str()?);
        let due_ms = from.u64()?;
        let runs = from.rest();
        drop(decode_runs(runs)?);
        Some(ConsumerReturned { stamp, consumer, due_ms, runs })
    }
}

/// Messages behind each other that were delivered equally often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: u64,
    /// How many.
    pub len: u32,
    /// How often each was delivered, this time included.
    pub count: u32,
}

const RUN: usize = 16;

/// Appends messages with their counts, as few runs as can be, in their order.
pub fn encode_runs(messages: impl IntoIterator<Item = (u64, u32)>, out: &mut Vec<u8>) {
    let mut run: Option<Run> = None;
    for (msg_id, count) in messages {
        match &mut run {
            Some(run) if run.count == count && run.first + u64::from(run.len) == msg_id => {
                run.len += 1;
            }
            _ => {
                put_run(run.take(), out);
                run = Some(Run { first: msg_id, len: 1, count });
            }
        }
    }
    put_run(run, out);
}

fn put_run(run: Option<Run>, out: &mut Vec<u8>) {
    if let Some(run) = run {
        out.put_u64(run.first);
        out.put_u32(run.len);
        out.put_u32(run.count);
    }
}

/// The runs that [`encode_runs`] wrote; `None` if these are none.
pub fn decode_runs(bytes: &[u8]) -> Option<impl Iterator<Item = Run> + '_> {
    let (runs, rest) = bytes.as_chunks::<RUN>();
    let decode = |bytes: &[u8; RUN]| {
        let mut from = Reader::new(bytes);
        let run = Run { first: from.u64()?, len: from.u32()?, count: from.u32()? };
        (run.len > 0 && run.first.checked_add(u64::from(run.len))? < MAX_ID).then_some(run)
    };
    let sound = rest.is_empty() && runs.iter().all(|run| decode(run).is_some());
    sound.then(move || runs.iter().filter_map(decode))
}
