//! The commands that run once per message: SEND, FETCH and ACK, from request to reply.
//!
//! Owns their wire form and the replies that wait until what they promise is durable. Must not know
//! connections beyond their number, nor how a reply travels: the caller publishes what
//! [`Post::next_reply`] gives. Every other command is the caller's.

mod ack;
mod entry;
mod fetch;
mod headers;
mod reply;
mod request;
mod send;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::broker::{ACK, Called, DeskCall as Call, Permissions, RAW_ACK};
use crate::error::Error;
use crate::log::Lsn;
use crate::store::{Meta, Store};
use crate::time::Now;
use crate::wire::op::Message;
use entry::Encoding;
use fetch::Poll;
use reply::{Answer, Shape};
pub use reply::{Reply, ReplySubject};

const SEND: &[u8] = b"$mq9.AI.MSG.SEND.";
const FETCH: &[u8] = b"$mq9.AI.MSG.FETCH.";

/// What replies that wait may take altogether: beyond, nobody's requests are carried out.
const MAX_HELD_BYTES: usize = 256 << 20;
/// The same for the larger replies of one connection.
const MAX_OWED_BYTES: usize = 4 << 20;
/// Replies below this size count only altogether.
const SMALL_BYTES: usize = 4 << 10;
/// Long polls are answered so many bytes at a time.
const COLLECTED_BYTES: usize = 8 << 20;

/// Settings of the wire form.
#[derive(Debug, Clone, Copy, Default)]
pub struct PostOptions {
    /// Payloads in JSON are base64, valid text or not.
    pub always_base64: bool,
}

impl PostOptions {
    fn encoding(self) -> Encoding {
        if self.always_base64 { Encoding::Base64 } else { Encoding::Auto }
    }
}

/// Requests under way: long polls, and replies that are not to leave yet.
#[derive(Debug)]
pub struct Post {
    encoding: Encoding,
    /// Replies with the end of the log they wait for. It ascends, but for polls that ended a moment before they
    /// were taken.
    held: VecDeque<(Lsn, Reply)>,
    /// Replies that promise nothing.
    ready: VecDeque<Reply>,
    polls: HashMap<u64, Poll, foldhash::fast::RandomState>,
    /// Bytes of all replies that wait, and of the larger ones by connection.
    held_bytes: usize,
    owed: HashMap<u64, usize, foldhash::fast::RandomState>,
    /// Whose connections they are, where that is known.
    users: HashMap<u64, Arc<str>, foldhash::fast::RandomState>,
}

impl Post {
    /// Nothing under way.
    pub fn new(options: PostOptions) -> Post {
        Post {
            encoding: options.encoding(),
            held: VecDeque::new(),
            ready: VecDeque::new(),
            polls: HashMap::default(),
            held_bytes: 0,
            owed: HashMap::default(),
            users: HashMap::default(),
        }
    }

    /// Whether a connection may ask for more: neither is much owed to it, nor to all together. `most` is what it can
    /// take at once.
    pub fn has_room(&self, cid: u64, most: usize) -> bool {
        self.held_bytes < MAX_HELD_BYTES
            && self.owed.get(&cid).is_none_or(|&bytes| bytes < most.min(MAX_OWED_BYTES))
    }

    /// Answers a request that is not carried out.
    pub fn refuse(&mut self, call: &Call<'_>, problem: &str) {
        let shape = Shape::of(call.subject);
        if !call.reply.is_empty() {
            let answer = Answer::Error(problem.to_owned());
            self.let_go(Reply::new(call.cid, call.reply, shape, answer));
        }
    }

    /// Carries out a request if it is one of these commands.
    pub fn call(&mut self, store: &mut Store, call: &Call<'_>, now: Now) -> Called {
        if let Some(address) = call.subject.strip_prefix(SEND) {
            let outcome = send::send(store, address, call, now);
            self.answer(store, call, Shape::Sent, outcome)
        } else if let Some(address) = call.subject.strip_prefix(FETCH) {
            self.fetch(store, address, call, now)
        } else if let Some(address) = call.subject.strip_prefix(ACK) {
            let outcome = ack::ack(store, address, call, now).map(|()| Answer::Done);
            self.answer(store, call, Shape::Plain, outcome)
        } else if let Some(tail) = call.subject.strip_prefix(RAW_ACK) {
            let outcome = ack::raw_ack(store, tail, call, now).map(|()| Answer::Done);
            self.answer(store, call, Shape::Plain, outcome)
        } else {
            Called::Unknown
        }
    }

    /// Takes the answers to long polls that are over. After each batch of commands and each tick;
    /// true if there are more than could be taken at once.
    pub fn collect(&mut self, store: &mut Store, now: Now) -> bool {
        if self.held_bytes < MAX_HELD_BYTES / 4 {
            for completion in store.some_completions(COLLECTED_BYTES, now) {
                if let Some(poll) = self.polls.remove(&completion.waiter) {
                    self.finish_poll(poll, completion.outcome);
                }
            }
        }
        store.has_completions()
    }

    /// Whether [`Post::next_reply`] has to be asked again when more is durable.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Answers with `payload` once the log is durable up to `end`, or with `failed` if it will never
    /// be; without `failed` the payload promises nothing.
    pub fn reply_at(
        &mut self,
        end: Lsn,
        cid: u64,
        subject: &[u8],
        payload: Vec<u8>,
        failed: Option<Vec<u8>>,
    ) {
        let answer = Answer::Given { payload, failed };
        self.keep(end, Reply::new(cid, subject, Shape::Plain, answer));
    }

