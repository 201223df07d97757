//! A send with an id that comes again is the same send, for a while, whatever became of the message.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::Error;
use mq9_core::mailbox::{MAX_SENT_IDS, Policy, Tier};
use mq9_core::store::{NewMailbox, Once, Options, Send, Store, maintain};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn open(disk: &SimDisk, now: Now) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = Options { segment_bytes: 16 << 10, ..Options::default() };
    Store::open(disk, options, 42 ^ now.wall_ms, now).unwrap()
}

fn created(disk: &SimDisk, policy: Policy) -> Store {
    let mut store = open(disk, START);
    let new = NewMailbox { address: "a", policy, ..NewMailbox::default() };
    store.create_mailbox(&new, START).unwrap();
    store
}

fn once(store: &mut Store, id: &str, ms: u64) -> Once {
    store.send_once("a", id, &Send::new(b"payload"), at(ms)).unwrap()
}

fn first(msg_id: u64) -> Once {
    Once { msg_id: Some(msg_id), duplicate: false }
}

fn again(msg_id: u64) -> Once {
    Once { msg_id: Some(msg_id), duplicate: true }
}

#[test]
fn the_same_id_is_the_same_send_until_the_window_is_over() {
    for (dedup_window_ms, window) in [(0, 120_000), (5_000, 5_000)] {
        for tier in [Tier::Durable, Tier::Memory] {
            let policy = Policy { dedup_window_ms, tier, ..Policy::default() };
            let mut store = created(&SimDisk::new(), policy);
            assert_eq!(once(&mut store, "x", 0), first(0));
            assert_eq!(once(&mut store, "y", 1), first(1));
            assert_eq!(once(&mut store, "x", window - 1), again(0));
            assert_eq!(store.mailbox("a", at(1)).unwrap().messages, 2);
            assert_eq!(once(&mut store, "x", window), first(2));
            assert_eq!(once(&mut store, "x", window + 1), again(2));
        }
    }
}

#[test]
fn it_is_known_whatever_became_of_the_message() {
    let policies = [
        Policy::default(),
        Policy { latest: true, ..Policy::default() },
        Policy { max_msgs: 1, ..Policy::default() },
    ];
    for policy in policies {
        let disk = SimDisk::new();
        let mut store = created(&disk, policy);
        let keyed = Send { key: "k", ..Send::new(b"keyed") };
        assert_eq!(store.send_once("a", "x", &keyed, at(0)).unwrap(), first(0));
        assert_eq!(store.send("a", &keyed, at(1)).unwrap(), Some(1));
        assert_eq!(store.send_once("a", "x", &keyed, at(2)).unwrap(), again(0));
        store.delete("a", 1, at(3)).unwrap();
        store.purge("a", at(3)).unwrap();
        assert_eq!(store.send_once("a", "x", &keyed, at(4)).unwrap(), again(0));
        let later = Send { delay_ms: 1_000, ..Send::new(b"later") };
        let sent = store.send_once("a", "late", &later, at(5)).unwrap();
        assert_eq!(sent, Once { msg_id: None, duplicate: false });
        // The same reply, also when it has its number by now.
        for ms in [6, 60_000] {
            let sent = store.send_once("a", "late", &later, at(ms)).unwrap();
            assert_eq!(sent, Once { msg_id: None, duplicate: true });
        }
        assert_eq!(store.mailbox("a", at(60_000)).unwrap().messages, 1);
    }
}

#[test]
fn it_is_known_after_a_restart_with_and_without_checkpoints_and_compaction() {
    for upkeep in 0..4 {
        let disk = SimDisk::new();
        let mut store = created(&disk, Policy::default());
        for n in 0..3_000 {
            assert_eq!(once(&mut store, &format!("id {n}"), n), first(n));
            if n % 3 > 0 {
                store.delete("a", n, at(n)).unwrap();
            }
        }
        match upkeep {
            1 => store.checkpoint().unwrap(),
            2 => {
                let shared = std::cell::RefCell::new(store);
                for _ in 0..3 {
                    shared.borrow_mut().checkpoint().unwrap();
                    while maintain(&shared, || at(3_000)).unwrap() {}
                }
                store = shared.into_inner();
            }
            _ => {}
        }
        assert_eq!(once(&mut store, "last", 3_000), first(3_000));
        if upkeep == 3 {
            store.close().unwrap();
        } else {
            store.sync().unwrap();
            drop(store);
        }
        let mut store = open(&disk, at(3_001));
        assert_eq!(store.damage(), []);
        for n in (0..3_000).step_by(7) {
            assert_eq!(once(&mut store, &format!("id {n}"), 3_002), again(n));
        }
        assert_eq!(once(&mut store, "last", 3_002), again(3_000));
        assert_eq!(once(&mut store, "id 5", 120_005), first(3_001));
    }
}

#[test]
fn what_is_in_memory_only_may_be_sent_again_after_a_restart() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy { tier: Tier::Memory, ..Policy::default() });
    assert_eq!(once(&mut store, "x", 0), first(0));
    store.close().unwrap();
    let mut store = open(&disk, at(1));
    assert_eq!(once(&mut store, "x", 2), first(65_536));
}

#[test]
fn a_send_that_is_refused_is_not_remembered() {
    let mut store = created(&SimDisk::new(), Policy { max_msg_size: 200, ..Policy::default() });
    let large = Send::new(&[7; 500]);
    let refused = store.send_once("a", "x", &large, at(0));
    assert!(matches!(refused, Err(Error::MessageTooLarge { .. })), "{refused:?}");
    for id in ["", &"x".repeat(256)] {
        let refused = store.send_once("a", id, &Send::new(b""), at(0));
        assert!(matches!(refused, Err(Error::InvalidField { field: "id", .. })), "{refused:?}");
    }
    assert_eq!(once(&mut store, "x", 1), first(0));
}

#[test]
fn so_many_ids_are_remembered_and_no_more() {
    let mut store = created(&SimDisk::new(), Policy { latest: true, ..Policy::default() });
    let many = MAX_SENT_IDS as u64;
    for n in 0..=many {
        once(&mut store, &n.to_string(), 0);
    }
    assert_eq!(once(&mut store, "1", 1), again(1));
    assert_eq!(once(&mut store, "0", 1), first(many + 1));
    // They are forgotten when their time is over, a few at a time.
    let mut ticks = 0;
    while store.sleep_ms(at(130_000)).is_some() {
        store.tick(at(130_000));
        ticks += 1;
    }
    assert!(ticks > 100, "{ticks}");
}
