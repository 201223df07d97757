//! Messages that a consumer has given up: where only interest keeps messages, they stay until somebody has done with them
//! after all, over restarts and power cuts, and go with the consumer.

use std::collections::BTreeSet;
use std::sync::Arc;

use mq9_core::consumer::{AckPolicy, Consumer, ConsumerPolicy};
use mq9_core::disk::Disk;
use mq9_core::mailbox::Policy;
use mq9_core::store::{
    Acked, ConsumerAck, ConsumerKey, Delivery, Grave, NewConsumer, NewStream, Options, Publish,
    Store, StreamKey, StreamPurge,
};
use mq9_sim::SimDisk;

use crate::consumers::{START, consumer, later, open, policy, pull, say, stored, stream};

const NOTHING: [u64; 0] = [];
/// When all is given up that is.
const AFTER: u64 = 3_000;

fn publish(store: &mut Store, key: StreamKey, subjects: &[&str]) {
    for subject in subjects {
        let publish = Publish { subject, payload: b"payload", ..Publish::default() };
        store.publish_to(key, &publish, START).expect("it is stored");
    }
}

fn until_quiet(store: &mut Store, ms: u64) {
    while store.tick(later(ms)) || store.sleep_ms(later(ms)) == Some(0) {}
    store.check_invariants();
}

/// The numbers of what is stored, from 0.
fn left(store: &mut Store) -> Vec<u64> {
    let key = store.find_stream("S").expect("the stream is there");
    let end = store.stream_info(key).expect("it is there").last_seq;
    (0..end)
        .filter(|msg_id| store.stream_message(key, *msg_id).expect("it is read").is_some())
        .collect()
}

fn find(store: &Store, name: &str) -> ConsumerKey {
    let key = store.find_stream("S").expect("the stream is there");
    store.find_consumer(key, name).expect("the consumer is there")
}

/// How a store goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Again {
    Same,
    FromLog,
    FromCheckpoint,
}

const ALL: [Again; 3] = [Again::Same, Again::FromLog, Again::FromCheckpoint];

fn go_on(disk: &SimDisk, mut store: Store, again: Again) -> Store {
    match again {
        Again::Same => return store,
        Again::FromLog => {
            store.sync().expect("it is synced");
            drop(store);
        }
        Again::FromCheckpoint => store.close().expect("it is closed"),
    }
    let store = open(disk, later(AFTER));
    store.check_invariants();
    assert_eq!(store.damage(), []);
    store
}

/// A consumer `c` that gives up what it was given once or twice, and another, `d`; and messages for both.
fn two(store: &mut Store, max_deliver: u32, subjects: &[&str]) -> (ConsumerKey, ConsumerKey) {
    let key = stream(store, Policy { interest: true, ..Policy::default() }, &[]);
    let few = ConsumerPolicy { max_deliver, ..policy() };
    let both = (consumer(store, key, "c", few), consumer(store, key, "d", policy()));
    publish(store, key, subjects);
    both
}

/// A consumer gives up the first messages that it can have.
fn give_up(store: &mut Store, key: ConsumerKey, most: usize) {
    let times = store.consumer_policy(key).expect("it is there").max_deliver;
    for nth in 0..u64::from(times) {
        assert_eq!(pull(store, key, most, later(nth * 1_000)).len(), most);
    }
    until_quiet(store, u64::from(times) * 1_000);
    let info = store.consumer_info(key).expect("it is there");
    assert_eq!((info.ack_pending, info.floor.stream), (0, 0), "given up, and behind the floor");
}

/// A consumer is given all that there is, and has done with it.
fn do_all(store: &mut Store, key: ConsumerKey, ms: u64) {
    let given = pull(store, key, 99, later(ms));
    given.iter().for_each(|(msg_id, _)| say(store, key, *msg_id, &ConsumerAck::Done, later(ms)));
}

