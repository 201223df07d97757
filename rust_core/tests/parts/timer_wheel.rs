//! The timer wheel against a sorted map, and the promises a map cannot show: bounded calls, few
//! wake-ups, time skipped rather than walked.

use std::collections::BTreeMap;

use mq9_core::timer::{TimerKey, Wheel};
use proptest::prelude::*;

/// One more than the moves a timer can make: 64 bits in digits of 6.
const LEVELS: usize = 11;

/// What the wheel should be: timers by deadline, then by age.
struct Model {
    wheel: Wheel<usize>,
    pending: BTreeMap<(u64, usize), ()>,
    /// Every key ever given out, with the deadline; the value of a timer is its place here.
    issued: Vec<(TimerKey, u64)>,
    now_ms: u64,
}

impl Model {
    fn new(now_ms: u64) -> Self {
        Model { wheel: Wheel::new(now_ms), pending: BTreeMap::new(), issued: Vec::new(), now_ms }
    }

    fn insert(&mut self, deadline_ms: u64) {
        let id = self.issued.len();
        let key = self.wheel.insert(deadline_ms, id);
        self.issued.push((key, deadline_ms));
        self.pending.insert((deadline_ms, id), ());
    }

    fn cancel(&mut self, id: usize) {
        let (key, deadline_ms) = self.issued[id];
        let expected = self.pending.remove(&(deadline_ms, id)).map(|()| id);
        assert_eq!(self.wheel.cancel(key), expected);
    }

    fn advance(&mut self, now_ms: u64, limit: usize) -> bool {
        let mut fired = vec![usize::MAX];
        let more = self.wheel.advance(now_ms, limit, &mut fired);
        assert_eq!(fired.remove(0), usize::MAX, "due is appended to");
        if now_ms < self.now_ms {
            assert!(fired.is_empty() && !more);
            return false;
        }
        self.now_ms = now_ms;
        assert!(fired.len() <= limit);
        for id in fired {
            let ((deadline_ms, expected), ()) = self.pending.pop_first().expect("nothing pending");
            assert_eq!(id, expected);
            assert!(deadline_ms <= now_ms);
        }
        if !more {
            assert!(self.earliest_ms().is_none_or(|earliest| earliest > now_ms), "left one due");
        }
        more
    }

    /// Calls until nothing is left to do, in no more calls than the limit accounts for.
    fn advance_fully(&mut self, now_ms: u64, limit: usize) {
        let work = self.pending.len() * LEVELS;
        let mut calls = work / limit + 2;
        while self.advance(now_ms, limit) {
            calls -= 1;
            assert!(calls > 0, "no progress");
        }
    }

    fn rewind(&mut self, now_ms: u64) {
        self.wheel.rewind(now_ms);
        self.now_ms = self.now_ms.min(now_ms);
    }

    fn earliest_ms(&self) -> Option<u64> {
        self.pending.first_key_value().map(|(&(deadline_ms, _), ())| deadline_ms)
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.pending.len());
        assert_eq!(self.wheel.is_empty(), self.pending.is_empty());
        assert_eq!(self.wheel.now(), self.now_ms);
        let next = self.wheel.next_deadline();
        assert_eq!(next.is_none(), self.pending.is_empty());
        assert!(next <= self.earliest_ms(), "{next:?} is after {:?}", self.earliest_ms());
        for (id, &(key, deadline_ms)) in self.issued.iter().enumerate() {
            let expected = self.pending.get(&(deadline_ms, id)).map(|()| deadline_ms);
            assert_eq!(self.wheel.deadline(key), expected);
        }
    }

    /// Follows `next_deadline` until empty; returns how often it woke up.
    fn follow(&mut self) -> usize {
        let mut wakeups = 0;
        while let Some(next_ms) = self.wheel.next_deadline() {
            let at_ms = next_ms.max(self.now_ms);
            assert!(wakeups == 0 || at_ms > self.now_ms, "woke up for nothing");
            assert!(!self.advance(at_ms, usize::MAX));
            wakeups += 1;
        }
        wakeups
    }
}

/// A point in time, near or far, from where the wheel stands.
#[derive(Debug, Clone, Copy)]
enum When {
    After(u64),
    Before(u64),
    At(u64),
}

impl When {
    fn from(self, now_ms: u64) -> u64 {
        match self {
            When::After(ms) => now_ms.saturating_add(ms),
            When::Before(ms) => now_ms.saturating_sub(ms),
            When::At(ms) => ms,
        }
    }
}

