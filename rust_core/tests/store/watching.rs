//! Those who watch are also told what happens without a command: ends of leases, waits and connections.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::consumer::ConsumerPolicy;
use mq9_core::disk::Disk;
use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::{
    Acked, Activity, Changes, ConsumerAck, Delivery, Fetch, FetchOutcome, GroupActivity,
    NewConsumer, NewMailbox, NewStream, Options, Publish, Send, Store,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
const WAIT_MS: u64 = 1_000;

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

/// A store with a mailbox `a`.
fn open(policy: Policy) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let mut store = Store::open(disk, Options::default(), 42, START).unwrap();
    let new = NewMailbox { address: "a", policy, ..NewMailbox::default() };
    store.create_mailbox(&new, START).unwrap();
    store
}

fn send(store: &mut Store, address: &str, now: Now) {
    store.send(address, &Send { level: Level::NORMAL, ..Send::new(b"text") }, now).unwrap();
}

/// Group `g` of `a` asks over connection 7 and may hold what it gets for [`WAIT_MS`].
fn fetch(store: &mut Store, wait_ms: u64, now: Now) -> FetchOutcome {
    let request = Fetch { ack_wait_ms: WAIT_MS, wait_ms, conn: 7, ..Fetch::group("a", "g", 10) };
    store.fetch(request, now).unwrap()
}

/// Reads all there is to read; where to go on.
fn caught_up(store: &mut Store, now: Now) -> u64 {
    let mut next = store.changes(0, 100, now).next;
    loop {
        let watched = store.changes(next, 100, now);
        assert!(!watched.reset);
        next = watched.next;
        if !watched.more {
            return next;
        }
    }
}

/// The row of a mailbox that must have been told of after `next`.
fn told(store: &mut Store, next: u64, address: &str, now: Now) -> Activity {
    let watched = store.changes(next, 100, now);
    assert!(!watched.reset);
    let mut changed = watched.changed.into_iter();
    let row = changed.find(|row| row.address == address || row.stream.as_deref() == Some(address));
    row.unwrap_or_else(|| panic!("{address} has changed and nobody is told"))
}

fn group(row: &Activity) -> &GroupActivity {
    &row.groups[0]
}

#[test]
fn what_was_read_and_changes_before_the_rest_is_read_is_told_again() {
    let mut store = open(Policy::default());
    for number in 0..20 {
        let address = format!("m{number}");
        store
            .create_mailbox(&NewMailbox { address: &address, ..Default::default() }, START)
            .unwrap();
    }
    let (slow, mut next) = (caught_up(&mut store, at(1)), caught_up(&mut store, at(1)));
    for number in 0..20 {
        send(&mut store, &format!("m{number}"), at(2));
    }
    let mut seen = std::collections::BTreeMap::new();
    for step in 0_u64.. {
        let watched = store.changes(next, 3, at(3));
        seen.extend(watched.changed.into_iter().map(|row| (row.address, row.next_id)));
        next = watched.next;
        if !watched.more {
            break;
        }
        if step < 6 {
            // One that was read in the first step changes after each of the others.
            send(&mut store, "m0", at(3));
        }
    }
    assert_eq!(seen.remove("m0"), Some(7), "the last change of it is told");
    assert!(seen.values().all(|next_id| *next_id == 1) && seen.len() == 19, "{seen:?}");
    assert_eq!(told(&mut store, slow, "m0", at(4)).next_id, 7, "to the slower one, too");
}

#[test]
fn a_lease_that_ends_is_told_and_its_member_is_one_no_more() {
    let mut store = open(Policy::default());
    send(&mut store, "a", at(1));
    let next = caught_up(&mut store, at(1));
    fetch(&mut store, 0, at(2));
    let row = told(&mut store, next, "a", at(3));
    assert_eq!((group(&row).members, group(&row).outstanding), (1, 1));
    let next = caught_up(&mut store, at(3));
    store.tick(at(WAIT_MS + 10));
    let row = told(&mut store, next, "a", at(WAIT_MS + 10));
    assert_eq!((group(&row).members, group(&row).outstanding), (0, 1), "nobody works on it");
    assert_eq!(group(&row).oldest_ms, at(1).wall_ms);
    store.check_invariants();
}

