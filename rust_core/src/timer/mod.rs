//! A hierarchical timer wheel: which values are due at a given millisecond, in deadline order.
//!
//! Owns pending timers and the order in which they fall due. Must not know what a timer is for, nor
//! read a clock: time is a number of milliseconds that the caller passes in.
//!
//! Level `k` has 64 slots of `64^k` ms. A timer lives at the level of the highest base-64 digit in
//! which its deadline differs from the cursor, in the slot of that digit of its deadline. Hence:
//! - every timer of a level is due before every timer of the levels above, and the occupied slots of
//!   a level are never behind the cursor: the first slot is the lowest bit of the lowest bitmap that
//!   is not zero, however far away it is;
//! - timers of one deadline share one slot, so order within a slot is enough to keep insertion order.

mod slab;

pub use slab::TimerKey;
use slab::{Index, Slab};

const DIGIT_BITS: usize = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = (u64::BITS as usize).div_ceil(DIGIT_BITS);

/// The list of timers whose deadline was behind the cursor when they came.
const LATE: usize = LEVELS * SLOTS;
const LISTS: usize = LATE + 1;

/// A timer is moved at most `LEVELS - 1` times before it fires, so this keeps the moves of a call in
/// proportion to what it may fire, and no slot of a million timers stalls the caller.
const MOVES_PER_FIRE: usize = 8;

/// Pending timers, each with a value of `T` to hand back when it is due.
///
/// A wheel takes 6 KB, and each timer `size_of::<T>()` and 32 bytes at most. Memory grows to the
/// largest number of timers ever pending and is then reused.
#[derive(Debug)]
pub struct Wheel<T> {
    timers: Slab<T>,
    /// Bit `s` of level `k` is set if and only if list `k * SLOTS + s` has timers.
    occupied: [u64; LEVELS],
    now_ms: u64,
    /// Everything before it has fired or is in `LATE`. Never after `now_ms`; behind it only while a
    /// limit keeps due timers waiting.
    cursor_ms: u64,
    /// If not 0, the slot of this level at the cursor is being spread over the levels below.
    cascading: usize,
    late_sorted: bool,
    /// There is nothing to do before this time: no slot begins earlier, and nothing is late.
    quiet_until_ms: u64,
}

struct Slot {
    level: usize,
    list: usize,
    start_ms: u64,
}

impl<T> Wheel<T> {
    /// An empty wheel at `now_ms`.
    pub fn new(now_ms: u64) -> Self {
        Self {
            timers: Slab::new(LISTS),
            occupied: [0; LEVELS],
            now_ms,
            cursor_ms: now_ms,
            cascading: 0,
            late_sorted: true,
            quiet_until_ms: u64::MAX,
        }
    }

    /// How many timers are pending, due ones that a limit kept waiting included.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// True if no timer is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The time of the last [`advance`](Self::advance) or [`rewind`](Self::rewind).
    pub fn now(&self) -> u64 {
        self.now_ms
    }

    /// Adds a timer; one whose deadline has passed is due at the next [`advance`](Self::advance).
    ///
    /// # Panics
    /// If 2^32 - 1 timers are pending, which takes more than 100 GB.
    pub fn insert(&mut self, deadline_ms: u64, value: T) -> TimerKey {
        let (index, key) = self.timers.insert(deadline_ms, value);
        // While a slot is being spread, what belongs in it queues behind what is still there.
        let list = self.list_for(deadline_ms, self.cascading);
        self.link(list, index);
        key
    }

