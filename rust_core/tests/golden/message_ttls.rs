//! Lives of messages by their level: their bytes in a policy, by the table of `docs/formats.md`, and what they mean.

use std::path::Path;

use mq9_core::log::{Found, Header, Scan, names};
use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::NewMailbox;
use mq9_sim::SimDisk;

use crate::script::{START, at, open};
use crate::{disk_of, files, folder};

const FOLDER: &str = "v1.7-message-ttls";

fn policy() -> Policy {
    let mut policy =
        Policy { ack_wait_ms: 7_000, dead_letter: Some("dead".into()), ..Policy::default() };
    policy.message_ttls.set(Level::URGENT, 86_400_000);
    policy.message_ttls.set(Level::LOWEST, 3_600_000);
    policy
}

fn written() -> Vec<(String, Vec<u8>)> {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let new = NewMailbox { address: "box", policy: policy(), ..NewMailbox::default() };
    store.create_mailbox(&new, START).unwrap();
    store.rotate(at(4)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    let files = disk.names().into_iter().map(|name| {
        let mut bytes = disk.read_file(&name).unwrap();
        if name == names::segment(2) {
            bytes.truncate(80);
        }
        (name, bytes)
    });
    files.collect()
}

#[test]
fn lives_of_messages_are_written_as_they_were() {
    if std::env::var_os("MQ9_BLESS").is_some() {
        std::fs::create_dir_all(folder(FOLDER)).unwrap();
        for (name, bytes) in written() {
            std::fs::write(Path::new(&folder(FOLDER)).join(name), bytes).unwrap();
        }
    }
    assert!(written() == files(FOLDER), "the bytes differ");
}

#[test]
fn lives_of_messages_are_as_documented() {
    let mut all = files(FOLDER).into_iter();
    let segment = all.find(|file| file.0.starts_with("segment-0000000001")).unwrap().1;
    let salt = Header::decode("", &segment).unwrap().unwrap().salt;
    let created = Scan::new(&segment, 1, salt, 80).find_map(|found| match found {
        Found::Record { record, .. } if record.kind == 2 => Some(record.body.to_vec()),
        _ => None,
    });
    let policy = [
        &[10][..],
        &7_000_u64.to_le_bytes(),
        &[20],
        &86_400_000_u64.to_le_bytes(),
        &[27],
        &3_600_000_u64.to_le_bytes(),
        b"\x80\x04dead",
    ]
    .concat();
    assert!(created.unwrap().ends_with(&policy));
}

#[test]
fn lives_of_messages_mean_the_same_with_and_without_the_checkpoint() {
    let log: Vec<_> = files(FOLDER).into_iter().filter(|f| f.0.starts_with("segment-")).collect();
    for files in [files(FOLDER), log] {
        let mut store = open(&disk_of(&files), at(100));
        assert_eq!(store.mailbox("box", at(100)).unwrap().policy, policy());
    }
}
