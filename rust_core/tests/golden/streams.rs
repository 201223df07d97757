//! Streams with their consumers, and the log of a node of a cluster: their bytes, by the tables of `docs/formats.md`,
//! and what they mean.

use std::path::Path;
use std::sync::Arc;

use mq9_core::consumer::{AckPolicy, ConsumerPolicy};
use mq9_core::disk::Disk;
use mq9_core::log::{Found, Header, Scan, SyncMode, names};
use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::{
    ConsumerAck, ConsumerKey, Delivery, NewConsumer, NewMailbox, NewStream, Options, Publish, Send,
    Store,
};
use mq9_core::wire::tie::{StreamPosition, Tie};
use mq9_sim::SimDisk;

use crate::script::{ENTROPY, START, at, open};
use crate::{disk_of, files, folder};

const STREAMS: &str = "v1.8-streams";
/// Written before a removed consumer left word of what nobody wants any more.
const EARLIER_STREAMS: &str = "v1.7-streams";
/// With priorities: a consumer has looked further in one than in another.
const PRIORITIES: &str = "v1.9-priorities";
/// With messages that a consumer has given up.
const GIVEN_UP: &str = "v1.10-given-up";
const CLUSTER: &str = "v1.7-cluster";
const T: u64 = START.wall_ms;

fn full_policy() -> ConsumerPolicy {
    ConsumerPolicy {
        ack: AckPolicy::All,
        ack_wait_ms: 2,
        max_deliver: 3,
        max_ack_pending: 4,
        max_waiting: 5,
        max_batch: 6,
        max_expires_ms: 7,
        max_bytes: 8,
        inactive_ms: 9_000_000,
        headers_only: true,
        push: true,
        backoff_ms: vec![10, 11],
        filters: vec!["a".into(), "b.*".into()],
        dead_letter_prefix: Some("dead".into()),
    }
}

fn add(store: &mut Store, name: &str, policy: ConsumerPolicy, early: Vec<u64>) -> ConsumerKey {
    let stream = store.find_stream("S").unwrap();
    let next = early.last().map_or(0, |last| last + 1);
    let new = NewConsumer { name, policy, config: "{}", next, early };
    store.set_consumer(stream, &new, at(3)).unwrap()
}

fn say(store: &mut Store, key: ConsumerKey, msg_id: u64, ack: &ConsumerAck) {
    let of = Delivery { msg_id, number: 1, count: 1, ..Delivery::default() };
    store.consumer_ack(key, &of, ack, at(5)).unwrap();
}

fn streams() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let policy = Policy {
        interest: true,
        first_id: 7,
        max_per_subject: 9,
        owner: Some("ada".into()),
        ..Policy::default()
    };
    let new = NewStream { name: "S", config: "{\"name\":\"S\"}", policy };
    let stream = store.create_stream(&new, at(1)).unwrap();
    let plain = ConsumerPolicy { ack_wait_ms: 30_000, ..ConsumerPolicy::default() };
    let plain = add(&mut store, "plain", plain, Vec::new());
    for subject in ["a", "b.c", "a", "d", "a"] {
        let publish = Publish { subject, payload: b"x", ..Publish::default() };
        store.publish_to(stream, &publish, at(2)).unwrap();
    }
    let gone = add(&mut store, "gone", ConsumerPolicy::default(), Vec::new());
    add(&mut store, "full", full_policy(), vec![7, 8]);
    let offers = store.offers(plain, 4, at(4)).unwrap();
    store.give(plain, &offers, at(4)).unwrap();
    say(&mut store, plain, 7, &ConsumerAck::Done);
    say(&mut store, plain, 9, &ConsumerAck::Return(Some(60_000)));
    say(&mut store, plain, 8, &ConsumerAck::Return(None));
    let offers = store.offers(plain, 1, at(6)).unwrap();
    store.give(plain, &offers, at(6)).unwrap();
    store.remove_consumer(gone, false, at(7)).unwrap();
    store.rotate(at(8)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    disk
}

fn priorities() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let policy = Policy { work_queue: true, ..Policy::default() };
    let new = NewStream { name: "S", config: "{}", policy };
    let stream = store.create_stream(&new, at(1)).unwrap();
    let plain = ConsumerPolicy { ack_wait_ms: 30_000, ..ConsumerPolicy::default() };
    let crew = add(&mut store, "crew", plain, Vec::new());
    for level in [5, 5, 1, 1] {
        let level = Level::new(level).unwrap();
        let publish = Publish { subject: "S", level, payload: b"x", ..Publish::default() };
        store.publish_to(stream, &publish, at(2)).unwrap();
    }
    let offers = store.offers(crew, 3, at(4)).unwrap();
    store.give(crew, &offers, at(4)).unwrap();
    say(&mut store, crew, 2, &ConsumerAck::Done);
    store.rotate(at(8)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    disk
}

