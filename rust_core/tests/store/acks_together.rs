//! Acknowledgements recorded together: no power cut leaves a part of a step.

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::mailbox::Policy;
use mq9_core::store::{ConsumerAck, NewConsumer, NewStream, Options, Publish, Store};
use mq9_sim::SimDisk;

use crate::consumers::{START, consumer, later, open, policy, pull, say, stored, stream};

/// Messages of the stream, those that are acknowledged together in each step, and those that never are.
const COUNT: u64 = 30;
const STEPS: [&[u64]; 3] = [&[3, 4, 5, 6, 7, 8], &[1, 0, 9, 20, 11, 9], &[2, 10, 12, 13, 14, 15]];

/// Acknowledges in steps, each of which is durable before the next begins. `Err` when the power goes, with the number
/// of steps that were begun and of those that are durable.
fn acknowledge(disk: &SimDisk, policy: &Policy, steps: &mut [usize; 2]) -> Result<(), ()> {
    let gone = |_| ();
    let options = Options { segment_bytes: 4096, allocate_bytes: 4096, ..Options::default() };
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    let mut store = Store::open(disk, options, 7, START).map_err(gone)?;
    let new = NewStream { name: "S", config: "{}", policy: policy.clone() };
    let stream = store.create_stream(&new, START).map_err(gone)?;
    let policy = self::policy();
    let new = NewConsumer { name: "c", policy, config: "{}", next: 0, early: Vec::new() };
    let key = store.set_consumer(stream, &new, START).map_err(gone)?;
    for _ in 0..COUNT {
        let publish = Publish { subject: "s", payload: b"payload", ..Publish::default() };
        store.publish_to(stream, &publish, START).map_err(|_| ())?;
    }
    let offers = store.offers(key, COUNT as usize, START).map_err(gone)?;
    store.give(key, &offers, START).map_err(gone)?;
    store.sync().map_err(gone)?;
    for ids in STEPS {
        steps[0] += 1;
        store.consumer_done(key, ids.to_vec(), START).map_err(gone)?;
        store.check_invariants();
        store.sync().map_err(gone)?;
        steps[1] += 1;
    }
    store.close().map_err(gone)
}

#[test]
fn a_power_cut_leaves_all_of_what_was_acknowledged_together_or_nothing() {
    let work_queue = Policy { work_queue: true, ..Policy::default() };
    let interest = Policy { interest: true, ..Policy::default() };
    let mut torn = 0;
    for policy in [work_queue, interest] {
        let whole = SimDisk::new();
        acknowledge(&whole, &policy, &mut [0, 0]).unwrap();
        for cut in 1..=whole.ops() {
            let disk = SimDisk::new();
            disk.cut_at(cut);
            let mut steps = [0, 0];
            assert!(acknowledge(&disk, &policy, &mut steps).is_err() || cut == whole.ops());
            let [begun, durable] = steps;
            for crashed in [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()] {
                let mut store = open(&crashed, later(1));
                store.check_invariants();
                let Some(key) = store.find_stream("S") else { continue };
                if begun == 0 {
                    continue;
                }
                let mut is_there = |id: &u64| store.stream_message(key, *id).unwrap().is_some();
                let left: Vec<u64> = (0..COUNT).filter(|id| is_there(id)).collect();
                let done = STEPS.iter().filter(|ids| !ids.iter().any(&mut is_there)).count();
                assert!((durable..=begun).contains(&done), "cut at {cut}: {done} of {steps:?}");
                torn += usize::from(done < begun);
                let gone = STEPS[..done].concat();
                let kept: Vec<u64> = (0..COUNT).filter(|id| !gone.contains(id)).collect();
                assert_eq!(left, kept, "cut at {cut}: a part of a step");
                assert_eq!(store.stream_info(key).unwrap().messages, left.len() as u64);
                // Whatever is left comes again, and nothing else.
                let consumer = store.find_consumer(key, "c").unwrap();
                let again = pull(&mut store, consumer, 99, later(60_000));
                assert_eq!(again.iter().map(|(id, _)| *id).collect::<Vec<_>>(), left);
            }
        }
    }
    assert!(torn > 0, "no cut came between a step and its sync");
}

#[test]
fn only_what_was_given_can_be_acknowledged_together() {
    let mut store = open(&SimDisk::new(), START);
    let work_queue = Policy { work_queue: true, ..Policy::default() };
    let key = stream(&mut store, work_queue, &["s"; 10]);
    let first = consumer(&mut store, key, "c", policy());
    let watched = store.changes(0, 100, START).next;
    assert_eq!(pull(&mut store, first, 4, START).len(), 4);
    say(&mut store, first, 1, &ConsumerAck::Done, START);
    let end = store.end();
    store.consumer_done(first, vec![9, 1, 4, u64::MAX], START).unwrap();
    assert_eq!((store.end(), stored(&store, key)), (end, 9), "nothing of it was out");
    store.consumer_done(first, vec![3, 9, 3, 0], START).unwrap();
    store.check_invariants();
    assert_eq!(stored(&store, key), 7);
    let row = store.changes(watched, 100, START).changed.remove(0);
    let counts = &row.groups[0].counts;
    assert_eq!((counts.acked, counts.durations().iter().sum::<u32>()), (3, 3), "each counts once");
    assert_eq!(
        pull(&mut store, first, 9, later(2_000)),
        [(2, 2), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1)]
    );
}
