//! Effects of a power cut on the contents of files.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use mq9_core::disk::{Disk, DiskFile};
use mq9_sim::SimDisk;
use proptest::prelude::*;

const SEEDS: u64 = 500;

/// A disk with one durable, empty file.
fn one_file() -> (SimDisk, Arc<dyn DiskFile>) {
    let disk = SimDisk::new();
    let file = disk.create("a").unwrap();
    disk.sync_dir().unwrap();
    (disk, file)
}

/// Every state of the file that some seed finds.
fn outcomes(disk: &SimDisk) -> BTreeSet<Vec<u8>> {
    (0..SEEDS).map(|seed| disk.crash(seed).read_file("a").unwrap()).collect()
}

#[test]
fn unsynced_writes_vanish_for_some_seeds_and_survive_for_others() {
    let (disk, file) = one_file();
    file.write_at(b"hello", 0).unwrap();
    let found = outcomes(&disk);
    assert!(found.contains(b"".as_slice()));
    assert!(found.contains(b"hello".as_slice()));
    assert_eq!(disk.read_file("a").unwrap(), b"hello");
}

#[test]
fn synced_writes_survive_every_seed() {
    let (disk, file) = one_file();
    file.write_at(b"hello", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([b"hello".to_vec()]));
}

#[test]
fn a_write_is_torn_at_any_byte_and_between_sectors() {
    let (disk, file) = one_file();
    file.write_at(&[1; 2048], 0).unwrap();
    let found = outcomes(&disk);
    let written = |bytes: &[u8]| bytes.iter().filter(|b| **b == 1).count();
    assert!(found.iter().any(|bytes| written(bytes) % 512 != 0), "torn inside a sector");
    let has_hole = |bytes: &[u8]| bytes.windows(2).any(|pair| pair == [0, 1]);
    assert!(found.iter().any(|bytes| has_hole(bytes)), "a sector lost, a later one kept");
}

#[test]
fn a_torn_overwrite_leaves_only_old_and_new_bytes() {
    let (disk, file) = one_file();
    file.write_at(&[1; 1024], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[2; 1024], 0).unwrap();
    let found = outcomes(&disk);
    assert!(found.iter().all(|bytes| bytes.len() == 1024));
    assert!(found.iter().flatten().all(|byte| matches!(byte, 1 | 2)));
    assert!(found.contains([[1; 512], [2; 512]].as_flattened()));
    assert!(found.contains([[2; 512], [1; 512]].as_flattened()));
}

#[test]
fn a_later_write_survives_an_earlier_one() {
    let (disk, file) = one_file();
    file.write_at(b"a", 0).unwrap();
    file.write_at(b"b", 1).unwrap();
    let found = outcomes(&disk);
    assert!(found.contains(b"\0b".as_slice()));
    assert!(found.contains(b"a".as_slice()));
    assert!(found.contains(b"ab".as_slice()));
}

#[test]
fn the_length_survives_without_the_bytes() {
    let (disk, file) = one_file();
    file.write_at(b"abc", 0).unwrap();
    assert!(outcomes(&disk).contains(b"\0\0\0".as_slice()));
}

#[test]
fn lengths_are_kept_or_dropped_as_a_whole() {
    let (disk, file) = one_file();
    file.write_at(b"abcdef", 0).unwrap();
    file.sync().unwrap();
    file.set_len(2).unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([b"abcdef".to_vec(), b"ab".to_vec()]));
    file.sync().unwrap();
    file.allocate(4).unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([b"ab".to_vec(), b"ab\0\0".to_vec()]));
}

#[test]
fn the_interrupted_write_is_unseen_but_may_be_found() {
    let (disk, file) = one_file();
    file.write_at(b"a", 0).unwrap();
    file.sync().unwrap();
    disk.cut_at(disk.ops() + 1);
    let error = file.write_at(b"bc", 1).unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (std::io::ErrorKind::Other, "power cut".into()));
    let found = outcomes(&disk);
    for state in ["a", "ab", "abc"] {
        assert!(found.contains(state.as_bytes()), "{state}");
    }
    assert!(found.iter().all(|bytes| bytes.starts_with(b"a")));
    assert_eq!(disk.crash_lucky().read_file("a").unwrap(), b"a");
}