#[test]
fn what_one_consumer_has_given_up_stays_when_all_others_have_done_with_it() {
    for max_deliver in [1, 2] {
        for others_first in [false, true] {
            for again in ALL {
                let disk = SimDisk::new();
                let mut store = open(&disk, START);
                let (c, d) = two(&mut store, max_deliver, &["a", "a", "a", "a", "a"]);
                if others_first {
                    do_all(&mut store, d, 0);
                }
                give_up(&mut store, c, 4);
                store = go_on(&disk, store, again);
                let (c, d) = (find(&store, "c"), find(&store, "d"));
                do_all(&mut store, d, AFTER);
                let of = (max_deliver, others_first, again);
                assert_eq!(left(&mut store), [0, 1, 2, 3, 4], "{of:?}");
                store = go_on(&disk, store, again);
                let more_than_once = if max_deliver > 1 { 4 } else { 0 };
                assert_eq!(store.consumer_info(c).unwrap().redelivered, more_than_once, "{of:?}");
                // Late words count, whatever they are; others change nothing.
                say(&mut store, c, 1, &ConsumerAck::Done, later(AFTER));
                say(&mut store, c, 2, &ConsumerAck::Terminate("no".into()), later(AFTER));
                say(&mut store, c, 0, &ConsumerAck::Return(None), later(AFTER));
                say(&mut store, c, 0, &ConsumerAck::Progress, later(AFTER));
                assert_eq!(left(&mut store), [0, 3, 4], "{of:?}");
                assert_eq!(pull(&mut store, c, 9, later(AFTER)), [(4, 1)], "{of:?}");
                say(&mut store, c, 4, &ConsumerAck::Done, later(AFTER));
                store = go_on(&disk, store, again);
                assert_eq!(left(&mut store), [0, 3], "{of:?}");
                store.remove_consumer(find(&store, "c"), false, later(AFTER)).unwrap();
                until_quiet(&mut store, AFTER);
                assert_eq!(left(&mut store), NOTHING, "{of:?}");
            }
        }
    }
}

#[test]
fn what_was_acknowledged_late_goes_with_the_last_who_wants_it() {
    for again in ALL {
        let disk = SimDisk::new();
        let mut store = open(&disk, START);
        let (c, _) = two(&mut store, 1, &["a", "a", "a"]);
        give_up(&mut store, c, 3);
        say(&mut store, c, 1, &ConsumerAck::Done, later(AFTER));
        say(&mut store, c, 2, &ConsumerAck::Terminate("no".into()), later(AFTER));
        assert_eq!(left(&mut store), [0, 1, 2], "another wants them");
        store = go_on(&disk, store, again);
        let d = find(&store, "d");
        do_all(&mut store, d, AFTER);
        assert_eq!(left(&mut store), [0], "{again:?}");
        // Together with others, without waiting for an answer.
        store.consumer_done(find(&store, "c"), vec![0, 1, 2], later(AFTER)).unwrap();
        store.check_invariants();
        assert_eq!(left(&mut store), NOTHING, "{again:?}");
    }
}

#[test]
fn a_consumer_that_comes_later_is_given_what_another_has_given_up() {
    let mut store = open(&SimDisk::new(), START);
    let (c, d) = two(&mut store, 1, &["a", "a"]);
    give_up(&mut store, c, 2);
    do_all(&mut store, d, AFTER);
    let key = store.find_stream("S").unwrap();
    let late = consumer(&mut store, key, "late", policy());
    assert_eq!(store.consumer_info(late).unwrap().pending, 2);
    do_all(&mut store, late, AFTER);
    assert_eq!(left(&mut store), [0, 1]);
}

#[test]
fn what_is_given_up_stays_when_the_only_other_who_wanted_it_is_removed() {
    for again in ALL {
        let disk = SimDisk::new();
        let mut store = open(&disk, START);
        let (c, d) = two(&mut store, 1, &["a", "a", "a"]);
        give_up(&mut store, c, 2);
        say(&mut store, c, 1, &ConsumerAck::Done, later(AFTER));
        store.remove_consumer(d, false, later(AFTER)).unwrap();
        store = go_on(&disk, store, again);
        until_quiet(&mut store, AFTER);
        assert_eq!(left(&mut store), [0, 2], "{again:?}");
    }
}

