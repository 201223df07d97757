//! Power cuts at every file operation of a workload: nothing acknowledged is lost, nothing is
//! invented, and the store always opens.
#![allow(clippy::unwrap_used)]

mod check;
mod edges;
mod hooked;
mod inbox;
mod letters_back;
mod noted;
mod script;
mod world;

use std::sync::{Arc, Mutex};

use check::{Seen, check, check_given, check_next_life, note_replaced, observe};
use hooked::{Synced, hooked};
use mq9_core::disk::Disk;
use mq9_core::log::SyncMode;
use mq9_core::store::{MailboxInfo, Options, Store};
use mq9_core::time::Now;
use mq9_sim::SimDisk;
use script::Dice;
use world::{Given, NEAR, OPTIONS, Step, World, open};

/// How many steps have been acknowledged when the power went in the one numbered `index`. That one was not: each step
/// first does what is due by the clock, and what the power keeps it from is done later.
fn promised(world: &mut World, index: usize) -> usize {
    world.acknowledged().map_or(0, |step| step + 1).min(index)
}

/// A script with what the store must look like after each of its steps.
struct Play {
    steps: Vec<Step>,
    states: Vec<Option<(Seen, Given)>>,
}

impl Play {
    fn new(steps: Vec<Step>) -> Play {
        let states = vec![None; steps.len() + 1];
        Play { steps, states }
    }

    /// The state after the first `done` steps, all of them durable.
    fn state(&mut self, done: usize) -> (Seen, Given) {
        if self.states[done].is_none() {
            let disk = SimDisk::new();
            let mut world = World::open(Arc::new(disk.clone()), OPTIONS).unwrap();
            for step in &self.steps[..done] {
                world.step(step).unwrap();
            }
            world.with(|store| store.sync()).unwrap();
            let (given, now) = (world.given.clone(), world.now);
            let before = world.with(|store| describe(store, now));
            drop(world);
            let shared: Arc<dyn Disk> = Arc::new(disk.snapshot());
            let mut store = open(&shared, OPTIONS, now).unwrap();
            assert_eq!(describe(&mut store, now), before, "{:?}", &self.steps[..done].last());
            assert_eq!(store.damage(), [], "{:?}", &self.steps[..done].last());
            let mut seen = observe(&disk).unwrap();
            note_replaced(&mut seen, &mut store, now);
            self.states[done] = Some((seen, given));
        }
        self.states[done].clone().unwrap()
    }

    /// Runs the script on a disk cut at operation `n`: the steps acknowledged and those begun.
    fn run(&self, disk: &SimDisk, shared: Arc<dyn Disk>, n: u64) -> (usize, usize) {
        disk.cut_at(n);
        let Ok(mut world) = World::open(shared, OPTIONS) else { return (0, 0) };
        for (index, step) in self.steps.iter().enumerate() {
            let outcome = world.step(step);
            if outcome.is_err() || disk.is_cut() {
                assert!(disk.is_cut(), "{step:?}: {outcome:?}");
                return (promised(&mut world, index), index + 1);
            }
        }
        // The last steps may have come after the last sync.
        (promised(&mut world, self.steps.len()), self.steps.len())
    }

    fn operations(&self) -> u64 {
        let disk = SimDisk::new();
        self.run(&disk, Arc::new(disk.clone()), u64::MAX);
        disk.ops()
    }

    /// Which operations are syncs.
    fn syncs(&self) -> Vec<u64> {
        let (disk, syncs) = (SimDisk::new(), Arc::new(Mutex::new(Vec::new())));
        let (counted, noted) = (disk.clone(), Arc::clone(&syncs));
        let noting = hooked(disk.clone(), move |_| {
            noted.lock().unwrap().push(counted.ops() + 1);
            true
        });
        self.run(&disk, noting, u64::MAX);
        let syncs = syncs.lock().unwrap();
        syncs.clone()
    }

