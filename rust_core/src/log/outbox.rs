//! Records of the own log that wait to go to the other nodes of a cluster.
//!
//! Owns copies of records, without their frames: each node frames them anew. A log without an outbox, as on a single
//! node, pays nothing. What concerns this node's files alone stays here: messages moved by compaction, and ties.

use crate::wire::op::kind;
use crate::wire::record::{FLAG_MOVED, HEADER};

/// A record on its way to other nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The kind's number.
    pub kind: u8,
    /// The frame's flags.
    pub flags: u8,
    /// Mailbox number.
    pub mailbox: u64,
    /// What the kind says it is.
    pub body: Vec<u8>,
}

/// Records in the order in which they were written.
pub struct Outbox {
    records: Vec<Outgoing>,
    bytes: usize,
    limit: usize,
    /// Hears when there is something after there was nothing.
    listener: Option<Box<dyn Fn() + Send>>,
}

impl Outbox {
    /// Takes no new records once there are `limit` bytes of them.
    pub fn new(limit: usize) -> Outbox {
        Outbox { records: Vec::new(), bytes: 0, limit, listener: None }
    }

    /// From now on `told` is called when there is something after there was nothing.
    pub fn listen(&mut self, told: impl Fn() + Send + 'static) {
        self.listener = Some(Box::new(told));
    }

    /// Whether so many bytes more are too many for one batch. A batch that holds nothing else takes anything.
    pub fn is_full(&self, more: usize) -> bool {
        self.bytes > 0 && self.bytes + more > self.limit
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Everything that waits.
    pub fn take(&mut self) -> Vec<Outgoing> {
        self.bytes = 0;
        std::mem::take(&mut self.records)
    }

    /// Takes note of whole records that were written, one behind the other.
    pub fn wrote(&mut self, mut framed: &[u8]) {
        let was_empty = self.records.is_empty();
        while let Some((header, _)) = framed.split_first_chunk::<HEADER>() {
            let [_, _, _, _, l0, l1, l2, l3, _, _, kind, flags, mailbox @ ..] = *header;
            let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            let Some((record, rest)) = framed.split_at_checked(len) else {
                unreachable!("the log writes whole records");
            };
            framed = rest;
            if kind != kind::TIED && flags & FLAG_MOVED == 0 {
                self.bytes += record.len();
                let (mailbox, body) = (u64::from_le_bytes(mailbox), record[HEADER..].to_vec());
                self.records.push(Outgoing { kind, flags, mailbox, body });
            }
        }
        if let Some(told) = &self.listener
            && was_empty
            && !self.records.is_empty()
        {
            told();
        }
    }
}
