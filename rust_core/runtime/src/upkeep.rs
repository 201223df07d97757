//! The thread that keeps the store in shape: checkpoints, compaction, removal of dead segments.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mq9_core::error::{Error, Result};
use mq9_core::log::Syncer;
use mq9_core::store::{FairLock, Shared, Store, maintain};

use crate::clock;

/// The thread rests after so much work.
const STRETCH: Duration = Duration::from_millis(2);
/// It rests so many times as long as it worked: where all processors are wanted, what is asked of the broker comes
/// first, and a checkpoint takes its time.
const REST: u32 = 3;

/// Upkeep of one store, shared by its thread and by callers who want it done at once.
pub struct Upkeep {
    store: Arc<FairLock>,
    syncer: Arc<Syncer>,
    /// Two rounds at once would write two checkpoints of one state.
    turn: Mutex<()>,
    failure: Mutex<Option<String>>,
    order: Mutex<Order>,
    ordered: Condvar,
}

/// What the thread is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Wait,
    /// A round at once.
    Work,
    Stop,
}

impl Upkeep {
    /// Of a store that nobody keeps in shape yet.
    pub fn new(store: Arc<FairLock>) -> Upkeep {
        let syncer = store.lock().syncer();
        Upkeep {
            store,
            syncer,
            turn: Mutex::new(()),
            failure: Mutex::new(None),
            order: Mutex::new(Order::Wait),
            ordered: Condvar::new(),
        }
    }

    /// Does what is due; true if something was done.
    pub fn round(&self) -> Result<bool> {
        self.round_with(&*self.store)
    }

    fn round_with(&self, store: &impl Shared) -> Result<bool> {
        let _turn = self.turn()?;
        let done = maintain(store, clock::now);
        *lock(&self.failure) = done.as_ref().err().map(ToString::to_string);
        done
    }

    /// Writes a checkpoint, due or not.
    pub fn checkpoint(&self) -> Result<()> {
        let _turn = self.turn()?;
        self.store.lock().checkpoint()
    }

    /// A round that panicked may have left anything behind: there is none after it.
    fn turn(&self) -> Result<MutexGuard<'_, ()>> {
        self.turn.lock().map_err(|_| Error::WritesStopped("upkeep panicked before".to_owned()))
    }

    /// Nobody keeps the store in shape any more: writes stop before that tells.
    fn panicked(&self) {
        let cause = "the upkeep thread panicked";
        *lock(&self.failure) = Some(cause.to_owned());
        self.syncer.stop_writes(cause);
    }

    /// What the last round failed with, if it did.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Has the thread do a round at once.
    pub fn wake(&self) {
        self.order(Order::Work);
    }

    fn order(&self, order: Order) {
        let mut current = lock(&self.order);
        if *current != Order::Stop {
            *current = order;
        }
        drop(current);
        self.ordered.notify_all();
    }

    /// Waits so long, or until there is an order; false when asked to stop.
    fn wait(&self, most: Duration) -> bool {
        let order = lock(&self.order);
        // Stopping comes in between, and so does the wish for the log's next segment.
        let waited = self.ordered.wait_timeout_while(order, most, |order| *order == Order::Wait);
        let mut order = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *order == Order::Work {
            *order = Order::Wait;
        }
        *order != Order::Stop
    }
}

impl Upkeep {
    /// What the thread does until it is asked to stop.
    fn rounds(&self, every: Duration) {
        let mut pause = every;
        while self.wait(pause) {
            // A failure is remembered; the next round tries again.
            let paced = Paced { upkeep: self, rested_at: Cell::new(clock::worked()) };
            let busy = self.round_with(&paced).unwrap_or(false);
            pause = if busy { Duration::ZERO } else { every };
        }
    }
}

/// The store as the thread uses it.
struct Paced<'a> {
    upkeep: &'a Upkeep,
    /// How long the thread had worked when it rested last.
    rested_at: Cell<Duration>,
}

impl Shared for Paced<'_> {
    fn with<R>(&self, step: impl FnOnce(&mut Store) -> R) -> R {
        self.upkeep.store.with(step)
    }

    fn rest(&self) {
        let worked = clock::worked().saturating_sub(self.rested_at.get());
        if worked >= STRETCH {
            self.upkeep.wait(REST * worked);
            self.rested_at.set(clock::worked());
        }
    }
}

/// The thread, which stops when dropped.
pub struct UpkeepThread {
    upkeep: Arc<Upkeep>,
    thread: Option<JoinHandle<()>>,
}

impl UpkeepThread {
    pub fn start(upkeep: Arc<Upkeep>, every: Duration) -> std::io::Result<UpkeepThread> {
        let shared = Arc::clone(&upkeep);
        let thread =
            std::thread::Builder::new().name("mq9-upkeep".to_owned()).spawn(move || {
                if catch_unwind(AssertUnwindSafe(|| shared.rounds(every))).is_err() {
                    shared.panicked();
                }
            })?;
        Ok(UpkeepThread { upkeep, thread: Some(thread) })
    }
}

impl Drop for UpkeepThread {
    fn drop(&mut self) {
        self.upkeep.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// For what a panic cannot leave half changed: a word, a flag.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
