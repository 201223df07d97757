//! The way from Python to an open store: the interpreter is left to others while a command waits or works.
//!
//! Commands own what they need. While a broker serves the store, its thread carries them out, and Python's thread
//! never holds the store: see [`OpenStore`].

use std::sync::{PoisonError, RwLock};

use mq9_core::log::Lsn;
use mq9_core::time::Now;
use mq9_runtime::{OpenStore, clock};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};

pub type Core = mq9_core::store::Store;

/// An instant given by the caller: wall and monotonic milliseconds.
pub type Given = Option<(u64, u64)>;

/// A store, open or closed.
pub struct Access {
    open: RwLock<Option<OpenStore>>,
}

impl Access {
    pub fn new(open: OpenStore) -> Access {
        Access { open: RwLock::new(Some(open)) }
    }

    /// Calls with the open store, or with nothing if it is closed.
    pub fn with_open<T>(&self, call: impl FnOnce(Option<&OpenStore>) -> T) -> T {
        call(self.open.read().unwrap_or_else(PoisonError::into_inner).as_ref())
    }

    /// Carries out a command of the core.
    pub fn write<T: Send + 'static, E: Into<Failure>>(
        &self,
        py: Python<'_>,
        now: Given,
        call: impl FnOnce(&mut Core, Now) -> std::result::Result<T, E> + Send + 'static,
    ) -> Result<T> {
        let call = move |store: &mut Core| call(store, clock::given(now)).map_err(Into::into);
        self.enter(py, |open| open.write(call))
    }

    /// The same for one that changes nothing.
    pub fn read<T: Send + 'static>(
        &self,
        py: Python<'_>,
        now: Given,
        call: impl FnOnce(&mut Core, Now) -> mq9_core::error::Result<T> + Send + 'static,
    ) -> Result<T> {
        let call = move |store: &mut Core| Ok(call(store, clock::given(now))?);
        self.enter(py, |open| open.read(call))
    }

    /// The door: everything that may block, on a lock or on the disk, goes through here and leaves
    /// the interpreter to others meanwhile. Nothing inside may wait for the interpreter.
    pub fn enter<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&OpenStore) -> Result<T> + Send,
    ) -> Result<T> {
        py.detach(|| {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            call(open.as_ref().ok_or(Failure::Closed)?.check_whole()?)
        })
    }

    /// How far the log is durable, with everything done so far; in a cluster, what the stream has of that.
    pub fn durable_end(&self, py: Python<'_>) -> Result<Lsn> {
        self.enter(py, |open| Ok(open.sync()?))
    }

    /// Whether it was closed.
    pub fn is_closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.open.read().unwrap_or_else(PoisonError::into_inner).is_none())
    }

    /// Closes it without a checkpoint.
    pub fn abandon(&self) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open.take() {
            open.abandon();
        }
    }

    /// Closes it; again does nothing.
    pub fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| {
            let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            Ok(open.take().map_or(Ok(()), OpenStore::close)?)
        })
    }
}
