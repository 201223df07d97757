//! A data folder is a single node's or a cluster's, and says which: neither is taken for the other.

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::{Error, Result};
use mq9_core::store::{NewMailbox, Send, Store};
use mq9_sim::SimDisk;

use crate::nodes::{FOLLOWER, Leader, Run, follow, for_a_leader, open, sequence};
use crate::script;
use crate::world::{OPTIONS, START};

fn alone(disk: &SimDisk) -> Result<Store> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open(disk, OPTIONS, 0xfeed_5678, START)
}

fn send(store: &mut Store, text: &[u8]) {
    let create = NewMailbox { address: "own", ttl_ms: 0, desc: "", policy: Default::default() };
    store.create_mailbox(&create, START).unwrap();
    store.send("own", &Send::new(text), START).unwrap();
    store.sync().unwrap();
}

fn refused(opened: Result<Store>, wanted: &str) {
    match opened.map(drop) {
        Err(Error::NotTied(why)) => assert!(why.contains(wanted), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// A folder of a single node, closed in order or not.
fn single(in_order: bool) -> (SimDisk, u128) {
    let disk = SimDisk::new();
    let mut store = alone(&disk).unwrap();
    send(&mut store, b"mine");
    let digest = store.state_digest();
    if in_order {
        store.close().unwrap();
    }
    (disk.snapshot(), digest)
}

#[test]
fn what_a_single_node_wrote_is_no_empty_log_of_a_cluster() {
    for in_order in [false, true] {
        let (disk, digest) = single(in_order);
        refused(open(&disk.snapshot(), OPTIONS, u64::MAX), "mq9 cluster seed");
        // Nothing of it was touched.
        assert_eq!(alone(&disk).unwrap().state_digest(), digest);
    }
}

#[test]
fn what_a_cluster_wrote_is_not_taken_for_a_single_nodes() {
    let steps = for_a_leader(script::everything());
    let run = Run::new(&steps);
    for with_checkpoint in [false, true] {
        let disk = SimDisk::new();
        let mut follower = open(&disk, FOLLOWER, u64::MAX).unwrap();
        run.catch_up(&mut follower).unwrap();
        if with_checkpoint {
            follower.checkpoint().unwrap();
        }
        drop(follower);
        refused(alone(&disk.snapshot()), "mq9 cluster leave");
        let shown: Arc<dyn Disk> = Arc::new(disk.snapshot());
        let seen = Store::look(shown, OPTIONS, 1, START).unwrap();
        assert_eq!(Some(&seen.state_digest()), run.digests.last());
        // It leaves, goes on by itself, and is no member's any more.
        open(&disk, FOLLOWER, u64::MAX).unwrap().leave(START).unwrap();
        let mut store = alone(&disk).unwrap();
        assert_eq!(Some(&store.state_digest()), run.digests.last());
        send(&mut store, b"mine");
        let digest = store.state_digest();
        drop(store);
        refused(open(&disk.snapshot(), OPTIONS, u64::MAX), "mq9 cluster seed");
        let store = alone(&disk).unwrap();
        assert_eq!(store.state_digest(), digest);
        store.close().unwrap();
        refused(open(&disk.snapshot(), OPTIONS, u64::MAX), "mq9 cluster seed");
    }
}

#[test]
fn a_single_node_becomes_the_first_of_a_cluster() {
    for in_order in [false, true] {
        let (disk, digest) = single(in_order);
        let mut store = alone(&disk).unwrap();
        store.seed(7, START).unwrap();
        if in_order {
            store.close().unwrap();
        } else {
            drop(store);
        }
        // Others begin with a copy of its files.
        let mut nodes: Vec<Store> =
            (0..2).map(|_| open(&disk.snapshot(), OPTIONS, u64::MAX).unwrap()).collect();
        for node in &nodes {
            assert_eq!((sequence(node), node.state_digest()), (0, digest));
            // An empty folder says something else of the same place: it cannot follow.
            assert_eq!(node.last_tie().unwrap().at.digest, 7);
        }
        let mut leader = Leader::open(&SimDisk::new(), 0).unwrap();
        let create = NewMailbox { address: "b", ttl_ms: 0, desc: "", policy: Default::default() };
        leader.world.with(|store| store.create_mailbox(&create, START)).unwrap();
        leader.propose().unwrap();
        for node in &mut nodes {
            follow(node, &leader.stream[0], START).unwrap();
        }
        assert_eq!(nodes[0].state_digest(), nodes[1].state_digest());
        refused(alone(&disk.snapshot()), "mq9 cluster leave");
    }
}

#[test]
fn a_folder_begins_a_stream_that_is_made_anew() {
    let run = Run::new(&for_a_leader(script::everything()));
    let disk = SimDisk::new();
    let mut follower = open(&disk, FOLLOWER, u64::MAX).unwrap();
    run.catch_up(&mut follower).unwrap();
    drop(follower);
    let mut store = open(&disk, FOLLOWER, u64::MAX).unwrap();
    store.seed(9, START).unwrap();
    store.close().unwrap();
    let store = open(&disk, FOLLOWER, u64::MAX).unwrap();
    assert_eq!(Some(&store.state_digest()), run.digests.last());
    let at = store.last_tie().unwrap().at;
    assert_eq!((at.sequence, at.digest, at.leader), (0, 9, None));
}