#[test]
fn nothing_works_after_the_cut() {
    let (disk, file) = one_file();
    let ops = disk.ops();
    disk.cut_at(ops + 1);
    assert!(file.read_at(&mut [0], 0).is_ok(), "the cut comes with the operation");
    assert!(!disk.is_cut());
    assert!(file.sync().is_err());
    assert!(disk.is_cut());
    assert_eq!(disk.ops(), ops);
    assert!(file.read_at(&mut [0], 0).is_err());
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.allocate(9).is_err());
    assert!(file.set_len(9).is_err());
    assert!(file.size().is_err());
    assert!(disk.lock().is_err());
    assert!(disk.list().is_err());
    assert!(disk.open("a").is_err());
    assert!(disk.create("b").is_err());
    assert!(disk.rename("a", "b").is_err());
    assert!(disk.remove("a").is_err());
    assert!(disk.sync_dir().is_err());
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![]]), "refused operations leave no trace");
}

#[test]
fn a_cut_in_the_past_is_immediate() {
    let (disk, file) = one_file();
    disk.cut_at(1);
    assert!(disk.is_cut());
    assert!(file.size().is_err());
}

#[test]
fn every_operation_counts_once_and_reads_do_not() {
    let disk = SimDisk::new();
    let file = disk.create("a").unwrap();
    file.write_at(b"x", 0).unwrap();
    file.allocate(10).unwrap();
    file.set_len(5).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    disk.rename("a", "b").unwrap();
    disk.remove("b").unwrap();
    assert_eq!(disk.ops(), 8);
    file.read_at(&mut [0; 4], 0).unwrap();
    file.size().unwrap();
    disk.list().unwrap();
    assert!(disk.open("b").is_err());
    assert_eq!(disk.ops(), 8);
}

#[test]
fn strict_and_lucky_are_the_extremes() {
    let (disk, file) = one_file();
    file.write_at(b"a", 0).unwrap();
    file.sync().unwrap();
    file.write_at(b"b", 1).unwrap();
    assert_eq!(disk.crash_strict().read_file("a").unwrap(), b"a");
    assert_eq!(disk.crash_lucky().read_file("a").unwrap(), b"ab");
    let killed = disk.snapshot();
    assert_eq!(killed.crash_strict().read_file("a").unwrap(), b"ab");
}

#[test]
fn a_lying_disk_loses_what_was_synced() {
    let (disk, file) = one_file();
    disk.ignore_sync(true);
    file.write_at(b"a", 0).unwrap();
    file.sync().unwrap();
    disk.create("b").unwrap();
    disk.sync_dir().unwrap();
    assert!(outcomes(&disk).contains(b"".as_slice()));
    assert_eq!(disk.crash_strict().names(), ["a"]);
    assert_eq!(disk.crash_strict().read_file("a").unwrap(), b"");
}

#[test]
fn reserved_space_is_free_to_copy() {
    let (disk, file) = one_file();
    file.allocate(1 << 40).unwrap();
    file.write_at(b"x", 1 << 39).unwrap();
    file.sync().unwrap();
    for seed in 0..1000 {
        assert_eq!(disk.crash(seed).total_bytes(), 1 << 40);
    }
}

#[test]
fn a_copy_is_independent() {
    let (disk, file) = one_file();
    file.write_at(b"a", 0).unwrap();
    let copy = disk.snapshot();
    copy.open("a").unwrap().write_at(b"b", 0).unwrap();
    copy.create("c").unwrap();
    assert_eq!(disk.read_file("a").unwrap(), b"a");
    assert_eq!(disk.names(), ["a"]);
}

