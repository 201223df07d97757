//! A checkpoint large enough to be written in parts and decoded by several threads.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::log::names;
use mq9_core::mailbox::Level;
use mq9_core::store::{DamageKind, NewMailbox, Options, Query, Send, Store};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const NOW: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
const EACH: u64 = 150_000;
const ADDRESSES: [&str; 3] = ["first", "second", "third"];

fn open(disk: &SimDisk) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open(disk, Options::default(), 7, NOW).unwrap()
}

fn filled() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = open(&disk);
    for address in ADDRESSES {
        store.create_mailbox(&NewMailbox { address, ..NewMailbox::default() }, NOW).unwrap();
        for number in 0..EACH {
            let level = if number % 3 == 0 { Level::URGENT } else { Level::NORMAL };
            let payload = number.to_le_bytes();
            store.send(address, &Send { level, ..Send::new(&payload) }, NOW).unwrap();
        }
    }
    store.close().unwrap();
    disk.snapshot()
}

fn assert_whole(store: &mut Store) {
    for address in ADDRESSES {
        assert_eq!(store.mailbox(address, NOW).unwrap().messages, EACH);
        for around in [0, EACH / 2, EACH - 3] {
            let after_id = around.checked_sub(1);
            let query = Query { after_id, limit: 3, max_bytes: u64::MAX, ..Query::default() };
            let found = store.query(address, &query, NOW).unwrap();
            let payloads: Vec<_> = found.iter().map(|(_, m)| m.payload.to_vec()).collect();
            let wanted: Vec<_> = (around..around + 3).map(|n| n.to_le_bytes().to_vec()).collect();
            assert_eq!(payloads, wanted);
        }
    }
}

#[test]
fn everything_comes_back_and_damage_anywhere_is_noticed() {
    let disk = filled();
    let checkpoint = names::checkpoint(1);
    let bytes = disk.read_file(&checkpoint).unwrap();
    assert!(bytes.len() > 1 << 20, "the checkpoint has {} bytes only", bytes.len());
    let mut store = open(&disk.snapshot());
    assert_eq!(store.damage(), []);
    assert_whole(&mut store);

    for part in [1, 2, 3] {
        let mut damaged = bytes.clone();
        damaged[bytes.len() * part / 4] ^= 1;
        let disk = disk.snapshot();
        disk.write_file(&checkpoint, &damaged);
        let mut store = open(&disk);
        let kinds: Vec<_> = store.damage().iter().map(|damage| &damage.kind).collect();
        assert_eq!(kinds, [&DamageKind::Checkpoint]);
        assert_whole(&mut store);
    }
}
