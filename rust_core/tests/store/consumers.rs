//! Consumers are given each message once at a time, come back to it when they said, and forget nothing at a restart.

use std::sync::Arc;

use mq9_core::consumer::{AckPolicy, ConsumerPolicy};
use mq9_core::disk::Disk;
use mq9_core::mailbox::Policy;
use mq9_core::store::{
    Acked, ConsumerAck, ConsumerKey, Delivery, NewConsumer, NewStream, Options, Publish, Store,
    StreamKey, StreamPurge,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

pub const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 1_000 };

pub fn later(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

pub fn open(disk: &SimDisk, now: Now) -> Store {
    let options = Options { segment_bytes: 4096, allocate_bytes: 4096, ..Options::default() };
    Store::open(Arc::new(disk.clone()) as Arc<dyn Disk>, options, 7, now).expect("it opens")
}

/// A stream with messages to these subjects.
pub fn stream(store: &mut Store, policy: Policy, subjects: &[&str]) -> StreamKey {
    let new = NewStream { name: "S", config: "{}", policy };
    let key = store.create_stream(&new, START).expect("the stream is new");
    publish(store, key, subjects);
    key
}

fn publish(store: &mut Store, key: StreamKey, subjects: &[&str]) {
    for subject in subjects {
        let publish = Publish { subject, payload: b"payload", ..Publish::default() };
        store.publish_to(key, &publish, START).expect("it is stored");
    }
}

pub fn policy() -> ConsumerPolicy {
    ConsumerPolicy { ack_wait_ms: 1_000, ..ConsumerPolicy::default() }
}

pub fn consumer(
    store: &mut Store,
    key: StreamKey,
    name: &str,
    policy: ConsumerPolicy,
) -> ConsumerKey {
    let new = NewConsumer { name, policy, config: "{}", next: 0, early: Vec::new() };
    store.set_consumer(key, &new, START).expect("the consumer is new")
}

/// What a consumer is given, each as `msg_id` and count.
pub fn pull(store: &mut Store, key: ConsumerKey, most: usize, now: Now) -> Vec<(u64, u32)> {
    while store.tick(now) || store.sleep_ms(now) == Some(0) {}
    let offers = store.offers(key, most, now).expect("offers can be read");
    store.give(key, &offers, now).expect("it is logged");
    store.check_invariants();
    offers.iter().map(|offer| (offer.msg_id(), offer.count)).collect()
}

pub fn say(store: &mut Store, key: ConsumerKey, msg_id: u64, ack: &ConsumerAck, now: Now) {
    let of = Delivery { msg_id, number: 1, count: u32::MAX, ..Delivery::default() };
    let acked = store.consumer_ack(key, &of, ack, now).expect("it is logged");
    assert_eq!(acked, Acked::Heard);
    store.check_invariants();
}

pub fn stored(store: &Store, key: StreamKey) -> u64 {
    store.stream_info(key).expect("the stream is there").messages
}

#[test]
fn a_message_that_was_returned_twice_is_given_once() {
    let mut store = open(&SimDisk::new(), START);
    let key = stream(&mut store, Policy::default(), &["a", "b"]);
    let key = consumer(&mut store, key, "c", policy());
    assert_eq!(pull(&mut store, key, 2, START), [(0, 1), (1, 1)]);
    say(&mut store, key, 0, &ConsumerAck::Return(None), START);
    say(&mut store, key, 1, &ConsumerAck::Return(None), START);
    assert_eq!(pull(&mut store, key, 1, START), [(0, 2)]);
    say(&mut store, key, 0, &ConsumerAck::Return(None), START);
    assert_eq!(pull(&mut store, key, 9, START), [(1, 2), (0, 3)], "in the order of the returns");
    assert_eq!(pull(&mut store, key, 9, START), []);
}

#[test]
fn what_is_delivered_as_often_as_allowed_is_given_up_however_much_returns_at_once() {
    let mut store = open(&SimDisk::new(), START);
    let key = stream(&mut store, Policy::default(), &["s"; 3000]);
    let most = ConsumerPolicy { max_deliver: 2, ..policy() };
    let key = consumer(&mut store, key, "c", most);
    assert_eq!(pull(&mut store, key, 3000, START).len(), 3000);
    let mut again = Vec::new();
    while again.len() < 3000 {
        let given = pull(&mut store, key, 700, later(1_000));
        assert!(given.iter().all(|(_, count)| *count == 2) && !given.is_empty());
        again.extend(given);
    }
    assert_eq!(pull(&mut store, key, 1, later(2_000)), []);
    let info = store.consumer_info(key).unwrap();
    assert_eq!((info.ack_pending, info.redelivered), (0, 3000));
}

#[test]
fn a_returned_message_waits_as_long_as_was_said_after_a_restart() {
    for checkpoint in [false, true] {
        let disk = SimDisk::new();
        let mut store = open(&disk, START);
        let key = stream(&mut store, Policy::default(), &["a", "b", "c", "d"]);
        let key = consumer(&mut store, key, "c", policy());
        assert_eq!(pull(&mut store, key, 4, START).len(), 4);
        say(&mut store, key, 0, &ConsumerAck::Return(Some(600_000)), START);
        say(&mut store, key, 1, &ConsumerAck::Return(None), START);
        // Whoever says that it is at work does not return it any more.
        say(&mut store, key, 2, &ConsumerAck::Return(Some(600_000)), START);
        say(&mut store, key, 2, &ConsumerAck::Progress, START);
        if checkpoint {
            store.close().unwrap();
        } else {
            store.sync().unwrap();
            drop(store);
        }
        // The monotonic clock begins anew with the machine.
        let after = |ms: u64| Now { mono_ms: 50 + ms, ..later(100 + ms) };
        let mut store = open(&disk, after(0));
        let stream = store.find_stream("S").unwrap();
        let key = store.find_consumer(stream, "c").unwrap();
        assert_eq!(pull(&mut store, key, 9, after(1)), [(1, 2)], "checkpoint {checkpoint}");
        say(&mut store, key, 1, &ConsumerAck::Done, after(1));
        assert_eq!(pull(&mut store, key, 9, after(5_000)), [(2, 2), (3, 2)]);
        say(&mut store, key, 2, &ConsumerAck::Done, after(5_000));
        say(&mut store, key, 3, &ConsumerAck::Done, after(5_000));
        assert_eq!(pull(&mut store, key, 9, after(599_800)), []);
        assert_eq!(pull(&mut store, key, 9, after(600_000)), [(0, 2)]);
    }
}

#[test]
fn ids_filters_and_policies_that_the_log_cannot_hold_are_refused_before_anything_is_written() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let key = stream(&mut store, Policy::default(), &["a"]);
    let end = store.end();
    for id in ["x".repeat(256), "\u{e9}".repeat(128)] {
        let publish = Publish { subject: "s", id: &id, ..Publish::default() };
        assert!(store.publish_to(key, &publish, START).is_err(), "{} bytes", id.len());
    }
    let filter: Box<str> = format!("a.{}", "\u{e9}".repeat(127)).into();
    for policy in [
        ConsumerPolicy { filters: vec![filter], ..policy() },
        ConsumerPolicy { filters: vec!["abc.defg".into(); 10_000], ..policy() },
        ConsumerPolicy { backoff_ms: vec![5; 7_300], ..policy() },
    ] {
        let new = NewConsumer { name: "c", policy, config: "{}", next: 0, early: Vec::new() };
        assert!(store.set_consumer(key, &new, START).is_err());
    }
    assert_eq!(store.end(), end, "something was written");
    let longest = "y".repeat(255);
    let publish = Publish { subject: "s", id: &longest, ..Publish::default() };
    assert_eq!(store.publish_to(key, &publish, START).unwrap().seq, 2);
    let filters = vec!["z".repeat(255).into()];
    consumer(&mut store, key, "d", ConsumerPolicy { filters, ..policy() });
    store.sync().unwrap();
    drop(store);
    let mut store = open(&disk, later(1));
    assert_eq!(store.damage(), []);
    let key = store.find_stream("S").unwrap();
    assert!(store.publish_to(key, &publish, START).unwrap().duplicate);
    assert!(store.find_consumer(key, "d").is_some());
}

