//! The lane against a plain map, and its memory under removals.

mod bytes;

use std::collections::BTreeMap;

use mq9_core::log::Lsn;
use mq9_core::mailbox::{Entry, Lane, LaneSnapshot};
use proptest::prelude::*;
use proptest::sample::Index;

type Model = BTreeMap<u64, Entry>;

fn entry(msg_id: u64, create_ms: u64) -> Entry {
    Entry {
        msg_id,
        at: Lsn::from_number(msg_id.wrapping_mul(200)),
        len: 200 + (msg_id % 7) as u32,
        create_ms,
        flags: (msg_id % 251) as u8,
    }
}

fn lane_of(ids: impl IntoIterator<Item = u64>) -> Lane {
    let mut lane = Lane::default();
    for id in ids {
        lane.put(entry(id, 1_000 + id));
    }
    lane
}

fn encoded(snapshot: &LaneSnapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.encode(&mut bytes);
    bytes
}

fn entries(lane: &Lane) -> Vec<Entry> {
    lane.iter_from(0).collect()
}

/// A small deterministic source of numbers for the tests too large for proptest.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Runs are long enough to fill, split and join chunks of 512 entries.
#[derive(Debug, Clone)]
enum Step {
    Append { count: u16, gap: u64, ms_step: i64 },
    JumpClock(u64),
    PutAscending { near: Index, count: u16, gap: u64, create_ms: u64 },
    PutDescending { near: Index, count: u16, gap: u64, create_ms: u64 },
    Replace { which: Index, create_ms: u64, flags: u8 },
    TakeFront(u16),
    TakeBack(u16),
    RemoveFrom { which: Index, count: u16, keep_every: u8 },
    RemoveAbsent(u64),
    Snapshot,
    Reload,
}

fn any_gap() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => Just(1_u64),
        3 => 1..10_u64,
        1 => 1..100_000_u64,
        1 => (u64::from(u32::MAX) - 600)..(u64::from(u32::MAX) + 600),
        1 => 1_u64 << 33..1_u64 << 55,
    ]
}

fn any_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 1_000_000..1_100_000_u64,
        1 => Just(0_u64),
        1 => Just(u64::MAX),
        1 => (1_u64 << 55) - 2..(1 << 55) + 2,
        2 => any::<u64>(),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let run = || 1..700_u16;
    prop_oneof![
        5 => (run(), any_gap(), -3..10_i64)
            .prop_map(|(count, gap, ms_step)| Step::Append { count, gap, ms_step }),
        1 => any_ms().prop_map(Step::JumpClock),
        2 => (any::<Index>(), run(), any_gap(), any_ms()).prop_map(
            |(near, count, gap, create_ms)| Step::PutAscending { near, count, gap, create_ms }
        ),
        2 => (any::<Index>(), run(), any_gap(), any_ms()).prop_map(
            |(near, count, gap, create_ms)| Step::PutDescending { near, count, gap, create_ms }
        ),
        2 => (any::<Index>(), any_ms(), any::<u8>())
            .prop_map(|(which, create_ms, flags)| Step::Replace { which, create_ms, flags }),
        2 => run().prop_map(Step::TakeFront),
        1 => run().prop_map(Step::TakeBack),
        4 => (any::<Index>(), run(), 0..6_u8).prop_map(
            |(which, count, keep_every)| Step::RemoveFrom { which, count, keep_every }
        ),
        1 => any::<u64>().prop_map(Step::RemoveAbsent),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Reload),
    ]
}

/// The lane under test, what it should hold, and the snapshots with what they should hold.
#[derive(Default)]
struct Bench {
    lane: Lane,
    model: Model,
    snapshots: Vec<(LaneSnapshot, Vec<Entry>)>,
    clock_ms: u64,
}

impl Bench {
    fn put(&mut self, entry: Entry) {
        self.lane.put(entry);
        self.model.insert(entry.msg_id, entry);
    }

    fn remove(&mut self, msg_id: u64) {
        assert_eq!(self.lane.remove(msg_id), self.model.remove(&msg_id));
    }

