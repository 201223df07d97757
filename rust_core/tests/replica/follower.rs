//! Followers: they hold what the leader holds, wherever their power fails, and lead when they are told to.

use mq9_core::error::Error;
use mq9_core::store::{NewMailbox, Send, maintain};
use mq9_sim::SimDisk;
use std::cell::RefCell;

use crate::nodes::{
    FOLLOWER, Leader, Run, certain, crashes, follow, for_a_leader, open, position, sequence,
};
use crate::script::{self, Dice};
use crate::world::{FAR, OPTIONS, START, Step};

#[test]
fn a_follower_holds_what_the_leader_holds_behind_every_batch() {
    for seed in 0..60 {
        let steps = match seed {
            0 => script::everything(),
            _ => script::random(&mut Dice(seed), 80),
        };
        let leader_disk = SimDisk::new();
        let mut leader = Leader::open(&leader_disk, 0).unwrap();
        let mut follower = open(&SimDisk::new(), FOLLOWER, u64::MAX).unwrap();
        for (nth, step) in for_a_leader(steps).iter().enumerate() {
            leader.step(step).unwrap();
            for batch in &leader.stream[sequence(&follower) as usize..] {
                follow(&mut follower, batch, START).unwrap();
            }
            if nth % 5 == 0 || seed == 0 {
                // What a restart of the leader would find is what the follower has.
                let restarted = open(&leader_disk.snapshot(), OPTIONS, u64::MAX).unwrap();
                assert_eq!(sequence(&restarted), sequence(&follower), "seed {seed}: {step:?}");
                let (a, b) = (restarted.state_digest(), follower.state_digest());
                assert_eq!(a, b, "seed {seed}, step {nth}: {step:?}");
            }
        }
        assert!(leader.stream.len() > 15, "seed {seed}: {} batches", leader.stream.len());
        assert_eq!(follower.damage(), [], "seed {seed}");
    }
}

#[test]
fn a_follower_whose_power_fails_anywhere_goes_on_where_its_log_ends() {
    let run = Run::new(&for_a_leader(script::everything()));
    // With upkeep in between: checkpoints, compaction, removed segments.
    let work = |disk: &SimDisk, n: u64| -> (u64, u64) {
        disk.cut_at(n);
        let Ok(store) = open(disk, FOLLOWER, u64::MAX) else { return (0, 0) };
        let store = RefCell::new(store);
        let (mut certainly, mut begun) = (0, 0);
        for (index, batch) in run.stream.iter().enumerate() {
            begun = batch.tie.at.sequence;
            let taken = follow(&mut store.borrow_mut(), batch, START);
            let kept = match index % 7 {
                0 => store.borrow_mut().sync(),
                3 => maintain(&store, || START).map(drop),
                _ => Ok(()),
            };
            if taken.is_err() || kept.is_err() || disk.is_cut() {
                assert!(disk.is_cut(), "{taken:?} {kept:?}");
                return (certainly, begun);
            }
            let store = store.borrow();
            if store.acknowledged() >= store.end() {
                certainly = begun;
            }
        }
        (certainly, begun)
    };
    let whole = SimDisk::new();
    work(&whole, u64::MAX);
    assert!(whole.names().iter().any(|name| name.starts_with("checkpoint")), "no checkpoint");
    let mut between = 0;
    for n in 1..=whole.ops() {
        let disk = SimDisk::new();
        let (certainly, begun) = work(&disk, n);
        for (name, crashed) in crashes(&disk, n) {
            let at = format!("cut at {n}, {name}");
            let mut store =
                open(&crashed, FOLLOWER, u64::MAX).unwrap_or_else(|e| panic!("{at}: {e}"));
            let found = sequence(&store);
            assert!(
                (certainly..=begun).contains(&found),
                "{at}: {certainly} <= {found} <= {begun}"
            );
            between += u64::from(found > certainly);
            assert_eq!(store.state_digest(), run.digests[found as usize], "{at}: behind {found}");
            run.catch_up(&mut store).unwrap();
            assert_eq!(Some(&store.state_digest()), run.digests.last(), "{at}: at the end");
        }
    }
    assert!(between > 50, "hardly any cut fell between two syncs: {between}");
}

#[test]
fn a_follower_that_hears_nothing_between_two_starts_goes_on_where_its_log_ends() {
    let run = Run::new(&for_a_leader(script::random(&mut Dice(7), 60)));
    let disk = SimDisk::new();
    let mut store = open(&disk, FOLLOWER, u64::MAX).unwrap();
    for (nth, batch) in run.stream.iter().enumerate() {
        follow(&mut store, batch, START).unwrap();
        // Each opening leaves a record of its own, which a checkpoint holds or which is cut off.
        for starts in 0..nth % 4 {
            match (nth + starts) % 3 {
                0 => drop(store),
                _ => store.close().unwrap(),
            }
            store = open(&disk, FOLLOWER, u64::MAX).unwrap();
            assert_eq!(sequence(&store), batch.tie.at.sequence, "batch {nth}, start {starts}");
        }
    }
    drop(store);
    let store = open(&disk, FOLLOWER, u64::MAX).unwrap();
    assert_eq!(sequence(&store), run.stream.len() as u64);
    assert_eq!(Some(&store.state_digest()), run.digests.last());
}