#[test]
fn what_is_given_up_goes_when_its_consumer_wants_others() {
    for again in ALL {
        for widened_in_time in [false, true] {
            let disk = SimDisk::new();
            let mut store = open(&disk, START);
            let (c, d) = two(&mut store, 1, &["a", "b", "a", "b"]);
            give_up(&mut store, c, 4);
            if !widened_in_time {
                do_all(&mut store, d, AFTER);
            }
            let key = store.find_stream("S").unwrap();
            let filters = vec!["a".into()];
            let once = ConsumerPolicy { max_deliver: 1, ..policy() };
            consumer(&mut store, key, "c", ConsumerPolicy { filters, ..once.clone() });
            store = go_on(&disk, store, again);
            until_quiet(&mut store, AFTER);
            let key = store.find_stream("S").unwrap();
            consumer(&mut store, key, "c", once);
            until_quiet(&mut store, AFTER);
            let d = find(&store, "d");
            do_all(&mut store, d, AFTER);
            // While another wanted them they stayed, and the consumer has not done with them when it wants them again.
            let kept = if widened_in_time { vec![0, 1, 2, 3] } else { vec![0, 2] };
            assert_eq!(left(&mut store), kept, "{again:?}");
        }
    }
}

#[test]
fn whatever_way_another_acknowledges_it_lets_nothing_go_that_was_given_up() {
    for ack in [AckPolicy::All, AckPolicy::None] {
        let mut store = open(&SimDisk::new(), START);
        let (c, _) = two(&mut store, 1, &[]);
        let key = store.find_stream("S").unwrap();
        let other = consumer(&mut store, key, "e", ConsumerPolicy { ack, ..policy() });
        store.remove_consumer(find(&store, "d"), false, START).unwrap();
        publish(&mut store, key, &["a", "a", "a", "a"]);
        assert_eq!(pull(&mut store, c, 4, START).len(), 4);
        say(&mut store, c, 1, &ConsumerAck::Done, START);
        until_quiet(&mut store, AFTER);
        assert_eq!(pull(&mut store, other, 4, later(AFTER)).len(), 4);
        if ack == AckPolicy::All {
            say(&mut store, other, 3, &ConsumerAck::Done, later(AFTER));
        }
        assert_eq!(left(&mut store), [0, 2, 3], "{ack:?}");
    }
}

#[test]
fn whoever_acknowledges_all_has_done_with_what_it_gave_up_before() {
    for others_first in [false, true] {
        let mut store = open(&SimDisk::new(), START);
        let (_, d) = two(&mut store, 1, &[]);
        let key = store.find_stream("S").unwrap();
        store.remove_consumer(find(&store, "c"), false, START).unwrap();
        let all = ConsumerPolicy { ack: AckPolicy::All, max_deliver: 1, ..policy() };
        let all = consumer(&mut store, key, "all", all);
        publish(&mut store, key, &["a", "a", "a", "a", "a"]);
        give_up(&mut store, all, 3);
        if others_first {
            do_all(&mut store, d, AFTER);
            assert_eq!(left(&mut store), [0, 1, 2, 3, 4]);
        }
        assert_eq!(pull(&mut store, all, 1, later(AFTER)), [(3, 1)]);
        say(&mut store, all, 3, &ConsumerAck::Done, later(AFTER));
        if !others_first {
            do_all(&mut store, d, AFTER);
        }
        assert_eq!(left(&mut store), [4]);
    }
}