/// Spans that favour few distinct values (ties) and the borders between levels.
fn span_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..4_u64,
        4 => 0..200_u64,
        2 => 0..300_000_u64,
        3 => (0..64_u32, 0..3_u64).prop_map(|(bit, d)| (1_u64 << bit).saturating_add(d) - 1),
        1 => any::<u64>(),
    ]
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        8 => span_ms().prop_map(When::After),
        3 => span_ms().prop_map(When::Before),
        1 => (0..3_u64).prop_map(|ms| When::At(u64::MAX - ms)),
        1 => span_ms().prop_map(When::At),
    ]
}

/// Mostly short steps, so that the rest of the run is not spent at the end of time.
fn step_ms() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..100_u64, 3 => 0..300_000_u64, 1 => span_ms()]
}

#[derive(Debug, Clone)]
enum Op {
    Insert(When),
    InsertMany(When, usize),
    Cancel(prop::sample::Index),
    Advance(u64, usize),
    AdvanceFully(u64, usize),
    AdvanceBack(u64),
    Rewind(When),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => when().prop_map(Op::Insert),
        2 => (when(), 2..40_usize).prop_map(|(at, n)| Op::InsertMany(at, n)),
        5 => any::<prop::sample::Index>().prop_map(Op::Cancel),
        5 => (step_ms(), 0..6_usize).prop_map(|(ms, limit)| Op::Advance(ms, limit)),
        2 => (step_ms(), 1..50_usize).prop_map(|(ms, limit)| Op::AdvanceFully(ms, limit)),
        1 => (1..100_u64).prop_map(Op::AdvanceBack),
        2 => when().prop_map(Op::Rewind),
    ]
}

fn start_ms() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1_750_000_000_000), Just(u64::MAX), any::<u64>()]
}

