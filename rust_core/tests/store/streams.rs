//! Streams keep what was published and told, by their limits, over restarts, checkpoints and power cuts.

use std::collections::BTreeMap;
use std::sync::Arc;

use mq9_core::consumer::ConsumerPolicy;
use mq9_core::disk::Disk;
use mq9_core::mailbox::{Discard, Policy};
use mq9_core::store::{
    ConsumerAck, Delivery, NewConsumer, NewStream, NotPublished, Options, Publish, Published,
    Store, StreamKey, StreamPurge,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 1_000 };

fn options() -> Options {
    Options { segment_bytes: 4096, allocate_bytes: 4096, ..Options::default() }
}

fn later(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn open(disk: &SimDisk, now: Now) -> Store {
    Store::open(Arc::new(disk.clone()) as Arc<dyn Disk>, options(), 7, now)
        .expect("the store opens")
}

fn create(store: &mut Store, policy: Policy) -> StreamKey {
    let new = NewStream { name: "S", config: r#"{"name":"S"}"#, policy };
    store.create_stream(&new, START).expect("the stream is new")
}

fn publish(
    store: &mut Store,
    key: StreamKey,
    subject: &str,
    id: &str,
) -> Result<u64, NotPublished> {
    let publish = Publish { subject, id, payload: b"payload", ..Publish::default() };
    store.publish_to(key, &publish, START).map(|published| published.seq)
}

/// Does all that is due.
/// Purges in as many steps as it takes, and returns how many messages have gone.
fn purge_all(store: &mut Store, key: StreamKey, purge: StreamPurge<'_>) -> u64 {
    let mut purging = store.begin_purge(key, purge).expect("the stream is there");
    while store.purge_some(&mut purging, START).expect("it is logged") {
        store.check_invariants();
    }
    purging.purged
}

fn until_quiet(store: &mut Store, now: Now) {
    while store.tick(now) || store.sleep_ms(now) == Some(0) {}
}

#[test]
fn a_message_is_not_older_than_allowed_after_a_restart_with_newer_ones_in_the_log() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let key = create(&mut store, Policy { max_age_ms: 1_000, ..Policy::default() });
    publish(&mut store, key, "s", "").unwrap();
    store.checkpoint().unwrap();
    let newer = Publish { subject: "s", payload: b"payload", ..Publish::default() };
    store.publish_to(key, &newer, later(600)).unwrap();
    store.sync().unwrap();
    drop(store);
    let mut store = open(&disk, later(700));
    let key = store.find_stream("S").unwrap();
    for (ms, left) in [(999, 2), (1_000, 1), (1_599, 1), (1_600, 0)] {
        until_quiet(&mut store, later(ms));
        store.check_invariants();
        assert_eq!(store.stream_info(key).unwrap().messages, left, "after {ms} ms");
    }
}

fn subjects(store: &Store, key: StreamKey) -> Vec<(String, u64)> {
    let all = store.stream_subjects(key, ">");
    all.into_iter().map(|(subject, count)| (subject.to_string(), count)).collect()
}

/// What clients see of a stream.
fn seen(store: &mut Store, key: StreamKey) -> (Vec<(u64, String)>, u64, u64) {
    store.check_invariants();
    let info = store.stream_info(key).expect("the stream is there");
    let mut messages = Vec::new();
    for msg_id in 0..info.last_seq {
        let Some(found) = store.stream_message(key, msg_id).expect("messages can be read") else {
            continue;
        };
        let (meta, message) = found.iter().next().expect("one message");
        messages.push((meta.msg_id + 1, message.key.to_owned()));
    }
    assert_eq!(messages.len() as u64, info.messages);
    (messages, info.first_seq, info.last_seq)
}

#[test]
fn a_stream_is_the_same_after_a_restart_with_and_without_a_checkpoint() {
    for checkpoint in [false, true] {
        let disk = SimDisk::new();
        let mut store = open(&disk, START);
        let key = create(&mut store, Policy { first_id: 9, ..Policy::default() });
        for nth in 0..40 {
            assert_eq!(publish(&mut store, key, &format!("s.{}", nth % 3), "").unwrap(), 10 + nth);
        }
        assert!(store.remove_from_stream(key, 12, START).unwrap());
        assert!(!store.remove_from_stream(key, 12, START).unwrap());
        let purge = StreamPurge { filter: Some("s.2"), before: Some(30), keep: 1 };
        assert_eq!(purge_all(&mut store, key, purge), 6);
        let (before, of) = (seen(&mut store, key), subjects(&store, key));
        if checkpoint {
            store.close().unwrap();
        } else {
            store.sync().unwrap();
            drop(store);
        }
        let mut store = open(&disk, later(5));
        let key = store.find_stream("S").unwrap();
        assert_eq!(seen(&mut store, key), before);
        assert_eq!(subjects(&store, key), of);
        assert_eq!(store.last_of_subject(key, "s.1"), Some(46));
        assert_eq!(store.next_of_subject(key, "s.*", 12), Some(13));
        assert_eq!(publish(&mut store, key, "s.0", "").unwrap(), 50);
    }
}

#[test]
fn limits_let_the_oldest_go_or_refuse_the_new() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let key = create(&mut store, Policy { max_msgs: 3, max_per_subject: 2, ..Policy::default() });
    for subject in ["a", "a", "a", "b", "c", "c", "c"] {
        publish(&mut store, key, subject, "").unwrap();
    }
    let (messages, first, last) = seen(&mut store, key);
    assert_eq!(messages, [(4, "b".into()), (6, "c".into()), (7, "c".into())]);
    assert_eq!((first, last), (4, 7));
    let policy = Policy { max_msgs: 3, discard: Discard::New, ..Policy::default() };
    store.update_stream(key, "{}", policy, START).unwrap();
    assert!(matches!(publish(&mut store, key, "x", ""), Err(NotPublished::MaxMessages)));
    let policy = Policy { max_bytes: 200, ..Policy::default() };
    store.update_stream(key, "{}", policy, START).unwrap();
    let large = Publish { subject: "x", payload: &[b'x'; 500], ..Publish::default() };
    // Told as stored, though it does not fit: that is how nats-server has it.
    assert_eq!(store.publish_to(key, &large, START).unwrap().seq, 8);
    assert_eq!(seen(&mut store, key), (vec![], 9, 8));
}