#[test]
fn where_interest_keeps_messages_they_go_with_the_last_who_wants_them() {
    let mut store = open(&SimDisk::new(), START);
    let interest = Policy { interest: true, ..Policy::default() };
    let key = stream(&mut store, interest, &[]);
    let first = consumer(&mut store, key, "first", policy());
    let quiet = ConsumerPolicy { ack: AckPolicy::None, ..ConsumerPolicy::default() };
    let quiet = consumer(&mut store, key, "quiet", quiet);
    publish(&mut store, key, &["a", "b"]);
    // Begins behind both, and is to have the first of them before what is new.
    let new =
        NewConsumer { name: "early", policy: policy(), config: "{}", next: 2, early: vec![0] };
    let early = store.set_consumer(key, &new, START).unwrap();
    assert_eq!(pull(&mut store, quiet, 9, START), [(0, 1), (1, 1)]);
    assert_eq!(stored(&store, key), 2);
    assert_eq!(pull(&mut store, first, 9, START), [(0, 1), (1, 1)]);
    say(&mut store, first, 0, &ConsumerAck::Done, START);
    say(&mut store, first, 1, &ConsumerAck::Done, START);
    assert_eq!(stored(&store, key), 1, "the first is still wanted, the second is not");
    assert_eq!(pull(&mut store, early, 9, START), [(0, 1)]);
    say(&mut store, early, 0, &ConsumerAck::Done, START);
    assert_eq!(stored(&store, key), 0);
    // Who acknowledges nothing has done with what it was given.
    publish(&mut store, key, &["c"]);
    for key in [first, early] {
        assert_eq!(pull(&mut store, key, 9, START), [(2, 1)]);
        say(&mut store, key, 2, &ConsumerAck::Done, START);
    }
    assert_eq!(stored(&store, key), 1);
    assert_eq!(pull(&mut store, quiet, 9, START), [(2, 1)]);
    assert_eq!(stored(&store, key), 0);
}

