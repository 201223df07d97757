//! Purges and ids of sends: their bytes, by the tables of `docs/formats.md`, and what they mean.

use mq9_core::mailbox::Policy;
use mq9_core::store::{NewMailbox, Once, Send};
use mq9_sim::SimDisk;

use crate::script::{START, at, open};
use crate::{assert_has, disk_of, files, records};

const FOLDER: &str = "v1.5-mailboxes";
const T: u64 = START.wall_ms;

fn run() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let policy = Policy { dedup_window_ms: 5_000, ..Policy::default() };
    let box_ = NewMailbox { address: "box", policy, ..NewMailbox::default() };
    store.create_mailbox(&box_, START).unwrap();
    store.send_once("box", "one", &Send::new(b"first"), at(1)).unwrap();
    let later = Send { delay_ms: 600_000, ..Send::new(b"later") };
    store.send_once("box", "two", &later, at(2)).unwrap();
    assert_eq!(store.purge("box", at(3)).unwrap(), 2);
    store.rotate(at(4)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    disk
}

#[test]
fn purges_and_ids_are_written_as_they_were() {
    assert_has(&run(), FOLDER);
}

#[test]
fn purges_and_ids_are_as_documented() {
    let records = records(FOLDER);
    let kinds: Vec<(u8, u8)> = records.iter().map(|record| (record.0, record.1)).collect();
    assert_eq!(kinds, [(1, 0), (2, 0), (4, 1), (22, 4), (5, 1), (22, 4), (21, 0)]);
    let created = &records[1].2;
    let policy = [&[14][..], &5_000_u64.to_le_bytes()].concat();
    assert_eq!(created[created.len() - 9..], policy);
    let sent = |ms: u64, id: u64, text: &[u8]| {
        [&(T + ms).to_le_bytes(), &id.to_le_bytes(), &[3][..], text].concat()
    };
    let (one, two) = (sent(1, 0, b"one"), sent(2, u64::MAX, b"two"));
    assert_eq!((&records[3].2, &records[5].2), (&one, &two));
    let (next_id, next_delay) = (1_u64.to_le_bytes(), 1_u64.to_le_bytes());
    let purged = [&(T + 3).to_le_bytes()[..], b"\x03box", &next_id, &next_delay].concat();
    assert_eq!(records[6].2, purged);
    // The section behind that of the mailbox: its kind, the number of ids, and they.
    let section = [&[6][..], &2_u32.to_le_bytes(), &one, &two].concat();
    let mut all = files(FOLDER).into_iter();
    let checkpoint = all.find(|file| file.0.starts_with("checkpoint-")).unwrap().1;
    assert!(checkpoint.windows(section.len()).any(|bytes| bytes == section));
}

#[test]
fn purges_and_ids_mean_the_same_with_and_without_the_checkpoint() {
    let log: Vec<_> = files(FOLDER).into_iter().filter(|f| f.0.starts_with("segment-")).collect();
    for files in [files(FOLDER), log] {
        let mut store = open(&disk_of(&files), at(100));
        assert_eq!(store.damage(), []);
        let info = store.mailbox("box", at(100)).unwrap();
        assert_eq!((info.messages, info.delayed, info.next_id), (0, 0, 1));
        assert_eq!(info.policy.dedup_window_ms, 5_000);
        for (id, msg_id) in [("one", Some(0)), ("two", None)] {
            let again = store.send_once("box", id, &Send::new(b""), at(101)).unwrap();
            assert_eq!(again, Once { msg_id, duplicate: true });
        }
    }
}
