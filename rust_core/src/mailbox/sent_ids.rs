//! The ids of sends that were carried out lately, so that one that comes again is known. Knows neither clock nor policy.

use std::sync::Arc;

use hashbrown::HashMap;

use super::ById;
use crate::timer::TimerKey;

/// Most ids that are remembered: the oldest make room.
pub const MAX_SENT_IDS: usize = 1 << 18;

/// What an id takes besides its own length, about.
const ID_BYTES: u64 = 96;

/// A send that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Its id.
    pub id: Arc<str>,
    /// Wall time of the send.
    pub sent_ms: u64,
    /// The `msg_id` it was answered with; none if the message was delayed.
    pub msg_id: Option<u64>,
}

/// Sends by id and in their order.
#[derive(Debug, Default)]
pub struct SentIds {
    by_id: HashMap<Arc<str>, u64, foldhash::fast::RandomState>,
    /// By their number in the order they came, which a checkpoint need not copy.
    in_order: ById<Sent>,
    next: u64,
    bytes: u64,
    /// What will forget the oldest.
    pub timer: Option<TimerKey>,
}

impl SentIds {
    /// The last send with this id.
    pub fn get(&self, id: &str) -> Option<&Sent> {
        self.in_order.get(*self.by_id.get(id)?)
    }

    /// The oldest send.
    pub fn oldest(&self) -> Option<&Sent> {
        self.in_order.iter().next().map(|(_, sent)| sent)
    }

    /// The newest send.
    pub fn newest(&self) -> Option<&Sent> {
        self.in_order.get(self.next.checked_sub(1)?)
    }

    /// What they take in memory, about.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What one more would take.
    pub fn bytes_of(id: &str) -> u64 {
        ID_BYTES + id.len() as u64
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// All of them, in order. The copy costs next to nothing.
    pub fn snapshot(&self) -> ById<Sent> {
        self.in_order.clone()
    }

    /// How much of it a checkpoint copies.
    pub fn unshared(&self) -> usize {
        self.in_order.unshared()
    }

    /// Remembers a send, in place of an earlier one with the same id.
    pub fn add(&mut self, id: &str, sent_ms: u64, msg_id: Option<u64>) {
        let id: Arc<str> = id.into();
        match self.by_id.insert(Arc::clone(&id), self.next) {
            Some(earlier) => drop(self.in_order.remove(earlier)),
            None => self.bytes += SentIds::bytes_of(&id),
        }
        self.in_order.insert(self.next, Sent { id, sent_ms, msg_id });
        self.next += 1;
        if self.in_order.len() > MAX_SENT_IDS {
            self.forget_oldest();
        }
    }

    /// Forgets up to `most` sends from before `ms`, oldest first.
    pub fn forget_before(&mut self, ms: u64, most: usize) {
        for _ in 0..most {
            if self.oldest().is_none_or(|sent| sent.sent_ms >= ms) {
                return;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, sent)) = self.in_order.pop_first() else {
            debug_assert!(false, "there is no send to forget");
            return;
        };
        self.by_id.remove(&sent.id);
        self.bytes -= SentIds::bytes_of(&sent.id);
    }

    /// Panics unless each id leads to its send, and a timer will forget the oldest. For tests.
    pub fn check_invariants(&self) {
        assert_eq!(self.by_id.len(), self.in_order.iter().count(), "ids of sends");
        for (number, sent) in self.in_order.iter() {
            assert_eq!(self.by_id.get(&sent.id), Some(&number), "place of id {}", sent.id);
            assert!(number < self.next, "numbers of sends");
        }
        assert!(self.len() <= MAX_SENT_IDS && self.len() == self.by_id.len(), "counted ids");
        assert!(self.timer.is_some() && !self.is_empty(), "ids that are never forgotten");
        let bytes: u64 = self.in_order.iter().map(|(_, sent)| SentIds::bytes_of(&sent.id)).sum();
        assert_eq!(self.bytes, bytes, "bytes of ids");
    }
}
