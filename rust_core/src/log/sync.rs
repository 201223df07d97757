//! Group commit: which bytes are written, which are durable, and the thread that turns one into
//! the other.
//!
//! A round takes whatever has been written since the last one and syncs the files it lies in. The
//! round lock is taken before the state lock, and files are synced under the round lock alone, so
//! that writers never wait for a disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Lsn;
use super::pace::Pace;
use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::latency::Latencies;

/// When an acknowledgement may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// After its record is durable: survives a power cut.
    Always,
    /// After its record is written: survives a crash of the process. A power cut loses at most the
    /// last `ms` milliseconds.
    Interval {
        /// Time between two syncs.
        ms: u64,
    },
    /// After its record is written; the operating system syncs when it likes.
    None,
}

/// When the sync thread hears of what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// At once.
    Now,
    /// Later, or not at all: the writer syncs, or calls it with [`Syncer::call_thread`].
    Later,
}

/// A sync that takes less holds nobody up who should not be.
const SHORT: Duration = Duration::from_millis(1);

/// After one that was not, so many in a row must have been short before a caller syncs by itself again.
const QUICK_SYNCS: u32 = 8;

struct State {
    /// Files with bytes written since they were last synced, oldest segment first.
    dirty: Vec<(u32, Arc<dyn DiskFile>)>,
    written: Lsn,
    durable: Lsn,
    /// In a cluster, what the stream has of it.
    committed: Option<Lsn>,
    /// Bytes written that no sync has taken.
    unsynced: u64,
    /// How many of them the sync thread waits for.
    enough: u64,
    /// The sync thread knows of what is written.
    told: bool,
    /// Syncs in a row that were short.
    short: u32,
    /// How long syncs took.
    latencies: Latencies,
    stop: bool,
}