#[test]
fn no_more_is_remembered_of_what_was_given_up_than_is_stored() {
    for again in ALL {
        let disk = SimDisk::new();
        let mut store = open(&disk, START);
        let interest = Policy { interest: true, max_msgs: 200, ..Policy::default() };
        let key = stream(&mut store, interest, &[]);
        let twice = ConsumerPolicy { max_deliver: 2, ..policy() };
        let c = consumer(&mut store, key, "c", twice);
        for nth in 0..5 {
            publish(&mut store, key, &["a"; 150]);
            for ms in [0, 1_000] {
                assert_eq!(pull(&mut store, c, 150, later(nth * AFTER + ms)).len(), 150);
            }
            until_quiet(&mut store, nth * AFTER + 2_000);
        }
        store = go_on(&disk, store, again);
        let (key, c) = (store.find_stream("S").unwrap(), find(&store, "c"));
        let redelivered = |store: &Store| store.consumer_info(c).unwrap().redelivered;
        assert_eq!(redelivered(&store), 200);
        assert!(store.remove_from_stream(key, 700, START).unwrap());
        assert_eq!(redelivered(&store), 199);
        let mut purging = store
            .begin_purge(key, StreamPurge { before: Some(650), ..Default::default() })
            .unwrap();
        while store.purge_some(&mut purging, START).unwrap() {}
        store.check_invariants();
        assert_eq!(redelivered(&store), 99);
        store = go_on(&disk, store, again);
        assert_eq!(redelivered(&store), 99);
        let mut purging = store.begin_purge(key, StreamPurge::default()).unwrap();
        while store.purge_some(&mut purging, START).unwrap() {}
        store.check_invariants();
        assert_eq!(redelivered(&store), 0);
    }
}

#[test]
fn a_limited_stream_hears_late_that_somebody_has_done_with_what_was_given_up() {
    for again in ALL {
        let disk = SimDisk::new();
        let mut store = open(&disk, START);
        let key = stream(&mut store, Policy::default(), &["a", "a", "a"]);
        let c = consumer(&mut store, key, "c", ConsumerPolicy { max_deliver: 2, ..policy() });
        give_up(&mut store, c, 3);
        say(&mut store, c, 1, &ConsumerAck::Done, later(AFTER));
        store = go_on(&disk, store, again);
        assert_eq!(store.consumer_info(find(&store, "c")).unwrap().redelivered, 2, "{again:?}");
        assert_eq!(left(&mut store), [0, 1, 2]);
    }
}

#[test]
fn a_late_termination_makes_a_dead_letter_of_what_another_still_wants() {
    let mut store = open(&SimDisk::new(), START);
    let key = stream(&mut store, Policy { interest: true, ..Policy::default() }, &[]);
    let prefix = Some("dead".into());
    let once = ConsumerPolicy { max_deliver: 1, dead_letter_prefix: prefix, ..policy() };
    let c = consumer(&mut store, key, "c", once);
    let d = consumer(&mut store, key, "d", policy());
    publish(&mut store, key, &["a"]);
    assert_eq!(pull(&mut store, c, 1, START), [(0, 1)]);
    until_quiet(&mut store, AFTER);
    let no_place = Grave { to: Err("none".into()), subject: "dead.a".into(), keeps_level: false };
    assert_eq!(store.next_exhausted(), Some((c, 0)));
    store.move_exhausted(c, 0, &no_place, later(AFTER));
    assert_eq!(store.consumer_info(c).unwrap().ack_pending, 0, "it was left where it is");
    let new = NewStream { name: "DEAD", config: "{}", policy: Policy::default() };
    let letters = store.create_stream(&new, later(AFTER)).unwrap();
    let grave = Grave { to: Ok(letters), ..no_place };
    let of = Delivery { msg_id: 0, number: 1, count: 1, ..Delivery::default() };
    for _ in 0..2 {
        // However often it is said, it becomes one dead letter.
        let bury = ConsumerAck::Bury("no".into(), grave.clone());
        assert_eq!(store.consumer_ack(c, &of, &bury, later(AFTER)).unwrap(), Acked::Heard);
        store.check_invariants();
        assert_eq!(stored(&store, letters), 1);
        assert_eq!(left(&mut store), [0], "another wants it");
    }
    do_all(&mut store, d, AFTER);
    assert_eq!(left(&mut store), NOTHING);
}

/// What was durable before the power went.
#[derive(Debug, Default)]
struct Told {
    given_up: bool,
    others_done: bool,
    late: bool,
    removed: bool,
}

