//! Replies: what they say, and how an error says it in the same shape.

use smallvec::SmallVec;

use super::Refusal;
use crate::commands::Shape;
use crate::nats::Number;

/// The header of a refusal that says of which kind it is.
const ERROR_KIND: &str = "mq9-error";

/// Where a reply goes; inboxes fit without a heap.
pub type ReplySubject = SmallVec<[u8; 64]>;

/// A reply that may or may not leave yet.
#[derive(Debug)]
pub struct Reply {
    /// The connection that asked, and the only one to hear it.
    pub cid: u64,
    /// Where it goes.
    pub subject: ReplySubject,
    shape: Shape,
    answer: Answer,
}

/// What a reply says.
#[derive(Debug)]
pub enum Answer {
    /// A message was stored.
    Sent {
        /// Its number, or -1 if it is delayed.
        msg_id: i64,
        /// It was there already.
        duplicate: bool,
    },
    /// It was done.
    Done,
    /// JSON that promises nothing.
    Text(Vec<u8>),
    /// The caller's own words, said once everything before is durable.
    Given {
        /// The words.
        payload: Vec<u8>,
        /// They tell of something that was done: they are not true if it will never be durable.
        promises: bool,
    },
    /// Messages of their own.
    Raw(Batch),
    /// One message, maybe with a subject of its own.
    Message(OneMessage),
    /// It was not done, for this reason.
    Error(Refusal),
}

/// A message that is an answer, or a part of one. It promises nothing.
#[derive(Debug)]
pub struct OneMessage {
    /// The subject it shows, where it is answered, its headers and its payload.
    bytes: Box<[u8]>,
    /// Where each of these ends but the last.
    ends: [usize; 3],
}

impl OneMessage {
    /// A message; with an empty subject it shows the one where it was asked for.
    pub fn new(subject: &[u8], reply: &[u8], headers: &[u8], payload: &[u8]) -> OneMessage {
        let subject_end = subject.len();
        let reply_end = subject_end + reply.len();
        let ends = [subject_end, reply_end, reply_end + headers.len()];
        OneMessage { bytes: [subject, reply, headers, payload].concat().into(), ends }
    }

    fn part(&self, begin: usize, end: usize) -> &[u8] {
        self.bytes.get(begin..end).unwrap_or_default()
    }
}

/// The messages of a raw FETCH, one behind the other: reply subject, headers, payload.
#[derive(Debug)]
pub struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) messages: Vec<RawMessage>,
    pub(super) status: &'static str,
}

/// Where the parts of a message end; it begins where the one before ends.
#[derive(Debug)]
pub(super) struct RawMessage {
    pub reply: usize,
    pub headers: usize,
    pub payload: usize,
}

impl Reply {
    /// An answer to a connection.
    pub fn new(cid: u64, subject: &[u8], shape: Shape, answer: Answer) -> Reply {
        Reply { cid, subject: ReplySubject::from_slice(subject), shape, answer }
    }

    /// The same with an error in place of the answer, if the answer promises anything.
    pub fn failed(self, refusal: &Refusal) -> Reply {
        let answer = match self.answer {
            Answer::Sent { .. } | Answer::Done | Answer::Given { promises: true, .. } => {
                Answer::Error(refusal.clone())
            }
            other => other,
        };
        Reply { answer, ..self }
    }

    /// An answer of JetStream to a connection.
    pub fn of_jetstream(cid: u64, subject: ReplySubject, answer: Answer) -> Reply {
        Reply { cid, subject, shape: Shape::JetStream, answer }
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        size_of::<Reply>() + self.said_bytes()
    }

    /// The bytes of what it says, about.
    pub fn said_bytes(&self) -> usize {
        match &self.answer {
            Answer::Sent { .. } | Answer::Done => 0,
            Answer::Error(refusal) => refusal.text.len(),
            Answer::Text(text) | Answer::Given { payload: text, .. } => text.len(),
            Answer::Raw(batch) => batch.bytes.len() + size_of_val(batch.messages.as_slice()),
            Answer::Message(message) => message.bytes.len(),
        }
    }

    /// The subject it shows, if that is another than where it goes.
    pub fn shown_subject(&self) -> Option<&[u8]> {
        match &self.answer {
            Answer::Message(message) if message.ends[0] > 0 => {
                Some(message.part(0, message.ends[0]))
            }
            _ => None,
        }
    }

    /// Calls `publish(reply subject, headers, payload)` for each message the reply consists of.
    pub fn publish(&self, mut publish: impl FnMut(&[u8], &[u8], &[u8])) {
        let mut text: SmallVec<[u8; 64]> = SmallVec::new();
        match &self.answer {
            Answer::Sent { msg_id, duplicate } => {
                text.extend_from_slice(b"{\"error\":\"\",\"msg_id\":");
                if *msg_id < 0 {
                    text.push(b'-');
                }
                text.extend_from_slice(Number::new(msg_id.unsigned_abs()).as_bytes());
                if *duplicate {
                    text.extend_from_slice(b",\"duplicate\":true");
                }
                text.push(b'}');
            }
            Answer::Done => text.extend_from_slice(b"{\"error\":\"\"}"),
            Answer::Text(given) | Answer::Given { payload: given, .. } => {
                return publish(b"", b"", given);
            }
            Answer::Message(message) => {
                let [subject, reply, headers] = message.ends;
                let part = |begin, end| message.part(begin, end);
                let payload = part(headers, message.bytes.len());
                return publish(part(subject, reply), part(reply, headers), payload);
            }
            Answer::Raw(batch) => {
                let mut start = 0;
                for ends in &batch.messages {
                    let part = |start, end| batch.bytes.get(start..end).unwrap_or_default();
                    let (reply, headers) =
                        (part(start, ends.reply), part(ends.reply, ends.headers));
                    publish(reply, headers, part(ends.headers, ends.payload));
                    start = ends.payload;
                }
                return publish(b"", status(batch.status).as_bytes(), b"");
            }
            Answer::Error(Refusal { kind, text: error }) if self.shape == Shape::Raw => {
                let error: String =
                    error.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                let headers = format!("NATS/1.0 400 {error}\r\n{ERROR_KIND}: {kind}\r\n\r\n");
                return publish(b"", headers.as_bytes(), b"");
            }
            Answer::Error(Refusal { text: error, .. }) if self.shape == Shape::JetStream => {
                return publish(b"", b"", &self.shape.refusal(error));
            }
            Answer::Error(Refusal { kind, text: error }) => {
                let headers = format!("NATS/1.0\r\n{ERROR_KIND}: {kind}\r\n\r\n");
                return publish(b"", headers.as_bytes(), &self.shape.refusal(error));
            }
        }
        publish(b"", b"", &text);
    }
}

fn status(text: &str) -> String {
    format!("NATS/1.0 {text}\r\n\r\n")
}