    /// The next reply that may leave, now that the log is durable up to `acknowledged`.
    pub fn next_reply(&mut self, acknowledged: Lsn) -> Option<Reply> {
        let reply = match (self.ready.pop_front(), self.held.front()) {
            (Some(reply), _) => reply,
            (None, Some((end, _))) if *end <= acknowledged => self.held.pop_front()?.1,
            _ => return None,
        };
        self.account(&reply, |all, bytes| *all -= bytes);
        Some(reply)
    }

    /// Nothing beyond `acknowledged` will be durable: whoever was to be promised that is told why.
    pub fn fail(&mut self, acknowledged: Lsn, error: &Error) {
        for (end, reply) in std::mem::take(&mut self.held) {
            if end <= acknowledged {
                self.held.push_back((end, reply));
                continue;
            }
            self.account(&reply, |all, bytes| *all -= bytes);
            let reply = reply.failed(&error.to_string());
            self.let_go(reply);
        }
    }

    /// Ends the long polls of a connection that these rules do not allow: whoever may not fetch (any more) is given
    /// nothing. Says to which subjects they were published.
    pub fn enforce(&mut self, store: &mut Store, cid: u64, rules: &Permissions) -> Vec<Vec<u8>> {
        let mut ended = Vec::new();
        for waiter in store.waits(cid) {
            let Some(poll) = self.polls.get(&waiter) else { continue };
            let subject = poll.published_to();
            if rules.may_publish(&subject) || !store.cancel_wait(waiter) {
                continue;
            }
            if let Some(poll) = self.polls.remove(&waiter) {
                let shown = String::from_utf8_lossy(&subject);
                self.refuse_poll(poll, format!("the permission to publish to {shown:?} has ended"));
            }
            ended.push(subject);
        }
        ended
    }

    /// The connection is a user's from now on, or nobody's.
    pub fn set_user(&mut self, cid: u64, user: Option<Arc<str>>) {
        match user {
            Some(user) => self.users.insert(cid, user),
            None => self.users.remove(&cid),
        };
    }

    /// A connection has closed: its long polls end unanswered, what it held goes back.
    pub fn disconnect(&mut self, store: &mut Store, cid: u64, now: Now) {
        self.users.remove(&cid);
        for waiter in store.disconnect(cid, now) {
            self.polls.remove(&waiter);
        }
    }

    fn keep(&mut self, end: Lsn, reply: Reply) {
        self.account(&reply, |all, bytes| *all += bytes);
        self.held.push_back((end, reply));
    }

    fn let_go(&mut self, reply: Reply) {
        self.account(&reply, |all, bytes| *all += bytes);
        self.ready.push_back(reply);
    }

    fn account(&mut self, reply: &Reply, change: impl Fn(&mut usize, usize)) {
        let bytes = reply.bytes();
        change(&mut self.held_bytes, bytes);
        if bytes >= SMALL_BYTES {
            let owed = self.owed.entry(reply.cid).or_default();
            change(owed, bytes);
            if *owed == 0 {
                self.owed.remove(&reply.cid);
            }
        }
    }

    /// Holds a reply until what was just done is durable, or lets an error go at once.
    fn answer(
        &mut self,
        store: &Store,
        call: &Call<'_>,
        shape: Shape,
        outcome: Result<Answer, Refusal>,
    ) -> Called {
        match outcome {
            Ok(_) if call.reply.is_empty() => {}
            Err(_) if call.reply.is_empty() => return Called::Refused,
            Ok(answer) => {
                self.keep(store.end(), Reply::new(call.cid, call.reply, shape, answer));
            }
            Err(refusal) => {
                let answer = Answer::Error(refusal.0);
                self.let_go(Reply::new(call.cid, call.reply, shape, answer));
            }
        }
        Called::Done
    }
}

/// A message as an entry of `messages`, for a reply that the caller puts together.
pub fn entry(meta: &Meta, message: &Message<'_>, options: PostOptions) -> Vec<u8> {
    let mut out = Vec::with_capacity(128 + message.payload.len());
    entry::entry(&mut out, meta, message, options.encoding());
    out
}

/// A message that is not due yet as an entry of `messages`.
pub fn delayed_entry(meta: &Meta, message: &Message<'_>, options: PostOptions) -> Vec<u8> {
    let mut out = Vec::with_capacity(160 + message.payload.len());
    entry::delayed(&mut out, meta, message, options.encoding());
    out
}

/// Why a request was not carried out, in words for its sender.
#[derive(Debug)]
struct Refusal(String);

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal(error.to_string())
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal(text)
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Refusal {
        Refusal(text.to_owned())
    }
}

/// The address in a subject, checked.
fn address_of(bytes: &[u8]) -> Result<&str, Refusal> {
    let Ok(address) = std::str::from_utf8(bytes) else {
        let shown = String::from_utf8_lossy(bytes).into_owned();
        return Err(Error::InvalidAddress { address: shown, rule: "it is not UTF-8" }.into());
    };
    crate::mailbox::check_address(address)?;
    Ok(address)
}
