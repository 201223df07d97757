//! An operator who watches is told every change, each mailbox once between two looks.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::{Ack, AckKind, Fetch, FetchOutcome, NewMailbox, Options, Send, Store};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn open() -> Store {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    Store::open(disk, Options::default(), 42, START).unwrap()
}

fn create(store: &mut Store, address: &str) {
    store.create_mailbox(&NewMailbox { address, ..NewMailbox::default() }, START).unwrap();
}

fn send(store: &mut Store, address: &str, level: Level) {
    store.send(address, &Send { level, ..Send::new(b"text") }, at(1)).unwrap();
}

/// Begins to watch.
fn begin(store: &mut Store) -> u64 {
    let watched = store.changes(0, 100, at(2));
    assert!(watched.reset && watched.changed.is_empty());
    watched.next
}

fn names(store: &mut Store, after: u64) -> (Vec<String>, u64) {
    let watched = store.changes(after, 100, at(3));
    assert!(!watched.reset && !watched.more);
    (watched.changed.iter().map(|row| row.address.clone()).collect(), watched.next)
}

fn fetch(store: &mut Store, num: usize, now: Now) -> Vec<u64> {
    let outcome = store.fetch(Fetch::group("a", "g", num), now).unwrap();
    let FetchOutcome::Messages(batch) = outcome else { panic!("did not ask to wait") };
    batch.iter().map(|(meta, _)| meta.msg_id).collect()
}

#[test]
fn a_mailbox_is_listed_once_however_often_it_changes() {
    let mut store = open();
    for address in ["a", "b", "c"] {
        create(&mut store, address);
    }
    let next = begin(&mut store);
    assert_eq!(names(&mut store, next), (vec![], next), "nothing has changed");
    for _ in 0..10 {
        send(&mut store, "b", Level::NORMAL);
        send(&mut store, "a", Level::NORMAL);
    }
    let (changed, next) = names(&mut store, next);
    assert_eq!(changed, ["b", "a"]);
    send(&mut store, "b", Level::NORMAL);
    assert_eq!(names(&mut store, next).0, ["b"], "and again after a look");
}

#[test]
fn pages_give_every_change_and_two_watchers_do_not_take_each_others() {
    let mut store = open();
    for number in 0..20 {
        create(&mut store, &format!("m{number}"));
    }
    let (one, two) = (begin(&mut store), begin(&mut store));
    for number in 0..20 {
        send(&mut store, &format!("m{number}"), Level::NORMAL);
    }
    let (mut next, mut seen) = (one, vec![]);
    loop {
        let watched = store.changes(next, 3, at(3));
        seen.extend(watched.changed.into_iter().map(|row| row.address));
        next = watched.next;
        if !watched.more {
            break;
        }
        // What changes between two pages is told further on.
        send(&mut store, "m19", Level::NORMAL);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 20);
    let (changed, _) = names(&mut store, two);
    assert_eq!(changed.len(), 20, "the other one has missed nothing");
}

#[test]
fn a_mailbox_that_is_gone_is_told_by_its_place_and_the_next_one_there_by_its_name() {
    let mut store = open();
    create(&mut store, "a");
    create(&mut store, "b");
    let next = begin(&mut store);
    store.remove_mailbox("a", at(2)).unwrap();
    let watched = store.changes(next, 100, at(3));
    assert_eq!((watched.gone.as_slice(), watched.changed.len()), (&[0][..], 0));
    create(&mut store, "new");
    let watched = store.changes(watched.next, 100, at(3));
    assert_eq!(watched.changed[0].address, "new");
    assert_eq!((watched.changed[0].slot, watched.gone.len()), (0, 0));
}

#[test]
fn who_asks_for_what_nobody_knows_reads_all_anew() {
    let mut store = open();
    create(&mut store, "a");
    assert!(store.changes(17, 100, at(2)).reset, "nobody has watched yet");
    let next = begin(&mut store);
    assert!(store.changes(next + 1, 100, at(2)).reset, "the future");
    let (rows, more) = store.activities(0, 100, at(2));
    assert_eq!((rows.len(), more), (1, None));
}