#[test]
fn messages_leave_when_they_are_too_old() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let key = create(&mut store, Policy { max_age_ms: 1_000, ..Policy::default() });
    for nth in 0..600 {
        let message = Publish { subject: "s", ..Publish::default() };
        store.publish_to(key, &message, later(nth)).unwrap();
    }
    until_quiet(&mut store, later(1_299));
    assert_eq!(store.stream_info(key).unwrap().first_seq, 301);
    store.sync().unwrap();
    drop(store);
    let mut store = open(&disk, later(1_400));
    until_quiet(&mut store, later(1_400));
    let key = store.find_stream("S").unwrap();
    assert_eq!(store.stream_info(key).unwrap().first_seq, 402);
    until_quiet(&mut store, later(9_000));
    let info = store.stream_info(key).unwrap();
    assert_eq!((info.messages, info.first_seq, info.last_seq), (0, 601, 600));
    store.check_invariants();
}

#[test]
fn expectations_are_looked_at_before_ids() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let key = create(&mut store, Policy::default());
    let first = Publish { subject: "s", id: "1", ..Publish::default() };
    let stored = Published { seq: 1, duplicate: false };
    assert_eq!(store.publish_to(key, &first, START).unwrap(), stored);
    let again = store.publish_to(key, &first, START).unwrap();
    assert_eq!(again, Published { seq: 1, duplicate: true });
    let wrong = Publish { last_seq: Some(7), ..first };
    let refused = store.publish_to(key, &wrong, START);
    assert!(matches!(refused, Err(NotPublished::LastSeq(1))), "{refused:?}");
    let wrong = Publish { last_id: Some("2"), ..first };
    let refused = store.publish_to(key, &wrong, START);
    assert!(matches!(refused, Err(NotPublished::LastId(id)) if id == "1"));
    let wrong = Publish { last_of_subject: Some((1, "t")), ..first };
    assert!(matches!(store.publish_to(key, &wrong, START), Err(NotPublished::LastSeq(0))));
}

/// What was told by the time the power went.
#[derive(Default)]
struct Told {
    /// Sequence by id.
    published: BTreeMap<String, u64>,
    acked: Vec<u64>,
    /// Returned, to come back after an hour.
    returned: Vec<u64>,
    removed: Vec<u64>,
    created: bool,
    consumer: bool,
}