    /// Removes a timer and returns its value; `None` if it has fired or was cancelled.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let index = self.timers.find(key)?;
        self.unlink(index);
        self.timers.remove(index)
    }

    /// The deadline of a pending timer, as it was given.
    pub fn deadline(&self, key: TimerKey) -> Option<u64> {
        self.timers.find(key).map(|index| self.timers.deadline_ms(index))
    }

    /// Moves time to `now_ms` and appends at most `limit` due timers to `due`, earliest deadline
    /// first and in insertion order where deadlines are equal.
    ///
    /// Returns true if there is more to do at `now_ms`: call again, with the same time or a later
    /// one. Such a call can have appended fewer than `limit` timers, even none, because the work of
    /// finding them is bounded by `limit` too. A time before [`now`](Self::now) does nothing.
    pub fn advance(&mut self, now_ms: u64, limit: usize, due: &mut Vec<T>) -> bool {
        if now_ms < self.now_ms {
            return false;
        }
        self.now_ms = now_ms;
        if now_ms < self.quiet_until_ms {
            self.cursor_ms = now_ms;
            return false;
        }
        let mut fires = limit;
        let mut moves = limit.max(1).saturating_mul(MOVES_PER_FIRE);

        self.sort_late();
        if !self.fire(LATE, &mut fires, due) {
            return true;
        }
        loop {
            if !self.cascade(&mut moves) {
                return true;
            }
            match self.first_slot() {
                Some(slot) if slot.start_ms <= now_ms => {
                    self.cursor_ms = slot.start_ms;
                    if slot.level > 0 {
                        self.cascading = slot.level;
                    } else if !self.fire(slot.list, &mut fires, due) {
                        return true;
                    }
                }
                first => {
                    self.quiet_until_ms = first.map_or(u64::MAX, |slot| slot.start_ms);
                    break;
                }
            }
        }
        self.cursor_ms = now_ms;
        false
    }

    /// When [`advance`](Self::advance) must be called next: never later than the earliest deadline,
    /// and `None` without timers.
    ///
    /// It is before [`now`](Self::now) if timers are overdue, so wait until the later of the two.
    /// Where it is earlier than the earliest deadline, advancing to it fires nothing but brings the
    /// next answer closer, at most once per level.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        if let Some(index) = self.timers.first(LATE) {
            return Some(if self.late_sorted { self.timers.deadline_ms(index) } else { 0 });
        }
        if self.cascading > 0 {
            return Some(self.cursor_ms);
        }
        self.first_slot().map(|slot| match self.timers.only(slot.list) {
            Some(index) => self.timers.deadline_ms(index),
            None => slot.start_ms,
        })
    }

    /// Moves time back to `now_ms` after the clock was stepped back. Nothing fires and every timer
    /// keeps its deadline. Visits every timer. A time after [`now`](Self::now) does nothing.
    pub fn rewind(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.min(now_ms);
        if now_ms >= self.cursor_ms {
            return;
        }
        self.cursor_ms = now_ms;
        self.cascading = 0;
        self.late_sorted = true;
        self.quiet_until_ms = 0;
        self.occupied = [0; LEVELS];
        // Lower levels come first in the chain: of equal deadlines in a slot that was being spread,
        // those already moved down are the older ones.
        let mut rest = self.timers.detach_all();
        while let Some(index) = rest {
            rest = self.timers.next(index);
            let list = self.list_for(self.timers.deadline_ms(index), 0);
            self.link(list, index);
        }
    }

    fn list_for(&self, deadline_ms: u64, lowest_level: usize) -> usize {
        if deadline_ms < self.cursor_ms {
            return LATE;
        }
        let level = highest_digit(deadline_ms ^ self.cursor_ms).max(lowest_level);
        level * SLOTS + digit(deadline_ms, level)
    }

    fn link(&mut self, list: usize, index: Index) {
        if list == LATE {
            let deadline_ms = self.timers.deadline_ms(index);
            let last = self.timers.last(LATE);
            self.late_sorted &= last.is_none_or(|l| self.timers.deadline_ms(l) <= deadline_ms);
            self.quiet_until_ms = 0;
        } else {
            let level = list / SLOTS;
            self.occupied[level] |= 1 << (list % SLOTS);
            let start_ms = self.timers.deadline_ms(index) & (u64::MAX << (level * DIGIT_BITS));
            self.quiet_until_ms = self.quiet_until_ms.min(start_ms);
        }
        self.timers.push_back(list, index);
    }

    fn unlink(&mut self, index: Index) {
        let list = self.timers.unlink(index);
        if list != LATE && self.timers.first(list).is_none() {
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        }
    }

    /// The slot that holds the earliest timers, if any but late ones are pending.
    fn first_slot(&self) -> Option<Slot> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        let slot = self.occupied[level].trailing_zeros() as usize;
        let shift = level * DIGIT_BITS;
        let digits_above = u64::MAX.checked_shl((shift + DIGIT_BITS) as u32).unwrap_or(0);
        let start_ms = (self.cursor_ms & digits_above) | ((slot as u64) << shift);
        Some(Slot { level, list: level * SLOTS + slot, start_ms })
    }

    /// Takes timers from the front of a list while `fires` lasts; true if the list is now empty.
    fn fire(&mut self, list: usize, fires: &mut usize, due: &mut Vec<T>) -> bool {
        while let Some(index) = self.timers.first(list) {
            if *fires == 0 {
                return false;
            }
            *fires -= 1;
            self.unlink(index);
            due.extend(self.timers.remove(index));
        }
        true
    }

    /// Spreads the slot that is being spread, if any, while `moves` lasts; true if none is left.
    fn cascade(&mut self, moves: &mut usize) -> bool {
        if self.cascading == 0 {
            return true;
        }
        let list = self.cascading * SLOTS + digit(self.cursor_ms, self.cascading);
        while let Some(index) = self.timers.first(list) {
            if *moves == 0 {
                return false;
            }
            *moves -= 1;
            self.unlink(index);
            let lower = self.list_for(self.timers.deadline_ms(index), 0);
            self.link(lower, index);
        }
        self.cascading = 0;
        true
    }

    /// Late timers come in any order; they are sorted once per call rather than on insertion, which
    /// stays O(1).
    fn sort_late(&mut self) {
        if self.late_sorted {
            return;
        }
        self.late_sorted = true;
        let mut order = Vec::new();
        while let Some(index) = self.timers.first(LATE) {
            self.timers.unlink(index);
            order.push((self.timers.deadline_ms(index), index));
        }
        order.sort_by_key(|&(deadline_ms, _)| deadline_ms);
        for (_, index) in order {
            self.timers.push_back(LATE, index);
        }
    }
}

fn highest_digit(difference: u64) -> usize {
    (difference | 1).ilog2() as usize / DIGIT_BITS
}

fn digit(ms: u64, level: usize) -> usize {
    (ms >> (level * DIGIT_BITS)) as usize % SLOTS
}
