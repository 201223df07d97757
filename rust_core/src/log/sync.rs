//! Group commit: which bytes are written, which are durable, and the thread that turns one into
//! the other.
//!
//! A round takes whatever has been written since the last one and syncs the files it lies in. The
//! round lock is taken before the state lock, and files are synced under the round lock alone, so
//! that writers never wait for a disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Lsn;
use super::pace::Pace;
use crate::disk::DiskFile;
use crate::error::{Error, Result};

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

struct State {
    /// Files with bytes written since they were last synced, oldest segment first.
    dirty: Vec<(u32, Arc<dyn DiskFile>)>,
    written: Lsn,
    durable: Lsn,
    /// Bytes written that no sync has taken.
    unsynced: u64,
    /// How many of them the sync thread waits for.
    enough: u64,
    failure: Option<String>,
    stop: bool,
}

/// What is written and what is durable, shared between the writer and the sync thread.
pub struct Syncer {
    mode: SyncMode,
    state: Mutex<State>,
    work: Condvar,
    round: Mutex<()>,
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
                unsynced: 0,
                enough: u64::MAX,
                failure: None,
                stop: false,
            }),
            work: Condvar::new(),
            round: Mutex::new(()),
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

    /// Notes that everything before `end` is written, the last of it to `file`.
    pub fn wrote(&self, end: Lsn, segment: u32, file: &Arc<dyn DiskFile>) {
        let mut state = self.state();
        // What a segment before held besides is not worth counting.
        let start = if state.written.segment() == segment { state.written.offset() } else { 0 };
        state.unsynced += u64::from(end.offset().saturating_sub(start));
        state.written = end;
        let wanted = state.dirty.is_empty() || state.unsynced >= state.enough;
        if state.dirty.last().is_none_or(|(number, _)| *number != segment) {
            state.dirty.push((segment, Arc::clone(file)));
        }
        drop(state);
        if wanted && self.mode != SyncMode::None {
            self.work.notify_one();
        }
    }

    /// Everything before this position survives a power cut.
    pub fn durable(&self) -> Lsn {
        self.state().durable
    }

    /// Replies that depend on nothing at or after this position may leave.
    pub fn acknowledged(&self) -> Lsn {
        let state = self.state();
        match self.mode {
            SyncMode::Always => state.durable,
            SyncMode::Interval { .. } | SyncMode::None if state.failure.is_some() => state.durable,
            SyncMode::Interval { .. } | SyncMode::None => state.written,
        }
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
        match &self.state().failure {
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
        let outcome = self.sync_files();
        self.tell();
        outcome
    }

    fn tell(&self) {
        if let Some(told) = self.listener.get() {
            told();
        }
    }

    fn sync_files(&self) -> Result<(Lsn, u64)> {
        let Ok(_round) = self.round.lock() else {
            return Err(self.stop_writes("a sync panicked before"));
        };
        let (files, target, bytes) = {
            let mut state = self.state();
            if let Some(cause) = &state.failure {
                return Err(Error::WritesStopped(cause.clone()));
            }
            let bytes = std::mem::take(&mut state.unsynced);
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
                state.failure = Some(e.to_string());
                Err(Error::WritesStopped(e.to_string()))
            }
        }
    }

    /// Nothing is acknowledged from now on; returns what everybody is told.
    pub fn stop_writes(&self, cause: &str) -> Error {
        let cause = self.state().failure.get_or_insert_with(|| cause.to_owned()).clone();
        Error::WritesStopped(cause)
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
        let idle = |s: &mut State| !s.stop && (s.dirty.is_empty() || s.failure.is_some());
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
                let waiting = self.state().unsynced;
                pace.synced(bytes, waiting, clock().saturating_sub(begin));
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
