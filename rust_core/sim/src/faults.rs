//! Calls of a [`FaultyDisk`](crate::FaultyDisk) that fail, and how.
//!
//! Owns the faults asked for, the counts of calls and the space limit. Touches no disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// Reserving space for a file.
    Allocate,
    /// Cutting or extending a file.
    SetLen,
    /// Syncing a file.
    Sync,
    /// Creating a file.
    Create,
    /// Opening a file.
    Open,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Syncing the directory.
    SyncDir,
}

/// The error that a failing call reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An error of this kind, without an error number.
    Kind(io::ErrorKind),
    /// The error of this number of the operating system.
    Errno(i32),
    /// None: the call panics.
    Panic,
}

impl From<Cause> for io::Error {
    fn from(cause: Cause) -> io::Error {
        match cause {
            Cause::Kind(kind) => kind.into(),
            Cause::Errno(errno) => io::Error::from_raw_os_error(errno),
            Cause::Panic => panic!("the simulated disk panics"),
        }
    }
}

/// How calls of one operation fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The error to report.
    pub error: Cause,
    /// How many calls to let pass first.
    pub after: u64,
    /// How many calls fail before the fault is over; `None` means until it is cleared.
    pub times: Option<u64>,
    /// Whether a failing write writes the first half of its data.
    pub partial: bool,
}

impl Fault {
    /// Every call fails with `error`, from the next one until the fault is cleared.
    pub fn new(error: Cause) -> Fault {
        Fault { error, after: 0, times: None, partial: false }
    }

    /// An I/O error (`EIO`).
    pub fn io() -> Fault {
        Fault::new(Cause::Errno(EIO))
    }

    /// A full disk (`ENOSPC`).
    pub fn no_space() -> Fault {
        Fault::new(Cause::Errno(ENOSPC))
    }

    /// A read-only file system (`EROFS`).
    pub fn read_only() -> Fault {
        Fault::new(Cause::Errno(EROFS))
    }

    /// No error but a panic, in the thread that calls.
    pub fn panic() -> Fault {
        Fault::new(Cause::Panic)
    }

    /// The same fault, letting `calls` pass first.
    pub fn after(self, calls: u64) -> Fault {
        Fault { after: calls, ..self }
    }

    /// The same fault, over once `calls` have failed.
    pub fn times(self, calls: u64) -> Fault {
        Fault { times: Some(calls), ..self }
    }

    /// The same fault, with failing writes writing the first half of their data.
    pub fn partial(self) -> Fault {
        Fault { partial: true, ..self }
    }
}

/// The control of faulty disks; clones control the same ones.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    faults: BTreeMap<Operation, Fault>,
    calls: BTreeMap<Operation, u64>,
    failures: BTreeMap<Operation, u64>,
    capacity: Option<u64>,
}

/// Keeps the space limit, and growth by others, as it was while a file grows.
pub(crate) struct Space<'a>(MutexGuard<'a, State>);

impl Faults {
    /// No faults and no limit.
    pub fn new() -> Faults {
        Faults::default()
    }

    /// Makes calls of `operation` fail from now on, in place of any fault it had.
    pub fn fail(&self, operation: Operation, fault: Fault) {
        self.locked().faults.insert(operation, fault);
    }

    /// Ends all faults and the space limit; the counts stay.
    pub fn clear(&self) {
        let mut state = self.locked();
        state.faults.clear();
        state.capacity = None;
    }

    /// Limits the sum of the lengths of all files, as a small disk does: what would exceed it fails
    /// with `ENOSPC`, until files are removed or cut. Writes below a file's length always fit.
    pub fn capacity(&self, bytes: u64) {
        self.locked().capacity = Some(bytes);
    }

    /// How often `operation` was called, failures included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.locked().calls.get(&operation).copied().unwrap_or(0)
    }

    /// How many calls of `operation` failed by a fault or by the space limit.
    pub fn failures(&self, operation: Operation) -> u64 {
        self.locked().failures.get(&operation).copied().unwrap_or(0)
    }

    /// Counts a call and says whether it fails.
    pub(crate) fn call(&self, operation: Operation) -> Option<Fault> {
        let mut state = self.locked();
        *state.calls.entry(operation).or_default() += 1;
        let fault = state.faults.get_mut(&operation)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        if let Some(times) = &mut fault.times {
            *times = times.checked_sub(1)?;
        }
        let fault = *fault;
        *state.failures.entry(operation).or_default() += 1;
        Some(fault)
    }

    /// The space limit, if there is one.
    pub(crate) fn space(&self) -> Option<Space<'_>> {
        let state = self.locked();
        state.capacity.is_some().then_some(Space(state))
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Space<'_> {
    /// How much of the limit is left when files take `used` bytes.
    pub(crate) fn left(&self, used: u64) -> u64 {
        self.0.capacity.unwrap_or(u64::MAX).saturating_sub(used)
    }

    /// The error of an operation that does not fit.
    pub(crate) fn exhausted(&mut self, operation: Operation) -> io::Error {
        *self.0.failures.entry(operation).or_default() += 1;
        io::Error::from_raw_os_error(ENOSPC)
    }
}
