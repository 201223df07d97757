//! Errors on demand, on the simulated and the real disk.

#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::Arc;

use mq9_core::disk::{Disk, DiskFile, OsDisk};
use mq9_sim::{Cause, Fault, Faults, FaultyDisk, Operation, SimDisk};

const ENOSPC: i32 = 28;

fn faulty() -> (FaultyDisk<SimDisk>, Faults, Arc<dyn DiskFile>) {
    let faults = Faults::new();
    let disk = FaultyDisk::new(SimDisk::new(), faults.clone());
    let file = disk.create("a").unwrap();
    (disk, faults, file)
}

#[test]
fn every_operation_can_fail_and_be_cleared() {
    let (disk, faults, file) = faulty();
    let call = |operation| -> io::Result<()> {
        match operation {
            Operation::Read => file.read_at(&mut [0], 0).map(drop),
            Operation::Write => file.write_at(b"x", 0),
            Operation::Allocate => file.allocate(10),
            Operation::SetLen => file.set_len(5),
            Operation::Sync => file.sync(),
            Operation::Create => disk.create("b").map(drop),
            Operation::Open => disk.open("b").map(drop),
            Operation::Rename => disk.rename("b", "c"),
            Operation::Remove => disk.remove("c"),
            Operation::SyncDir => disk.sync_dir(),
        }
    };
    for operation in [
        Operation::Read,
        Operation::Write,
        Operation::Allocate,
        Operation::SetLen,
        Operation::Sync,
        Operation::Create,
        Operation::Open,
        Operation::Rename,
        Operation::Remove,
        Operation::SyncDir,
    ] {
        let before = faults.calls(operation);
        let ops = disk.inner().ops();
        faults.fail(operation, Fault::io());
        assert_eq!(call(operation).unwrap_err().raw_os_error(), Some(5), "{operation:?}");
        assert_eq!(disk.inner().ops(), ops, "{operation:?} reached the disk");
        faults.clear();
        call(operation).unwrap();
        assert_eq!(faults.calls(operation) - before, 2);
        assert_eq!(faults.failures(operation), 1);
    }
}

#[test]
fn a_fault_starts_late_and_ends() {
    let (_disk, faults, file) = faulty();
    faults.fail(Operation::Write, Fault::no_space().after(2).times(3));
    let failed: Vec<bool> = (0..7).map(|at| file.write_at(b"x", at).is_err()).collect();
    assert_eq!(failed, [false, false, true, true, true, false, false]);
}

#[test]
fn the_error_is_the_one_asked_for() {
    let (_disk, faults, file) = faulty();
    faults.fail(Operation::Sync, Fault::new(Cause::Kind(io::ErrorKind::TimedOut)));
    assert_eq!(file.sync().unwrap_err().kind(), io::ErrorKind::TimedOut);
    faults.fail(Operation::Sync, Fault::read_only());
    assert_eq!(file.sync().unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn a_partial_write_leaves_a_prefix() {
    let (disk, faults, file) = faulty();
    faults.fail(Operation::Write, Fault::no_space().partial());
    assert!(file.write_at(b"abcdef", 0).is_err());
    assert_eq!(disk.inner().read_file("a").unwrap(), b"abc");
}

#[test]
fn a_failed_sync_makes_nothing_durable() {
    let (disk, faults, file) = faulty();
    disk.sync_dir().unwrap();
    file.write_at(b"x", 0).unwrap();
    faults.fail(Operation::Sync, Fault::io());
    assert!(file.sync().is_err());
    assert_eq!(disk.inner().crash_strict().read_file("a").unwrap(), b"");
}

fn check_capacity(disk: impl Disk + 'static) {
    let faults = Faults::new();
    let disk = FaultyDisk::new(disk, faults.clone());
    let errno = |result: io::Result<()>| result.unwrap_err().raw_os_error();
    disk.create("before").unwrap().set_len(100).unwrap();
    faults.capacity(1000);

    let file = disk.create("a").unwrap();
    file.allocate(800).unwrap();
    assert_eq!(errno(file.allocate(901)), Some(ENOSPC));
    assert_eq!(file.size().unwrap(), 800, "a reservation is all or nothing");
    file.write_at(&[1; 800], 0).unwrap();
    assert_eq!(errno(file.write_at(&[2; 200], 800)), Some(ENOSPC));
    assert_eq!(file.size().unwrap(), 900, "a write fills what is left");
    file.write_at(&[3; 900], 0).unwrap();
    assert_eq!(errno(file.set_len(901)), Some(ENOSPC));

    disk.remove("before").unwrap();
    file.allocate(1000).unwrap();
    let other = disk.create("b").unwrap();
    assert_eq!(errno(other.write_at(b"x", 0)), Some(ENOSPC));
    file.set_len(10).unwrap();
    other.write_at(&[4; 990], 0).unwrap();
    disk.rename("a", "b").unwrap();
    disk.open("b").unwrap().allocate(1000).unwrap();
    assert_eq!(faults.failures(Operation::Write), 2);

    faults.clear();
    disk.open("b").unwrap().allocate(5000).unwrap();
}

#[test]
fn a_small_simulated_disk_fills_up_and_empties() {
    check_capacity(SimDisk::new());
}

#[test]
fn a_small_real_disk_fills_up_and_empties() {
    let root = tempfile::tempdir().unwrap();
    check_capacity(OsDisk::new(root.path()).unwrap());
}

#[test]
fn writes_past_the_limit_leave_nothing_when_nothing_fits() {
    let (disk, faults, file) = faulty();
    faults.capacity(10);
    assert!(file.write_at(b"x", 10).is_err());
    assert_eq!(disk.inner().total_bytes(), 0);
}

#[test]
fn the_lock_is_that_of_the_disk_underneath() {
    let (disk, _, _) = faulty();
    let _guard = disk.lock().unwrap();
    assert!(disk.inner().lock().is_err());
}
