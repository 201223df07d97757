//! Effects of a power cut on the names of files, and the lock of the directory.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::ErrorKind;

use mq9_core::disk::Disk;
use mq9_sim::SimDisk;

const SEEDS: u64 = 500;

/// A disk with a durable file that holds its own name.
fn with_file(name: &str) -> SimDisk {
    let disk = SimDisk::new();
    add(&disk, name);
    disk.sync_dir().unwrap();
    disk
}

/// Creates and syncs a file, but not its name.
fn add(disk: &SimDisk, name: &str) {
    let file = disk.create(name).unwrap();
    file.write_at(name.as_bytes(), 0).unwrap();
    file.sync().unwrap();
}

/// Every directory that some seed finds: names with contents, as `name=contents`.
fn outcomes(disk: &SimDisk) -> BTreeSet<String> {
    let listing = |disk: SimDisk| {
        let entry = |name: &String| {
            format!("{name}={}", String::from_utf8(disk.read_file(name).unwrap()).unwrap())
        };
        disk.names().iter().map(entry).collect::<Vec<_>>().join(" ")
    };
    (0..SEEDS).map(|seed| listing(disk.crash(seed))).collect()
}

fn states<const N: usize>(states: [&str; N]) -> BTreeSet<String> {
    states.map(str::to_owned).into()
}

#[test]
fn a_synced_file_vanishes_with_its_name() {
    let disk = SimDisk::new();
    add(&disk, "a");
    assert_eq!(outcomes(&disk), states(["", "a=a"]));
    assert!(disk.crash_strict().names().is_empty());
    disk.sync_dir().unwrap();
    assert_eq!(outcomes(&disk), states(["a=a"]));
}

#[test]
fn syncing_the_directory_does_not_sync_contents() {
    let disk = SimDisk::new();
    disk.create("a").unwrap().write_at(b"a", 0).unwrap();
    disk.sync_dir().unwrap();
    assert_eq!(disk.crash_strict().read_file("a").unwrap(), b"");
}

#[test]
fn a_rename_is_durable_with_the_directory() {
    let disk = with_file("a");
    disk.rename("a", "b").unwrap();
    assert_eq!(outcomes(&disk), states(["a=a", "b=a"]));
    disk.sync_dir().unwrap();
    assert_eq!(outcomes(&disk), states(["b=a"]));
}

#[test]
fn replacing_by_rename_never_loses_both_files() {
    let disk = with_file("current");
    add(&disk, "tmp");
    disk.rename("tmp", "current").unwrap();
    assert_eq!(
        outcomes(&disk),
        states(["current=current", "current=current tmp=tmp", "current=tmp"])
    );
    disk.sync_dir().unwrap();
    assert_eq!(outcomes(&disk), states(["current=tmp"]));
}

#[test]
fn replacing_with_an_unsynced_file_may_leave_it_empty() {
    let disk = with_file("current");
    disk.create("tmp").unwrap().write_at(b"x", 0).unwrap();
    disk.rename("tmp", "current").unwrap();
    disk.sync_dir().unwrap();
    assert!(outcomes(&disk).contains("current="));
}

#[test]
fn a_removal_is_durable_with_the_directory() {
    let disk = with_file("a");
    disk.remove("a").unwrap();
    assert_eq!(outcomes(&disk), states(["", "a=a"]));
    disk.sync_dir().unwrap();
    assert_eq!(outcomes(&disk), states([""]));
}

#[test]
fn name_changes_are_reordered() {
    let disk = with_file("a");
    disk.remove("a").unwrap();
    add(&disk, "b");
    assert_eq!(outcomes(&disk), states(["", "a=a", "a=a b=b", "b=b"]));
}

#[test]
fn a_recreated_name_is_the_old_file_the_new_one_or_none() {
    let disk = with_file("a");
    disk.remove("a").unwrap();
    let file = disk.create("a").unwrap();
    file.write_at(b"new", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk), states(["", "a=a", "a=new"]));
    disk.sync_dir().unwrap();
    assert_eq!(outcomes(&disk), states(["a=new"]));
}

#[test]
fn an_interrupted_name_change_is_unseen_but_may_be_found() {
    let disk = with_file("a");
    disk.cut_at(disk.ops() + 1);
    assert_eq!(disk.rename("a", "b").unwrap_err().to_string(), "power cut");
    assert_eq!(disk.names(), ["a"]);
    assert_eq!(outcomes(&disk), states(["a=a", "b=a"]));

    let disk = with_file("a");
    disk.cut_at(disk.ops() + 1);
    assert!(disk.create("b").is_err());
    assert_eq!(outcomes(&disk), states(["a=a", "a=a b="]));
}

#[test]
fn the_lock_is_exclusive_until_dropped_and_does_not_survive() {
    let disk = SimDisk::new();
    let guard = disk.lock().unwrap();
    assert_eq!(disk.clone().lock().err().unwrap().kind(), ErrorKind::WouldBlock);
    for copy in [disk.crash(1), disk.crash_strict(), disk.crash_lucky(), disk.snapshot()] {
        copy.lock().unwrap();
    }
    drop(guard);
    drop(disk.lock().unwrap());
    assert_eq!(disk.ops(), 0);
}
