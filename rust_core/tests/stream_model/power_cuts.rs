//! A work queue with priorities, and the power that goes at each write: nothing that was promised is lost or comes again
//! after its acknowledgement, and what is left comes by priority.

use mq9_core::consumer::ConsumerPolicy;
use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::{ConsumerAck, Delivery, NewConsumer, NewStream, Publish, Store};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

use crate::{START, open};

const LEVELS: [u8; 9] = [5, 5, 9, 1, 5, 1, 9, 3, 5];

/// What was durable before the power went.
#[derive(Debug, Default)]
struct Told {
    stored: u64,
    given: Vec<u64>,
    done: Vec<u64>,
}

fn later(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn publish(store: &mut Store, msg_id: usize) -> Result<(), ()> {
    let stream = store.find_stream("S").unwrap();
    let level = Level::new(LEVELS[msg_id]).unwrap();
    let publish = Publish { subject: "S", level, payload: &[b'x'; 200], ..Publish::default() };
    store.publish_to(stream, &publish, START).map(drop).map_err(drop)
}

fn give(store: &mut Store, most: usize) -> Result<Vec<u64>, ()> {
    let stream = store.find_stream("S").unwrap();
    let key = store.find_consumer(stream, "c").unwrap();
    let offers = store.offers(key, most, START).map_err(drop)?;
    store.give(key, &offers, START).map_err(drop)?;
    Ok(offers.iter().map(|offer| offer.msg_id()).collect())
}

fn say(store: &mut Store, msg_id: u64, ack: &ConsumerAck) -> Result<(), ()> {
    let stream = store.find_stream("S").unwrap();
    let key = store.find_consumer(stream, "c").unwrap();
    let of = Delivery { msg_id, number: 1, count: 1, ..Delivery::default() };
    store.consumer_ack(key, &of, ack, START).map(drop).map_err(drop)
}

/// Each step is durable before the next; with `anew` the store is opened again between them.
fn work(disk: &SimDisk, anew: bool, told: &mut Told) -> Result<(), ()> {
    let mut store = opened(disk)?;
    let policy = Policy { work_queue: true, ..Policy::default() };
    let new = NewStream { name: "S", config: "{}", policy };
    let stream = store.create_stream(&new, START).map_err(drop)?;
    let policy = ConsumerPolicy { ack_wait_ms: 1_000, ..ConsumerPolicy::default() };
    let new = NewConsumer { name: "c", policy, config: "{}", next: 0, early: Vec::new() };
    store.set_consumer(stream, &new, START).map_err(drop)?;
    for step in 0..9 {
        match step {
            0..=2 => {
                for msg_id in step * 2..step * 2 + 2 {
                    publish(&mut store, msg_id)?;
                }
                store.sync().map_err(drop)?;
                told.stored = step as u64 * 2 + 2;
            }
            3 | 5 | 7 => {
                let given = give(&mut store, 2)?;
                store.sync().map_err(drop)?;
                told.given.extend(given);
            }
            4 | 6 | 8 => {
                // One is done with, one comes again, and another is published.
                let pair = &told.given[told.given.len() - 2..];
                let (done, again) = (pair[0], pair[1]);
                say(&mut store, done, &ConsumerAck::Done)?;
                say(&mut store, again, &ConsumerAck::Return(Some(60_000)))?;
                publish(&mut store, told.stored as usize)?;
                store.sync().map_err(drop)?;
                told.done.push(done);
                told.stored += 1;
            }
            _ => {}
        }
        if step == 4 {
            store.checkpoint().map_err(drop)?;
        }
        if anew {
            drop(store);
            store = opened(disk)?;
        }
        store.check_invariants();
    }
    Ok(())
}

fn opened(disk: &SimDisk) -> Result<Store, ()> {
    use std::sync::Arc;
    Store::open(Arc::new(disk.clone()) as Arc<dyn mq9_core::disk::Disk>, crate::options(), 7, START)
        .map_err(drop)
}

/// What is left is given once each: the most urgent first, and of a priority what comes again before what is new.
fn check(disk: &SimDisk, told: &Told, cut: u64) {
    let now = later(100_000);
    let mut store = open(disk, now);
    let Some(stream) = store.find_stream("S") else {
        assert_eq!(told.stored, 0, "cut at {cut}");
        return;
    };
    let Some(key) = store.find_consumer(stream, "c") else { return };
    let now = later(200_000);
    while store.tick(now) || store.sleep_ms(now) == Some(0) {}
    store.check_invariants();
    let info = store.consumer_info(key).unwrap();
    let stored = store.stream_info(stream).unwrap();
    assert_eq!(info.pending + info.ack_pending, stored.messages, "cut at {cut}");
    let offers = store.offers(key, 100, now).unwrap();
    store.give(key, &offers, now).unwrap();
    store.check_invariants();
    let all: Vec<(u8, bool, u64)> = offers
        .iter()
        .map(|offer| (LEVELS[offer.msg_id() as usize], offer.count == 1, offer.msg_id()))
        .collect();
    let in_order = |pair: &[(u8, bool, u64)]| {
        let ((level, is_new, msg_id), next) = (pair[0], pair[1]);
        (level, is_new) < (next.0, next.1)
            || (level, is_new) == (next.0, next.1) && (!is_new || msg_id < next.2)
    };
    assert!(all.windows(2).all(in_order), "cut at {cut}: {all:?}");
    let ids: Vec<u64> = all.iter().map(|(_, _, msg_id)| *msg_id).collect();
    let mut gone = 0;
    for msg_id in 0..told.stored {
        let times = ids.iter().filter(|id| **id == msg_id).count();
        if told.done.contains(&msg_id) {
            assert_eq!(times, 0, "cut at {cut}: {msg_id} came again");
        } else if times == 0 {
            assert!(told.given.contains(&msg_id), "cut at {cut}: {msg_id} is lost");
            gone += 1;
        } else {
            assert_eq!(times, 1, "cut at {cut}: {msg_id} twice");
        }
    }
    assert!(
        gone <= 1,
        "cut at {cut}: more are gone than the one whose acknowledgement was under way"
    );
    for (_, is_new, msg_id) in &all {
        assert!(!(*is_new && told.given.contains(msg_id)), "cut at {cut}: {msg_id} as new");
    }
}

#[test]
fn a_power_cut_leaves_what_was_promised_in_the_order_of_priorities() {
    for anew in [false, true] {
        let whole = SimDisk::new();
        let mut told = Told::default();
        work(&whole, anew, &mut told).unwrap();
        assert_eq!(told.given, [3, 5, 0, 1, 7, 4], "the most urgent first");
        let ops = whole.ops();
        check(&whole, &told, 0);
        for cut in 1..=ops {
            let disk = SimDisk::new();
            disk.cut_at(cut);
            let mut told = Told::default();
            let is_whole = work(&disk, anew, &mut told).is_ok();
            assert!(!is_whole || cut == ops, "cut at {cut} of {ops}");
            for crashed in [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()] {
                check(&crashed, &told, cut);
            }
        }
    }
}
