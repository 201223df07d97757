//! The runs in which the log writes deliveries and acknowledgements.

#![allow(clippy::unwrap_used)]

use mq9_core::group::Delivered;
use mq9_core::group::ranges::{DeliveryRanges, IdRanges, encode_deliveries, encode_ids};
use mq9_core::mailbox::Level;
use proptest::prelude::*;

fn d(level: Level, msg_id: u64, count: u32) -> Delivered {
    Delivered { level, msg_id, count }
}

fn ids_of(bytes: &[u8]) -> Option<Vec<u64>> {
    IdRanges::decode(bytes).map(|ranges| ranges.iter().collect())
}

fn id_runs(runs: &[(u64, u32)]) -> Vec<u8> {
    let mut bytes = (runs.len() as u32).to_le_bytes().to_vec();
    for (first, len) in runs {
        bytes.extend(first.to_le_bytes());
        bytes.extend(len.to_le_bytes());
    }
    bytes
}

fn delivery_run(level: u8, count: u32, first: u64, len: u32) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0, level];
    bytes.extend(count.to_le_bytes());
    bytes.extend(first.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes
}

#[test]
fn consecutive_ids_become_one_run() {
    let mut bytes = vec![9];
    encode_ids([4, 5, 6, 8, 7, 8], &mut bytes);
    assert_eq!(bytes[0], 9, "appends");
    assert_eq!(bytes[1..], id_runs(&[(4, 3), (8, 1), (7, 2)]));
    assert_eq!(ids_of(&bytes[1..]).unwrap(), [4, 5, 6, 8, 7, 8]);
    assert_eq!(IdRanges::decode(&bytes[1..]).unwrap().total(), 6);
}

#[test]
fn a_run_of_deliveries_has_one_level_and_one_count() {
    let (n, u) = (Level::NORMAL, Level::URGENT);
    let all = [d(n, 1, 1), d(n, 2, 1), d(n, 3, 2), d(u, 4, 2), d(u, 5, 2)];
    let mut bytes = Vec::new();
    encode_deliveries(all, &mut bytes);
    assert_eq!(bytes.len(), 4 + 3 * 17);
    assert_eq!(bytes[4..21], delivery_run(5, 1, 1, 2)[4..]);
    let ranges = DeliveryRanges::decode(&bytes).unwrap();
    assert_eq!((ranges.total(), ranges.iter().collect::<Vec<_>>()), (5, all.to_vec()));
}

#[test]
fn nothing_is_zero_runs() {
    let mut bytes = Vec::new();
    encode_ids([], &mut bytes);
    assert_eq!(bytes, [0; 4]);
    assert_eq!(ids_of(&bytes).unwrap(), Vec::<u64>::new());
    assert_eq!(DeliveryRanges::decode(&bytes).unwrap().iter().count(), 0);
}

#[test]
fn malformed_runs_are_refused() {
    assert!(ids_of(&[]).is_none());
    assert!(ids_of(&[0, 0, 0]).is_none());
    assert!(ids_of(&[0, 0, 0, 0, 0]).is_none(), "trailing byte");
    assert!(ids_of(&[0xff; 4]).is_none(), "hostile number of runs");
    assert!(ids_of(&id_runs(&[(0, 1), (7, 0)])).is_none(), "empty run");
    assert!(ids_of(&id_runs(&[(u64::MAX, 1)])).is_none(), "overflow");
    assert!(ids_of(&id_runs(&[(u64::MAX - 1, 1)])).is_some());
    let cut = |bytes: &[u8]| DeliveryRanges::decode(bytes).is_none();
    assert!(!cut(&delivery_run(1, 1, 0, 1)));
    assert!(!cut(&delivery_run(10, 0, 0, 1)));
    assert!(cut(&delivery_run(0, 1, 0, 1)), "level 0");
    assert!(cut(&delivery_run(11, 1, 0, 1)), "level 11");
    assert!(cut(&delivery_run(5, 1, 0, 0)), "empty run");
    assert!(cut(&delivery_run(5, 1, u64::MAX - 1, 2)), "overflow");
    assert!(cut(&delivery_run(5, 1, 0, 1)[..20]), "cut");
}

#[test]
fn a_hostile_length_is_counted_and_not_expanded() {
    let bytes = id_runs(&[(0, u32::MAX), (0, u32::MAX)]);
    let ranges = IdRanges::decode(&bytes).unwrap();
    assert_eq!(ranges.total(), 2 * u64::from(u32::MAX));
    assert_eq!(ranges.iter().take(2).collect::<Vec<_>>(), [0, 1]);
}

proptest! {
    #[test]
    fn ids_come_back_as_they_went(ids in prop::collection::vec(0..12u64, 0..40)) {
        let mut bytes = Vec::new();
        encode_ids(ids.iter().copied(), &mut bytes);
        prop_assert_eq!(ids_of(&bytes), Some(ids));
    }

    #[test]
    fn deliveries_come_back_as_they_went(
        raw in prop::collection::vec((1..=2u8, 0..9u64, 1..=2u32), 0..40)
    ) {
        let all: Vec<_> =
            raw.iter().map(|&(l, id, count)| d(Level::new(l).unwrap(), id, count)).collect();
        let mut bytes = Vec::new();
        encode_deliveries(all.iter().copied(), &mut bytes);
        let ranges = DeliveryRanges::decode(&bytes).unwrap();
        prop_assert_eq!(ranges.total(), all.len() as u64);
        prop_assert_eq!(ranges.iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn any_bytes_decode_without_panic(runs in 0..4u32, body in prop::collection::vec(any::<u8>(), 0..60)) {
        let bytes = [&runs.to_le_bytes()[..], &body].concat();
        if let Some(ranges) = IdRanges::decode(&bytes) {
            ranges.iter().take(10).count();
        }
        if let Some(ranges) = DeliveryRanges::decode(&bytes) {
            ranges.iter().take(10).count();
        }
    }
}
