//! Messages that a consumer has done with: who may still say so, and who is too late.
//!
//! Only of those that were delivered more than once or became dead letters, and only of the newest. Volatile.

use std::collections::VecDeque;

use hashbrown::HashMap;

/// Most messages that are remembered of a consumer.
const MOST: usize = 4096;

/// How the last delivery of a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It was done with after so many deliveries, while this connection held it.
    Done { count: u32, holder: Option<u64> },
    /// Nobody did it: it became a dead letter.
    DeadLetter,
}

#[derive(Debug, Default)]
pub(super) struct Finished {
    ends: HashMap<u64, End, foldhash::fast::RandomState>,
    /// Those of `ends`, oldest first.
    order: VecDeque<u64>,
}

impl Finished {
    pub fn get(&self, msg_id: u64) -> Option<End> {
        self.ends.get(&msg_id).copied()
    }

    pub fn note(&mut self, msg_id: u64, end: End) {
        if self.ends.insert(msg_id, end).is_none() {
            self.order.push_back(msg_id);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.ends.remove(&oldest);
        }
    }

    /// Panics unless it is bounded and agrees with itself. For tests.
    pub fn check_invariants(&self) {
        assert!(self.order.len() <= MOST, "what is remembered grows");
        assert_eq!(self.order.len(), self.ends.len(), "messages that are remembered");
        assert!(self.order.iter().all(|msg_id| self.ends.contains_key(msg_id)), "their order");
    }
}
