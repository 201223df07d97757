//! Group commit: which bytes are written, which are durable, and the thread that turns one into
//! the other.
//!
//! A round takes whatever has been written since the last one and syncs the files it lies in. The
//! round lock is taken before the state lock, and files are synced under the round lock alone, so
//! that writers never wait for a disk.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Lsn;
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
    failure: Option<String>,
    stop: bool,
}

/// What is written and what is durable, shared between the writer and the sync thread.
pub struct Syncer {
    mode: SyncMode,
    state: Mutex<State>,
    work: Condvar,
    round: Mutex<()>,
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
                failure: None,
                stop: false,
            }),
            work: Condvar::new(),
            round: Mutex::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that everything before `end` is written, the last of it to `file`.
    pub fn wrote(&self, end: Lsn, segment: u32, file: &Arc<dyn DiskFile>) {
        let mut state = self.state();
        state.written = end;
        let idle = state.dirty.is_empty();
        if state.dirty.last().is_none_or(|(number, _)| *number != segment) {
            state.dirty.push((segment, Arc::clone(file)));
        }
        drop(state);
        if idle && self.mode != SyncMode::None {
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

    /// Fails if a sync has failed: after that nothing is acknowledged again.
    pub fn check(&self) -> Result<()> {
        match &self.state().failure {
            Some(cause) => Err(Error::WritesStopped(cause.clone())),
            None => Ok(()),
        }
    }

    /// Syncs everything written so far and returns how far that is.
    pub fn round(&self) -> Result<Lsn> {
        let _round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let (files, target) = {
            let mut state = self.state();
            if let Some(cause) = &state.failure {
                return Err(Error::WritesStopped(cause.clone()));
            }
            (std::mem::take(&mut state.dirty), state.written)
        };
        let outcome = files.iter().try_for_each(|(_, file)| file.sync());
        let mut state = self.state();
        match outcome {
            Ok(()) => {
                state.durable = state.durable.max(target);
                Ok(state.durable)
            }
            // The kernel may have dropped the pages it could not write: a second, successful sync
            // would prove nothing. So there is no second try.
            Err(e) => {
                state.failure = Some(e.to_string());
                Err(Error::WritesStopped(e.to_string()))
            }
        }
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
    /// Starts the thread; `advanced` is called after every round, successful or not.
    pub fn start(
        syncer: Arc<Syncer>,
        advanced: impl Fn() + Send + 'static,
    ) -> std::io::Result<SyncThread> {
        let shared = Arc::clone(&syncer);
        let thread = std::thread::Builder::new().name("mq9-sync".to_owned()).spawn(move || {
            while shared.wait() {
                // A failure is kept in the syncer, where every later command meets it.
                let _ = shared.round();
                advanced();
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