/// A session: publishes with ids, a limit, a consumer that acknowledges, a purge. `Err` when the power goes.
fn play(disk: &SimDisk, told: &mut Told) -> Result<(), ()> {
    let gone = |_| ();
    let mut store =
        Store::open(Arc::new(disk.clone()) as Arc<dyn Disk>, options(), 7, START).map_err(gone)?;
    let new = NewStream { name: "S", config: "{}", policy: Policy::default() };
    let key = store.create_stream(&new, START).map_err(gone)?;
    store.sync().map_err(gone)?;
    told.created = true;
    let policy = ConsumerPolicy { ack_wait_ms: 1_000, ..ConsumerPolicy::default() };
    let new = NewConsumer { name: "c", policy, config: "{}", next: 0, early: Vec::new() };
    let consumer = store.set_consumer(key, &new, START).map_err(gone)?;
    store.sync().map_err(gone)?;
    told.consumer = true;
    for round in 0..6_u64 {
        let mut stored = Vec::new();
        for nth in 0..5 {
            let id = format!("{round}-{nth}");
            let seq = publish(&mut store, key, &format!("s.{nth}"), &id).map_err(|_| ())?;
            stored.push((id, seq));
        }
        store.sync().map_err(gone)?;
        told.published.extend(stored);
        let offers = store.offers(consumer, 4, START).map_err(gone)?;
        store.give(consumer, &offers, START).map_err(gone)?;
        let acked: Vec<u64> = offers.iter().take(3).map(|offer| offer.msg_id()).collect();
        for msg_id in &acked {
            let of = Delivery { msg_id: *msg_id, number: 1, count: 1, ..Delivery::default() };
            store.consumer_ack(consumer, &of, &ConsumerAck::Done, START).map_err(gone)?;
        }
        let returned = offers.get(3).filter(|_| round % 2 == 0).map(|offer| offer.msg_id());
        if let Some(msg_id) = returned {
            let of = Delivery { msg_id, number: 1, count: 1, ..Delivery::default() };
            let later = ConsumerAck::Return(Some(3_600_000));
            store.consumer_ack(consumer, &of, &later, START).map_err(gone)?;
        }
        let removed = round * 5 + 4;
        store.remove_from_stream(key, removed, START).map_err(gone)?;
        store.check_invariants();
        store.sync().map_err(gone)?;
        told.acked.extend(acked);
        told.returned.extend(returned);
        told.removed.push(removed);
        if round % 3 == 1 {
            store.checkpoint().map_err(gone)?;
        }
    }
    store.close().map_err(gone)
}

#[test]
fn what_was_told_holds_after_a_power_cut_at_any_operation() {
    let whole = SimDisk::new();
    let mut told = Told::default();
    play(&whole, &mut told).unwrap();
    assert_eq!((told.published.len(), told.acked.len(), told.returned.len()), (30, 18, 3));
    for cut in 1..=whole.ops() {
        let disk = SimDisk::new();
        disk.cut_at(cut);
        let mut told = Told::default();
        assert!(play(&disk, &mut told).is_err() || cut == whole.ops());
        let crashes =
            [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()].into_iter().enumerate();
        for (how, crashed) in crashes {
            let mut store = open(&crashed, later(100));
            store.check_invariants();
            let Some(key) = store.find_stream("S") else {
                assert!(!told.created, "cut at {cut}, {how}: the stream is lost");
                continue;
            };
            for (id, seq) in &told.published {
                let present = store.stream_message(key, seq - 1).unwrap().is_some();
                let removed = told.removed.contains(&(seq - 1));
                assert!(present || seq % 5 == 0, "cut at {cut}, {how}: {seq} is lost");
                assert!(!(removed && present), "cut at {cut}, {how}: {seq} came back");
                let again = Publish { subject: "s.x", id, ..Publish::default() };
                let again = store.publish_to(key, &again, later(100)).unwrap();
                let expected = Published { seq: *seq, duplicate: true };
                assert_eq!(again, expected, "cut at {cut}, {how}: {id} is stored twice");
            }
            let Some(consumer) = store.find_consumer(key, "c") else {
                assert!(!told.consumer, "cut at {cut}, {how}: the consumer is lost");
                continue;
            };
            // What was out comes back when its time is over; what was acknowledged never does.
            let mut given = Vec::new();
            loop {
                until_quiet(&mut store, later(5_000));
                let offers = store.offers(consumer, 64, later(5_000)).unwrap();
                if offers.is_empty() {
                    break;
                }
                store.give(consumer, &offers, later(5_000)).unwrap();
                given.extend(offers.iter().map(|offer| offer.msg_id()));
            }
            for msg_id in &told.acked {
                assert!(!given.contains(msg_id), "cut at {cut}, {how}: {msg_id} comes again");
            }
            for msg_id in &told.returned {
                assert!(!given.contains(msg_id), "cut at {cut}, {how}: {msg_id} comes too soon");
            }
            until_quiet(&mut store, later(3_700_000));
            let offers = store.offers(consumer, 64, later(3_700_000)).unwrap();
            given.extend(offers.iter().map(|offer| offer.msg_id()));
            for seq in told.published.values().filter(|seq| *seq % 5 != 0) {
                let acked = told.acked.contains(&(seq - 1));
                let maybe_acked = (seq - 1) / 5 * 5 + 5 >= told.published.len() as u64;
                let comes = given.contains(&(seq - 1));
                assert!(acked || comes || maybe_acked, "cut at {cut}, {how}: {seq} never comes");
            }
            store.check_invariants();
        }
    }
}

