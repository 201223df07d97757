//! Background upkeep: checkpoints, compaction, removal of dead segments, in steps that hold the
//! store only for a moment each.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

use super::{Compactor, Store};
use crate::error::{Error, Result};
use crate::time::Now;

/// Mailboxes captured per step.
const CAPTURE: usize = 256;
/// Records looked at per step, at most one of which is copied.
const SCAN: usize = 64;

/// A store that others use meanwhile.
pub trait Shared {
    /// Runs `step` with the store to itself.
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R;
}

impl Shared for Mutex<Store> {
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        step(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared for RefCell<Store> {
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        step(&mut self.borrow_mut())
    }
}

/// Does the upkeep that is due; true if something was done. `now` reads the caller's clocks.
pub fn maintain(store: &impl Shared, now: impl Fn() -> Now) -> Result<bool> {
    // Space first: on a full disk nothing else may work.
    let mut busy = reclaim(store)?;
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
    busy |= reclaim(store)?;
    Ok(busy)
}

fn compact(store: &impl Shared, compactor: &mut Compactor, now: impl Fn() -> Now) -> Result<()> {
    compactor.load()?;
    while store.with(|store| store.compact(compactor, SCAN, now()))? {}
    Ok(())
}

/// Removes dead segments; true if there were any.
fn reclaim(store: &impl Shared) -> Result<bool> {
    let mut removed = store.with(|store| store.reclaim())?;
    if store.with(|store| store.dying_segments()) > 0 {
        let syncer = store.with(|store| store.flush().map(|()| store.syncer()))?;
        syncer.round()?;
        removed += store.with(|store| store.reclaim())?;
    }
    Ok(removed > 0)
}

fn checkpoint(store: &impl Shared, now: impl Fn() -> Now) -> Result<()> {
    // A fresh segment lets the whole one before it be reclaimed; a full disk goes without.
    let mut checkpointer = store.with(|store| {
        match store.rotate(now()) {
            Err(Error::DiskFull(_)) => store.log.lend_reserve()?,
            outcome => outcome?,
        }
        store.begin_checkpoint()
    })?;
    while store.with(|store| store.capture(&mut checkpointer, CAPTURE))? {
        checkpointer.write()?;
    }
    checkpointer.finish()?;
    store.with(|store| store.install_checkpoint(checkpointer));
    Ok(())
}
