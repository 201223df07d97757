//! Waiting for acknowledgements: blocked threads, a descriptor for event loops, and the broker's thread.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mq9_core::log::{Lsn, Syncer};

use crate::error::{Failure, Result};
use crate::waker::Waker;

/// Who waits for the store to acknowledge more.
pub struct Durability {
    syncer: Arc<Syncer>,
    closed: Mutex<bool>,
    moved: Condvar,
    bell: OnceLock<Bell>,
    broker: OnceLock<Arc<Waker>>,
}

impl Durability {
    /// Nobody waits yet.
    pub fn new(syncer: Arc<Syncer>) -> Durability {
        Durability {
            syncer,
            closed: Mutex::new(false),
            moved: Condvar::new(),
            bell: OnceLock::new(),
            broker: OnceLock::new(),
        }
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far replies may leave.
    pub fn acknowledged(&self) -> Lsn {
        self.syncer.acknowledged()
    }

    /// Why nothing more is acknowledged, if so.
    pub fn stopped(&self) -> Option<String> {
        self.syncer.check().err().map(|error| error.to_string())
    }

    /// More has been acknowledged, or nothing ever will be.
    pub fn advanced(&self) {
        // Under the lock: a waiter has either seen the news or is waiting already.
        let closed = self.closed();
        self.moved.notify_all();
        drop(closed);
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
        if let Some(broker) = self.broker.get() {
            broker.settle();
        }
    }

    /// From now on the thread of a broker is told as well. A store has one broker: the first.
    pub fn tell(&self, broker: &Arc<Waker>) {
        let _ = self.broker.set(Arc::clone(broker));
    }

    /// The store is closed: nothing more will be acknowledged.
    pub fn close(&self) {
        *self.closed() = true;
        self.advanced();
    }

    /// Waits until everything before `ticket` is acknowledged; false if `patience` ends first.
    pub fn wait(&self, ticket: Lsn, patience: Duration) -> Result<bool> {
        let until = Instant::now() + patience;
        let mut closed = self.closed();
        loop {
            if self.syncer.acknowledged() >= ticket {
                return Ok(true);
            }
            self.syncer.check()?;
            if *closed {
                return Err(Failure::Closed);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            closed =
                self.moved.wait_timeout(closed, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A descriptor that is readable from when more is acknowledged until [`Durability::reset`].
    pub fn descriptor(&self) -> io::Result<RawFd> {
        if let Some(bell) = self.bell.get() {
            return Ok(bell.listener.as_raw_fd());
        }
        let bell = Bell::new()?;
        Ok(self.bell.get_or_init(|| bell).listener.as_raw_fd())
    }

    /// Makes the descriptor silent. What is acknowledged after this makes it readable again.
    pub fn reset(&self) {
        if let Some(bell) = self.bell.get() {
            bell.reset();
        }
    }
}

/// A pair of sockets that holds at most a few bytes, however often it is rung.
struct Bell {
    ringer: UnixStream,
    listener: UnixStream,
    rung: AtomicBool,
}

impl Bell {
    fn new() -> io::Result<Bell> {
        let (ringer, listener) = UnixStream::pair()?;
        ringer.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        Ok(Bell { ringer, listener, rung: AtomicBool::new(false) })
    }

    fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            let _ = (&self.ringer).write(&[1]);
        }
    }

    /// Silence first, then the flag: what is rung in between has happened before the caller looks.
    fn reset(&self) {
        let mut bytes = [0; 8];
        while matches!((&self.listener).read(&mut bytes), Ok(1..)) {}
        self.rung.store(false, Ordering::SeqCst);
    }
}