fn run(start_ms: u64, ops: Vec<Op>) -> Model {
    let mut model = Model::new(start_ms);
    for op in ops {
        match op {
            Op::Insert(at) => model.insert(at.from(model.now_ms)),
            // Neighbours and ties: enough in one slot for a limit to stop while it is being spread.
            Op::InsertMany(at, n) => {
                let base_ms = at.from(model.now_ms);
                (0..n as u64).for_each(|i| model.insert(base_ms.saturating_add(i * 7 % 5)));
            }
            Op::Cancel(which) => {
                if !model.issued.is_empty() {
                    model.cancel(which.index(model.issued.len()));
                }
            }
            Op::Advance(ms, limit) => {
                model.advance(model.now_ms.saturating_add(ms), limit);
            }
            Op::AdvanceFully(ms, limit) => {
                model.advance_fully(model.now_ms.saturating_add(ms), limit);
            }
            Op::AdvanceBack(ms) => {
                model.advance(model.now_ms.saturating_sub(ms), usize::MAX);
            }
            Op::Rewind(at) => model.rewind(at.from(model.now_ms)),
        }
        model.check();
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn behaves_like_a_sorted_map(
        start_ms in start_ms(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut model = run(start_ms, ops);
        model.advance_fully(u64::MAX, 3);
        model.check();
        prop_assert!(model.wheel.is_empty());
    }

    #[test]
    fn following_next_deadline_drains_with_few_wakeups(
        start_ms in start_ms(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut model = run(start_ms, ops);
        let timers = model.pending.len();
        let wakeups = model.follow();
        prop_assert!(wakeups <= timers * LEVELS, "{wakeups} wake-ups for {timers} timers");
    }
}

#[test]
fn fires_at_the_millisecond_and_not_before() {
    for exponent in 0..64 {
        let deadline_ms = 1_u64 << exponent;
        let mut model = Model::new(0);
        model.insert(deadline_ms);
        assert!(!model.advance(deadline_ms - 1, usize::MAX));
        assert_eq!(model.pending.len(), 1);
        assert_eq!(model.wheel.next_deadline(), Some(deadline_ms));
        assert!(!model.advance(deadline_ms, usize::MAX));
        assert!(model.pending.is_empty());
    }
}

#[test]
fn the_end_of_time_is_a_deadline_like_any_other() {
    let mut model = Model::new(0);
    model.insert(u64::MAX);
    model.advance(u64::MAX - 1, usize::MAX);
    assert_eq!(model.pending.len(), 1);
    model.advance(u64::MAX, usize::MAX);
    assert!(model.pending.is_empty());
    model.insert(u64::MAX);
    model.insert(0);
    model.advance_fully(u64::MAX, 1);
    assert!(model.pending.is_empty());
}

#[test]
fn a_lone_timer_is_known_exactly_however_far() {
    let mut wheel = Wheel::new(17);
    wheel.insert(987_654_321_987, ());
    assert_eq!(wheel.next_deadline(), Some(987_654_321_987));
}

#[test]
fn crowded_deadlines_are_known_exactly_once_near() {
    let mut wheel = Wheel::new(0);
    assert!(!wheel.advance(1_024, usize::MAX, &mut Vec::new()));
    wheel.insert(1_030, ());
    wheel.insert(1_031, ());
    assert_eq!(wheel.next_deadline(), Some(1_030));
    wheel.insert(1_000, ());
    wheel.insert(1_000, ());
    assert_eq!(wheel.next_deadline(), Some(1_000));
}

#[test]
fn a_limit_of_zero_fires_nothing_but_still_answers() {
    let mut model = Model::new(0);
    model.insert(100);
    model.insert(101);
    assert!(!model.advance(70, 0));
    assert!(model.advance(100, 0));
    assert_eq!(model.pending.len(), 2);
    assert!(!model.advance(100, 1));
}

#[test]
fn equal_deadlines_fire_in_insertion_order_from_any_distance() {
    let mut model = Model::new(0);
    for now_ms in [0, 1, 70, 5_000, 299_000, 299_990, 299_999, 300_000, 300_001] {
        model.advance(now_ms.min(299_999), usize::MAX);
        model.insert(300_000);
        model.insert(300_000);
    }
    model.advance(300_000, 3);
    model.insert(300_000);
    model.advance_fully(300_000, 2);
    assert!(model.pending.is_empty());
}

#[test]
fn overdue_timers_fire_first_and_in_deadline_order() {
    let mut model = Model::new(1_000);
    for deadline_ms in [1_000, 900, 5, 900, 0, 999, 1_001, 5] {
        model.insert(deadline_ms);
        model.check();
    }
    model.advance(1_000, 2);
    model.insert(1);
    model.insert(950);
    model.check();
    model.advance_fully(1_000, 1);
    assert_eq!(model.pending.len(), 1);
}

#[test]
fn a_call_does_work_in_proportion_to_its_limit_even_between_levels() {
    let mut model = Model::new(0);
    (0..10_000).for_each(|n| model.insert(10_000_000 + n % 50));
    let mut calls = 0;
    while model.advance(20_000_000, 10) {
        calls += 1;
        // The timer that ties with the oldest comes while its slot is half spread.
        if calls == 20 {
            model.insert(10_000_000);
            model.insert(10_000_049);
            model.insert(3);
            model.check();
        }
    }
    assert!(model.pending.is_empty());
    assert!(calls > 1_000, "only {calls} calls");
}

#[test]
fn rewinding_in_the_middle_of_a_limited_advance_keeps_every_deadline() {
    for stop_after in 0..40 {
        for back_to_ms in [0, 9_999_999, 10_000_000, 10_000_020, 20_000_000, 30_000_000] {
            let mut model = Model::new(0);
            (0..300).for_each(|n| model.insert(10_000_000 + n % 50));
            for _ in 0..stop_after {
                model.advance(20_000_000, 3);
            }
            model.insert(10_000_000);
            model.rewind(back_to_ms);
            model.check();
            if back_to_ms == 0 {
                assert!(model.wheel.next_deadline() > Some(0), "would wake up for nothing");
            }
            model.insert(10_000_000);
            let now_ms = model.now_ms;
            model.advance_fully(now_ms, 4);
            model.check();
            model.follow();
            assert!(model.wheel.is_empty());
        }
    }
}

#[test]
fn ten_thousand_years_pass_at_once() {
    let mut model = Model::new(0);
    let year_ms = 365 * 24 * 3_600_000;
    (0..100).for_each(|n| model.insert(n * 100 * year_ms + n));
    assert!(!model.advance(5_000 * year_ms, usize::MAX));
    assert_eq!(model.pending.len(), 50);
    assert!(!model.advance(10_000 * year_ms, usize::MAX));
    assert!(model.pending.is_empty());
}

#[test]
fn keys_of_fired_timers_never_touch_their_successors() {
    let mut wheel = Wheel::new(0);
    let mut due = Vec::new();
    let old = wheel.insert(1, 'a');
    wheel.advance(1, usize::MAX, &mut due);
    let new = wheel.insert(2, 'b');
    assert_eq!(wheel.cancel(old), None);
    assert_eq!(wheel.deadline(old), None);
    assert_eq!(wheel.cancel(new), Some('b'));
    assert_eq!(wheel.cancel(new), None);
    assert_eq!(due, ['a']);
}
