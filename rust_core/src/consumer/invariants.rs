//! Invariants of a consumer between two calls. For tests: it looks at everything.

use std::collections::BTreeSet;

use super::{Consumer, LEVEL_SHIFT, QUEUED};

impl Consumer {
    /// Panics unless what is out, deadlines and counters agree. For tests.
    pub fn check_invariants(&self) {
        let (mut queued, mut redelivered) = (0, 0);
        for (msg_id, out) in self.out.iter() {
            assert!(msg_id < self.next, "{msg_id} is out and would be given as new");
            assert!(out.number <= self.given, "a delivery that was not made");
            assert!(out.number > self.floor.consumer, "{msg_id} is out and done with");
            redelivered += usize::from(out.count > 1);
            queued += usize::from(out.back >= QUEUED);
            assert!(self.back.contains(&(out.back, msg_id)), "{msg_id} would not come again");
        }
        assert_eq!(self.queued, queued, "messages to be given again");
        assert_eq!(self.redelivered, redelivered, "messages given again");
        assert_eq!(self.back.len(), self.out.len(), "deadlines, and what is to be given again");
        for (place, msg_id) in self.back.range((QUEUED, 0)..) {
            let (level, place) =
                ((place - QUEUED) >> LEVEL_SHIFT, place & ((1 << LEVEL_SHIFT) - 1));
            let right = self.out.get(*msg_id).map(|out| out.level.index() as u64);
            assert!(right == Some(level) && place < self.next_place, "the place of {msg_id}");
        }
        let numbers: BTreeSet<u64> = self.out.iter().map(|(_, out)| out.number).collect();
        match &self.numbers {
            Some(kept) => assert_eq!(*kept, numbers, "numbers of deliveries"),
            None => assert!(self.out.iter().map(|(_, out)| out.number).is_sorted(), "their order"),
        }
        self.given_up.check_invariants();
        for msg_id in self.given_up.within(0, u64::MAX) {
            assert!(msg_id < self.next, "{msg_id} is given up and would be given as new");
            let is_out = self.out.get(msg_id).is_some() || self.early.contains(&msg_id);
            assert!(!is_out, "{msg_id} is given up and would be given");
        }
        for msg_id in self.returned.keys().chain(self.holders.keys()) {
            assert!(self.out.get(*msg_id).is_some(), "{msg_id} is not out");
        }
        assert!(self.floor.consumer <= self.given && self.floor.stream <= self.next, "the floor");
        assert!(self.last <= self.next, "the last delivery");
        self.finished.check_invariants();
    }
}