    /// Everything that must hold of `disk` after a crash between these two numbers of steps.
    fn verify(
        &mut self,
        disk: &SimDisk,
        acknowledged: usize,
        begun: usize,
    ) -> Result<Seen, String> {
        let states: Vec<_> = (acknowledged..=begun).map(|done| self.state(done)).collect();
        let (seen, given): (Vec<Seen>, Vec<Given>) = states.into_iter().unzip();
        let found = observe(disk)?;
        check(&seen, &found)?;
        let created = |s: &Seen, a: &str| s.mailboxes.get(a).map(|m| m.created_ms);
        let mut still_given = given[0].clone();
        still_given.retain(|of, ids| {
            let lasting = given.iter().all(|g| g.get(of).is_some_and(|now| now.starts_with(ids)));
            lasting && seen.iter().all(|s| created(s, of.0) == created(&seen[0], of.0))
        });
        still_given.retain(|of, _| created(&found, of.0).is_some() && of.0 != "mem");
        check_given(disk, &still_given)?;
        Ok(found)
    }
}

fn describe(store: &mut Store, now: Now) -> Vec<MailboxInfo> {
    while store.tick(now) {}
    let (mut list, _) = store.mailboxes(0, usize::MAX);
    list.retain(|info| info.address != "mem");
    list.sort_by(|a, b| a.address.cmp(&b.address));
    list
}

/// What a power cut may leave of a disk, in several ways.
fn crashes(disk: &SimDisk, salt: u64, seeds: u64) -> impl Iterator<Item = (String, SimDisk)> {
    let fixed = [("strict", disk.crash_strict()), ("lucky", disk.crash_lucky())];
    let fixed = fixed.map(|(name, disk)| (name.to_owned(), disk)).into_iter();
    let disk = disk.clone();
    fixed.chain((0..seeds).map(move |seed| {
        let seed = salt * 1000 + seed;
        (format!("seed {seed}"), disk.crash(seed))
    }))
}

#[test]
fn a_power_cut_at_any_operation_loses_and_invents_nothing() {
    let mut play = Play::new(script::everything());
    let operations = play.operations();
    assert!(operations > 300, "the script is too small: {operations}");
    for n in 1..=operations {
        let disk = SimDisk::new();
        let (acknowledged, begun) = play.run(&disk, Arc::new(disk.clone()), n);
        for (name, crashed) in crashes(&disk, n, 4) {
            let at = || format!("cut at {n}, {name}, step {begun} {:?}", play.steps.get(begun - 1));
            let at = if begun > 0 { at() } else { format!("cut at {n}, {name}") };
            let found = play.verify(&crashed, acknowledged, begun);
            let found = found.unwrap_or_else(|e| panic!("{at}: {e}"));
            let power_cut = n.is_multiple_of(2);
            check_next_life(&crashed, &found, power_cut).unwrap_or_else(|e| panic!("{at}: {e}"));
        }
    }
}

#[test]
fn a_power_cut_during_recovery_loses_and_invents_nothing() {
    let mut play = Play::new(script::everything());
    let operations = play.operations();
    for n in (1..=operations).step_by(9) {
        let disk = SimDisk::new();
        let (acknowledged, begun) = play.run(&disk, Arc::new(disk.clone()), n);
        let crash = || disk.crash(n);
        let opening = crash();
        drop(open(&(Arc::new(opening.clone()) as Arc<dyn Disk>), OPTIONS, NEAR).unwrap());
        for k in 1..=opening.ops() {
            let recovering = crash();
            recovering.cut_at(k);
            let shared: Arc<dyn Disk> = Arc::new(recovering.clone());
            assert!(open(&shared, OPTIONS, NEAR).is_err());
            for (name, crashed) in crashes(&recovering, k, 1) {
                let found = play.verify(&crashed, acknowledged, begun);
                found.unwrap_or_else(|e| panic!("cut at {n}, then {k} of opening, {name}: {e}"));
            }
        }
    }
}

