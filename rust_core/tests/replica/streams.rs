//! Streams and consumers on a follower that becomes the leader.

use mq9_core::consumer::ConsumerPolicy;
use mq9_core::error::Result;
use mq9_core::mailbox::Policy;
use mq9_core::store::{
    ConsumerAck, Delivery, NewConsumer, NewMailbox, NewStream, Publish, Send, Store,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

use crate::nodes::{FOLLOWER, Leader, certain, follow, open, sequence};
use crate::world::START;

fn later(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

/// Another node with all that the leader has proposed, which leads from now on.
fn taken_over(leader: &mut Leader, now: Now) -> Store {
    leader.propose().unwrap();
    leader.commit(0);
    let mut follower = open(&SimDisk::new(), FOLLOWER, u64::MAX).unwrap();
    leader.stream.iter().for_each(|batch| follow(&mut follower, batch, START).unwrap());
    let claim = certain(sequence(&follower) + 1);
    follower.promote(&claim, now).unwrap();
    follower.check_invariants();
    follower
}

#[test]
fn what_was_out_comes_back_on_the_next_leader() {
    let mut leader = Leader::open(&SimDisk::new(), 0).unwrap();
    leader
        .world
        .with(|store| -> Result<()> {
            let new = NewStream { name: "S", config: "{}", policy: Default::default() };
            let stream = store.create_stream(&new, START)?;
            let policy = ConsumerPolicy { ack_wait_ms: 1_000, ..Default::default() };
            let new = NewConsumer { name: "c", policy, config: "{}", next: 0, early: vec![] };
            let consumer = store.set_consumer(stream, &new, START)?;
            let idle = ConsumerPolicy { inactive_ms: 5_000, ..Default::default() };
            let new =
                NewConsumer { name: "idle", policy: idle, config: "{}", next: 0, early: vec![] };
            store.set_consumer(stream, &new, START)?;
            for subject in ["a", "b"] {
                let publish = Publish { subject, ..Publish::default() };
                store.publish_to(stream, &publish, START).unwrap();
            }
            let offers = store.offers(consumer, 9, START)?;
            store.give(consumer, &offers, START).map(drop)
        })
        .unwrap();
    let mut store = taken_over(&mut leader, later(100));
    let stream = store.find_stream("S").unwrap();
    let consumer = store.find_consumer(stream, "c").unwrap();
    let given = |store: &mut Store, at: Now| -> Vec<(u64, u32)> {
        while store.tick(at) {}
        let offers = store.offers(consumer, 9, at).unwrap();
        offers.iter().map(|offer| (offer.msg_id(), offer.count)).collect()
    };
    assert_eq!(given(&mut store, later(1_000)), [], "it is held by whoever was given it");
    assert_eq!(given(&mut store, later(1_100)), [(0, 2), (1, 2)]);
    assert!(store.find_consumer(stream, "idle").is_some());
    while store.tick(later(5_100)) {}
    assert!(store.find_consumer(stream, "idle").is_none(), "nobody used it");
}

fn done(store: &mut Store, name: &str, msg_id: u64, at: Now) -> Result<()> {
    let stream = store.find_stream("S").unwrap();
    let key = store.find_consumer(stream, name).unwrap();
    let of = Delivery { msg_id, number: 1, count: 1, ..Delivery::default() };
    store.consumer_ack(key, &of, &ConsumerAck::Done, at).map(drop)
}

#[test]
fn the_next_leader_keeps_what_a_consumer_has_given_up() {
    let mut leader = Leader::open(&SimDisk::new(), 0).unwrap();
    leader
        .world
        .with(|store| -> Result<()> {
            let policy = Policy { interest: true, ..Policy::default() };
            let stream =
                store.create_stream(&NewStream { name: "S", config: "{}", policy }, START)?;
            let mut keys = Vec::new();
            for (name, max_deliver) in [("c", 1), ("d", 0)] {
                let policy =
                    ConsumerPolicy { max_deliver, ack_wait_ms: 1_000, ..Default::default() };
                let new = NewConsumer { name, policy, config: "{}", next: 0, early: vec![] };
                keys.push(store.set_consumer(stream, &new, START)?);
            }
            for subject in ["a", "b", "c"] {
                let publish = Publish { subject, ..Publish::default() };
                store.publish_to(stream, &publish, START).unwrap();
            }
            for key in keys {
                let offers = store.offers(key, 9, START)?;
                store.give(key, &offers, START)?;
            }
            while store.tick(later(1_000)) {}
            // One of those that were given up is acknowledged late, and another has done with one of the rest.
            done(store, "c", 1, later(1_000))?;
            done(store, "d", 0, later(1_000))
        })
        .unwrap();
    let mut store = taken_over(&mut leader, later(1_100));
    let stream = store.find_stream("S").unwrap();
    for msg_id in 0..3 {
        done(&mut store, "d", msg_id, later(1_100)).unwrap();
    }
    store.check_invariants();
    let is_there = |msg_id: &u64| store.stream_message(stream, *msg_id).unwrap().is_some();
    assert_eq!((0..3).filter(is_there).collect::<Vec<u64>>(), [0, 2]);
}

#[test]
fn ids_of_messages_in_memory_are_not_given_out_again_by_the_next_leader() {
    let mut leader = Leader::open(&SimDisk::new(), 0).unwrap();
    let create = NewMailbox { address: "a", ..Default::default() };
    leader.world.with(|store| store.create_mailbox(&create, START)).unwrap();
    let memory = Send { memory: true, ..Send::new(b"x") };
    let mut last = None;
    leader
        .world
        .with(|store| -> Result<()> {
            for _ in 0..3 {
                last = store.send("a", &memory, START)?;
            }
            Ok(())
        })
        .unwrap();
    let mut store = taken_over(&mut leader, START);
    let next = store.send("a", &Send::new(b"y"), START).unwrap();
    assert!(next > last, "{next:?} was {last:?}'s or one before it");
}
