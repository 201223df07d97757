//! A leader's own log: what the stream does not have can be cut off, wherever power fails, and nothing else ever is.

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::Error;
use mq9_core::store::{NewMailbox, Options, Send, Store};
use mq9_core::time::Now;
use mq9_core::wire::tie::Tie;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

use crate::nodes::{Leader, Run, certain, crashes, follow, for_a_leader, open, position, sequence};
use crate::script;
use crate::world::{OPTIONS, START};

#[test]
fn a_leader_whose_power_fails_anywhere_keeps_what_the_stream_has() {
    let steps = for_a_leader(script::everything());
    let run = Run::new(&steps);
    let work = |disk: &SimDisk, n: u64| -> (Vec<crate::nodes::Batch>, u64) {
        disk.cut_at(n);
        let Ok(mut leader) = Leader::open(disk, 1) else { return (run.stream[..1].to_vec(), 0) };
        for step in &steps {
            if leader.step(step).is_err() || disk.is_cut() {
                break;
            }
        }
        (leader.stream, leader.committed)
    };
    let whole = SimDisk::new();
    work(&whole, u64::MAX);
    let (mut kept, mut cut) = (0, 0);
    for n in (1..=whole.ops()).step_by(2) {
        let disk = SimDisk::new();
        let (stream, committed) = work(&disk, n);
        for (name, crashed) in crashes(&disk, n) {
            let at = format!("cut at {n}, {name}");
            let last = {
                let store = open(&crashed, OPTIONS, u64::MAX);
                let store = store.unwrap_or_else(|e| panic!("{at}: {e}"));
                let found = sequence(&store);
                assert!(found <= stream.len() as u64, "{at}: {found} of {}", stream.len());
                assert_eq!(
                    store.state_digest(),
                    run.digests[found as usize],
                    "{at}: behind {found}"
                );
                store.last_tie()
            };
            // The stream has the batch, or does not: what stands in its place says which.
            let at_end = last.map_or(0, |tie| tie.at.sequence);
            let before = last.and_then(|tie| tie.before).map(|before| before.sequence);
            let possible = [Some(at_end), before.filter(|before| *before >= committed)];
            for keep in possible.into_iter().flatten() {
                let store = open(&crashed.snapshot(), OPTIONS, keep);
                let mut store = store.unwrap_or_else(|e| panic!("{at}, {keep} kept: {e}"));
                assert_eq!(sequence(&store), keep, "{at}");
                assert_eq!(store.state_digest(), run.digests[keep as usize], "{at}: {keep} kept");
                run.catch_up(&mut store).unwrap();
                assert_eq!(Some(&store.state_digest()), run.digests.last(), "{at}: in the end");
                (kept, cut) = if keep == at_end { (kept + 1, cut) } else { (kept, cut + 1) };
            }
        }
    }
    assert!(kept > 250 && cut > 50, "{kept} kept, {cut} cut");
}

#[test]
fn replies_wait_for_the_stream_and_so_do_checkpoints() {
    let disk = SimDisk::new();
    let mut leader = Leader::open(&disk, 0).unwrap();
    let create = NewMailbox { address: "a", ttl_ms: 0, desc: "", policy: Default::default() };
    leader.world.with(|store| store.create_mailbox(&create, START)).unwrap();
    leader.world.with(|store| store.sync()).unwrap();
    let is_promised =
        |leader: &mut Leader| leader.world.with(|store| store.acknowledged() >= store.end());
    assert!(!is_promised(&mut leader), "durable here, and in no stream");
    leader.propose().unwrap();
    leader.world.with(|store| store.sync()).unwrap();
    assert!(!is_promised(&mut leader), "on its way");
    let early = leader.world.with(|store| store.checkpoint());
    assert!(matches!(early, Err(Error::StreamBehind)), "{early:?}");
    leader.commit(0);
    assert!(is_promised(&mut leader));
    leader.world.with(|store| store.checkpoint()).unwrap();
    // The checkpoint says where the stream stood.
    drop(leader);
    let store = open(&disk.snapshot(), OPTIONS, u64::MAX).unwrap();
    assert_eq!(sequence(&store), 2);
    // A stream that has lost what a checkpoint holds is an alarm, not a cut.
    let refused = open(&disk.snapshot(), OPTIONS, 1).map(drop);
    assert!(matches!(refused, Err(Error::NotTied(_))), "{refused:?}");
}

