//! A map by id against an ordered one: also what its copies show while it changes, and how much a copy costs.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mq9_core::mailbox::ById;
use proptest::prelude::*;

/// Runs of ids: `count` of them from `first` on, `apart` from each other.
#[derive(Debug, Clone)]
enum Step {
    Insert(u64, u64, u64),
    InsertAll(u64, u64, u64),
    Remove(u64, u64, u64),
    /// All ids from the first one to the last.
    RemoveRange(u64, u64, u64),
    /// The same, last one first.
    RemoveBack(u64, u64, u64),
    Change(u64, u64, u64),
    Copy,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let run = || (0..9_000u64, 1..3_000u64, prop_oneof![Just(1), Just(2), Just(7), Just(64)]);
    prop_oneof![
        4 => run().prop_map(|(first, count, apart)| Step::Insert(first, count, apart)),
        4 => run().prop_map(|(first, count, apart)| Step::InsertAll(first, count, apart)),
        3 => run().prop_map(|(first, count, apart)| Step::Remove(first, count, apart)),
        3 => run().prop_map(|(first, count, apart)| Step::RemoveRange(first, count, apart)),
        1 => run().prop_map(|(first, count, apart)| Step::RemoveBack(first, count, apart)),
        1 => run().prop_map(|(first, count, apart)| Step::Change(first, count, apart)),
        1 => Just(Step::Copy),
        1 => Just(Step::Forget),
    ]
}

fn ids(first: u64, count: u64, apart: u64) -> impl DoubleEndedIterator<Item = u64> {
    (0..count).map(move |n| first + n * apart)
}

fn assert_same(map: &ById<String>, model: &BTreeMap<u64, String>) {
    assert!(map.iter().eq(model.iter().map(|(id, value)| (*id, value))));
    assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn it_does_what_an_ordered_map_does(steps in prop::collection::vec(step(), 1..25)) {
        let (mut map, mut model) = (ById::default(), BTreeMap::new());
        let mut copies = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(first, count, apart) => for id in ids(first, count, apart) {
                    let value = format!("{n} {id}");
                    prop_assert_eq!(map.insert(id, value.clone()), model.insert(id, value));
                },
                Step::InsertAll(first, count, apart) => {
                    let entries = || ids(first, count, apart).map(|id| (id, format!("{n} {id}")));
                    let mut replaced = Vec::new();
                    map.insert_all(entries(), |id, before| replaced.push((id, before)));
                    let before = entries().filter_map(|(id, new)| Some((id, model.insert(id, new)?)));
                    prop_assert_eq!(replaced, before.collect::<Vec<_>>());
                }
                Step::RemoveRange(first, count, apart) => {
                    let range = first..first + count * apart;
                    let mut removed = Vec::new();
                    map.remove_range(range.clone(), |id, value| removed.push((id, value)));
                    let gone = model.range(range.clone()).map(|(id, value)| (*id, value.clone()));
                    prop_assert_eq!(removed, gone.collect::<Vec<_>>());
                    model.retain(|id, _| !range.contains(id));
                }
                Step::Remove(first, count, apart) => for id in ids(first, count, apart) {
                    prop_assert_eq!(map.remove(id), model.remove(&id));
                },
                Step::RemoveBack(first, count, apart) => for id in ids(first, count, apart).rev() {
                    prop_assert_eq!(map.remove(id), model.remove(&id));
                },
                Step::Change(first, count, apart) => for id in ids(first, count, apart) {
                    let (value, wanted) = (map.get_mut(id), model.get_mut(&id));
                    prop_assert_eq!(&value, &wanted);
                    value.into_iter().chain(wanted).for_each(|value| value.push('!'));
                },
                Step::Copy => copies.push((map.clone(), model.clone())),
                Step::Forget => copies.clear(),
            }
            for id in (0..12_000).step_by(97) {
                prop_assert_eq!(map.get(id), model.get(&id));
            }
        }
        for (map, model) in copies.iter().chain([&(map, model)]) {
            assert_same(map, model);
        }
    }
}

/// Counts its copies.
struct Counted(Rc<Cell<usize>>);

impl Clone for Counted {
    fn clone(&self) -> Counted {
        self.0.set(self.0.get() + 1);
        Counted(Rc::clone(&self.0))
    }
}

#[test]
fn a_copy_of_many_entries_copies_none_and_a_change_after_it_only_a_few() {
    let copied = Rc::new(Cell::new(0));
    let entry = || Counted(Rc::clone(&copied));
    for count in [1_000, 300_000] {
        let mut map = ById::default();
        for id in 0..count {
            map.insert(id, entry());
        }
        assert_eq!(copied.take(), 0);
        let copy = map.clone();
        assert_eq!(copied.take(), 0, "by a copy of {count}");
        assert!(map.unshared() <= 64, "{} of {count}", map.unshared());
        for id in [count / 2, count / 3, count - 1] {
            map.remove(id);
            assert!(copied.take() <= 64, "by a removal from {count}");
            map.insert(id, entry());
            assert!(copied.take() <= 64, "by an addition to {count}");
        }
        assert_eq!(copy.len() as u64, count);
    }
}

#[test]
fn ids_that_come_ascending_leave_full_nodes_and_those_that_go_leave_none() {
    let mut map = ById::default();
    for id in 0..64 * 64 {
        map.insert(id, ());
    }
    assert_eq!(map.unshared(), 64);
    for id in (0..64 * 64).filter(|id| id % 64 != 0) {
        map.remove(id);
    }
    assert!(map.unshared() <= 4, "{}", map.unshared());
    for id in (0..64 * 64).step_by(64) {
        assert_eq!(map.remove(id), Some(()));
    }
    assert_eq!((map.unshared(), map.len()), (0, 0));
}

#[test]
fn an_id_that_comes_back_is_found_after_the_nodes_around_it_were_joined() {
    // Two nodes over 64 leaves of 64 ids each, and one over the rest.
    let second = 64 * 64;
    let mut map = ById::default();
    for id in 0..3 * second {
        map.insert(id, id);
    }
    for id in second..second + 64 {
        map.remove(id);
    }
    // Its leaf has gone: it is first in the next one.
    map.insert(second + 9, 0);
    for id in (64..second).chain(second + 200..3 * second) {
        map.remove(id);
    }
    assert!(map.unshared() <= 8, "nothing was joined");
    assert_eq!(map.get(second + 9), Some(&0));
    let left = (0..64).chain([second + 9]).chain(second + 64..second + 200);
    assert!(map.iter().map(|(id, _)| id).eq(left.clone()));
    for id in left {
        assert!(map.remove(id).is_some(), "{id}");
    }
    assert!(map.is_empty());
}