#[test]
fn a_consumer_with_a_filter_is_given_its_own_messages_after_a_purge() {
    let mut store = open(&SimDisk::new(), START);
    let stream = stream(&mut store, Policy::default(), &["a", "b"]);
    let only_b = ConsumerPolicy { filters: vec!["b".into()], ..policy() };
    let key = consumer(&mut store, stream, "c", only_b);
    assert_eq!(pull(&mut store, key, 9, START), [(1, 1)]);
    let mut purging = store.begin_purge(stream, StreamPurge::default()).unwrap();
    while store.purge_some(&mut purging, START).unwrap() {}
    // The subjects come in another order than before.
    publish(&mut store, stream, &["b", "a"]);
    store.check_invariants();
    assert_eq!(store.consumer_info(key).unwrap().pending, 1);
    assert_eq!(pull(&mut store, key, 9, START), [(2, 1)]);
}

/// Two messages that a consumer was given as often as allowed, and says something of afterwards. `Err` when the power
/// goes, with how many it has said so of.
fn acknowledge_late(disk: &SimDisk, policy: &Policy, told: &mut usize) -> Result<(), ()> {
    let gone = |_| ();
    let options = Options { segment_bytes: 4096, allocate_bytes: 4096, ..Options::default() };
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    let mut store = Store::open(disk, options, 7, START).map_err(gone)?;
    let new = NewStream { name: "S", config: "{}", policy: policy.clone() };
    let stream = store.create_stream(&new, START).map_err(gone)?;
    let once = ConsumerPolicy { max_deliver: 1, ..self::policy() };
    let new = NewConsumer { name: "c", policy: once, config: "{}", next: 0, early: Vec::new() };
    let key = store.set_consumer(stream, &new, START).map_err(gone)?;
    for subject in ["a", "b"] {
        let publish = Publish { subject, payload: b"payload", ..Publish::default() };
        store.publish_to(stream, &publish, START).map_err(|_| ())?;
    }
    let offers = store.offers(key, 2, START).map_err(gone)?;
    store.give(key, &offers, START).map_err(gone)?;
    while store.tick(later(1_000)) || store.sleep_ms(later(1_000)) == Some(0) {}
    assert!(store.offers(key, 2, later(1_000)).map_err(gone)?.is_empty(), "they are given up");
    store.sync().map_err(gone)?;
    for (msg_id, ack) in [ConsumerAck::Done, ConsumerAck::Terminate("no".into())].iter().enumerate()
    {
        let of = Delivery { msg_id: msg_id as u64, number: 1, count: 1, ..Delivery::default() };
        store.consumer_ack(key, &of, ack, later(1_100)).map_err(gone)?;
        store.check_invariants();
        store.sync().map_err(gone)?;
        *told += 1;
    }
    store.close().map_err(gone)
}

