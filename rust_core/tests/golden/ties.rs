//! A node of a cluster: ties, a checkpoint that holds one, and the end of a membership, by the tables of `docs/formats.md`.

use std::path::Path;
use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::log::{Found, Header, Scan, names};
use mq9_core::store::{NewMailbox, Options, Send, Store};
use mq9_core::wire::tie::{StreamPosition, Tie};
use mq9_sim::SimDisk;

use crate::script::{START, at};
use crate::{disk_of, files, folder};

const FOLDER: &str = "v1.7-member";
/// The same node after it left.
const LEFT: &str = "v1.7-left";

fn member(disk: &SimDisk) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open_member(disk, Options::default(), 0x0123_4567_89ab_cdef, START, u64::MAX).unwrap()
}

fn place(sequence: u64) -> StreamPosition {
    let digest = u128::from(sequence) << 100 | 7;
    StreamPosition { sequence, digest, term: 3, leader: Some((2, 0x1122_3344_5566_7788)) }
}

/// A claim, a batch of this node as the leader, and a checkpoint.
fn run() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = member(&disk);
    store.promote(&Tie { at: place(1), before: None }, at(1)).unwrap();
    store.take_outbox().unwrap();
    store.tie(&Tie { at: place(2), before: Some(place(1)) }, at(1)).unwrap();
    let create = NewMailbox { address: "box", ..NewMailbox::default() };
    store.create_mailbox(&create, at(2)).unwrap();
    store.send("box", &Send::new(b"one"), at(2)).unwrap();
    store.take_outbox().unwrap();
    store.tie(&Tie { at: place(3), before: Some(place(2)) }, at(3)).unwrap();
    store.sync().unwrap();
    store.committed(3);
    store.checkpoint().unwrap();
    drop(store);
    disk
}

fn written(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let trimmed = disk.names().into_iter().map(|name| {
        let mut bytes = disk.read_file(&name).unwrap();
        if let Some(number) = names::segment_number(&name) {
            // Without the space that is reserved.
            let salt = Header::decode("", &bytes).unwrap().unwrap().salt;
            let mut scan = Scan::new(&bytes, number, salt, 80);
            scan.by_ref().for_each(drop);
            let end = scan.offset() as usize;
            bytes.truncate(end);
        }
        (name, bytes)
    });
    trimmed.collect()
}

fn left() -> SimDisk {
    let disk = disk_of(&written(&run()));
    member(&disk).leave(at(4)).unwrap();
    disk
}

#[test]
fn a_node_of_a_cluster_is_written_as_it_was() {
    for (name, disk) in [(FOLDER, run()), (LEFT, left())] {
        if std::env::var_os("MQ9_BLESS").is_some() {
            std::fs::create_dir_all(folder(name)).unwrap();
            for (file, bytes) in written(&disk) {
                std::fs::write(Path::new(&folder(name)).join(file), bytes).unwrap();
            }
        }
        assert!(written(&disk) == files(name), "the bytes of {name} differ");
    }
}

/// Bodies of all ties.
fn ties(of: &str) -> Vec<Vec<u8>> {
    let segments = files(of)
        .into_iter()
        .filter_map(|(name, bytes)| names::segment_number(&name).map(|number| (number, bytes)));
    let mut found = Vec::new();
    for (number, bytes) in segments {
        let salt = Header::decode("", &bytes).unwrap().unwrap().salt;
        for record in Scan::new(&bytes, number, salt, 80) {
            let Found::Record { record, .. } = record else { panic!("{record:?}") };
            if record.kind == 32 {
                found.push(record.body.to_vec());
            }
        }
    }
    found
}

fn written_place(at: &StreamPosition) -> Vec<u8> {
    let (node, incarnation) = at.leader.unwrap_or_default();
    [
        &at.sequence.to_le_bytes()[..],
        &at.digest.to_le_bytes(),
        &at.term.to_le_bytes(),
        &[u8::from(at.leader.is_some())],
        &node.to_le_bytes(),
        &incarnation.to_le_bytes(),
    ]
    .concat()
}

#[test]
fn a_tie_is_as_documented() {
    let ties = ties(FOLDER);
    let ends: Vec<Vec<u8>> = ties.iter().map(|tie| tie[16..].to_vec()).collect();
    let with = |at: u64, before: Option<u64>| {
        let mut body = written_place(&place(at));
        body.push(u8::from(before.is_some()));
        body.extend(before.map(|before| written_place(&place(before))).unwrap_or_default());
        body
    };
    let empty = [&written_place(&StreamPosition::default())[..], &[0]].concat();
    assert_eq!(ends, [empty, with(1, None), with(2, Some(1)), with(3, Some(2))]);
    // The first names none before it, the next the end of the first: a record of 20 bytes and its body.
    assert_eq!(ties[0][..8], 0_u64.to_le_bytes());
    let end = u64::from_le_bytes(ties[1][..8].try_into().unwrap());
    assert_eq!((end >> 32, ties[1][8..16].to_vec()), (1, vec![0; 8]));
    assert!(u64::from_le_bytes(ties[2][8..16].try_into().unwrap()) > 0, "bytes of records between");
}

#[test]
fn a_node_that_left_says_so() {
    let last = ties(LEFT).pop().unwrap();
    assert_eq!(last[..8], (u64::MAX - 1).to_le_bytes());
    let shared: Arc<dyn Disk> = Arc::new(disk_of(&files(LEFT)));
    let mut store = Store::open(shared, Options::default(), 1, at(9)).unwrap();
    assert_eq!(store.mailbox("box", at(9)).unwrap().messages, 1);
}

#[test]
fn a_node_means_the_same_with_and_without_the_checkpoint() {
    let log: Vec<_> = files(FOLDER).into_iter().filter(|f| f.0.starts_with("segment-")).collect();
    for files in [files(FOLDER), log] {
        let mut store = member(&disk_of(&files));
        assert_eq!(store.last_tie().unwrap().at, place(3));
        assert_eq!(store.mailbox("box", at(9)).unwrap().messages, 1);
    }
}
