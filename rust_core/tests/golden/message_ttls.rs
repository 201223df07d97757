//! Lives of messages by their level: their bytes in a policy, by the table of `docs/formats.md`, and what they mean.

use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::NewMailbox;
use mq9_sim::SimDisk;

use crate::script::{START, at, open};
use crate::{assert_has, disk_of, files, records};

const FOLDER: &str = "v1.7-message-ttls";

fn policy() -> Policy {
    let mut policy =
        Policy { ack_wait_ms: 7_000, dead_letter: Some("dead".into()), ..Policy::default() };
    policy.message_ttls.set(Level::URGENT, 86_400_000);
    policy.message_ttls.set(Level::LOWEST, 3_600_000);
    policy
}

fn run() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let new = NewMailbox { address: "box", policy: policy(), ..NewMailbox::default() };
    store.create_mailbox(&new, START).unwrap();
    store.rotate(at(4)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    disk
}

#[test]
fn lives_of_messages_are_written_as_they_were() {
    assert_has(&run(), FOLDER);
}

#[test]
fn lives_of_messages_are_as_documented() {
    let created = records(FOLDER).into_iter().find(|record| record.0 == 2).unwrap().2;
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
    assert!(created.ends_with(&policy));
}

#[test]
fn lives_of_messages_mean_the_same_with_and_without_the_checkpoint() {
    let log: Vec<_> = files(FOLDER).into_iter().filter(|f| f.0.starts_with("segment-")).collect();
    for files in [files(FOLDER), log] {
        let mut store = open(&disk_of(&files), at(100));
        assert_eq!(store.mailbox("box", at(100)).unwrap().policy, policy());
    }
}
