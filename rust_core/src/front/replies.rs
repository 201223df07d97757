//! Subjects that a client may answer to because it was asked there.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// How many may be open for one client; the oldest gives way.
const MAX_OPEN: usize = 1 << 16;

/// How often and how long a client may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Messages; 0 for any number.
    pub max: u64,
    /// Time; 0 for ever.
    pub ttl_us: u64,
}

#[derive(Debug)]
struct Open {
    since_us: u64,
    used: u64,
}

/// Reply subjects a client has been given.
#[derive(Debug, Default)]
pub(super) struct Replies {
    open: HashMap<Box<[u8]>, Open, RandomState>,
    /// When each was given, oldest first; an entry counts only if it is still the newest of its
    /// subject.
    order: VecDeque<(u64, Box<[u8]>)>,
}

impl Replies {
    /// Remembers that the client was asked to answer at `subject`.
    pub fn give(&mut self, subject: &[u8], allowance: Allowance, now_us: u64) {
        self.forget_old(allowance, now_us);
        self.open.insert(subject.into(), Open { since_us: now_us, used: 0 });
        self.order.push_back((now_us, subject.into()));
    }

    /// Whether one more answer may go to `subject`.
    pub fn take(&mut self, subject: &[u8], allowance: Allowance, now_us: u64) -> bool {
        let Some(open) = self.open.get_mut(subject) else { return false };
        open.used += 1;
        let late = allowance.is_over(open.since_us, now_us);
        if late || (allowance.max > 0 && open.used >= allowance.max) {
            self.open.remove(subject);
        }
        !late
    }

    fn forget_old(&mut self, allowance: Allowance, now_us: u64) {
        while let Some((since_us, subject)) = self.order.front() {
            let newest = self.open.get(subject).is_some_and(|open| open.since_us == *since_us);
            if newest && self.order.len() < MAX_OPEN && !allowance.is_over(*since_us, now_us) {
                break;
            }
            if newest {
                self.open.remove(subject);
            }
            self.order.pop_front();
        }
    }
}

impl Allowance {
    fn is_over(self, since_us: u64, now_us: u64) -> bool {
        self.ttl_us > 0 && now_us.saturating_sub(since_us) > self.ttl_us
    }
}