/// What is written and what is durable, shared between the writer and the sync thread.
pub struct Syncer {
    mode: SyncMode,
    state: Mutex<State>,
    /// Why nothing is acknowledged again. Set while the state is held, read without: each record asks.
    failure: OnceLock<String>,
    work: Condvar,
    commits: Condvar,
    round: Mutex<()>,
    /// In a cluster: replies may leave until then, in ms of the monotonic clock.
    lease_ms: AtomicU64,
    listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Syncer {
    /// Starts with everything before `end` durable.
    pub fn new(mode: SyncMode, end: Lsn) -> Syncer {
        Syncer {
            mode,
            state: Mutex::new(State {
                dirty: Vec::new(),
                written: end,
                durable: end,
                committed: None,
                unsynced: 0,
                enough: u64::MAX,
                told: false,
                // Until one was not.
                short: QUICK_SYNCS,
                latencies: Latencies::default(),
                stop: false,
            }),
            failure: OnceLock::new(),
            work: Condvar::new(),
            commits: Condvar::new(),
            round: Mutex::new(()),
            lease_ms: AtomicU64::new(u64::MAX),
            listener: OnceLock::new(),
        }
    }

    /// From now on `told` is called after every round, successful or not, whoever has run it. There
    /// is one listener: the first.
    pub fn listen(&self, told: impl Fn() + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(told));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that everything before `end` is written, the last of it to `file`. The sync thread hears of it, at once
    /// or from [`Syncer::call_thread`].
    pub fn wrote(&self, end: Lsn, segment: u32, file: &Arc<dyn DiskFile>, call: Call) {
        let mut state = self.state();
        // What a segment before held besides is not worth counting.
        let start = if state.written.segment() == segment { state.written.offset() } else { 0 };
        state.unsynced += u64::from(end.offset().saturating_sub(start));
        state.written = end;
        if state.dirty.last().is_none_or(|(number, _)| *number != segment) {
            state.dirty.push((segment, Arc::clone(file)));
        }
        let enough = state.told && state.unsynced >= state.enough;
        if enough || (call == Call::Now && !std::mem::replace(&mut state.told, true)) {
            drop(state);
            self.notify();
        }
    }

    /// Has the sync thread sync what is written, if it does not know of it.
    pub fn call_thread(&self) {
        let mut state = self.state();
        if !state.dirty.is_empty() && !std::mem::replace(&mut state.told, true) {
            drop(state);
            self.notify();
        }
    }

    fn notify(&self) {
        if self.mode != SyncMode::None {
            self.work.notify_one();
        }
    }

    /// Whether a caller may expect a sync of its own to be short.
    pub fn is_quick(&self) -> bool {
        self.state().short >= QUICK_SYNCS
    }

    /// Whether nothing is written that no sync has taken.
    pub fn is_synced(&self) -> bool {
        self.state().dirty.is_empty()
    }

    /// Whether replies wait for other nodes.
    pub fn has_stream(&self) -> bool {
        self.state().committed.is_some()
    }

    /// Whether replies wait for a sync.
    pub fn is_always(&self) -> bool {
        self.mode == SyncMode::Always
    }

    /// Syncs on the thread of the caller, unless somebody is at it: then the sync thread does it next. Whether it was
    /// done here, successful or not. `clock` tells the time since any instant.
    pub fn sync_here(&self, clock: &dyn Fn() -> Duration) -> bool {
        let round = match self.round.try_lock() {
            Ok(round) => Some(round),
            Err(TryLockError::Poisoned(_)) => None,
            // Whoever is at it may take long: better not to wait for that.
            Err(TryLockError::WouldBlock) => {
                self.call_thread();
                return false;
            }
        };
        let begin = clock();
        // A failure is kept, where every later command meets it.
        if self.sync_files(round).is_ok() {
            self.note_duration(clock().saturating_sub(begin));
        }
        self.tell();
        true
    }

    fn note_duration(&self, took: Duration) {
        let mut state = self.state();
        state.short = if took < SHORT { state.short.saturating_add(1) } else { 0 };
        state.latencies.note(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// How long syncs took that succeeded.
    pub fn latencies(&self) -> Latencies {
        self.state().latencies.clone()
    }

    /// Everything before this position survives a power cut.
    pub fn durable(&self) -> Lsn {
        self.state().durable
    }

    /// Everything before this position survives a power cut, and the loss of this node if it is one of several.
    pub fn settled(&self) -> Lsn {
        let state = self.state();
        state.durable.min(state.committed.unwrap_or(state.durable))
    }

    /// In a cluster: the stream has everything before `end`. Wakes whoever waits for that.
    pub fn commit(&self, end: Lsn) {
        let mut state = self.state();
        debug_assert!(end <= state.written, "more is committed than written");
        state.committed = state.committed.max(Some(end));
        drop(state);
        self.commits.notify_all();
        self.tell();
    }

    /// In a cluster: nobody else leads until then, in ms of the monotonic clock.
    pub fn begin_lease(&self, until_ms: u64) {
        self.lease_ms.store(until_ms, Ordering::SeqCst);
    }

    /// The same for a lead that goes on.
    pub fn extend_lease(&self, until_ms: u64) {
        let before = self.lease_ms.swap(until_ms, Ordering::SeqCst);
        debug_assert!(until_ms >= before || until_ms == 0, "a lease that became shorter");
    }

    /// Whether replies may leave, whatever they say: another node may lead by now. Always on a single node.
    pub fn may_reply(&self, mono_ms: u64) -> bool {
        mono_ms < self.lease_ms.load(Ordering::SeqCst)
    }

    /// The end of the log has moved, and no record with it.
    pub(super) fn moved(&self, from: Lsn, to: Lsn) {
        let mut state = self.state();
        if state.committed == Some(from) {
            state.committed = Some(to);
        }
    }

    /// Whether the stream has everything before `end`; always on a single node.
    pub fn is_committed(&self, end: Lsn) -> bool {
        self.state().committed.is_none_or(|committed| committed >= end)
    }

    /// Waits until the stream has everything before `end`, but not for ever; whether it does.
    pub fn wait_committed(&self, end: Lsn, patience: Duration) -> bool {
        let behind = |s: &mut State| s.committed.is_some_and(|committed| committed < end);
        let waited = self.commits.wait_timeout_while(self.state(), patience, behind);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Replies that depend on nothing at or after this position may leave.
    pub fn acknowledged(&self) -> Lsn {
        let state = self.state();
        let local = match self.mode {
            SyncMode::Always => state.durable,
            SyncMode::Interval { .. } | SyncMode::None if self.failure.get().is_some() => {
                state.durable
            }
            SyncMode::Interval { .. } | SyncMode::None => state.written,
        };
        local.min(state.committed.unwrap_or(local))
    }

    /// Panics unless no more is durable than written, and `written` is what was. For tests.
    pub(super) fn check_invariants(&self, written: Lsn) {
        let state = self.state();
        assert_eq!(state.written, written, "what is written");
        assert!(state.durable <= state.written, "more is durable than written");
        assert!(state.dirty.is_sorted_by(|(a, _), (b, _)| a < b), "files to be synced");
    }

    /// Fails if a sync has failed: after that nothing is acknowledged again.
    pub fn check(&self) -> Result<()> {
        match self.failure.get() {
            Some(cause) => Err(Error::WritesStopped(cause.clone())),
            None => Ok(()),
        }
    }

    /// Syncs everything written so far and returns how far that is.
    pub fn round(&self) -> Result<Lsn> {
        self.sync().map(|(durable, _)| durable)
    }

    /// The same, and how many bytes that were.
    fn sync(&self) -> Result<(Lsn, u64)> {
        let outcome = self.sync_files(self.round.lock().ok());
        self.tell();
        outcome
    }

    /// Tells whoever listens to look again.
    pub fn tell(&self) {
        if let Some(told) = self.listener.get() {
            told();
        }
    }

    /// Nobody else syncs as long as there is a `round`; there is none after a panic.
    fn sync_files(&self, round: Option<MutexGuard<'_, ()>>) -> Result<(Lsn, u64)> {
        let Some(_round) = round else {
            return Err(self.stop_writes("a sync panicked before"));
        };
        let (files, target, bytes) = {
            let mut state = self.state();
            if let Some(cause) = self.failure.get() {
                return Err(Error::WritesStopped(cause.clone()));
            }
            let bytes = std::mem::take(&mut state.unsynced);
            state.told = false;
            (std::mem::take(&mut state.dirty), state.written, bytes)
        };
        let outcome = files.iter().try_for_each(|(_, file)| file.sync());
        let mut state = self.state();
        match outcome {
            Ok(()) => {
                state.durable = state.durable.max(target);
                Ok((state.durable, bytes))
            }
            // The kernel may have dropped the pages it could not write: a second, successful sync
            // would prove nothing. So there is no second try.
            Err(e) => {
                let cause = self.failure.get_or_init(|| e.to_string());
                Err(Error::WritesStopped(cause.clone()))
            }
        }
    }

    /// Nothing is acknowledged from now on; returns what everybody is told.
    pub fn stop_writes(&self, cause: &str) -> Error {
        let _state = self.state();
        Error::WritesStopped(self.failure.get_or_init(|| cause.to_owned()).clone())
    }

    /// Waits until there is something to sync; `false` when asked to stop.
    fn wait(&self) -> bool {
        let mut state = self.state();
        let period = match self.mode {
            SyncMode::Interval { ms } => Some(Duration::from_millis(ms)),
            SyncMode::Always | SyncMode::None => None,
        };
        if let Some(period) = period {
            let waited = self.work.wait_timeout_while(state, period, |s| !s.stop);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let idle = |s: &mut State| !s.stop && (!s.told || self.failure.get().is_some());
        state = self.work.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        !state.stop
    }

    /// Waits until there are so many bytes to sync, but not for ever; whether they came.
    fn gather(&self, enough: u64, patience: Duration) -> bool {
        let mut state = self.state();
        state.enough = enough;
        let few = |s: &mut State| !s.stop && s.unsynced < enough;
        let waited = self.work.wait_timeout_while(state, patience, few);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.enough = u64::MAX;
        state.unsynced >= enough
    }

    /// What the sync thread does until it is asked to stop.
    fn rounds(&self, clock: &impl Fn() -> Duration) {
        let mut pace = Pace::default();
        while self.wait() {
            if self.mode == SyncMode::Always
                && let Some((enough, patience)) = pace.wait()
                && !self.gather(enough, patience)
            {
                pace.in_vain();
            }
            let begin = clock();
            // A failure is kept in the syncer, where every later command meets it.
            if let Ok((_, bytes)) = self.sync() {
                let took = clock().saturating_sub(begin);
                let waiting = self.state().unsynced;
                self.note_duration(took);
                pace.synced(bytes, waiting, took);
            }
        }
    }

    fn stop(&self) {
        self.state().stop = true;
        self.work.notify_all();
    }
}

/// The thread that runs a round whenever there is something to sync. Stops when dropped.
pub struct SyncThread {
    syncer: Arc<Syncer>,
    thread: Option<JoinHandle<()>>,
}

impl SyncThread {
    /// Starts the thread. `clock` tells the time since any instant.
    pub fn start(
        syncer: Arc<Syncer>,
        clock: impl Fn() -> Duration + Send + 'static,
    ) -> std::io::Result<SyncThread> {
        let shared = Arc::clone(&syncer);
        let thread = std::thread::Builder::new().name("mq9-sync".to_owned()).spawn(move || {
            let rounds = AssertUnwindSafe(|| shared.rounds(&clock));
            if catch_unwind(rounds).is_err() {
                // Nobody else would sync: whoever waits is told, and so is whoever comes.
                shared.stop_writes("the sync thread panicked");
                shared.tell();
            }
        })?;
        Ok(SyncThread { syncer, thread: Some(thread) })
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        self.syncer.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
