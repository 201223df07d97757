//! A checkpoint shows each mailbox as it was when it was captured, whatever happens until it is written.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::log::names;
use mq9_core::store::{
    Ack, AckKind, Fetch, GroupFetch, MemberId, NewMailbox, Options, Send, Store,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const NOW: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
const LATER: Now = Now { wall_ms: NOW.wall_ms + 60_000, mono_ms: NOW.mono_ms + 60_000 };
const EACH: u64 = 6_000;
const HELD: usize = 7;

fn fetch(store: &mut Store, member: u64, now: Now) {
    let member = if member.is_multiple_of(2) {
        MemberId::Conn
    } else {
        MemberId::Named(format!("member {member}"))
    };
    let group = Some(GroupFetch { name: "g".to_owned(), member, force: false });
    let request = Fetch { group, max_msgs: HELD, conn: 3, ..Fetch::all("a") };
    store.fetch(request, now).unwrap();
}

/// A mailbox with many keys, expiries, delays and deliveries.
fn filled() -> (SimDisk, Store) {
    let disk = SimDisk::new();
    let mut store = Store::open(Arc::new(disk.clone()), Options::default(), 42, NOW).unwrap();
    store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, NOW).unwrap();
    for n in 0..EACH {
        let key = format!("key {n}");
        let plain = Send::new(b"x");
        store.send("a", &Send { key: &key, ..plain }, NOW).unwrap();
        store.send("a", &Send { ttl_ms: 30_000 + n, ..plain }, NOW).unwrap();
        store.send("a", &Send { delay_ms: 30_000 + n, ..plain }, NOW).unwrap();
    }
    for member in 0..EACH / HELD as u64 {
        fetch(&mut store, member, NOW);
    }
    (disk, store)
}

/// Changes everything that was there.
fn go_on(store: &mut Store) {
    for n in 0..EACH {
        let key = format!("key {}", n * 3);
        store.send("a", &Send { key: &key, ..Send::new(b"y") }, NOW).unwrap();
    }
    for id in (0..EACH * 2).step_by(5) {
        let kind = match id % 3 {
            0 => AckKind::Done { only: true },
            1 => AckKind::Return { delay_ms: 0 },
            _ => AckKind::Progress,
        };
        // What was replaced or is not given yet is refused: neither changes anything.
        let _ = store.ack(&Ack { address: "a", group: "g", msg_ids: &[id], kind }, NOW);
    }
    for member in 0..EACH / HELD as u64 {
        fetch(store, member * 3, NOW);
    }
    while store.tick(LATER) {}
    for member in 0..100 {
        fetch(store, member, LATER);
    }
}

/// The bytes of a checkpoint, with `meanwhile` between the capture and the writing.
fn checkpoint(meanwhile: impl FnOnce(&mut Store)) -> Vec<u8> {
    let (disk, mut store) = filled();
    let mut checkpointer = store.begin_checkpoint().unwrap();
    while store.capture(&mut checkpointer, 1).unwrap() {}
    meanwhile(&mut store);
    checkpointer.finish().unwrap();
    disk.read_file(&names::checkpoint(1)).unwrap()
}

#[test]
fn what_was_captured_stays_as_it_was_while_the_store_goes_on() {
    let at_once = checkpoint(|_| {});
    assert!(at_once.len() as u64 > EACH * 80, "{} bytes only", at_once.len());
    assert!(checkpoint(go_on) == at_once, "the checkpoint shows what came after the capture");
}

#[test]
fn a_store_opened_from_such_a_checkpoint_is_as_it_was_left() {
    let (disk, mut store) = filled();
    let mut checkpointer = store.begin_checkpoint().unwrap();
    while store.capture(&mut checkpointer, 1).unwrap() {}
    go_on(&mut store);
    checkpointer.finish().unwrap();
    drop(store.install_checkpoint(checkpointer));
    store.sync().unwrap();
    let left = store.mailbox("a", LATER).unwrap();
    drop(store);
    let opened = Store::open(Arc::new(disk.snapshot()), Options::default(), 42, LATER);
    let mut store = opened.unwrap();
    assert_eq!(store.damage(), []);
    assert_eq!(store.mailbox("a", LATER).unwrap(), left);
    assert!(left.delayed == 0 && left.messages > 0, "{left:?}");
}