#[test]
fn a_file_set_by_a_test_is_durable() {
    let (disk, file) = one_file();
    disk.write_file("a", b"flipped");
    disk.write_file("new", b"n");
    let mut buf = [0; 7];
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 7);
    assert_eq!(&buf, b"flipped");
    let found = disk.crash_strict();
    assert_eq!(found.read_file("a").unwrap(), b"flipped");
    assert_eq!(found.read_file("new").unwrap(), b"n");
    assert_eq!(found.read_file("missing"), None);
}

/// Appends records to `log`, syncing each, until the power goes; the number acknowledged.
fn append_until_cut(disk: &SimDisk, records: u8) -> u8 {
    let append = |acknowledged: &mut u8| -> std::io::Result<()> {
        let file = disk.create("log")?;
        file.allocate(4 << 20)?;
        disk.sync_dir()?;
        for record in 1..=records {
            file.write_at(&[record; 700], u64::from(record - 1) * 700)?;
            file.sync()?;
            *acknowledged = record;
        }
        Ok(())
    };
    let mut acknowledged = 0;
    let result = append(&mut acknowledged);
    assert_eq!(result.is_err(), disk.is_cut());
    acknowledged
}

/// Whether every acknowledged record is found after a crash at every operation.
fn keeps_acknowledged(ignore_sync: bool) -> bool {
    let complete = SimDisk::new();
    append_until_cut(&complete, 100);
    (1..=complete.ops()).all(|n| {
        let disk = SimDisk::new();
        disk.ignore_sync(ignore_sync);
        disk.cut_at(n);
        let acknowledged = append_until_cut(&disk, 100);
        (0..10).map(|seed| disk.crash(seed).read_file("log").unwrap_or_default()).all(|found| {
            (1..=acknowledged).all(|record| {
                let start = usize::from(record - 1) * 700;
                found.get(start..start + 700) == Some(&[record; 700][..])
            })
        })
    })
}

#[test]
fn a_log_that_syncs_survives_a_cut_at_every_operation_of_an_honest_disk_only() {
    assert!(keeps_acknowledged(false));
    assert!(!keeps_acknowledged(true), "the check can fail");
}

#[test]
fn threads_share_a_disk_until_it_is_cut() {
    let (disk, file) = one_file();
    disk.cut_at(1000);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let file = &file;
            scope.spawn(move || {
                let at = u64::from(thread) * 8;
                while file.write_at(&[thread; 8], at).and_then(|()| file.sync()).is_ok() {}
            });
        }
    });
    assert_eq!(disk.ops(), 999);
    let found = disk.crash_strict().read_file("a").unwrap();
    for (thread, bytes) in found.chunks(8).enumerate() {
        let byte = bytes[0];
        assert!(bytes.iter().all(|b| *b == byte) && (byte == 0 || usize::from(byte) == thread));
    }
}

proptest! {
    #[test]
    fn synced_bytes_never_change_and_unsynced_ones_are_old_new_or_zero(
        synced in prop::collection::vec((0u64..5000, 1usize..3000), 0..8),
        unsynced in prop::collection::vec((5000u64..9000, 1usize..3000), 0..8),
        seed in any::<u64>(),
    ) {
        let (disk, file) = one_file();
        for (offset, len) in &synced {
            file.write_at(&vec![1; *len], *offset).unwrap();
        }
        file.sync().unwrap();
        let durable = disk.read_file("a").unwrap();
        for (offset, len) in &unsynced {
            file.write_at(&vec![2; *len], *offset).unwrap();
        }
        let current = disk.read_file("a").unwrap();

        let crashed = disk.crash(seed);
        let found = crashed.read_file("a").unwrap();
        prop_assert!(found.len() >= durable.len() && found.len() <= current.len());
        for (index, byte) in found.iter().enumerate() {
            let old = durable.get(index).copied().unwrap_or(0);
            prop_assert!(*byte == old || *byte == current[index], "byte {index}");
        }
        prop_assert_eq!(&found[..durable.len().min(5000)], &durable[..durable.len().min(5000)]);
        prop_assert_eq!(disk.crash(seed).read_file("a").unwrap(), found.clone(), "same seed");
        prop_assert_eq!(crashed.crash_strict().read_file("a").unwrap(), found, "what is found stays");
    }
}
