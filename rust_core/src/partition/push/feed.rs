//! One feed: how far it has read, and for whom.

use super::members::Members;
use crate::mailbox::Level;
use crate::store::{MailboxRef, Position};

/// A feed's number, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FeedId(pub u64);

/// How a feed reads.
#[derive(Debug)]
pub(super) enum Kind {
    /// For one subscription, from the beginning.
    Own(Position),
    /// For a queue group, from the beginning, each message once.
    Queue {
        /// The group's name.
        name: Box<[u8]>,
        /// How far it is.
        position: Position,
    },
    /// For all who share the inbox, whose position the store keeps.
    Inbox,
}

/// Reads a mailbox for its members.
#[derive(Debug)]
pub(super) struct Feed {
    pub watched: MailboxRef,
    pub address: Box<str>,
    pub kind: Kind,
    pub members: Members,
    /// It is among those that have something to do.
    pub is_active: bool,
    /// It goes on when its mailbox has news.
    pub is_idle: bool,
    /// It goes on when more of the log is durable.
    pub is_unready: bool,
    /// It goes on after a while: something failed.
    pub has_failed: bool,
}

impl Feed {
    pub fn new(watched: MailboxRef, address: &str, kind: Kind) -> Feed {
        Feed {
            watched,
            address: address.into(),
            kind,
            members: Members::default(),
            is_active: false,
            is_idle: false,
            is_unready: false,
            has_failed: false,
        }
    }
}

/// Messages that a member of a queue group was given, as runs of one level. Those that have left the mailbox since are
/// looked for when the list has doubled.
#[derive(Debug, Default)]
pub(super) struct Held {
    runs: Vec<(Level, u64, u64)>,
    /// How long the list was when it was last looked through.
    known: usize,
}

impl Held {
    /// Adds a message, where `exists` knows those that have not left the mailbox.
    pub fn add(&mut self, level: Level, msg_id: u64, exists: impl Fn(u64) -> bool) {
        match self.runs.last_mut() {
            Some((of, _, end)) if *of == level && *end == msg_id => *end += 1,
            _ => self.runs.push((level, msg_id, msg_id + 1)),
        }
        if self.runs.len() > 2 * self.known + 64 {
            let mut kept = Held::default();
            for (level, msg_id) in self.ids().filter(|&(_, msg_id)| exists(msg_id)) {
                match kept.runs.last_mut() {
                    Some((of, _, end)) if *of == level && *end == msg_id => *end += 1,
                    _ => kept.runs.push((level, msg_id, msg_id + 1)),
                }
            }
            kept.known = kept.runs.len();
            *self = kept;
        }
    }

    /// All of them.
    pub fn ids(&self) -> impl Iterator<Item = (Level, u64)> + '_ {
        self.runs.iter().flat_map(|&(level, start, end)| (start..end).map(move |id| (level, id)))
    }
}