    fn pick(&self, which: Index) -> Option<u64> {
        let len = self.model.len();
        self.model.keys().nth(if len == 0 { return None } else { which.index(len) }).copied()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Append { count, gap, ms_step } => {
                for _ in 0..count {
                    let last = self.model.last_key_value().map(|(id, _)| *id);
                    let next = last.map_or(Some(gap), |last| last.checked_add(gap));
                    let Some(id) = next else { return };
                    self.clock_ms = self.clock_ms.wrapping_add_signed(ms_step);
                    self.put(entry(id, self.clock_ms));
                }
            }
            Step::JumpClock(ms) => self.clock_ms = ms,
            Step::PutAscending { near, count, gap, create_ms } => {
                let start = self.pick(near).unwrap_or(1 << 40);
                for n in 0..u64::from(count) {
                    let id = start.saturating_add(gap.saturating_mul(n));
                    self.put(entry(id, create_ms.wrapping_add(n)));
                }
            }
            Step::PutDescending { near, count, gap, create_ms } => {
                let start = self.pick(near).unwrap_or(1 << 40);
                for n in 0..u64::from(count) {
                    let id = start.saturating_sub(gap.saturating_mul(n));
                    self.put(entry(id, create_ms.wrapping_sub(n)));
                }
            }
            Step::Replace { which, create_ms, flags } => {
                if let Some(id) = self.pick(which) {
                    self.put(Entry { flags, ..entry(id, create_ms) });
                }
            }
            Step::TakeFront(count) => {
                for _ in 0..count {
                    let Some(first) = self.lane.first() else { return };
                    self.remove(first.msg_id);
                }
            }
            Step::TakeBack(count) => {
                for _ in 0..count {
                    let Some(last) = self.lane.last() else { return };
                    self.remove(last.msg_id);
                }
            }
            Step::RemoveFrom { which, count, keep_every } => {
                let Some(from) = self.pick(which) else { return };
                let run = self.model.range(from..).take(usize::from(count)).map(|(id, _)| *id);
                let ids: Vec<u64> = run.collect();
                for (n, id) in ids.into_iter().enumerate() {
                    if keep_every == 0 || n % usize::from(keep_every) != 0 {
                        self.remove(id);
                    }
                }
            }
            Step::RemoveAbsent(id) => self.remove(id),
            Step::Snapshot => {
                self.snapshots.push((self.lane.snapshot(), self.model.values().copied().collect()));
            }
            Step::Reload => {
                let bytes = encoded(&self.lane.snapshot());
                self.lane = Lane::decode(&bytes).expect("what was encoded decodes");
                assert_eq!(encoded(&self.lane.snapshot()), bytes);
            }
        }
    }

    fn check(&self, probes: &[u64], times: &[u64]) {
        let Bench { lane, model, .. } = self;
        assert_eq!(lane.len(), model.len());
        assert_eq!(lane.is_empty(), model.is_empty());
        assert_eq!(lane.first(), model.values().next().copied());
        assert_eq!(lane.last(), model.values().next_back().copied());
        assert!(lane.iter_from(0).eq(model.values().copied()));
        assert!(lane.iter_back(u64::MAX).eq(model.range(..u64::MAX).rev().map(|(_, e)| *e)));
        for &probe in probes {
            assert_eq!(lane.get(probe), model.get(&probe).copied());
            let after = model.range(probe..).map(|(_, e)| *e);
            assert!(lane.iter_from(probe).take(3).eq(after.take(3)));
            let before = model.range(..probe).rev().map(|(_, e)| *e);
            assert!(lane.iter_back(probe).take(3).eq(before.take(3)));
        }
        for &ms in times {
            let first = model.values().find(|e| e.create_ms >= ms).map(|e| e.msg_id);
            assert_eq!(lane.first_since(ms), first, "first since {ms}");
        }
    }

    /// Ids around a sample of the entries, and around every 100th one to meet chunk borders.
    fn probes(&self, sample: &[Index]) -> Vec<u64> {
        let picked = sample.iter().filter_map(|which| self.pick(*which));
        let spread = self.model.keys().step_by(100).copied();
        let ids = picked.chain(spread);
        ids.flat_map(|id| [id.saturating_sub(1), id, id.saturating_add(1)])
            .chain([0, u64::MAX])
            .collect()
    }

    fn times(&self, sample: &[Index]) -> Vec<u64> {
        let picked = sample.iter().filter_map(|which| self.pick(*which));
        let spread = self.model.keys().step_by(300).copied();
        let ids: Vec<u64> = picked.chain(spread).collect();
        ids.iter()
            .filter_map(|id| self.model.get(id))
            .flat_map(|e| [e.create_ms, e.create_ms.saturating_add(1)])
            .chain([0, 1_000_000, u64::MAX])
            .collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn behaves_like_a_map(
        steps in prop::collection::vec(any_step(), 1..25),
        sample in prop::collection::vec(any::<Index>(), 4),
    ) {
        let mut bench = Bench { clock_ms: 1_000_000, ..Bench::default() };
        for step in &steps {
            bench.apply(step);
            bench.check(&bench.probes(&sample), &bench.times(&sample));
        }
        for (snapshot, expected) in &bench.snapshots {
            prop_assert_eq!(snapshot.len(), expected.len());
            prop_assert_eq!(snapshot.is_empty(), expected.is_empty());
            let decoded = Lane::decode(&encoded(snapshot)).expect("what was encoded decodes");
            prop_assert_eq!(&entries(&decoded), expected);
        }
    }
}

