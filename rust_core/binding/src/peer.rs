//! A connection's other half: its session in Python and its transport.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mq9_core::broker::ConnStats;
use pyo3::prelude::*;

/// Why a connection is not read from. It is read again when none is left.
#[derive(Clone, Copy)]
pub enum Pause {
    /// Somebody decides whether to let it in.
    Deciding = 1,
    /// It overruns others.
    Stalled = 2,
    /// It has not taken what it asked for.
    Held = 4,
    /// Its session wants so.
    Session = 8,
}

/// A connection's other half.
pub struct Peer {
    session: Mutex<Option<Py<PyAny>>>,
    link: Mutex<Link>,
}

/// How bytes reach the client.
#[derive(Default)]
pub struct Link {
    pub transport: Option<Py<PyAny>>,
    /// The socket, if bytes may go straight to it.
    pub socket: Option<i32>,
    /// The transport has asked to wait.
    pub full: bool,
    pub closing: bool,
    /// Counters of a connection that is gone.
    pub last_stats: Option<ConnStats>,
    pauses: u8,
}

impl Peer {
    pub fn new(session: Py<PyAny>) -> Arc<Self> {
        Arc::new(Self { session: Mutex::new(Some(session)), link: Mutex::default() })
    }

    pub fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session, until the connection is gone.
    pub fn session(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.locked_session().as_ref().map(|session| session.clone_ref(py))
    }

    /// Lets go of the session, which holds the connection: nobody else could end that circle.
    pub fn end_session(&self) -> Option<Py<PyAny>> {
        self.locked_session().take()
    }

    pub fn pause(&self, py: Python<'_>, why: Pause) -> PyResult<()> {
        let first = {
            let mut link = self.lock();
            let before = link.pauses;
            link.pauses |= why as u8;
            before == 0
        };
        if first { self.call_transport(py, "pause_reading") } else { Ok(()) }
    }

    pub fn resume(&self, py: Python<'_>, why: Pause) -> PyResult<()> {
        let last = {
            let mut link = self.lock();
            let before = link.pauses;
            link.pauses &= !(why as u8);
            before != 0 && link.pauses == 0
        };
        if last { self.call_transport(py, "resume_reading") } else { Ok(()) }
    }

    fn locked_session(&self) -> MutexGuard<'_, Option<Py<PyAny>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call_transport(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        let transport = {
            let link = self.lock();
            match &link.transport {
                Some(transport) if !link.closing => transport.clone_ref(py),
                _ => return Ok(()),
            }
        };
        transport.call_method0(py, method)?;
        Ok(())
    }
}

/// Called when a client that was held back may be read from again.
#[pyclass(frozen, module = "mq9._core")]
pub struct EndStall(pub Arc<Peer>);

#[pymethods]
impl EndStall {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.resume(py, Pause::Stalled)
    }
}