#[test]
fn what_is_acknowledged_after_it_was_given_up_goes_and_never_comes_again() {
    let work_queue = Policy { work_queue: true, ..Policy::default() };
    let interest = Policy { interest: true, ..Policy::default() };
    for policy in [work_queue, interest] {
        let whole = SimDisk::new();
        acknowledge_late(&whole, &policy, &mut 0).unwrap();
        for cut in 1..=whole.ops() {
            let disk = SimDisk::new();
            disk.cut_at(cut);
            let mut told = 0;
            assert!(acknowledge_late(&disk, &policy, &mut told).is_err() || cut == whole.ops());
            for crashed in [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()] {
                let mut store = open(&crashed, later(2_000));
                store.check_invariants();
                let Some(key) = store.find_stream("S") else { continue };
                for msg_id in 0..told as u64 {
                    let left = store.stream_message(key, msg_id).unwrap();
                    assert!(left.is_none(), "cut at {cut}: {msg_id} was acknowledged and is there");
                }
            }
        }
    }
}

#[test]
fn whoever_was_not_given_a_message_cannot_let_it_go() {
    let mut store = open(&SimDisk::new(), START);
    let key = stream(&mut store, Policy { work_queue: true, ..Policy::default() }, &["b", "a"]);
    let filters = vec!["a".into()];
    let key_of_a = consumer(&mut store, key, "c", ConsumerPolicy { filters, ..policy() });
    assert_eq!(pull(&mut store, key_of_a, 9, START), [(1, 1)]);
    say(&mut store, key_of_a, 0, &ConsumerAck::Done, START);
    assert_eq!(stored(&store, key), 2, "it is for another consumer");
    say(&mut store, key_of_a, 1, &ConsumerAck::Done, START);
    assert_eq!(stored(&store, key), 1);
}

#[test]
fn whoever_acknowledges_all_until_a_message_lets_go_of_what_was_given_up_before_it() {
    let mut store = open(&SimDisk::new(), START);
    let key = stream(&mut store, Policy { interest: true, ..Policy::default() }, &[]);
    let all = ConsumerPolicy { ack: AckPolicy::All, max_deliver: 1, ..policy() };
    let all = consumer(&mut store, key, "c", all);
    publish(&mut store, key, &["a", "b", "c"]);
    assert_eq!(pull(&mut store, all, 9, START).len(), 3);
    assert_eq!(pull(&mut store, all, 9, later(1_000)), [], "they are given up");
    publish(&mut store, key, &["d", "e"]);
    assert_eq!(pull(&mut store, all, 1, later(1_000)), [(3, 1)]);
    say(&mut store, all, 3, &ConsumerAck::Done, later(1_000));
    assert_eq!(stored(&store, key), 1);
}