#[test]
fn a_connection_that_closes_is_told_and_its_member_is_one_no_more() {
    let mut store = open(Policy::default());
    send(&mut store, "a", at(1));
    fetch(&mut store, 0, at(2));
    let next = caught_up(&mut store, at(3));
    store.disconnect(7, at(4));
    let row = told(&mut store, next, "a", at(5));
    assert_eq!((group(&row).members, group(&row).outstanding), (0, 1));
}

#[test]
fn a_message_that_rests_has_no_member() {
    let mut store = open(Policy::default());
    send(&mut store, "a", at(1));
    fetch(&mut store, 0, at(2));
    let ack = mq9_core::store::Ack {
        address: "a",
        group: "g",
        msg_ids: &[0],
        kind: mq9_core::store::AckKind::Return { delay_ms: 60_000 },
    };
    let next = caught_up(&mut store, at(3));
    store.ack(&ack, at(4)).unwrap();
    let row = told(&mut store, next, "a", at(5));
    assert_eq!((group(&row).members, group(&row).counts.returned), (0, 1));
}

#[test]
fn waits_that_begin_and_end_are_told() {
    let mut store = open(Policy::default());
    let next = caught_up(&mut store, at(1));
    let FetchOutcome::Waiting(waiter) = fetch(&mut store, 50, at(2)) else { panic!("it waits") };
    assert_eq!(group(&told(&mut store, next, "a", at(3))).members, 1);
    let next = caught_up(&mut store, at(3));
    assert!(store.cancel_wait(waiter));
    assert_eq!(group(&told(&mut store, next, "a", at(4))).members, 0, "given up");
    fetch(&mut store, 50, at(5));
    let next = caught_up(&mut store, at(6));
    store.tick(at(100));
    assert_eq!(group(&told(&mut store, next, "a", at(100))).members, 0, "over");
    fetch(&mut store, 50, at(101));
    let next = caught_up(&mut store, at(102));
    store.disconnect(7, at(103));
    assert_eq!(group(&told(&mut store, next, "a", at(104))).members, 0, "its client has gone");
}

#[test]
fn messages_that_die_by_themselves_are_told() {
    let policy = Policy { max_deliver: 1, dead_letter: Some("dead".into()), ..Policy::default() };
    let mut store = open(policy);
    send(&mut store, "a", at(1));
    fetch(&mut store, 0, at(2));
    let next = caught_up(&mut store, at(3));
    store.tick(at(WAIT_MS + 10));
    let row = told(&mut store, next, "a", at(WAIT_MS + 10));
    assert_eq!((group(&row).outstanding, group(&row).counts.dead), (0, 1));
    assert_eq!(group(&row).oldest_ms, 0, "nothing is left to do");
}

#[test]
fn a_changed_policy_is_told() {
    let mut store = open(Policy::default());
    let next = caught_up(&mut store, at(1));
    let change = |policy: &mut Policy| policy.dead_letter = Some("elsewhere".into());
    store.update_mailbox("a", Changes::default(), change, at(2)).unwrap();
    assert_eq!(told(&mut store, next, "a", at(3)).dead_letter, "elsewhere");
}