/// A consumer gives up three of four messages and another has done with all four; of one of the three the first says so
/// late. Each step is durable before the next, with a checkpoint behind one of them.
fn work(disk: &SimDisk, checkpoint_behind: usize, told: &mut Told) -> Result<(), ()> {
    let gone = |_| ();
    let options = Options { segment_bytes: 4096, allocate_bytes: 4096, ..Options::default() };
    let shared = Arc::new(disk.clone()) as Arc<dyn Disk>;
    let mut store = Store::open(shared, options, 7, START).map_err(gone)?;
    let policy = Policy { interest: true, ..Policy::default() };
    let new = NewStream { name: "S", config: "{}", policy };
    let stream = store.create_stream(&new, START).map_err(gone)?;
    let mut keys = Vec::new();
    for (name, max_deliver) in [("c", 1), ("d", 0)] {
        let policy = ConsumerPolicy { max_deliver, ..self::policy() };
        let new = NewConsumer { name, policy, config: "{}", next: 0, early: Vec::new() };
        keys.push(store.set_consumer(stream, &new, START).map_err(gone)?);
    }
    for _ in 0..4 {
        let publish = Publish { subject: "a", payload: b"payload", ..Publish::default() };
        store.publish_to(stream, &publish, START).map_err(|_| ())?;
    }
    let say = |store: &mut Store, key, msg_id| {
        let of = Delivery { msg_id, number: 1, count: 1, ..Delivery::default() };
        store.consumer_ack(key, &of, &ConsumerAck::Done, later(1_000)).map(drop).map_err(gone)
    };
    for step in 0..4 {
        match step {
            0 => {
                let offers = store.offers(keys[0], 3, START).map_err(gone)?;
                store.give(keys[0], &offers, START).map_err(gone)?;
                while store.tick(later(1_000)) || store.sleep_ms(later(1_000)) == Some(0) {}
            }
            1 => {
                let offers = store.offers(keys[1], 4, later(1_000)).map_err(gone)?;
                store.give(keys[1], &offers, later(1_000)).map_err(gone)?;
                (0..4).try_for_each(|msg_id| say(&mut store, keys[1], msg_id))?;
            }
            2 => say(&mut store, keys[0], 1)?,
            _ => {
                store.remove_consumer(keys[0], false, later(1_000)).map_err(gone)?;
                while store.tick(later(1_000)) || store.sleep_ms(later(1_000)) == Some(0) {}
            }
        }
        store.check_invariants();
        store.sync().map_err(gone)?;
        let steps = [&mut told.given_up, &mut told.others_done, &mut told.late, &mut told.removed];
        *steps[step] = true;
        if step == checkpoint_behind {
            store.checkpoint().map_err(gone)?;
        }
    }
    store.close().map_err(gone)
}

#[test]
fn no_power_cut_loses_what_was_given_up_or_brings_back_what_was_acknowledged_late() {
    let mut between = 0;
    for checkpoint_behind in 0..4 {
        let whole = SimDisk::new();
        work(&whole, checkpoint_behind, &mut Told::default()).expect("the power stays");
        for cut in 1..=whole.ops() {
            let disk = SimDisk::new();
            disk.cut_at(cut);
            let mut told = Told::default();
            let is_whole = work(&disk, checkpoint_behind, &mut told).is_ok();
            assert!(!is_whole || cut == whole.ops());
            if !told.given_up {
                continue;
            }
            for crashed in [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()] {
                let now = 2_000;
                let mut store = open(&crashed, later(now));
                until_quiet(&mut store, now);
                let key = store.find_stream("S").unwrap();
                let Some(c) = store.find_consumer(key, "c") else {
                    assert!(told.late, "cut at {cut}: it was not to be removed");
                    assert_eq!(left(&mut store), NOTHING, "cut at {cut}: nobody wants them");
                    continue;
                };
                assert!(!told.removed, "cut at {cut}: the removal is undone");
                let there = left(&mut store);
                assert!([0, 2, 3].iter().all(|id| there.contains(id)), "cut at {cut}: {there:?}");
                assert!(!told.late || !there.contains(&1), "cut at {cut}: it was acknowledged");
                between += usize::from(told.others_done && there.contains(&1));
                // What is left is known: late words let it go, and nothing else does.
                let d = find(&store, "d");
                until_quiet(&mut store, now + 1_000);
                let given = pull(&mut store, d, 9, later(now + 1_000));
                for (msg_id, _) in given {
                    say(&mut store, d, msg_id, &ConsumerAck::Done, later(now + 1_000));
                }
                assert_eq!(left(&mut store), there, "cut at {cut}");
                say(&mut store, c, 0, &ConsumerAck::Done, later(now + 1_000));
                let there: Vec<u64> = there.into_iter().filter(|msg_id| *msg_id != 0).collect();
                assert_eq!(left(&mut store), there, "cut at {cut}");
            }
        }
    }
    assert!(between > 0, "no cut fell between the others and the late acknowledgement");
}