#[test]
fn what_only_a_removed_consumer_wanted_goes_in_steps() {
    let mut store = open(&SimDisk::new(), START);
    let interest = Policy { interest: true, ..Policy::default() };
    let key = stream(&mut store, interest, &[]);
    let removed = consumer(&mut store, key, "c", policy());
    let filters = vec!["b".into()];
    let other = consumer(&mut store, key, "d", ConsumerPolicy { filters, ..policy() });
    publish(&mut store, key, &["a"; 10_000]);
    publish(&mut store, key, &["b"; 10]);
    assert!(store.remove_consumer(removed, false, START).unwrap());
    let mut left = stored(&store, key);
    assert!(left > 9_000, "{left} are left of 10,010 when it is answered");
    while left > 10 {
        // What comes meanwhile is given, and one who comes meanwhile gets what is still there.
        store.tick(START);
        store.check_invariants();
        let before = std::mem::replace(&mut left, stored(&store, key));
        assert!(before > left && before - left <= 2_048, "{before}, then {left}");
    }
    publish(&mut store, key, &["a", "b"]);
    assert_eq!(pull(&mut store, other, 20, START).len(), 11);
    assert_eq!(stored(&store, key), 11);
}

#[test]
fn what_nobody_wants_after_other_filters_goes_from_where_interest_keeps_messages() {
    let work_queue = Policy { work_queue: true, ..Policy::default() };
    let interest = Policy { interest: true, ..Policy::default() };
    for (stream_policy, left) in [(work_queue, 5), (interest, 2)] {
        let mut store = open(&SimDisk::new(), START);
        let key = stream(&mut store, stream_policy, &[]);
        let of = |filters: &[&str]| {
            let filters = filters.iter().map(|filter| (*filter).into()).collect();
            ConsumerPolicy { filters, ..policy() }
        };
        let narrowed = consumer(&mut store, key, "c", of(&["a", "b"]));
        publish(&mut store, key, &["a", "b", "b", "a", "b"]);
        // The second is in the hands of a worker: its consumer wants it no more, either.
        assert_eq!(pull(&mut store, narrowed, 2, START), [(0, 1), (1, 1)]);
        assert_eq!(consumer(&mut store, key, "c", of(&["a"])), narrowed);
        while store.tick(START) || store.sleep_ms(START) == Some(0) {}
        store.check_invariants();
        assert_eq!(stored(&store, key), left);
        say(&mut store, narrowed, 0, &ConsumerAck::Done, START);
        say(&mut store, narrowed, 1, &ConsumerAck::Done, START);
        assert_eq!(pull(&mut store, narrowed, 9, START), [(3, 1)]);
        // Wider filters let nothing go.
        let before = stored(&store, key);
        consumer(&mut store, key, "c", of(&[]));
        while store.tick(START) || store.sleep_ms(START) == Some(0) {}
        assert_eq!(stored(&store, key), before);
    }
}

