//! One feed: how far it has read, and for whom.

use smallvec::SmallVec;

use crate::front::Outlet;
use crate::mailbox::Level;
use crate::protocol::Dialect;
use crate::store::{LevelSet, MailboxRef, Position};

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

/// A subscription that is fed.
#[derive(Debug)]
pub(super) struct Member {
    pub outlet: Outlet,
    pub dialect: Dialect,
    /// The levels it asked for, and those of them that it may have.
    pub asked: LevelSet,
    pub levels: LevelSet,
    /// What it was given of a queue group.
    pub held: Held,
    /// It is known to its connection as one that waits for room.
    pub is_thirsty: bool,
}

impl Member {
    pub fn new(outlet: Outlet, dialect: Dialect, asked: LevelSet, levels: LevelSet) -> Member {
        Member { outlet, dialect, asked, levels, held: Held::default(), is_thirsty: false }
    }
}

/// Reads a mailbox for its members.
#[derive(Debug)]
pub(super) struct Feed {
    pub watched: MailboxRef,
    pub address: Box<str>,
    pub kind: Kind,
    pub members: SmallVec<[Member; 1]>,
    /// Which member is first to be given the next message.
    pub next: usize,
    /// It is among those that have something to do.
    pub is_active: bool,
    /// It goes on when its mailbox has news.
    pub is_idle: bool,
    /// It goes on when more of the log is durable.
    pub is_unready: bool,
}

impl Feed {
    pub fn new(watched: MailboxRef, address: &str, kind: Kind) -> Feed {
        Feed {
            watched,
            address: address.into(),
            kind,
            members: SmallVec::new(),
            next: 0,
            is_active: false,
            is_idle: false,
            is_unready: false,
        }
    }

    pub fn is_thirsty(&self) -> bool {
        self.members.iter().any(|member| member.is_thirsty)
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
