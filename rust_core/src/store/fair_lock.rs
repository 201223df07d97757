//! A store that commands and background work take turns with: whoever waits with a command is let in before
//! the next step of the background.
//!
//! A plain mutex promises no order. The thread that gave it back a moment ago mostly gets it again, so that a
//! command would wait for many steps instead of one.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::{Shared, Store};

/// How often the background looks again before it takes its turn although commands wait: it must get on
/// under any load.
const PATIENCE: usize = 1000;

/// A store behind a lock. Background work uses it as [`Shared`].
pub struct FairLock {
    /// Nothing once it was taken out.
    store: Mutex<Option<Store>>,
    /// Commands that wait for the lock.
    waiting: AtomicUsize,
}

/// The store, for as long as this lives.
pub struct StoreGuard<'a>(MutexGuard<'a, Option<Store>>);

impl FairLock {
    /// A store that is not in use.
    pub fn new(store: Store) -> FairLock {
        FairLock { store: Mutex::new(Some(store)), waiting: AtomicUsize::new(0) }
    }

    /// The store, for a command; nothing if it was taken out. Panics if a panic left it in the middle of a change:
    /// [`FairLock::is_broken`] tells.
    pub fn lock_if_open(&self) -> Option<StoreGuard<'_>> {
        let store = match self.store.try_lock() {
            Ok(store) => store,
            // The error holds the lock: whoever waited for it here would wait for itself.
            Err(TryLockError::Poisoned(broken)) => left_in_the_middle(broken),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let store = self.store.lock().unwrap_or_else(left_in_the_middle);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                store
            }
        };
        store.is_some().then_some(StoreGuard(store))
    }

    /// The same for callers who know that it is open.
    pub fn lock(&self) -> StoreGuard<'_> {
        self.lock_if_open().unwrap_or_else(taken_out)
    }

    /// Whether a panic left the store in the middle of a change. It is of no use then; what is on disk is sound.
    pub fn is_broken(&self) -> bool {
        self.store.is_poisoned()
    }

    /// Takes the store out, so that it can be closed; `None` if it is broken, or was taken before. A broken one is
    /// dropped, which saves nothing of it and gives the directory free.
    pub fn take(&self) -> Option<Store> {
        match self.store.lock() {
            Ok(mut store) => store.take(),
            Err(broken) => {
                drop(broken.into_inner().take());
                None
            }
        }
    }
}

impl Deref for StoreGuard<'_> {
    type Target = Store;

    fn deref(&self) -> &Store {
        self.0.as_ref().unwrap_or_else(taken_out)
    }
}

impl DerefMut for StoreGuard<'_> {
    fn deref_mut(&mut self) -> &mut Store {
        self.0.as_mut().unwrap_or_else(taken_out)
    }
}

impl Shared for FairLock {
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        for _ in 0..PATIENCE {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        let store = self.store.lock().unwrap_or_else(left_in_the_middle);
        step(&mut StoreGuard(store))
    }
}

/// Whoever uses a store keeps it from being closed.
fn taken_out<T>() -> T {
    panic!("the store is used after it was closed")
}

/// What a lock guards that a panic has let go is not to be used.
pub(super) fn left_in_the_middle<T>(_: PoisonError<T>) -> T {
    panic!("an earlier panic left the store in the middle of a change")
}