/// A consumer whose messages nobody else wants is removed, or wants only others from then on, with checkpoints
/// meanwhile; `told` that all was made, and that this was done.
fn leave_one_of_two(disk: &SimDisk, removed: bool, told: &mut (bool, bool)) -> Result<(), ()> {
    let gone = |_| ();
    let options = Options { segment_bytes: 4096, allocate_bytes: 4096, ..Options::default() };
    let shared = Arc::new(disk.clone()) as Arc<dyn Disk>;
    let mut store = Store::open(shared, options, 7, START).map_err(gone)?;
    let policy = Policy { interest: true, ..Policy::default() };
    let stream = store.create_stream(&NewStream { name: "S", config: "{}", policy }, START);
    let stream = stream.map_err(gone)?;
    let mut keys = Vec::new();
    for (name, filters) in [("c", vec![]), ("d", vec!["b".into()])] {
        let policy = ConsumerPolicy { filters, ..self::policy() };
        let new = NewConsumer { name, policy, config: "{}", next: 0, early: Vec::new() };
        keys.push(store.set_consumer(stream, &new, START).map_err(gone)?);
    }
    for nth in 0..1_000 {
        let subject = if nth % 100 == 99 { "b" } else { "a" };
        let publish = Publish { subject, payload: b"payload", ..Publish::default() };
        store.publish_to(stream, &publish, START).map_err(|_| ())?;
    }
    store.sync().map_err(gone)?;
    told.0 = true;
    if removed {
        store.remove_consumer(keys[0], false, START).map_err(gone)?;
    } else {
        let policy = ConsumerPolicy { filters: vec!["b".into()], ..self::policy() };
        let new = NewConsumer { name: "c", policy, config: "{}", next: 0, early: Vec::new() };
        store.set_consumer(stream, &new, START).map_err(gone)?;
    }
    store.sync().map_err(gone)?;
    told.1 = true;
    for _ in 0..8 {
        store.checkpoint().map_err(gone)?;
        store.tick(START);
        store.check_invariants();
        store.sync().map_err(gone)?;
    }
    store.close().map_err(gone)
}

#[test]
fn a_power_cut_leaves_nothing_that_only_a_removed_consumer_wanted() {
    cut_while_one_of_two_leaves(true);
}

#[test]
fn a_power_cut_leaves_nothing_that_a_consumer_wanted_before_its_filters_changed() {
    cut_while_one_of_two_leaves(false);
}

fn cut_while_one_of_two_leaves(removed: bool) {
    let whole = SimDisk::new();
    let mut told = (false, false);
    leave_one_of_two(&whole, removed, &mut told).expect("the power stays");
    assert_eq!(told, (true, true));
    let mut partly = 0;
    for cut in 1..=whole.ops() {
        let disk = SimDisk::new();
        disk.cut_at(cut);
        let mut told = (false, false);
        assert!(leave_one_of_two(&disk, removed, &mut told).is_err() || cut == whole.ops());
        if !told.0 {
            continue;
        }
        for crashed in [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()] {
            let mut store = open(&crashed, later(100));
            store.check_invariants();
            let key = store.find_stream("S").expect("the stream is there");
            partly += usize::from((11..1_000).contains(&stored(&store, key)));
            while store.tick(later(100)) || store.sleep_ms(later(100)) == Some(0) {}
            store.check_invariants();
            let there = store.find_consumer(key, "c").and_then(|key| store.consumer_policy(key));
            let has_left = there.is_none_or(|policy| !policy.filters.is_empty());
            assert!(has_left || !told.1, "cut at {cut}: it was done, and is undone");
            let left = stored(&store, key);
            assert_eq!(left, if has_left { 10 } else { 1_000 }, "cut at {cut}");
        }
    }
    assert!(partly > 0, "no cut fell into the removal");
}

#[test]
fn a_restart_lets_nothing_go_that_was_given_up_after_all_others_went() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let key = stream(&mut store, Policy { interest: true, ..Policy::default() }, &[]);
    let removed = consumer(&mut store, key, "c", policy());
    let other = consumer(&mut store, key, "d", ConsumerPolicy { max_deliver: 1, ..policy() });
    publish(&mut store, key, &["a"; 400]);
    store.remove_consumer(removed, false, START).unwrap();
    while store.tick(START) || store.sleep_ms(START) == Some(0) {}
    assert_eq!(pull(&mut store, other, 1, START).len(), 1);
    assert_eq!(pull(&mut store, other, 1, later(1_000)).len(), 1);
    store.sync().unwrap();
    drop(store);
    let mut store = open(&disk, later(2_000));
    while store.tick(later(2_000)) || store.sleep_ms(later(2_000)) == Some(0) {}
    let key = store.find_stream("S").unwrap();
    assert_eq!(stored(&store, key), 400);
}
