//! A leader that carries out a script, the stream it writes, and followers.

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::Result;
use mq9_core::log::Outgoing;
use mq9_core::store::{Options, Store};
use mq9_core::time::Now;
use mq9_core::wire::tie::{StreamPosition, Tie};
use mq9_sim::SimDisk;

use crate::world::{FAR, OPTIONS, START, Step, World};

/// Followers cut their logs into other pieces than the leader does.
pub const FOLLOWER: Options = Options { segment_bytes: 9_000, ..OPTIONS };

/// One message of the stream.
#[derive(Clone)]
pub struct Batch {
    pub records: Vec<Outgoing>,
    pub tie: Tie,
}

/// The place of a message, as the cluster would name it.
pub fn position(sequence: u64) -> StreamPosition {
    let digest = u128::from(sequence) * 0x1234_5678_9abc_def0_1357;
    StreamPosition { sequence, digest, term: 1, leader: (sequence > 0).then_some((7, 9)) }
}

/// The tie of a batch that is known to be in the stream.
pub fn certain(sequence: u64) -> Tie {
    Tie { at: position(sequence), before: None }
}

pub fn open(disk: &SimDisk, options: Options, keep: u64) -> Result<Store> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = Store::open_member(disk, options, 0xfeed_5678, START, keep)?;
    store.check_invariants();
    Ok(store)
}

/// Where a store stands in the stream.
pub fn sequence(store: &Store) -> u64 {
    store.last_tie().map_or(0, |tie| tie.at.sequence)
}

/// The node that leads.
pub struct Leader {
    pub world: World,
    pub stream: Vec<Batch>,
    /// Batches are committed when this many more are there.
    pub lag: usize,
    pub committed: u64,
}

impl Leader {
    /// The first message of the stream is the claim.
    pub fn open(disk: &SimDisk, lag: usize) -> Result<Leader> {
        let mut store = open(disk, OPTIONS, u64::MAX)?;
        store.promote(&certain(1), START)?;
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let world = World::around(store, shared, OPTIONS);
        let claim = Batch { records: Vec::new(), tie: certain(1) };
        Ok(Leader { world, stream: vec![claim], lag, committed: 1 })
    }

    /// Carries out a step, and puts what it wrote into the stream.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        if matches!(step, Step::Maintain) {
            // Upkeep waits for the stream.
            self.propose()?;
            self.commit(0);
            self.beat(2)?;
        }
        self.world.step(step)?;
        self.propose()?;
        self.commit(self.lag);
        Ok(())
    }

    pub fn propose(&mut self) -> Result<()> {
        let last = self.stream.len() as u64;
        let now = self.world.now;
        let stream = &mut self.stream;
        self.world.with(|store| {
            let records = store.take_outbox()?;
            if !records.is_empty() {
                let tie = Tie { at: position(last + 1), before: Some(position(last)) };
                // It is on its way before the own log has it.
                stream.push(Batch { records, tie });
                store.tie(&tie, now)?;
            }
            Ok(())
        })
    }

    /// Batches without records, which leave nothing in the own log but a note of where they end.
    pub fn beat(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let last = self.stream.len() as u64;
            let tie = Tie { at: position(last + 1), before: Some(position(last)) };
            self.stream.push(Batch { records: Vec::new(), tie });
        }
        self.commit(0);
        let (at, now) = (position(self.committed), self.world.now);
        self.world.with(|store| store.tie_heartbeats(at, now))
    }

    pub fn commit(&mut self, lag: usize) {
        let committed = (self.stream.len() - lag.min(self.stream.len())) as u64;
        self.committed = self.committed.max(committed);
        self.world.with(|store| store.committed(committed));
    }
}

/// The script for a leader: without the steps that end its process.
pub fn for_a_leader(steps: Vec<Step>) -> Vec<Step> {
    steps.into_iter().filter(|step| !matches!(step, Step::Close | Step::Kill)).collect()
}

/// What a leader writes by `steps`, and the digest of what a store holds behind each message.
pub struct Run {
    pub stream: Vec<Batch>,
    pub digests: Vec<u128>,
}

impl Run {
    pub fn new(steps: &[Step]) -> Run {
        let mut leader = Leader::open(&SimDisk::new(), 0).unwrap();
        for step in steps {
            leader.step(step).unwrap();
        }
        let stream = leader.stream;
        let mut follower = open(&SimDisk::new(), FOLLOWER, u64::MAX).unwrap();
        let mut digests = vec![follower.state_digest()];
        for batch in &stream {
            follow(&mut follower, batch, START).unwrap();
            digests.push(follower.state_digest());
        }
        Run { stream, digests }
    }

    /// Brings a follower to the end of the stream.
    pub fn catch_up(&self, follower: &mut Store) -> Result<()> {
        for batch in &self.stream[sequence(follower) as usize..] {
            follow(follower, batch, FAR)?;
        }
        Ok(())
    }
}

/// A follower takes a batch, which is in the stream.
pub fn follow(follower: &mut Store, batch: &Batch, now: Now) -> Result<()> {
    follower.apply(&batch.records, &certain(batch.tie.at.sequence), now)?;
    follower.check_invariants();
    Ok(())
}

/// What a power cut may leave of a disk.
pub fn crashes(disk: &SimDisk, salt: u64) -> Vec<(String, SimDisk)> {
    let mut crashed =
        vec![("strict".to_owned(), disk.crash_strict()), ("lucky".to_owned(), disk.crash_lucky())];
    crashed.extend((0..2).map(|n| (format!("seed {n}"), disk.crash(salt * 10 + n))));
    crashed
}