#[test]
fn one_entry_takes_little_memory() {
    let lane = lane_of([7]);
    assert!(lane.heap_bytes() < 128, "{} bytes", lane.heap_bytes());
    let decoded = Lane::decode(&encoded(&lane.snapshot())).expect("it decodes");
    assert!(decoded.heap_bytes() < 128, "{} bytes", decoded.heap_bytes());
    assert_eq!(Lane::default().heap_bytes(), 0);
}

#[test]
fn a_full_lane_takes_little_more_than_its_entries() {
    let lane = lane_of(0..1_000_000);
    assert!(lane.heap_bytes() < 25 * 1_000_000, "{} bytes", lane.heap_bytes());
}

/// Removes 99% of a million entries in the order of `victims` and watches the memory all along.
fn assert_memory_follows(mut lane: Lane, victims: impl Iterator<Item = u64>) {
    for (n, id) in victims.enumerate() {
        assert!(lane.remove(id).is_some());
        if n % 10_000 == 0 && lane.len() >= 2_000 {
            let bound = 3 * 24 * lane.len();
            let bytes = lane.heap_bytes();
            assert!(bytes <= bound, "{bytes} bytes for {} entries", lane.len());
        }
    }
    let bytes = lane.heap_bytes();
    assert!(bytes <= 3 * 24 * lane.len(), "{bytes} bytes for {} entries", lane.len());
    let per_entry: Vec<Entry> = entries(&lane);
    assert_eq!(per_entry.len(), lane.len());
}

#[test]
fn memory_follows_random_removals() {
    let mut ids: Vec<u64> = (0..1_000_000).collect();
    let mut dice = Dice(42);
    for n in (1..ids.len()).rev() {
        ids.swap(n, dice.roll(n as u64 + 1) as usize);
    }
    assert_memory_follows(lane_of(0..1_000_000), ids.into_iter().take(990_000));
}

#[test]
fn memory_follows_removals_that_spare_each_hundredth() {
    let victims = (0..1_000_000).filter(|id| id % 100 != 0);
    assert_memory_follows(lane_of(0..1_000_000), victims.clone());
    assert_memory_follows(lane_of(0..1_000_000), victims.rev());
}

#[test]
fn memory_follows_removals_that_spare_one_of_each_chunk() {
    for spared in [0, 1, 255, 256, 511] {
        let victims = (0..1_000_000).filter(move |id| id % 512 != spared);
        assert_memory_follows(lane_of(0..1_000_000), victims.clone());
        assert_memory_follows(lane_of(0..1_000_000), victims.rev());
    }
}

#[test]
fn memory_follows_from_both_ends() {
    assert_memory_follows(lane_of(0..1_000_000), 0..990_000);
    assert_memory_follows(lane_of(0..1_000_000), (10_000..1_000_000).rev());
}

