//! Checkpoints and compaction change nothing that a client can see, whatever happens meanwhile.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::sync::Arc;

use mq9_core::error::Error;
use mq9_core::mailbox::{Policy, Tier};
use mq9_core::store::{Fetch, FetchOutcome, NewMailbox, Options, Send, Store, maintain};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn open(disk: &SimDisk) -> Store {
    let options = Options { segment_bytes: 4096, ..Options::default() };
    Store::open(Arc::new(disk.clone()), options, 42, START).unwrap()
}

fn create(store: &mut Store, address: &str) {
    store.create_mailbox(&NewMailbox { address, ..Default::default() }, START).unwrap();
}

fn send(store: &mut Store, address: &str, payload: &[u8], delay_ms: u64) {
    store.send(address, &Send { delay_ms, ..Send::new(payload) }, START).unwrap();
}

fn payloads(store: &mut Store, address: &str, now: Now) -> Vec<Vec<u8>> {
    match store.fetch(Fetch::all(address), now).unwrap() {
        FetchOutcome::Messages(batch) => batch.iter().map(|(_, m)| m.payload.to_vec()).collect(),
        FetchOutcome::Waiting(_) => panic!("did not ask to wait"),
    }
}

#[test]
fn a_mailbox_created_anew_between_two_captures_of_a_checkpoint_is_kept() {
    let disk = SimDisk::new();
    let mut store = open(&disk);
    create(&mut store, "a");
    let mut checkpointer = store.begin_checkpoint().unwrap();
    store.capture(&mut checkpointer, 1).unwrap();
    store.remove_mailbox("a", START).unwrap();
    // The freed slot goes to another mailbox, so that the new one is captured too.
    create(&mut store, "b");
    create(&mut store, "a");
    send(&mut store, "a", b"new", 0);
    while store.capture(&mut checkpointer, 1).unwrap() {}
    checkpointer.finish().unwrap();
    drop(store.install_checkpoint(checkpointer));
    store.flush().unwrap();

    let mut store = open(&disk.snapshot());
    assert_eq!(store.damage(), []);
    assert_eq!(payloads(&mut store, "a", START), [b"new"]);
    assert_eq!(store.info().mailboxes, 2);
}

#[test]
fn a_mailbox_removed_before_its_capture_is_no_damage() {
    let disk = SimDisk::new();
    let mut store = open(&disk);
    create(&mut store, "a");
    send(&mut store, "a", b"before", 0);
    let mut checkpointer = store.begin_checkpoint().unwrap();
    send(&mut store, "a", b"later", 1000);
    store.fetch(Fetch::group("a", "g", 1), START).unwrap();
    store.remove_mailbox("a", START).unwrap();
    while store.capture(&mut checkpointer, 1).unwrap() {}
    checkpointer.finish().unwrap();
    drop(store.install_checkpoint(checkpointer));
    store.flush().unwrap();

    let store = open(&disk.snapshot());
    assert_eq!(store.damage(), []);
    assert_eq!(store.info().mailboxes, 0);
}

#[test]
fn compaction_keeps_the_order_of_messages_due_at_the_same_time() {
    let mut store = open(&SimDisk::new());
    create(&mut store, "a");
    create(&mut store, "filler");
    send(&mut store, "a", b"first", 1000);
    send(&mut store, "filler", &[7; 1500], 0);
    store.rotate(START).unwrap();
    // The segment of the second message is full of live ones: compaction leaves it alone.
    send(&mut store, "a", b"second", 1000);
    send(&mut store, "filler", &[7; 1500], 0);
    send(&mut store, "filler", &[7; 1500], 0);
    store.rotate(START).unwrap();
    store.delete("filler", 0, START).unwrap();
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    let segments = store.info().segments;
    let shared = RefCell::new(store);
    while maintain(&shared, || START).unwrap() {}
    let mut store = shared.into_inner();
    assert!(store.info().segments < segments, "nothing was compacted");
    let due = Now { wall_ms: START.wall_ms + 1000, ..START };
    assert_eq!(payloads(&mut store, "a", due), [&b"first"[..], b"second"]);
}

