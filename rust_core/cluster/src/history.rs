//! The stream in short: who leads, and a digest of all batches.
//!
//! A batch must come from whoever made the last claim before it, and a claim must begin a new term. With one append
//! under way at a time nothing else can get into a stream that keeps its word, since each names the sequence before
//! it. So whatever does not fit means that the stream has forgotten something, and is an alarm.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

use crate::batch::{Batch, Content, Writer};

/// Stands for all batches that count up to a place: two nodes with the same one hold the same log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest behind `message`.
    pub fn then(self, message: &[u8]) -> Digest {
        let mut hash = Xxh3::new();
        hash.update(&self.0.to_le_bytes());
        hash.update(message);
        Digest(hash.digest128())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A place in the stream: what a node's own log says it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The last message that was looked at; 0 before the first.
    pub sequence: u64,
    /// Of all that count up to it.
    pub digest: Digest,
    /// The term of the last claim.
    pub term: u64,
    /// Who made it.
    pub leader: Option<Writer>,
}

/// The message's writer had another log than this node, or did not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Differs;

/// The messages taken so far, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    position: Position,
}

impl History {
    /// Goes on behind `position`.
    pub fn behind(position: Position) -> History {
        History { position }
    }

    /// Where it ends.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Takes the next message of the stream; one that differs changes nothing.
    pub fn take(&mut self, sequence: u64, batch: &Batch, message: &[u8]) -> Result<(), Differs> {
        let is_due = match batch.content {
            // After the last term there is none to claim: nobody who follows could ever lead again.
            Content::Claim => batch.term > self.position.term && batch.term < u64::MAX,
            Content::Records(_) | Content::Yield(_) => {
                batch.term == self.position.term && self.position.leader == Some(batch.writer)
            }
        };
        if !is_due {
            return Err(Differs);
        }
        self.take_any_term(sequence, batch, message)
    }

    /// The same without looking at terms: wrong, and there to show that it is.
    pub fn take_any_term(
        &mut self,
        sequence: u64,
        batch: &Batch,
        message: &[u8],
    ) -> Result<(), Differs> {
        assert_eq!(sequence, self.position.sequence + 1, "messages are taken in order");
        if batch.before != self.position.digest {
            return Err(Differs);
        }
        self.position.sequence = sequence;
        self.position.digest = self.position.digest.then(message);
        match batch.content {
            Content::Claim => {
                self.position.term = batch.term;
                self.position.leader = Some(batch.writer);
            }
            // Whoever yields has said its last word.
            Content::Yield(_) => self.position.leader = None,
            Content::Records(_) => {}
        }
        Ok(())
    }
}