#[test]
fn a_follower_that_is_promoted_goes_on_and_the_others_follow_it() {
    for seed in 0..30 {
        let steps = for_a_leader(script::random(&mut Dice(seed), 80));
        let (old_disk, new_disk) = (SimDisk::new(), SimDisk::new());
        let mut old = Leader::open(&old_disk, 1).unwrap();
        let mut follower = open(&new_disk, FOLLOWER, u64::MAX).unwrap();
        let (before, mut after) = steps.split_at(40);
        for step in before {
            old.step(step).unwrap();
        }
        // Heartbeats are in the stream by now: one more batch is on its way.
        while old.stream.last().is_some_and(|batch| batch.records.is_empty()) {
            old.step(&after[0]).unwrap();
            after = &after[1..];
        }
        // The last batch does not get into the stream: another's claim takes its place.
        let mut stream = old.stream.clone();
        let lost = stream.pop().unwrap();
        stream.iter().for_each(|batch| follow(&mut follower, batch, START).unwrap());
        let claim = certain(lost.tie.at.sequence);
        drop(follower);
        let mut new = Leader::open(&SimDisk::new(), 0).unwrap();
        let mut store = open(&new_disk, FOLLOWER, u64::MAX).unwrap();
        store.promote(&claim, old.world.now).unwrap();
        let now = old.world.now;
        new.world.with(|of| *of = store);
        new.world.now = now;
        stream.push(crate::nodes::Batch { records: Vec::new(), tie: claim });
        new.stream = stream;
        for step in after {
            new.step(step).unwrap();
        }
        // The old leader cuts off what did not happen, and takes what did.
        let keep = lost.tie.at.sequence - 1;
        drop(old);
        let mut store = open(&old_disk, OPTIONS, keep).unwrap();
        assert_eq!(sequence(&store), keep);
        for batch in &new.stream[keep as usize..] {
            follow(&mut store, batch, now).unwrap();
        }
        let expected = open(&new_disk.snapshot(), FOLLOWER, u64::MAX).unwrap().state_digest();
        assert_eq!(store.state_digest(), expected, "seed {seed}");
    }
}

#[test]
fn a_follower_carries_out_no_command_and_no_timer() {
    let mut leader = Leader::open(&SimDisk::new(), 0).unwrap();
    let create = NewMailbox { address: "a", ttl_ms: 1_000, desc: "", policy: Default::default() };
    leader.world.with(|store| store.create_mailbox(&create, START)).unwrap();
    leader.propose().unwrap();
    let mut follower = open(&SimDisk::new(), FOLLOWER, u64::MAX).unwrap();
    leader.stream.iter().for_each(|batch| follow(&mut follower, batch, START).unwrap());
    let refused = follower.send("a", &Send::new(b"x"), START);
    assert!(matches!(refused, Err(Error::NotLeading)), "{refused:?}");
    let before = (follower.end(), follower.state_digest());
    while follower.tick(FAR) {}
    assert_eq!((follower.end(), follower.state_digest()), before, "a timer fired");
    follower.promote(&certain(3), START).unwrap();
    while follower.tick(FAR) {}
    assert_ne!(follower.state_digest(), before.1, "timers fire with whoever leads");
}

#[test]
fn a_log_without_ties_is_not_taken_for_a_follower_s() {
    let disk = SimDisk::new();
    let shared: std::sync::Arc<dyn mq9_core::disk::Disk> = std::sync::Arc::new(disk.clone());
    let mut single = crate::world::open(&shared, OPTIONS, START).unwrap();
    let create = NewMailbox { address: "a", ttl_ms: 0, desc: "", policy: Default::default() };
    single.create_mailbox(&create, START).unwrap();
    single.sync().unwrap();
    let snapshot = disk.snapshot();
    let refused = open(&snapshot, OPTIONS, u64::MAX).map(drop);
    assert!(matches!(refused, Err(Error::NotTied(_))), "{refused:?}");
    // A seed may be copied, and followed from.
    single.seed(5, START).unwrap();
    let digest = single.state_digest();
    let mut copy = open(&disk.snapshot(), OPTIONS, u64::MAX).unwrap();
    assert_eq!((copy.state_digest(), copy.last_tie().unwrap().at.sequence), (digest, 0));
    copy.promote(&certain(1), START).unwrap();
    copy.send("a", &Send::new(b"x"), START).unwrap();
}

#[test]
fn a_step_that_a_leader_refuses_is_in_no_batch() {
    let mut leader = Leader::open(&SimDisk::new(), 0).unwrap();
    // What a lead begins with.
    leader.propose().unwrap();
    let before = leader.stream.len();
    leader.step(&Step::Remove("nowhere")).unwrap();
    assert_eq!(leader.stream.len(), before);
    assert_eq!(leader.stream[before - 1].tie.at, position(before as u64));
}