#[test]
fn random_workloads_cut_at_random_lose_and_invent_nothing() {
    for seed in 0..1000 {
        let mut dice = Dice(seed);
        let mut play = Play::new(script::random(&mut dice, 45));
        let n = 1 + dice.below(play.operations());
        let disk = SimDisk::new();
        let (acknowledged, begun) = play.run(&disk, Arc::new(disk.clone()), n);
        for (name, crashed) in crashes(&disk, seed, 4) {
            let found = play.verify(&crashed, acknowledged, begun).unwrap_or_else(|e| {
                panic!("script {seed} cut at {n}, {name}, {acknowledged}..{begun}: {e}")
            });
            check_next_life(&crashed, &found, n.is_multiple_of(2))
                .unwrap_or_else(|e| panic!("script {seed} cut at {n}, {name}: {e}"));
        }
    }
}

/// `MQ9_FAULTS_STEPS` makes the run longer, as `make faults` does.
#[test]
fn a_long_random_run_cut_at_every_sync_loses_and_invents_nothing() {
    let steps = std::env::var("MQ9_FAULTS_STEPS").map_or(300, |steps| steps.parse().unwrap());
    let mut play = Play::new(script::random(&mut Dice(7), steps));
    let syncs = play.syncs();
    assert!(syncs.len() > steps / 4, "only {} syncs", syncs.len());
    // In the middle of the sync, and right after it.
    for n in syncs.into_iter().flat_map(|n| [n, n + 1]) {
        let disk = SimDisk::new();
        let (acknowledged, begun) = play.run(&disk, Arc::new(disk.clone()), n);
        for (name, crashed) in crashes(&disk, n, 3) {
            let found = play.verify(&crashed, acknowledged, begun);
            found.unwrap_or_else(|e| panic!("cut at {n}, {name}, {acknowledged}..{begun}: {e}"));
        }
    }
}

/// Runs the script on disks made by `disk` and counts the cuts after which something is wrong.
fn violations(make: impl Fn(SimDisk) -> Arc<dyn Disk>) -> usize {
    let mut play = Play::new(script::everything());
    let mut wrong = 0;
    for n in (1..=play.operations()).step_by(5) {
        let disk = SimDisk::new();
        let (acknowledged, begun) = play.run(&disk, make(disk.clone()), n);
        let mut crashed = crashes(&disk, n, 2);
        wrong += usize::from(crashed.any(|(_, d)| play.verify(&d, acknowledged, begun).is_err()));
    }
    wrong
}

#[test]
fn control_without_any_sync_losses_are_found() {
    let found = violations(|disk| {
        disk.ignore_sync(true);
        Arc::new(disk)
    });
    assert!(found > 10, "only {found}");
}

#[test]
fn control_without_file_syncs_losses_are_found() {
    assert!(violations(|disk| hooked(disk, |what| what != Synced::File)) > 10);
}

#[test]
fn control_without_directory_syncs_losses_are_found() {
    assert!(violations(|disk| hooked(disk, |what| what != Synced::Directory)) > 10);
}

#[test]
fn without_waiting_for_syncs_a_kill_loses_nothing_and_a_power_cut_invents_nothing() {
    for sync in [SyncMode::None, SyncMode::Interval { ms: 5 }] {
        let options = Options { sync, ..OPTIONS };
        let mut play = Play::new(script::everything());
        for n in (1..=play.operations()).step_by(5) {
            let disk = SimDisk::new();
            disk.cut_at(n);
            let Ok(mut world) = World::open(Arc::new(disk.clone()), options) else { continue };
            let begun = 1 + play
                .steps
                .iter()
                .take_while(|s| world.step(s).is_ok() && !disk.is_cut())
                .count();
            let begun = begun.min(play.steps.len());
            let acknowledged = promised(&mut world, begun - 1);
            drop(world);
            let killed = play.verify(&disk.snapshot(), acknowledged, begun);
            killed.unwrap_or_else(|e| panic!("{sync:?} killed at {n}: {e}"));
            for (name, crashed) in crashes(&disk, n, 2) {
                let found =
                    observe(&crashed).unwrap_or_else(|e| panic!("{sync:?} {n} {name}: {e}"));
                let history: Vec<Seen> = (0..=begun).map(|done| play.state(done).0).collect();
                check(&history, &found).unwrap_or_else(|e| panic!("{sync:?} {n} {name}: {e}"));
            }
        }
    }
}
