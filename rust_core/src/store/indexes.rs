//! The places of mailboxes and groups, as numbers that cannot be taken for each other.

use std::fmt;

/// The place of a mailbox in the store, from its creation to its removal. Then it is free for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIx(pub(super) u32);

/// The place of a group among those of its mailbox, from its creation to its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupIx(pub(super) u32);

impl GroupIx {
    /// The index that a timer was given as its id.
    pub fn from_timer(id: u64) -> GroupIx {
        GroupIx(id as u32)
    }

    /// What a timer is given as its id.
    pub fn to_timer(self) -> u64 {
        u64::from(self.0)
    }

    /// Where it lies in a list.
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SlotIx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for GroupIx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
