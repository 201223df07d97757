//! One feed: how far it has read, and for whom.

use std::collections::VecDeque;

use super::members::Members;
use crate::store::{MailboxRef, Position, Run, Store};

/// A feed's number, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FeedId(pub u64);

/// Runs that are taken over in one turn.
const RUNS_AT_ONCE: usize = 1024;

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
        /// What members had when they left, of each what is still to be given again.
        left: VecDeque<Vec<Run>>,
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

impl Feed {
    /// Goes on to take over what members left, if there is anything; false if there is more of it.
    pub fn take_over(&mut self, store: &Store) -> bool {
        let slot = self.watched.slot;
        let Kind::Queue { position, left, .. } = &mut self.kind else { return true };
        for _ in 0..RUNS_AT_ONCE {
            let Some(runs) = left.front_mut() else { break };
            match runs.pop() {
                Some(run) => position.give_again(run),
                None => drop(left.pop_front()),
            }
        }
        let next = |level, from| store.next_message(slot, level, from);
        left.is_empty() && position.trim(RUNS_AT_ONCE, next)
    }
}
