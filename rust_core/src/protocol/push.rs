//! Sending and listening by subject: `INBOX.<id>.<priority>` and `MAILBOX.MSG.<id>[.<priority>]`.
//!
//! An address may have dots, so that its end can look like a priority: which of both it is depends on the mailboxes there
//! are, and is asked for.

use super::Refusal;
use super::command::SendCommand;
use super::entry::push_headers;
use super::headers::{self, Wishes};
use crate::commands::{INBOX, MAILBOX_MSG};
use crate::mailbox::{Level, check_address};
use crate::store::{LevelSet, Meta};
use crate::wire::op::Message;

/// Which dialect a subject is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `INBOX.`: what was not read before, once.
    Inbox,
    /// `MAILBOX.MSG.`: everything, from the beginning.
    Mailbox,
}

impl Dialect {
    /// The dialect of a subject, and what stands behind its prefix.
    pub fn of(subject: &[u8]) -> Option<(Dialect, &[u8])> {
        let inbox = subject.strip_prefix(INBOX).map(|tail| (Dialect::Inbox, tail));
        inbox.or_else(|| Some((Dialect::Mailbox, subject.strip_prefix(MAILBOX_MSG)?)))
    }

    /// The subject of a message of this level.
    pub fn subject(self, address: &str, level: Level) -> Vec<u8> {
        let (prefix, name) = match self {
            Dialect::Inbox => (INBOX, Some(level.name())),
            Dialect::Mailbox => {
                let is_named = matches!(level, Level::CRITICAL | Level::URGENT);
                (MAILBOX_MSG, is_named.then_some(level.name()))
            }
        };
        let mut subject = [prefix, address.as_bytes()].concat();
        if let Some(name) = name {
            subject.push(b'.');
            subject.extend_from_slice(name.as_bytes());
        }
        subject
    }

    /// What all its subjects of a mailbox begin with.
    pub fn base(self, address: &str) -> Vec<u8> {
        let prefix = match self {
            Dialect::Inbox => INBOX,
            Dialect::Mailbox => MAILBOX_MSG,
        };
        [prefix, address.as_bytes()].concat()
    }
}

/// The levels that a subject can name.
fn named(word: &str) -> Option<Level> {
    match word {
        "critical" | "urgent" | "normal" | "notify" => Level::named(word),
        _ => None,
    }
}

/// A SEND by a subject that may name the priority.
#[derive(Debug)]
pub struct PushCommand<'a> {
    dialect: Dialect,
    tail: &'a str,
    wishes: Wishes<'a>,
    payload: &'a [u8],
}

/// Reads a message to such a subject; nothing if it is none.
pub(super) fn read<'a>(
    subject: &'a [u8],
    headers: &'a [u8],
    payload: &'a [u8],
) -> Option<Result<PushCommand<'a>, Refusal>> {
    let (dialect, tail) = Dialect::of(subject)?;
    let read = || {
        let tail = super::address_of(tail)?;
        Ok(PushCommand { dialect, tail, wishes: headers::read(headers)?, payload })
    };
    Some(read())
}

impl<'a> PushCommand<'a> {
    /// The SEND it stands for, where `exists` knows the mailboxes.
    pub fn send(self, exists: impl Fn(&str) -> bool) -> Result<SendCommand<'a>, Refusal> {
        let PushCommand { dialect, tail, mut wishes, payload } = self;
        let (address, level) = match tail.rsplit_once('.') {
            Some((address, word)) if !exists(tail) => match named(word) {
                Some(level) => (address, Some(level)),
                None => (tail, None),
            },
            _ => (tail, None),
        };
        if let (Some(said), Some(level)) = (wishes.level, level)
            && said != level
        {
            let (said, level) = (said.name(), level.name());
            return Err(format!("mq9-priority is {said:?}, and the subject says {level}").into());
        }
        wishes.level = wishes.level.or(level);
        if dialect == Dialect::Inbox && wishes.level == Some(Level::NOTIFY) {
            wishes.persist.get_or_insert(false);
        }
        Ok(SendCommand { address, wishes, payload })
    }
}

/// What a subscription asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening<'a> {
    /// The mailbox.
    pub address: &'a str,
    /// In which way.
    pub dialect: Dialect,
    /// Messages of these levels.
    pub levels: LevelSet,
}

/// Reads the subject of a subscription, where `exists` knows the mailboxes. A wildcard may stand for the priority alone.
pub fn listening<'a>(
    subject: &'a [u8],
    exists: impl Fn(&str) -> bool,
) -> Option<Result<Listening<'a>, Refusal>> {
    let (dialect, tail) = Dialect::of(subject)?;
    let read = || {
        let tail = std::str::from_utf8(tail).map_err(|_| "the subject is not UTF-8")?;
        if let Some(address) = tail.strip_suffix(".*") {
            check_address(address)?;
            return Ok(Listening { address, dialect, levels: LevelSet::ALL });
        }
        check_address(tail)?;
        let (address, levels) = match tail.rsplit_once('.') {
            Some((address, word)) if !exists(tail) => match named(word) {
                Some(level) => (address, LevelSet::of(level)),
                None => (tail, LevelSet::ALL),
            },
            _ => (tail, LevelSet::ALL),
        };
        Ok(Listening { address, dialect, levels })
    };
    Some(read())
}

/// Appends the headers and payload of a pushed message; how long the headers are.
pub fn write(out: &mut Vec<u8>, meta: &Meta, message: &Message<'_>) -> usize {
    let start = out.len();
    push_headers(out, meta, message);
    let headers = out.len() - start;
    out.extend_from_slice(message.payload);
    out.extend_from_slice(b"\r\n");
    headers
}
