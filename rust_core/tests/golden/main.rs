//! The formats on disk, pinned to files: today's code writes exactly these bytes and reads them back.
//!
//! A change of these files is a change of format: files like them exist outside. What earlier code wrote
//! stays readable. `MQ9_BLESS=1` writes those of today anew, and the seeds of the fuzz targets with them.

#![allow(clippy::unwrap_used)]

mod bytes;
mod contents;
mod mailboxes;
mod message_ttls;
mod script;
mod seeds;
mod streams;
mod ties;
mod update;

use std::path::{Path, PathBuf};

use mq9_core::log::{Found, Header, Scan, names};
use mq9_sim::SimDisk;

/// What today's code writes.
const TODAY: &str = "v1.6";
/// What earlier code wrote.
const EARLIER: [&str; 5] = ["v1", "v1.1", "v1.2", "v1.3", "v1.4"];

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(of)
}

/// The files of the script.
fn written() -> Vec<(String, Vec<u8>)> {
    files_on(&script::run())
}

/// The files of a disk, without the reserved space of the segment that is being written: it has no record yet.
fn files_on(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let files = disk.names().into_iter().map(|name| {
        let mut bytes = disk.read_file(&name).unwrap();
        if name == names::segment(2) {
            assert!(bytes[80..].iter().all(|&byte| byte == 0));
            bytes.truncate(80);
        }
        (name, bytes)
    });
    files.collect()
}

/// The records of the first segment: kind, flags and body.
fn records(of: &str) -> Vec<(u8, u8, Vec<u8>)> {
    let mut all = files(of).into_iter();
    let segment = all.find(|file| file.0.starts_with("segment-0000000001")).unwrap().1;
    let salt = Header::decode("", &segment).unwrap().unwrap().salt;
    let records = Scan::new(&segment, 1, salt, 80).map(|found| match found {
        Found::Record { record, .. } => (record.kind, record.flags, record.body.to_vec()),
        other => panic!("{other:?}"),
    });
    records.collect()
}

/// Whether today's bytes become the right ones.
fn is_blessed() -> bool {
    std::env::var_os("MQ9_BLESS").is_some()
}

/// Writes the files of a folder anew, if that is asked for.
fn bless(written: &[(String, Vec<u8>)], of: &str) {
    if is_blessed() {
        std::fs::create_dir_all(folder(of)).unwrap();
        for (name, bytes) in written {
            std::fs::write(folder(of).join(name), bytes).unwrap();
        }
    }
}

/// A disk has the files of a folder, to the byte.
fn assert_has(disk: &SimDisk, of: &str) {
    let written = files_on(disk);
    bless(&written, of);
    assert!(written == files(of), "the bytes differ from those of {of}");
}

/// Today's files as they lie in the repository.
fn golden() -> Vec<(String, Vec<u8>)> {
    files(TODAY)
}

fn files(of: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder(of)).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<_> = entries.map(|p| (name(&p), std::fs::read(&p).unwrap())).collect();
    files.sort();
    files
}

fn disk_of(files: &[(String, Vec<u8>)]) -> SimDisk {
    let disk = SimDisk::new();
    files.iter().for_each(|(name, bytes)| disk.write_file(name, bytes));
    disk
}

#[test]
fn the_same_commands_write_the_same_bytes() {
    let written = written();
    bless(&written, TODAY);
    if is_blessed() {
        seeds::write(&written);
    }
    let golden = golden();
    let list = |files: &[(String, Vec<u8>)]| files.iter().map(|f| f.0.clone()).collect::<Vec<_>>();
    assert_eq!(list(&written), list(&golden));
    for ((name, written), (_, golden)) in written.iter().zip(&golden) {
        let first = written.iter().zip(golden).position(|(a, b)| a != b);
        assert_eq!(first, None, "{name} differs");
        assert_eq!(written.len(), golden.len(), "{name} has another length");
    }
}

#[test]
fn a_checkpoint_and_the_log_alone_give_the_same_contents_whoever_wrote_them() {
    for of in EARLIER.into_iter().chain([TODAY]) {
        contents::check(&disk_of(&files(of)), of);
        let log: Vec<_> = files(of).into_iter().filter(|f| f.0.starts_with("segment-")).collect();
        contents::check(&disk_of(&log), of);
    }
}