#[test]
fn a_delayed_message_in_memory_takes_no_msg_id() {
    let disk = SimDisk::new();
    let mut store = open(&disk);
    let policy = Policy { tier: Tier::Memory, ..Policy::default() };
    let new = NewMailbox { address: "a", policy, ..Default::default() };
    store.create_mailbox(&new, START).unwrap();
    send(&mut store, "a", b"later", 1000);
    store.close().unwrap();
    let mut store = open(&disk);
    assert_eq!(store.mailbox("a", START).unwrap().next_id, 0);
}

#[test]
fn a_mailbox_cannot_be_its_own_dead_letter_mailbox() {
    let mut store = open(&SimDisk::new());
    let policy = Policy { max_deliver: 1, dead_letter: Some("a".into()), ..Policy::default() };
    let new = NewMailbox { address: "a", policy, ..Default::default() };
    let refused = store.create_mailbox(&new, START);
    assert!(matches!(refused, Err(Error::InvalidField { field: "dead_letter", .. })));
}

/// A store whose active segment is more than half full, after upkeep.
fn with_next_segment(disk: &SimDisk) -> Store {
    let mut store = open(disk);
    create(&mut store, "a");
    send(&mut store, "a", &[7; 1500], 0);
    send(&mut store, "a", &[7; 1500], 0);
    store.sync().unwrap();
    assert!(store.asks_for_upkeep(), "the next segment is due");
    assert!(!store.asks_for_upkeep(), "asks once");
    let shared = RefCell::new(store);
    while maintain(&shared, || START).unwrap() {}
    assert!(disk.names().contains(&"segment-0000000002.log".to_owned()));
    shared.into_inner()
}

#[test]
fn going_on_in_a_segment_that_was_made_ahead_does_nothing_to_the_disk() {
    let disk = SimDisk::new();
    let mut store = with_next_segment(&disk);
    let before = disk.ops();
    store.rotate(START).unwrap();
    assert_eq!(disk.ops(), before);
    assert_eq!(store.end().segment(), 2);
    send(&mut store, "a", b"in the next", 0);
    store.sync().unwrap();
    drop(store);
    let mut store = open(&disk.crash_strict());
    assert_eq!(store.damage(), []);
    assert_eq!(payloads(&mut store, "a", START).len(), 3);
}

#[test]
fn a_segment_that_was_made_ahead_and_not_used_is_no_damage_and_goes() {
    for closed in [true, false] {
        let disk = SimDisk::new();
        let store = with_next_segment(&disk);
        if closed {
            store.close().unwrap();
            assert!(!disk.names().contains(&"segment-0000000002.log".to_owned()));
        } else {
            drop(store);
        }
        let mut store = open(&disk);
        assert_eq!(store.damage(), []);
        assert_eq!(payloads(&mut store, "a", START).len(), 2);
        let segments = disk.names().into_iter().filter(|name| name.starts_with("segment-"));
        assert_eq!(segments.count(), 2, "closed {closed}");
        store.flush().unwrap();
        drop(store);
        assert_eq!(open(&disk).damage(), []);
    }
}

/// The log went on by itself while the background made a segment: that one is too late.
#[test]
fn a_segment_that_comes_too_late_is_discarded() {
    struct Impatient(RefCell<Store>, std::cell::Cell<usize>);
    impl mq9_core::store::Shared for Impatient {
        fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
            let done = step(&mut self.0.borrow_mut());
            // Between any two steps of the first round.
            if self.1.get() > 0 {
                self.1.set(self.1.get() - 1);
                let mut store = self.0.borrow_mut();
                let before = store.end();
                send(&mut store, "a", &[7; 1500], 0);
                assert!(store.end() > before, "the log goes on, never back");
                store.rotate(START).unwrap();
                send(&mut store, "a", &[7; 1500], 0);
                send(&mut store, "a", &[7; 1000], 0);
                store.sync().unwrap();
            }
            done
        }
    }
    let disk = SimDisk::new();
    let mut store = open(&disk);
    create(&mut store, "a");
    send(&mut store, "a", &[7; 1500], 0);
    send(&mut store, "a", &[7; 1500], 0);
    let shared = Impatient(RefCell::new(store), std::cell::Cell::new(12));
    while maintain(&shared, || START).unwrap() {}
    drop(shared);
    let mut store = open(&disk);
    assert_eq!(store.damage(), []);
    assert_eq!(payloads(&mut store, "a", START).len(), 2 + 3 * 12);
}
