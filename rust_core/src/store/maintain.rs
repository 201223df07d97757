//! Background upkeep: the next segment, checkpoints, compaction, removal of dead segments, in steps that hold
//! the store only for a moment each. Whatever takes the disk's time is done without it.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fair_lock::left_in_the_middle;
use super::{Compactor, Store};
use crate::error::{Error, Result};
use crate::log::{FullSegment, NewSegment};
use crate::time::Now;

/// How long a checkpoint waits for the stream of a cluster.
const COMMIT_PATIENCE: Duration = Duration::from_secs(10);

/// Mailboxes captured per step.
const CAPTURE: usize = 4;

/// A store that others use meanwhile.
pub trait Shared {
    /// Runs `step` with the store to itself.
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R;

    /// Called between two steps, without the store: whoever shares a processor with upkeep gets a turn here.
    fn rest(&self) {}
}

impl Shared for Mutex<Store> {
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        step(&mut self.lock().unwrap_or_else(left_in_the_middle))
    }
}

impl Shared for RefCell<Store> {
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        step(&mut self.borrow_mut())
    }
}

/// Does the upkeep that is due; true if something was done. `now` reads the caller's clocks.
pub fn maintain(store: &impl Shared, now: impl Fn() -> Now) -> Result<bool> {
    check_place(store)?;
    // Space first: on a full disk nothing else may work.
    let mut busy = reclaim(store, &now)?;
    if store.with(|store| store.refusing().is_some()) {
        store.with(|store| store.log.retry_refused(now().wall_ms));
    }
    if store.with(|store| store.log.is_next_due()) {
        busy |= make_next(store, &now)?;
    }
    if store.with(|store| store.checkpoint_due() || store.reclaim_blocked()) {
        checkpoint(store, &now)?;
        busy = true;
    }
    if let Some(mut compactor) = store.with(|store| store.pick_compaction()) {
        if let Err(e) = compact(store, &mut compactor, &now) {
            // Space comes back; what cannot be read or copied now would only fail again.
            if !matches!(e, Error::DiskFull(_)) {
                store.with(|store| store.give_up_compaction(&compactor));
            }
            return Err(e);
        }
        busy = true;
    }
    busy |= reclaim(store, &now)?;
    Ok(busy)
}

/// Looks whether the directory is where it was: until something needs a new file, writing alone would not tell.
fn check_place(store: &impl Shared) -> Result<()> {
    let disk = store.with(|store| Arc::clone(&store.disk));
    let place = disk.check_place();
    store.with(|store| store.log.note_place(place.is_err()));
    place.map_err(|e| Error::io("find", "the data directory", e))
}

/// Makes the segment that the log goes on in when the active one is full; true if it did. A full disk is left to
/// those who need the segment: they know what to do.
fn make_next(store: &impl Shared, now: impl Fn() -> Now) -> Result<bool> {
    let planned = store.with(|store| store.log.plan_next(now().wall_ms))?;
    let made = match planned.map(NewSegment::make) {
        None | Some(Err(Error::DiskFull(_))) => return Ok(false),
        Some(outcome) => outcome?,
    };
    if let Some(unused) = store.with(|store| store.log.keep_next(made)) {
        unused.discard();
    }
    Ok(true)
}

/// What comes between two steps of long work. The log may not have to wait for its next segment meanwhile.
fn pause(store: &impl Shared, now: impl Fn() -> Now) -> Result<()> {
    store.rest();
    if store.with(|store| store.log.is_next_due()) {
        make_next(store, now)?;
    }
    Ok(())
}

/// Looks for messages without the store, and holds it to copy one at a time.
fn compact(store: &impl Shared, compactor: &mut Compactor, now: impl Fn() -> Now) -> Result<()> {
    compactor.load()?;
    while let Some(candidate) = compactor.next_message() {
        store.with(|store| store.compact(&candidate, now()))?;
        pause(store, &now)?;
    }
    store.with(|store| store.finish_compaction(compactor));
    Ok(())
}

/// Gives back the space of dead segments, and what was reserved behind full ones; true if there were dead ones.
fn reclaim(store: &impl Shared, now: impl Fn() -> Now) -> Result<bool> {
    let full = store.with(|store| store.log.take_full());
    full.iter().for_each(FullSegment::trim);
    let mut removed = remove_dead(store)?;
    if store.with(|store| store.dying_segments()) > 0 {
        store.with(|store| store.tie_own_records(now()))?;
        let syncer = store.with(|store| store.flush().map(|()| store.syncer()))?;
        syncer.round()?;
        removed += remove_dead(store)?;
    }
    Ok(removed > 0)
}

fn remove_dead(store: &impl Shared) -> Result<usize> {
    let removal = store.with(|store| store.begin_removal());
    let removed = removal.remove();
    drop(store.with(|store| store.finish_removal(&removal)));
    removed
}

fn checkpoint(store: &impl Shared, now: impl Fn() -> Now) -> Result<()> {
    make_next(store, &now)?;
    // A fresh segment lets the whole one before it be reclaimed; a full disk goes without.
    let new = store.with(|store| {
        match store.rotate(now()) {
            Err(Error::DiskFull(_)) => store.log.lend_reserve()?,
            outcome => outcome?,
        }
        store.new_checkpoint()
    })?;
    let new = new.create()?;
    let mut checkpointer = store.with(|store| store.start_checkpoint(new))?;
    while store.with(|store| store.capture(&mut checkpointer, CAPTURE))? {
        checkpointer.write(|| pause(store, &now))?;
        pause(store, &now)?;
    }
    store.with(|store| store.tie_own_records(now()))?;
    if !checkpointer.wait_committed(COMMIT_PATIENCE) {
        // Another time: the stream stands still, and so does what could be captured.
        return Ok(());
    }
    checkpointer.finish()?;
    drop(store.with(|store| store.install_checkpoint(checkpointer)));
    Ok(())
}
