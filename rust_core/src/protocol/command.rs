//! A request that was understood: what is to be done, and nothing about how.

use super::ack;
use super::entry::Encoding;
use super::fetch::{self, FetchCommand};
use super::headers::{self, Wishes};
use super::push::{self, PushCommand};
use super::{Refusal, address_of};
use crate::commands::{ACK, FETCH, RAW_ACK, SEND, Shape};
use crate::mailbox::Level;
use crate::store::{Ack, AckKind, Send};

/// What a client asks of a mailbox.
#[derive(Debug)]
pub enum Command<'a> {
    /// Store a message.
    Send(SendCommand<'a>),
    /// The same, by a subject that may name the priority too.
    Push(PushCommand<'a>),
    /// Give messages, now or as soon as there are some.
    Fetch(FetchCommand),
    /// Say what became of messages that were given.
    Ack(AckCommand<'a>),
}

/// A SEND.
#[derive(Debug)]
pub struct SendCommand<'a> {
    /// The mailbox.
    pub address: &'a str,
    pub(super) wishes: Wishes<'a>,
    pub(super) payload: &'a [u8],
}

impl SendCommand<'_> {
    /// What makes it the same send when it is made again; empty for nothing.
    pub fn id(&self) -> &str {
        self.wishes.id
    }

    /// The message.
    pub fn send(&self) -> Send<'_> {
        Send {
            level: self.wishes.level.unwrap_or(Level::NORMAL),
            key: self.wishes.key,
            tags: &self.wishes.tags,
            headers: &self.wishes.others,
            payload: self.payload,
            delay_ms: self.wishes.delay_ms,
            ttl_ms: self.wishes.ttl_ms,
            memory: self.wishes.persist == Some(false),
        }
    }
}

/// An ACK.
#[derive(Debug)]
pub struct AckCommand<'a> {
    /// The mailbox.
    pub address: &'a str,
    /// The group that was given the messages.
    pub group: String,
    /// The messages.
    pub msg_ids: Vec<u64>,
    /// What became of them.
    pub kind: AckKind,
}

impl AckCommand<'_> {
    /// As the store takes it.
    pub fn ack(&self) -> Ack<'_> {
        Ack { address: self.address, group: &self.group, msg_ids: &self.msg_ids, kind: self.kind }
    }
}

/// Why a request is not a command, and how that is said.
pub type Misunderstood = (Shape, Refusal);

/// Reads a request to a subject of the broker; nothing if it is none of these commands.
pub fn parse<'a>(
    subject: &'a [u8],
    headers: &'a [u8],
    payload: &'a [u8],
    encoding: Encoding,
) -> Option<Result<Command<'a>, Misunderstood>> {
    if let Some(address) = subject.strip_prefix(SEND) {
        let read = || -> Result<Command<'a>, Refusal> {
            let address = address_of(address)?;
            let wishes = headers::read(headers)?;
            Ok(Command::Send(SendCommand { address, wishes, payload }))
        };
        Some(read().map_err(|refusal| (Shape::Sent, refusal)))
    } else if let Some(address) = subject.strip_prefix(FETCH) {
        Some(fetch::read(address, payload, encoding).map(Command::Fetch))
    } else if let Some(address) = subject.strip_prefix(ACK) {
        let read = ack::read(address, payload).map(Command::Ack);
        Some(read.map_err(|refusal| (Shape::Plain, refusal)))
    } else if let Some(tail) = subject.strip_prefix(RAW_ACK) {
        let read = ack::read_raw(tail, payload).map(Command::Ack);
        Some(read.map_err(|refusal| (Shape::Plain, refusal)))
    } else {
        let read = push::read(subject, headers, payload)?.map(Command::Push);
        Some(read.map_err(|refusal| (Shape::Sent, refusal)))
    }
}
