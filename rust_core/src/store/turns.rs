//! A store that commands and background work take turns with: whoever waits with a command is let in before
//! the next step of the background.
//!
//! A plain mutex promises no order. The thread that gave it back a moment ago mostly gets it again, so that a
//! command would wait for many steps instead of one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Shared, Store};

/// How often the background looks again before it takes its turn although commands wait: it must get on
/// under any load.
const PATIENCE: usize = 1000;

/// A store behind a lock. Background work uses it as [`Shared`].
pub struct Turns {
    store: Mutex<Store>,
    /// Commands that wait for the lock.
    waiting: AtomicUsize,
}

impl Turns {
    /// A store that is not in use.
    pub fn new(store: Store) -> Turns {
        Turns { store: Mutex::new(store), waiting: AtomicUsize::new(0) }
    }

    /// The store, for a command. A panic in another thread leaves it as usable as a crash would: nothing is
    /// half applied.
    pub fn lock(&self) -> MutexGuard<'_, Store> {
        if let Ok(store) = self.store.try_lock() {
            return store;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        store
    }

    /// The store, when nobody else uses it any more.
    pub fn into_inner(self) -> Store {
        self.store.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared for Turns {
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        for _ in 0..PATIENCE {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        step(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