#[test]
fn no_publish_waits_for_all_that_a_lowered_limit_lets_go() {
    let mut store = open(&SimDisk::new(), START);
    let key = create(&mut store, Policy::default());
    for _ in 0..5_000 {
        publish(&mut store, key, "s", "").unwrap();
    }
    let lowered = Policy { max_msgs: 1, max_per_subject: 1, ..Policy::default() };
    store.update_stream(key, "{}", lowered, START).unwrap();
    publish(&mut store, key, "s", "").unwrap();
    let left = store.stream_info(key).unwrap().messages;
    assert!((3_000..5_000).contains(&left), "{left} messages are left after one step");
    until_quiet(&mut store, START);
    assert_eq!(seen(&mut store, key).0, [(5_001, "s".into())]);
}

#[test]
fn the_last_message_of_each_subject_stays_however_they_come() {
    let mut store = open(&SimDisk::new(), START);
    let key = create(&mut store, Policy { max_per_subject: 1, ..Policy::default() });
    let mut last = BTreeMap::new();
    for nth in 0..2_000_u64 {
        let subject = format!("s.{}", (nth * nth + nth / 7) % 97);
        let seq = publish(&mut store, key, &subject, "").unwrap();
        last.insert(subject, seq);
        if nth % 11 == 0 {
            let (_, seq) = last.pop_first().unwrap();
            assert!(store.remove_from_stream(key, seq - 1, START).unwrap());
        }
    }
    let mut expected: Vec<(u64, String)> = last.into_iter().map(|(s, seq)| (seq, s)).collect();
    expected.sort_unstable();
    assert_eq!(seen(&mut store, key).0, expected);
}

#[test]
fn a_purge_goes_on_between_others_and_takes_what_was_there_when_it_began() {
    for (purge, left) in [
        (StreamPurge { filter: Some("s.1"), ..StreamPurge::default() }, 10_000),
        (StreamPurge { filter: Some("*.1"), ..StreamPurge::default() }, 10_000),
        (StreamPurge { before: Some(15_000), ..StreamPurge::default() }, 5_000),
        (StreamPurge { keep: 9_000, ..StreamPurge::default() }, 9_000),
        (StreamPurge { filter: Some("s.*"), keep: 12_000, ..StreamPurge::default() }, 12_000),
        (StreamPurge { filter: Some("s.1"), keep: 12_000, ..StreamPurge::default() }, 20_000),
        (StreamPurge { filter: Some("t"), ..StreamPurge::default() }, 20_000),
    ] {
        let mut store = open(&SimDisk::new(), START);
        let key = create(&mut store, Policy::default());
        for nth in 0..20_000 {
            publish(&mut store, key, &format!("s.{}", nth % 2), "").unwrap();
        }
        let mut purging = store.begin_purge(key, purge).unwrap();
        let messages = |store: &Store| store.stream_info(key).unwrap().messages;
        let (mut before, mut came) = (messages(&store), 0);
        loop {
            let more = store.purge_some(&mut purging, START).unwrap();
            let now = messages(&store);
            assert!(before - now <= 256, "{purge:?}: {} have gone in one step", before - now);
            if !more {
                break;
            }
            publish(&mut store, key, "s.1", "").unwrap();
            (before, came) = (now + 1, came + 1);
        }
        assert_eq!(messages(&store), left + came, "{purge:?}");
        assert_eq!(purging.purged, 20_000 - left, "{purge:?}");
        store.check_invariants();
    }
}