/// The first two of three messages are given up, the first of them after two deliveries; the third was too, and
/// acknowledged late.
fn given_up() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    let policy = Policy { interest: true, ..Policy::default() };
    let stream =
        store.create_stream(&NewStream { name: "S", config: "{}", policy }, at(1)).unwrap();
    let few =
        |max_deliver| ConsumerPolicy { ack_wait_ms: 1_000, max_deliver, ..Default::default() };
    let tired = add(&mut store, "tired", few(2), Vec::new());
    add(&mut store, "other", few(0), Vec::new());
    for _ in 0..3 {
        let publish = Publish { subject: "a", payload: b"x", ..Publish::default() };
        store.publish_to(stream, &publish, at(2)).unwrap();
    }
    for (most, ms) in [(3, 4), (1, 1_004)] {
        while store.tick(at(ms)) {}
        let offers = store.offers(tired, most, at(ms)).unwrap();
        store.give(tired, &offers, at(ms)).unwrap();
    }
    // What was delivered once is given up with the next look, too.
    add(&mut store, "tired", few(1), Vec::new());
    assert_eq!(store.offers(tired, 9, at(1_500)).unwrap().len(), 0);
    while store.tick(at(2_004)) {}
    say(&mut store, tired, 2, &ConsumerAck::Done);
    store.rotate(at(2_008)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    disk
}

fn place(sequence: u64) -> StreamPosition {
    let digest = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10 + u128::from(sequence);
    StreamPosition { sequence, digest, term: 3, leader: Some((4, 5)) }
}

fn cluster() -> SimDisk {
    let disk = SimDisk::new();
    let options = Options { sync: SyncMode::None, ..Options::default() };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut store = Store::open_member(shared, options, ENTROPY, START, u64::MAX).unwrap();
    store.promote(&Tie { at: place(1), before: None }, at(1)).unwrap();
    let new = NewMailbox { address: "box", ..NewMailbox::default() };
    store.create_mailbox(&new, at(2)).unwrap();
    store.send("box", &Send::new(b"one"), at(3)).unwrap();
    assert!(!store.take_outbox().unwrap().is_empty());
    store.tie(&Tie { at: place(2), before: Some(place(1)) }, at(4)).unwrap();
    store.committed(2);
    store.checkpoint().unwrap();
    drop(store);
    disk
}

fn written(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let files = disk.names().into_iter().map(|name| {
        let mut bytes = disk.read_file(&name).unwrap();
        if name.starts_with("segment-") {
            // Reserved space is no part of it.
            bytes.truncate(end(&bytes));
        }
        (name, bytes)
    });
    files.collect()
}

/// Where the records of a segment end.
fn end(segment: &[u8]) -> usize {
    let header = Header::decode("", segment).unwrap().unwrap();
    let mut scan = Scan::new(segment, header.number, header.salt, 80);
    scan.by_ref().take_while(|found| matches!(found, Found::Record { .. })).count();
    scan.offset() as usize
}

fn records(of: &str) -> Vec<(u8, u8, Vec<u8>)> {
    let mut all = files(of).into_iter();
    let segment = all.find(|file| file.0 == names::segment(1)).unwrap().1;
    let salt = Header::decode("", &segment).unwrap().unwrap().salt;
    let records = Scan::new(&segment, 1, salt, 80).map(|found| match found {
        Found::Record { record, .. } => (record.kind, record.flags, record.body.to_vec()),
        other => panic!("{other:?}"),
    });
    records.collect()
}

fn bodies(of: &str, kind: u8) -> Vec<Vec<u8>> {
    records(of).into_iter().filter(|record| record.0 == kind).map(|record| record.2).collect()
}

/// The sections of the checkpoint: kind and body.
fn sections(of: &str) -> Vec<(u8, Vec<u8>)> {
    let bytes = files(of).into_iter().find(|file| file.0.starts_with("checkpoint")).unwrap().1;
    assert_eq!(&bytes[..8], b"MQ9CKPT\0");
    let mut rest = &bytes[8..];
    let mut sections = Vec::new();
    while !rest.is_empty() {
        let len = u64::from_le_bytes(rest[4..12].try_into().unwrap()) as usize;
        let crc = u32::from_le_bytes(rest[..4].try_into().unwrap());
        assert_eq!(crc, crc32c::crc32c(&rest[4..13 + len]));
        sections.push((rest[12], rest[13..13 + len].to_vec()));
        rest = &rest[13 + len..];
    }
    sections
}