#[test]
fn memory_is_bounded_when_ids_come_in_any_order() {
    let mut dice = Dice(7);
    let lane = lane_of((0..200_000).map(|_| dice.roll(1 << 30)));
    assert!(lane.heap_bytes() <= 3 * 24 * lane.len());
    let lane = lane_of((0..200_000).rev());
    assert!(lane.heap_bytes() <= 2 * 24 * lane.len());
}

#[test]
fn memory_is_bounded_when_ids_fill_a_gap_behind_the_first_of_a_chunk() {
    let mut lane = lane_of((0..1_024).map(|n| n * 1_000_000));
    // One put fills the chunk, the next one finds it full behind its first entry, and so on.
    lane.remove(500_000_000);
    for n in (0..40_000).step_by(2) {
        lane.put(entry(n + 2, n));
        lane.put(entry(n + 1, n));
    }
    assert!(lane.heap_bytes() <= 3 * 24 * lane.len(), "{} bytes", lane.heap_bytes());
}

#[test]
fn a_full_chunk_that_lost_its_first_entry_takes_another_without_growing() {
    let mut lane = lane_of((0..51_200).map(|n| n * 2));
    let before = lane.heap_bytes();
    for first in (0..51_200).step_by(512).map(|n| n * 2) {
        lane.remove(first);
        lane.put(entry(first + 301, 0));
    }
    assert_eq!(lane.heap_bytes(), before);
}

#[test]
fn memory_is_bounded_for_a_queue_that_keeps_its_depth() {
    for depth in [1, 3, 100, 300, 2_000] {
        let mut lane = lane_of(0..depth);
        for id in depth..depth + 20_000 {
            lane.put(entry(id, id));
            assert!(lane.remove(id - depth).is_some());
            let bound = 24 * (4 * depth as usize).max(depth as usize + 1_024);
            assert!(lane.heap_bytes() <= bound, "{} at {depth}", lane.heap_bytes());
        }
    }
}

#[test]
fn an_emptied_lane_holds_no_entries_memory() {
    let mut lane = lane_of(0..100_000);
    (0..100_000).for_each(|id| assert!(lane.remove(id).is_some()));
    assert!(lane.is_empty() && lane.first().is_none() && lane.last().is_none());
    assert!(lane.heap_bytes() < 1_024, "{} bytes", lane.heap_bytes());
}

#[test]
fn first_since_is_exact_after_a_clock_jump_is_removed() {
    let mut lane = lane_of(0..5_000);
    lane.put(entry(5_000, u64::MAX));
    for id in 5_001..10_000 {
        lane.put(entry(id, 1_000 + id));
    }
    assert_eq!(lane.first_since(9_000), Some(5_000));
    lane.remove(5_000);
    assert_eq!(lane.first_since(9_000), Some(8_000));
    assert_eq!(lane.first_since(6_000), Some(5_001));
    assert_eq!(lane.first_since(11_000), None);
}

#[test]
fn first_since_sees_a_late_time_put_in_the_middle() {
    let mut lane = lane_of(0..5_000);
    lane.put(entry(700, 1_000_000));
    lane.put(entry(6_000, 7_000));
    assert_eq!(lane.first_since(7_000), Some(700));
    lane.remove(700);
    assert_eq!(lane.first_since(7_000), Some(6_000));
}

#[test]
fn a_snapshot_is_encoded_by_another_thread_while_the_lane_changes() {
    let mut lane = lane_of(0..50_000);
    let expected = entries(&lane);
    let snapshot = lane.snapshot();
    let encoder = std::thread::spawn(move || encoded(&snapshot));
    for id in 0..25_000 {
        lane.remove(id * 2);
        lane.put(entry(id * 2 + 1, 0));
        lane.put(entry(50_000 + id, 9));
    }
    let decoded = Lane::decode(&encoder.join().expect("the encoder ends")).expect("it decodes");
    assert_eq!(entries(&decoded), expected);
    assert_eq!(lane.len(), 50_000);
}

#[test]
fn a_wild_clock_does_not_scatter_the_chunks() {
    let mut lane = Lane::default();
    for id in 0..100_000_u64 {
        lane.put(entry(id, if id % 2 == 0 { 0 } else { 4_102_444_800_000 }));
    }
    assert!(lane.heap_bytes() < 25 * lane.len());
}
