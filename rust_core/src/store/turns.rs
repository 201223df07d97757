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

    /// The store, for a command. Panics if a panic left it in the middle of a change: [`Turns::is_broken`] tells.
    pub fn lock(&self) -> MutexGuard<'_, Store> {
        if let Ok(store) = self.store.try_lock() {
            return store;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let store = self.store.lock().unwrap_or_else(left_in_the_middle);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        store
    }

    /// Whether a panic left the store in the middle of a change. It is of no use then; what is on disk is sound.
    pub fn is_broken(&self) -> bool {
        self.store.is_poisoned()
    }

    /// The store, when nobody else uses it any more; `None` if it is broken.
    pub fn into_inner(self) -> Option<Store> {
        self.store.into_inner().ok()
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
        step(&mut self.store.lock().unwrap_or_else(left_in_the_middle))
    }
}

/// What a lock guards that a panic has let go is not to be used.
pub(super) fn left_in_the_middle<T>(_: PoisonError<T>) -> T {
    panic!("an earlier panic left the store in the middle of a change")
}