fn stamp(ms: u64, address: &str) -> Vec<u8> {
    [&(T + ms).to_le_bytes()[..], &[address.len() as u8], address.as_bytes()].concat()
}

fn numbers(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// First, how many, how often.
fn run(first: u64, len: u32, count: u32) -> Vec<u8> {
    [&first.to_le_bytes()[..], &len.to_le_bytes(), &count.to_le_bytes()].concat()
}

fn medium(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

fn consumer_policy() -> Vec<u8> {
    let mut policy = Vec::new();
    let values = [1, 2, 3, 4, 5, 6, 7, 8, 9_000_000, 1, 1];
    for (tag, value) in (1_u8..).zip(values).chain([(12, 10), (12, 11)]) {
        policy.push(tag);
        policy.extend(numbers(&[value]));
    }
    policy.extend(b"\x80\x01a\x80\x03b.*\x81\x04dead");
    policy
}

/// Inputs from which the fuzz target for decoders starts.
fn write_seeds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/record_decode");
    for (kind, _, body) in [records(STREAMS), records(CLUSTER)].concat() {
        let name = format!("kind-{kind:02}");
        if kind > 22 {
            std::fs::write(root.join(name), [&[kind][..], &body].concat()).unwrap();
        }
    }
    for (of, kind, seed) in [(STREAMS, 11, "consumer"), (GIVEN_UP, 13, "consumer-given-up")] {
        let consumer = sections(of).into_iter().find(|section| section.0 == kind).unwrap().1;
        let name = 1 + usize::from(consumer[0]);
        std::fs::write(root.join(seed), [&[0][..], &consumer[name..]].concat()).unwrap();
    }
}

#[test]
fn streams_and_ties_are_written_as_they_were() {
    for (of, disk) in [
        (STREAMS, streams()),
        (PRIORITIES, priorities()),
        (GIVEN_UP, given_up()),
        (CLUSTER, cluster()),
    ] {
        if std::env::var_os("MQ9_BLESS").is_some() {
            std::fs::create_dir_all(folder(of)).unwrap();
            for (name, bytes) in written(&disk) {
                std::fs::write(Path::new(&folder(of)).join(name), bytes).unwrap();
            }
            if of == CLUSTER {
                write_seeds();
            }
        }
        assert!(written(&disk) == files(of), "the bytes of {of} differ");
    }
}

#[test]
fn records_of_streams_are_as_documented() {
    let created = &bodies(STREAMS, 2)[0];
    let policy = [
        &[15][..],
        &numbers(&[9]),
        &[16],
        &numbers(&[1]),
        &[17],
        &numbers(&[7]),
        b"\x81\x03ada\x82\x01S",
    ]
    .concat();
    let expected =
        [numbers(&[T + 1, 0]), b"\x05$js.1".to_vec(), medium(b"{\"name\":\"S\"}"), medium(&policy)];
    assert_eq!(*created, expected.concat());

    let set = &bodies(STREAMS, 23)[2];
    let expected = [
        stamp(3, "$js.1"),
        b"\x04full".to_vec(),
        numbers(&[9]),
        medium(&consumer_policy()),
        medium(b"{}"),
        numbers(&[7, 8]),
    ];
    assert_eq!(*set, expected.concat());

    let given = bodies(STREAMS, 24);
    let expected = [stamp(4, "$js.1"), b"\x05plain".to_vec(), run(7, 4, 1)];
    assert_eq!(given[0], expected.concat());
    let expected = [stamp(6, "$js.1"), b"\x05plain".to_vec(), run(8, 1, 2)];
    assert_eq!(given[1], expected.concat());

    let expected = [stamp(5, "$js.1"), b"\x05plain\x03".to_vec(), run(7, 1, 1)];
    assert_eq!(bodies(STREAMS, 25), [expected.concat()]);
    let gone = [stamp(7, "$js.1"), b"\x04gone\x01".to_vec()];
    let looked_at = [stamp(7, "$js.1"), b"\x01*\x03".to_vec()];
    assert_eq!(bodies(STREAMS, 26), [gone.concat(), looked_at.concat()]);
    assert_eq!(bodies(EARLIER_STREAMS, 26), [gone.concat()]);
    let returned = |msg_id, due_ms: u64| {
        [stamp(5, "$js.1"), b"\x05plain".to_vec(), numbers(&[T + due_ms]), run(msg_id, 1, 1)]
            .concat()
    };
    assert_eq!(bodies(STREAMS, 27), [returned(9, 60_005), returned(8, 5)]);
}

#[test]
fn sections_of_streams_are_as_documented() {
    let of = |kind: u8| -> Vec<Vec<u8>> {
        sections(STREAMS).into_iter().filter(|s| s.0 == kind).map(|s| s.1).collect()
    };
    let u32s = |number: u32| number.to_le_bytes().to_vec();
    let place = |msg_id: u64, ix: u32| [numbers(&[msg_id]), u32s(ix)].concat();
    // The first message is still wanted by one that is to be given it first.
    let subjects = [
        u32s(3),
        medium(b"a"),
        medium(b"b.c"),
        medium(b"d"),
        u32s(5),
        place(7, 0),
        place(8, 1),
        place(9, 0),
        place(10, 2),
        place(11, 0),
    ];
    assert_eq!(of(10), [subjects.concat()]);

    let consumers = of(11);
    let out = |msg_id, number, count| [numbers(&[msg_id, number]), u32s(count)].concat();
    let plain_policy = [&[2][..], &numbers(&[30_000])].concat();
    let plain = [
        b"\x05plain".to_vec(),
        numbers(&[T + 3, 11, 5, 11, 1, 8]),
        medium(&plain_policy),
        medium(b"{}"),
        u32s(0),
        u32s(3),
        out(8, 2, 2),
        out(9, 3, 1),
        out(10, 4, 1),
        u32s(1),
        numbers(&[9, T + 60_005]),
    ];
    assert_eq!(consumers[0], plain.concat());
    let full = [
        b"\x04full".to_vec(),
        numbers(&[T + 3, 9, 0, 7, 0, 7]),
        medium(&consumer_policy()),
        medium(b"{}"),
        u32s(2),
        numbers(&[7, 8]),
        u32s(0),
        u32s(0),
    ];
    assert_eq!(consumers[1], full.concat());
    assert_eq!(consumers.len(), 2);
}

#[test]
fn the_section_of_a_consumer_by_priority_is_as_documented() {
    let consumer = sections(PRIORITIES).into_iter().find(|section| section.0 == 12).unwrap().1;
    let u32s = |number: u32| number.to_le_bytes().to_vec();
    let out = |msg_id, number| [numbers(&[msg_id, number]), u32s(1)].concat();
    let policy = [&[2][..], &numbers(&[30_000])].concat();
    let expected = [
        b"\x04crew".to_vec(),
        numbers(&[T + 3, 4, 3, 4, 1, 0]),
        medium(&policy),
        medium(b"{}"),
        u32s(0),
        u32s(2),
        out(0, 3),
        out(3, 2),
        u32s(0),
        numbers(&[4, 0, 0, 0, 1, 0, 0, 0, 0, 0]),
    ];
    assert_eq!(consumer, expected.concat());
}

#[test]
fn what_was_given_up_is_written_as_documented() {
    let done = bodies(GIVEN_UP, 25);
    let record = |ms, cause: u8, runs: &[u8]| {
        [&stamp(ms, "$js.1"), &b"\x05tired"[..], &[cause], runs].concat()
    };
    // Given up without another delivery, given up after it, and acknowledged late.
    let expected = [
        record(1_500, 6, &run(1, 2, 1)),
        record(2_004, 6, &run(0, 1, 1)),
        record(5, 3, &run(2, 1, 1)),
    ];
    assert_eq!(done, expected);

    let consumer = sections(GIVEN_UP).into_iter().find(|section| section.0 == 13).unwrap().1;
    let u32s = |number: u32| number.to_le_bytes().to_vec();
    let policy = [&[2][..], &numbers(&[1_000]), &[3], &numbers(&[1])].concat();
    let expected = [
        b"\x05tired".to_vec(),
        numbers(&[T + 3, 3, 4, 3, 0, 0]),
        medium(&policy),
        medium(b"{}"),
        u32s(0),
        u32s(0),
        u32s(0),
        numbers(&[3; 10]),
        u32s(1),
        numbers(&[0, 0b011, 0b001]),
    ];
    assert_eq!(consumer, expected.concat());
}

#[test]
fn what_was_given_up_means_the_same_with_and_without_the_checkpoint() {
    let log: Vec<_> =
        files(GIVEN_UP).into_iter().filter(|file| file.0.starts_with("segment-")).collect();
    for files in [files(GIVEN_UP), log] {
        let mut store = open(&disk_of(&files), at(3_000));
        store.check_invariants();
        assert_eq!(store.damage(), []);
        let stream = store.find_stream("S").unwrap();
        let tired = store.find_consumer(stream, "tired").unwrap();
        let info = store.consumer_info(tired).unwrap();
        assert_eq!((info.ack_pending, info.pending, info.redelivered), (0, 0, 1));
        let other = store.find_consumer(stream, "other").unwrap();
        let offers = store.offers(other, 9, at(3_000)).unwrap();
        store.give(other, &offers, at(3_000)).unwrap();
        (0..3).for_each(|msg_id| say(&mut store, other, msg_id, &ConsumerAck::Done));
        let info = store.stream_info(stream).unwrap();
        assert_eq!(
            (info.messages, info.first_seq),
            (2, 1),
            "two are left for whoever gave them up"
        );
    }
}

#[test]
fn priorities_mean_the_same_with_and_without_the_checkpoint() {
    let log: Vec<_> =
        files(PRIORITIES).into_iter().filter(|file| file.0.starts_with("segment-")).collect();
    for files in [files(PRIORITIES), log] {
        let mut store = open(&disk_of(&files), at(100));
        store.check_invariants();
        assert_eq!(store.damage(), []);
        let stream = store.find_stream("S").unwrap();
        let crew = store.find_consumer(stream, "crew").unwrap();
        let info = store.consumer_info(crew).unwrap();
        assert_eq!((info.ack_pending, info.pending, info.floor.consumer), (2, 1, 1));
        let offers = store.offers(crew, 9, at(100)).unwrap();
        assert_eq!(offers.iter().map(|offer| offer.msg_id()).collect::<Vec<_>>(), [1]);
    }
}

#[test]
fn a_stream_means_the_same_with_and_without_the_checkpoint() {
    let log = |of| files(of).into_iter().filter(|file| file.0.starts_with("segment-")).collect();
    for files in [files(STREAMS), log(STREAMS), files(EARLIER_STREAMS), log(EARLIER_STREAMS)] {
        let mut store = open(&disk_of(&files), at(100));
        store.check_invariants();
        assert_eq!(store.damage(), []);
        let stream = store.find_stream("S").unwrap();
        let info = store.stream_info(stream).unwrap();
        assert_eq!((info.messages, info.first_seq, info.last_seq), (5, 8, 12));
        let names: Vec<String> =
            store.consumers(stream).iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["plain", "full"]);
        let plain = store.find_consumer(stream, "plain").unwrap();
        let info = store.consumer_info(plain).unwrap();
        assert_eq!((info.ack_pending, info.redelivered, info.pending), (3, 1, 1));
        let full = store.find_consumer(stream, "full").unwrap();
        assert_eq!(store.consumer_policy(full), Some(&full_policy()));
        let offers = store.offers(full, 9, at(100)).unwrap();
        assert_eq!(offers.iter().map(|offer| offer.msg_id()).collect::<Vec<_>>(), [7, 8, 9, 11]);
    }
}