#[test]
fn an_idle_leader_needs_no_heartbeat_again() {
    let disk = SimDisk::new();
    let mut leader = Leader::open(&disk, 0).unwrap();
    leader.propose().unwrap();
    leader.commit(0);
    let before = leader.committed;
    leader.beat(1_000).unwrap();
    leader.world.with(|store| store.sync()).unwrap();
    let (digest, settled) = leader.world.with(|store| {
        assert_eq!(store.last_tie().map(|tie| tie.at.sequence), Some(before + 1_000));
        (store.state_digest(), store.acknowledged() == store.end())
    });
    assert!(settled, "whoever asks what is durable waits for a batch that never comes");
    let again = open(&disk.crash_strict(), OPTIONS, u64::MAX).unwrap();
    assert_eq!((sequence(&again), again.state_digest()), (before + 1_000, digest));
    // While a batch is under way it is not tied to what came before it.
    let create = NewMailbox { address: "a", ttl_ms: 0, desc: "", policy: Default::default() };
    leader.world.with(|store| store.create_mailbox(&create, START)).unwrap();
    leader.world.with(|store| store.tie_heartbeats(position(before + 2_000), START)).unwrap();
    leader.propose().unwrap();
    leader.world.with(|store| store.tie_heartbeats(position(before + 2_000), START)).unwrap();
    assert_eq!(leader.world.with(|store| sequence(store)), before + 1_001);
}

#[test]
fn a_stream_that_stands_still_bounds_what_a_leader_takes() {
    let mut leader = Leader::open(&SimDisk::new(), 0).unwrap();
    let create = NewMailbox { address: "a", ttl_ms: 0, desc: "", policy: Default::default() };
    let refused = leader.world.with(|store| {
        store.create_mailbox(&create, START).unwrap();
        let send = Send::new(&[b'x'; 1500]);
        (0..10_000).find_map(|_| store.send("a", &send, START).err())
    });
    assert!(matches!(refused, Some(Error::StreamBehind)), "{refused:?}");
    leader.propose().unwrap();
    leader.world.with(|store| store.send("a", &Send::new(b"x"), START)).unwrap();
    assert_eq!(certain(2).at, leader.stream[1].tie.at);
}

#[test]
fn nothing_ends_by_itself_that_the_stream_would_not_take() {
    let mut leader = Leader::open(&SimDisk::new(), 0).unwrap();
    let create = NewMailbox { address: "a", ttl_ms: 0, desc: "", policy: Default::default() };
    leader.world.with(|store| store.create_mailbox(&create, START)).unwrap();
    for _ in 0..300 {
        let brief = Send { ttl_ms: 1_000, ..Send::new(b"brief") };
        leader.world.with(|store| store.send("a", &brief, START)).unwrap();
    }
    leader.propose().unwrap();
    leader.commit(0);
    let later = Now { wall_ms: START.wall_ms + 60_000, mono_ms: START.mono_ms + 60_000 };
    leader.world.with(|store| {
        let send = Send { ttl_ms: 1_000, ..Send::new(&[b'x'; 1500]) };
        while store.send("a", &send, START).is_ok() {}
        let before = store.state_digest();
        store.tick(later);
        assert_eq!(store.state_digest(), before, "the others would not hear of it");
        assert!(store.sleep_ms(later).is_some_and(|ms| ms > 0), "nobody asks again and again");
    });
    leader.propose().unwrap();
    leader.commit(0);
    leader.world.with(|store| while store.tick(later) {});
    leader.propose().unwrap();
    leader.commit(0);
    let mut follower = open(&SimDisk::new(), Options::default(), u64::MAX).unwrap();
    leader.stream.iter().for_each(|batch| follow(&mut follower, batch, START).unwrap());
    let (info, digest) =
        leader.world.with(|store| (store.mailbox("a", later), store.state_digest()));
    assert_eq!(info.unwrap().messages, 0);
    assert_eq!(follower.state_digest(), digest);
}

#[test]
fn a_batch_whose_tie_was_not_written_counts_all_the_same() {
    let (disk, faults) = (SimDisk::new(), Faults::new());
    let faulty: Arc<dyn Disk> = Arc::new(FaultyDisk::new(disk.clone(), faults.clone()));
    let mut store = Store::open_member(faulty, OPTIONS, 7, START, u64::MAX).unwrap();
    store.promote(&certain(1), START).unwrap();
    let create = NewMailbox { address: "a", ttl_ms: 0, desc: "", policy: Default::default() };
    store.create_mailbox(&create, START).unwrap();
    assert!(!store.take_outbox().unwrap().is_empty());
    let end = store.end();
    faults.fail(Operation::Write, Fault::no_space());
    let tie = Tie { at: position(2), before: Some(position(1)) };
    store.tie(&tie, START).unwrap_err();
    faults.clear();
    store.committed(2);
    store.sync().unwrap();
    assert!(store.acknowledged() >= end, "its clients wait for ever");
    // What comes behind it is tied to the stream behind it.
    store.send("a", &Send::new(b"x"), START).unwrap();
    store.take_outbox().unwrap();
    store.tie(&Tie { at: position(3), before: Some(position(2)) }, START).unwrap();
    store.committed(3);
    store.sync().unwrap();
    assert_eq!(store.acknowledged(), store.end());
    let digest = store.state_digest();
    drop(store);
    let again = open(&disk.snapshot(), OPTIONS, u64::MAX).unwrap();
    assert_eq!((sequence(&again), again.state_digest()), (3, digest));
}
