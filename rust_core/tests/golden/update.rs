//! A changed mailbox: its bytes, by the tables of `docs/formats.md`, and what they mean.

use mq9_core::mailbox::Policy;
use mq9_core::store::{Changes, NewMailbox, Send};
use mq9_sim::SimDisk;

use crate::script::{START, at, open};
use crate::{assert_has, disk_of, files, records};

const FOLDER: &str = "v1.6-update";
const T: u64 = START.wall_ms;

fn run() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let policy = Policy { ack_wait_ms: 7_000, ..Policy::default() };
    let box_ = NewMailbox { address: "box", desc: "old", policy, ..NewMailbox::default() };
    store.create_mailbox(&box_, START).unwrap();
    for payload in [b"one", b"two", b"six"] {
        store.send("box", &Send::new(payload), at(1)).unwrap();
    }
    let changes = Changes { ttl_ms: Some(600_000), desc: Some("new") };
    store.update_mailbox("box", changes, |policy| policy.max_msgs = 2, at(2)).unwrap();
    store.rotate(at(4)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    disk
}

#[test]
fn a_changed_mailbox_is_written_as_it_was() {
    assert_has(&run(), FOLDER);
}

#[test]
fn a_changed_mailbox_is_as_documented() {
    let records = records(FOLDER);
    let kinds: Vec<(u8, u8)> = records.iter().map(|record| (record.0, record.1)).collect();
    assert_eq!(kinds, [(1, 0), (2, 0), (4, 0), (4, 0), (4, 0), (20, 1), (13, 4)]);
    let stamp = [&(T + 2).to_le_bytes()[..], b"\x03box"].concat();
    let policy = [&[6][..], &2_u64.to_le_bytes(), &[10], &7_000_u64.to_le_bytes()].concat();
    let expires = (T + 600_000).to_le_bytes();
    let updated = [&stamp[..], &expires, b"\x03\x00new", &[18, 0], &policy].concat();
    assert_eq!(records[5].2, updated);
}

#[test]
fn a_changed_mailbox_means_the_same_with_and_without_the_checkpoint() {
    let log: Vec<_> = files(FOLDER).into_iter().filter(|f| f.0.starts_with("segment-")).collect();
    for files in [files(FOLDER), log] {
        let mut store = open(&disk_of(&files), at(100));
        assert_eq!(store.damage(), []);
        let info = store.mailbox("box", at(100)).unwrap();
        let policy = Policy { max_msgs: 2, ack_wait_ms: 7_000, ..Policy::default() };
        assert_eq!((info.policy, &*info.desc, info.expires_ms), (policy, "new", T + 600_000));
        assert_eq!((info.messages, info.next_id), (2, 3));
    }
}