#[test]
fn a_purge_of_everything_is_one_step_and_one_of_a_stream_that_has_gone_ends() {
    let mut store = open(&SimDisk::new(), START);
    let key = create(&mut store, Policy::default());
    for _ in 0..5_000 {
        publish(&mut store, key, "s", "").unwrap();
    }
    for purge in
        [StreamPurge::default(), StreamPurge { before: Some(99_999), keep: 0, filter: None }]
    {
        publish(&mut store, key, "s", "").unwrap();
        let mut purging = store.begin_purge(key, purge).unwrap();
        assert!(!store.purge_some(&mut purging, START).unwrap());
        assert_eq!(store.stream_info(key).unwrap().messages, 0);
    }
    for _ in 0..5_000 {
        publish(&mut store, key, "s", "").unwrap();
    }
    let purge = StreamPurge { filter: Some("s"), ..StreamPurge::default() };
    let mut purging = store.begin_purge(key, purge).unwrap();
    assert!(store.purge_some(&mut purging, START).unwrap());
    store.remove_stream(key, START).unwrap();
    create(&mut store, Policy::default());
    assert!(store.purge_some(&mut purging, START).is_err());
}

#[test]
fn messages_to_come_are_counted_wherever_a_consumer_begins() {
    let mut store = open(&SimDisk::new(), START);
    let key = create(&mut store, Policy::default());
    for nth in 0..3_000_u64 {
        publish(&mut store, key, &format!("s.{}.{}", nth / 1_000, nth % 7), "").unwrap();
    }
    for msg_id in (0..3_000).filter(|id| id % 5 == 0) {
        store.remove_from_stream(key, msg_id, START).unwrap();
    }
    let filters = ["s.0.*", "s.1.3", "s.*.5", ">", "s.2.6"];
    for next in [0, 1, 64, 700, 999, 1_000, 1_501, 2_500, 2_999, 3_000] {
        for (nth, filter) in filters.iter().enumerate() {
            let filters = vec![(*filter).into()];
            let policy = ConsumerPolicy { filters, ..ConsumerPolicy::default() };
            let name = &format!("c{next}-{nth}");
            let new = NewConsumer { name, policy, config: "{}", next, early: Vec::new() };
            store.set_consumer(key, &new, START).unwrap();
        }
    }
    // Counts all of them one by one.
    store.check_invariants();
    assert_eq!(store.stream_gaps(key, 3), [6, 11, 16]);
    assert_eq!(store.stream_gaps(key, 9_999).len(), 599);
    assert_eq!(store.next_of_subject(key, "s.2.6", 0), Some(2_001));
    assert_eq!(store.last_of_subject(key, "s.1.*"), Some(1_999));
}

/// Publishes to two subjects and purges one of them. `Err` when the power goes, with how far it came.
fn purge_one_of_two(disk: &SimDisk, told: &mut (bool, bool)) -> Result<(), ()> {
    let gone = |_| ();
    let mut store =
        Store::open(Arc::new(disk.clone()) as Arc<dyn Disk>, options(), 7, START).map_err(gone)?;
    let new = NewStream { name: "S", config: "{}", policy: Policy::default() };
    let key = store.create_stream(&new, START).map_err(gone)?;
    for nth in 0..1_400 {
        publish(&mut store, key, &format!("s.{}", nth % 2), "").map_err(|_| ())?;
    }
    store.sync().map_err(gone)?;
    told.0 = true;
    let purge = StreamPurge { filter: Some("s.1"), ..StreamPurge::default() };
    let mut purging = store.begin_purge(key, purge).map_err(gone)?;
    while store.purge_some(&mut purging, START).map_err(gone)? {
        store.sync().map_err(gone)?;
    }
    store.sync().map_err(gone)?;
    told.1 = purging.purged == 700;
    store.close().map_err(gone)
}

#[test]
fn a_power_cut_leaves_of_a_purge_what_had_not_gone_and_nothing_else_goes() {
    let whole = SimDisk::new();
    let mut told = (false, false);
    purge_one_of_two(&whole, &mut told).unwrap();
    assert_eq!(told, (true, true));
    let mut partly = 0;
    for cut in 1..=whole.ops() {
        let disk = SimDisk::new();
        disk.cut_at(cut);
        let mut told = (false, false);
        assert!(purge_one_of_two(&disk, &mut told).is_err() || cut == whole.ops());
        if !told.0 {
            continue;
        }
        for crashed in [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()] {
            let store = open(&crashed, later(100));
            store.check_invariants();
            let key = store.find_stream("S").unwrap();
            let left: BTreeMap<_, _> = subjects(&store, key).into_iter().collect();
            assert_eq!(left.get("s.0"), Some(&700), "cut at {cut}");
            let purged = left.get("s.1").copied().unwrap_or(0);
            assert!(!told.1 || purged == 0, "cut at {cut}: {purged} are left of a whole purge");
            partly += usize::from((1..700).contains(&purged));
        }
    }
    assert!(partly > 0, "no cut fell into the purge");
}
