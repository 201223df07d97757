//! A batch of messages read from the store, in one buffer.

use std::ops::Range;

use crate::log::Lsn;
use crate::mailbox::{Entry, Level};
use crate::wire::op::Message;

/// What the index knows of a message in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Its offset in the mailbox.
    pub msg_id: u64,
    /// Its level.
    pub level: Level,
    /// When it got its `msg_id`.
    pub create_ms: u64,
    /// How often the group has been given it, this time included; 0 without a group.
    pub deliveries: u32,
    /// Whether the group is not given it again: it has been given it `max_deliver` times.
    pub last_delivery: bool,
}

/// A batch of messages.
#[derive(Debug, Default, Clone)]
pub struct Fetched {
    bytes: Vec<u8>,
    /// Each with where its encoded body lies.
    list: Vec<(Meta, Range<usize>)>,
    known: Option<Lsn>,
}

impl Fetched {
    pub(super) fn new(bytes: Vec<u8>, capacity: usize) -> Fetched {
        Fetched { bytes, list: Vec::with_capacity(capacity), known: None }
    }

    /// Where the log ended before the delivery itself, unless that was noted already.
    pub(super) fn note(&mut self, end: Lsn) {
        self.known.get_or_insert(end);
    }

    /// The batch may be shown once the log is durable up to here: its messages are, and where its
    /// group began. That it was delivered need not be: whoever forgets it delivers again.
    pub fn known(&self) -> Lsn {
        self.known.unwrap_or_default()
    }

    /// Adds a message whose encoded body lies at `start..end` of the buffer.
    pub(super) fn push(
        &mut self,
        level: Level,
        entry: &Entry,
        deliveries: u32,
        start: usize,
        end: usize,
    ) {
        let (msg_id, create_ms) = (entry.msg_id, entry.create_ms);
        let meta = Meta { msg_id, level, create_ms, deliveries, last_delivery: false };
        self.list.push((meta, start..end));
    }

    /// Notes which are delivered for the last time; with 0, none is.
    pub(super) fn note_last(&mut self, max_deliver: u32) {
        if max_deliver > 0 {
            for (meta, _) in &mut self.list {
                meta.last_delivery = meta.deliveries >= max_deliver;
            }
        }
    }

    /// Adds a message with its encoded body.
    pub(super) fn add(&mut self, level: Level, entry: &Entry, deliveries: u32, body: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(body);
        self.push(level, entry, deliveries, start, self.bytes.len());
    }

    /// The encoded bodies in order.
    pub(super) fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        self.list.iter().map(|(_, place)| self.bytes.get(place.clone()).unwrap_or_default())
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// How many bytes they have, as stored.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// True without messages.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The messages in order.
    pub fn iter(&self) -> impl Iterator<Item = (Meta, Message<'_>)> {
        self.list.iter().filter_map(|(meta, place)| {
            Some((*meta, Message::decode(self.bytes.get(place.clone())?)?))
        })
    }
}