#[test]
fn a_message_that_is_damaged_and_gone_is_not_given_up_any_more() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let (c, _) = two(&mut store, 2, &["a", "b", "c"]);
    give_up(&mut store, c, 3);
    store.sync().unwrap();
    drop(store);
    let segment = disk.names().into_iter().find(|name| name.starts_with("segment-")).unwrap();
    let mut bytes = disk.read_file(&segment).unwrap();
    let second = bytes.windows(8).position(|some| some == b"bpayload").unwrap();
    bytes[second] ^= 1;
    disk.write_file(&segment, &bytes);
    let mut store = open(&disk, later(AFTER));
    store.check_invariants();
    assert!(!store.damage().is_empty());
    assert_eq!(store.consumer_info(find(&store, "c")).unwrap().redelivered, 2);
    assert_eq!(left(&mut store), [0, 2]);
}

#[test]
fn bytes_that_cannot_be_what_was_given_up_are_no_consumer() {
    let mut consumer = Consumer::new(policy(), "{}", 7, 0, BTreeSet::new());
    for msg_id in 0..70 {
        consumer.apply_given(msg_id, None, 1 + msg_id as u32 % 2, 0);
        if msg_id != 5 {
            consumer.apply_given_up(msg_id);
        }
    }
    consumer.check_invariants();
    let mut encoded = Vec::new();
    consumer.snapshot().encode(&mut encoded);
    let read = |bytes: &[u8]| Consumer::decode(bytes).unwrap();
    let again = read(&encoded).expect("it is what was encoded");
    again.check_invariants();
    assert_eq!((again.redelivered(), again.outstanding()), (35, 1));
    let is_given_up = |msg_id: &u64| again.has_given_up(*msg_id);
    assert!((0..80).filter(is_given_up).eq((0..5).chain(6..70)));
    // Two blocks stand at the end: each the first message, which were given up, which of them were delivered again.
    let [first, second] = [encoded.len() - 48, encoded.len() - 24];
    let bits = |at: usize| u64::from_le_bytes(encoded[at..at + 8].try_into().unwrap());
    assert_eq!([bits(first), bits(first + 8)], [0, !(1 << 5)]);
    assert_eq!([bits(second), bits(second + 8)], [64, 0b11_1111]);
    for (at, value, why) in [
        (first, 1, "no block begins there"),
        (first, 64, "the next block begins there"),
        (second, 0, "it is before the block before it"),
        (first + 8, u64::MAX, "one of them is out"),
        (second + 8, 0b111_1111, "the consumer has not looked at the last"),
        (second + 8, 0, "none of them"),
        (second + 16, 0b100_0000, "one was delivered again and not given up"),
        (second, 1 << 63, "no message is that far"),
    ] {
        let mut wrong = encoded.clone();
        wrong[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        assert!(read(&wrong).is_none(), "{why}");
    }
    assert!(read(&encoded[..second]).is_none(), "one block is missing");
    assert!(read(&[&encoded[..], &[0]].concat()).is_none(), "something is behind them");
}