fn place_bytes(sequence: u64) -> Vec<u8> {
    let StreamPosition { digest, .. } = place(sequence);
    [
        numbers(&[sequence]),
        digest.to_le_bytes().to_vec(),
        numbers(&[3]),
        vec![1],
        4_u32.to_le_bytes().to_vec(),
        numbers(&[5]),
    ]
    .concat()
}

#[test]
fn ties_are_as_documented() {
    let kinds: Vec<u8> = records(CLUSTER).iter().map(|record| record.0).collect();
    assert_eq!(kinds, [1, 32, 32, 1, 2, 4, 32]);
    let ties = bodies(CLUSTER, 32);
    let last = ties.last().unwrap();
    assert_eq!(last[16..], [place_bytes(2), vec![1], place_bytes(1)].concat());
    assert_eq!(ties[1][16..], [place_bytes(1), vec![0]].concat());

    let sections = sections(CLUSTER);
    let kinds: Vec<u8> = sections.iter().map(|section| section.0).collect();
    assert_eq!(kinds, [1, 5, 16, 2, 3]);
    assert_eq!(sections[0].1[..4], 3_u32.to_le_bytes());
    assert_eq!(sections[2].1[16..], [place_bytes(2), vec![1], place_bytes(1)].concat());
}

#[test]
fn the_log_of_a_node_is_a_follower_s() {
    let disk: Arc<dyn Disk> = Arc::new(disk_of(&files(CLUSTER)));
    let options = Options { sync: SyncMode::None, ..Options::default() };
    let store = Store::open_member(disk, options, ENTROPY, at(100), u64::MAX).unwrap();
    assert_eq!(store.last_tie().unwrap().at, place(2));
    assert!(store.exists("box", at(100)));
    assert_eq!(store.damage(), []);
}
