//! The store's deadlines: one wheel in wall time for TTLs and delays, one in monotonic time for
//! leases and waits. A wall clock that steps back re-bases its wheel, so nothing fires early.

use super::indexes::SlotIx;
use crate::time::Now;
use crate::timer::Wheel;

/// A wall clock that is this little behind the wheel is waited for, not followed.
const SLACK_MS: u64 = 50;

/// Longest sleep towards a wall-clock deadline, so that a clock stepped forward is noticed.
const WALL_SLEEP_MS: u64 = 1000;

/// What a deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The mailbox expires.
    Mailbox,
    /// The message `id` expires.
    Message,
    /// The delayed message `id` is due.
    Delay,
    /// Ids of sends are forgotten.
    SentIds,
    /// A lease of the group `id` ends.
    Lease,
    /// The group `id` may not have been used for too long.
    Idle,
    /// The mailbox holds more than it may since its limits were lowered.
    Surplus,
    /// The waiter `id` has waited long enough.
    Wait,
    /// The oldest message of a stream may be too old.
    Age,
    /// A deadline of the consumer `id` has come.
    Consumer,
    /// The consumer `id` may not have been used for too long.
    ConsumerIdle,
    /// A stream may hold messages that no consumer wants any more.
    Unwanted,
}

/// One deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// The mailbox's number: slots are reused, numbers are not.
    pub number: u64,
    /// What `purpose` says.
    pub id: u64,
    /// The mailbox's slot.
    pub slot: SlotIx,
    /// What it is for.
    pub purpose: Purpose,
}

/// Both wheels.
pub struct Timers {
    /// TTLs and delays.
    pub wall: Wheel<Timer>,
    /// Leases and waits.
    pub mono: Wheel<Timer>,
}

impl Timers {
    /// Empty wheels.
    pub fn new(now: Now) -> Timers {
        Timers { wall: Wheel::new(now.wall_ms), mono: Wheel::new(now.mono_ms) }
    }

    /// Appends what is due to `due`; true if more is.
    pub fn advance(&mut self, now: Now, limit: usize, due: &mut Vec<Timer>) -> bool {
        // An instant that is older by both clocks is a late caller, not a clock that stepped back.
        let late = now.mono_ms < self.mono.now();
        if !late && now.wall_ms.saturating_add(SLACK_MS) < self.wall.now() {
            self.wall.rewind(now.wall_ms);
        }
        let more_wall = self.wall.advance(now.wall_ms, limit, due);
        let more_mono = self.mono.advance(now.mono_ms, limit, due);
        more_wall || more_mono
    }

    /// How long nothing will be due, in milliseconds; `None` without deadlines.
    pub fn sleep_ms(&self, now: Now) -> Option<u64> {
        let wall = self.wall.next_deadline().map(|at| at.saturating_sub(now.wall_ms));
        let mono = self.mono.next_deadline().map(|at| at.saturating_sub(now.mono_ms));
        wall.map(|ms| ms.min(WALL_SLEEP_MS)).into_iter().chain(mono).min()
    }
}