#[test]
fn a_row_tells_of_lanes_groups_and_what_they_did() {
    let mut store = open();
    let policy = Policy { max_deliver: 1, dead_letter: Some("dead".into()), ..Policy::default() };
    let new = NewMailbox { address: "a", policy, ..NewMailbox::default() };
    store.create_mailbox(&new, START).unwrap();
    for level in [Level::NORMAL, Level::NORMAL, Level::new(1).unwrap(), Level::NORMAL] {
        send(&mut store, "a", level);
    }
    let next = begin(&mut store);
    assert_eq!(fetch(&mut store, 3, at(10)), [2, 0, 1]);
    let ack = |ids, kind| Ack { address: "a", group: "g", msg_ids: ids, kind };
    store.ack(&ack(&[2], AckKind::Done { only: true }), at(101)).unwrap();
    store.ack(&ack(&[0], AckKind::Terminate), at(101)).unwrap();
    let watched = store.changes(next, 100, at(102));
    let row = watched.changed.iter().find(|row| row.address == "a").unwrap();
    assert_eq!(row.levels, [(1, 1), (5, 3)]);
    assert_eq!((row.next_id, row.oldest_ms), (4, at(1).wall_ms));
    assert_eq!((row.dead_letter.as_str(), row.group_count), ("dead", 1));
    let group = &row.groups[0];
    assert_eq!((group.name.as_str(), group.lag, group.outstanding), ("g", 1, 1));
    assert_eq!((group.counts.delivered, group.counts.redelivered), (3, 0));
    assert_eq!((group.counts.acked, group.counts.dead), (1, 1));
    assert_eq!(group.members, 1);
    assert_eq!(group.used_ms, at(101).wall_ms);
    let took: u32 = group.counts.durations().iter().sum();
    assert_eq!((took, group.counts.durations()[7]), (1, 1), "100 ms lie between 64 and 128");
    assert!(watched.changed.iter().any(|row| row.address == "dead"), "the dead letter is news");
}

#[test]
fn lag_is_counted_right_in_long_lanes_with_gaps() {
    let mut store = open();
    create(&mut store, "a");
    for _ in 0..3_000 {
        send(&mut store, "a", Level::NORMAL);
    }
    for msg_id in (0..3_000).step_by(3) {
        store.delete("a", msg_id, at(2)).unwrap();
    }
    for (num, lag) in [(1, 1_999), (700, 1_299), (600, 699), (600, 99)] {
        let given = fetch(&mut store, num, at(3));
        store
            .ack(
                &Ack {
                    address: "a",
                    group: "g",
                    msg_ids: &given,
                    kind: AckKind::Done { only: false },
                },
                at(3),
            )
            .unwrap();
        let (rows, _) = store.activities(0, 1, at(4));
        assert_eq!(rows[0].groups[0].lag, lag);
    }
}

#[test]
fn groups_beyond_those_of_a_row_are_told_in_pages() {
    let mut store = open();
    create(&mut store, "a");
    send(&mut store, "a", Level::NORMAL);
    for number in 0..80 {
        let group = format!("g{number:02}");
        store.fetch(Fetch::group("a", &group, 1), at(3)).unwrap();
    }
    let (rows, _) = store.activities(0, 1, at(4));
    assert_eq!((rows[0].group_count, rows[0].groups.len()), (80, 32));
    let mut names: Vec<_> = rows[0].groups.iter().map(|group| group.name.clone()).collect();
    loop {
        let (address, page) = store.group_activities(rows[0].slot, names.len(), 30, at(4)).unwrap();
        assert_eq!(address, "a");
        assert!(page.iter().all(|group| group.outstanding == 1));
        names.extend(page.iter().map(|group| group.name.clone()));
        if page.len() < 30 {
            break;
        }
    }
    assert_eq!(names, (0..80).map(|number| format!("g{number:02}")).collect::<Vec<_>>());
    store.remove_mailbox("a", at(5)).unwrap();
    assert_eq!(store.group_activities(rows[0].slot, 0, 30, at(5)), None);
}
