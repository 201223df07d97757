//! A leader's own log: what the stream does not have can be cut off, wherever power fails, and nothing else ever is.

use mq9_core::error::Error;
use mq9_core::store::{NewMailbox, Send};
use mq9_sim::SimDisk;

use crate::nodes::{Leader, Run, certain, crashes, for_a_leader, open, sequence};
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