#[test]
fn the_age_of_a_group_is_that_of_what_it_has_not_done() {
    let mut store = open(Policy::default());
    for ms in [1, 10, 20] {
        send(&mut store, "a", at(ms));
    }
    let age = |store: &mut Store| store.activities(0, 1, at(30)).0[0].groups[0].oldest_ms;
    let request = Fetch { conn: 7, ..Fetch::group("a", "g", 2) };
    store.fetch(request, at(21)).unwrap();
    assert_eq!(age(&mut store), at(1).wall_ms, "it holds the first");
    let done = |only| mq9_core::store::AckKind::Done { only };
    let ack =
        |msg_ids| mq9_core::store::Ack { address: "a", group: "g", msg_ids, kind: done(true) };
    store.ack(&ack(&[0]), at(22)).unwrap();
    assert_eq!(age(&mut store), at(10).wall_ms, "and now the second");
    store.ack(&ack(&[1]), at(23)).unwrap();
    assert_eq!(age(&mut store), at(20).wall_ms, "the third was not given yet");
}

#[test]
fn consumers_of_streams_are_told_with_what_they_did() {
    let mut store = open(Policy::default());
    let new = NewStream { name: "S", config: "{}", policy: Policy::default() };
    let key = store.create_stream(&new, START).unwrap();
    let policy = ConsumerPolicy { ack_wait_ms: WAIT_MS, max_deliver: 2, ..Default::default() };
    let new = NewConsumer { name: "c", policy, config: "{}", next: 0, early: Vec::new() };
    let next = caught_up(&mut store, at(1));
    let consumer = store.set_consumer(key, &new, START).unwrap();
    assert_eq!(told(&mut store, next, "S", at(1)).group_count, 1);
    for _ in 0..6 {
        let publish = Publish { subject: "s", payload: b"x", ..Publish::default() };
        store.publish_to(key, &publish, at(2)).unwrap();
    }
    let next = caught_up(&mut store, at(2));
    store.set_waiting(consumer, 3, at(3));
    let row = told(&mut store, next, "S", at(3));
    assert_eq!((group(&row).members, group(&row).lag), (3, 6));
    store.set_waiting(consumer, 0, at(3));
    let offers = store.offers(consumer, 4, at(4)).unwrap();
    let next = caught_up(&mut store, at(4));
    store.give(consumer, &offers, at(5)).unwrap();
    let row = told(&mut store, next, "S", at(5));
    assert_eq!((group(&row).lag, group(&row).outstanding, group(&row).members), (2, 4, 1));
    let next = caught_up(&mut store, at(5));
    for (msg_id, ack) in [
        (0, ConsumerAck::Done),
        (1, ConsumerAck::Terminate("bad".into())),
        (2, ConsumerAck::Return(None)),
    ] {
        let of = Delivery { msg_id, number: msg_id + 1, count: 1, ..Delivery::default() };
        assert_eq!(store.consumer_ack(consumer, &of, &ack, at(200)).unwrap(), Acked::Heard);
    }
    let row = told(&mut store, next, "S", at(201));
    let counts = &group(&row).counts;
    assert_eq!((counts.delivered, counts.acked, counts.returned, counts.dead), (4, 1, 1, 1));
    assert_eq!(counts.durations().iter().sum::<u32>(), 1);
    assert_eq!(group(&row).oldest_ms, at(2).wall_ms);
    let next = caught_up(&mut store, at(201));
    let again = store.offers(consumer, 1, at(202)).unwrap();
    store.give(consumer, &again, at(202)).unwrap();
    // The time of both is over: the one that was given twice is given up.
    store.tick(at(5_000));
    let row = told(&mut store, next, "S", at(5_000));
    let counts = &group(&row).counts;
    assert_eq!((counts.delivered, counts.redelivered, counts.dead), (5, 1, 2));
    assert_eq!((group(&row).outstanding, group(&row).members), (1, 0), "one came back");
    let by_origin: Vec<_> = store.dead_counts().by_origin().collect();
    assert_eq!(by_origin, [("s", 2)], "by subject");
    let next = caught_up(&mut store, at(5_000));
    store.remove_consumer(consumer, false, at(5_001)).unwrap();
    assert_eq!(told(&mut store, next, "S", at(5_002)).group_count, 0);
}
