//! A connection's other half: its session in Python and its transport.

use std::sync::{Arc, Mutex, MutexGuard};

use mq9_core::broker::ConnStats;
use pyo3::prelude::*;

use crate::panics::left_in_the_middle;
use crate::sockets::Socket;
use crate::watch::Watch;

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
    watch: Arc<Watch>,
    /// Its name among the sockets that are watched.
    name: u64,
}

/// How bytes reach the client.
#[derive(Default)]
pub struct Link {
    pub transport: Option<Py<PyAny>>,
    /// The socket, if bytes may go straight to it.
    pub socket: Option<Socket>,
    /// Rust reads from the socket, not the transport.
    watched: bool,
    /// The transport has asked to wait.
    pub full: bool,
    pub closing: bool,
    /// Counters of a connection that is gone.
    pub last_stats: Option<ConnStats>,
    pauses: u8,
}

impl Peer {
    pub fn new(session: Py<PyAny>, watch: Arc<Watch>, name: u64) -> Arc<Self> {
        Arc::new(Self { session: Mutex::new(Some(session)), link: Mutex::default(), watch, name })
    }

    pub fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(left_in_the_middle)
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
        if first { self.set_reading(py, false) } else { Ok(()) }
    }

    pub fn resume(&self, py: Python<'_>, why: Pause) -> PyResult<()> {
        let last = {
            let mut link = self.lock();
            let before = link.pauses;
            link.pauses &= !(why as u8);
            before != 0 && link.pauses == 0
        };
        if last { self.set_reading(py, true) } else { Ok(()) }
    }

    fn locked_session(&self) -> MutexGuard<'_, Option<Py<PyAny>>> {
        self.session.lock().unwrap_or_else(left_in_the_middle)
    }

    /// From now on Rust reads from the socket, if it may; otherwise the transport goes on.
    pub fn read_socket(&self, py: Python<'_>) -> PyResult<()> {
        let transport = {
            let mut link = self.lock();
            let (Some(transport), Some(socket), false) =
                (&link.transport, link.socket, link.closing)
            else {
                return Ok(());
            };
            let transport = transport.clone_ref(py);
            if link.pauses == 0 && self.watch.add(socket, self.name).is_err() {
                return Ok(());
            }
            link.watched = true;
            transport
        };
        transport.call_method0(py, pyo3::intern!(py, "pause_reading"))?;
        Ok(())
    }

    /// The socket to read from, if it is this connection's and not paused.
    pub fn watched(&self, name: u64) -> Option<Socket> {
        let link = self.lock();
        link.socket.filter(|_| self.name == name && link.watched && link.pauses == 0)
    }

    /// The client has gone: the transport writes what it has and closes, or just closes.
    pub fn hang_up(&self, py: Python<'_>, broken: bool) -> PyResult<()> {
        let transport = {
            let mut link = self.lock();
            self.unwatch(&mut link);
            link.transport.as_ref().map(|transport| transport.clone_ref(py))
        };
        let Some(transport) = transport else { return Ok(()) };
        transport.call_method0(py, if broken { "abort" } else { "close" })?;
        Ok(())
    }

    /// The connection ends: nobody reads from it again. Returns its transport.
    pub fn end_reading(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let mut link = self.lock();
        link.closing = true;
        self.unwatch(&mut link);
        link.transport.as_ref().map(|transport| transport.clone_ref(py))
    }

    /// The transport is gone.
    pub fn end(&self) {
        let mut link = self.lock();
        link.closing = true;
        self.unwatch(&mut link);
        link.socket = None;
        link.transport = None;
    }

    fn unwatch(&self, link: &mut Link) {
        if let (true, Some(socket)) = (link.watched, link.socket) {
            self.watch.remove(socket);
        }
        link.watched = false;
    }

    fn set_reading(&self, py: Python<'_>, wanted: bool) -> PyResult<()> {
        let transport = {
            let mut link = self.lock();
            if link.closing {
                return Ok(());
            }
            let Some(transport) = &link.transport else { return Ok(()) };
            let transport = transport.clone_ref(py);
            if let (true, Some(socket)) = (link.watched, link.socket) {
                if !wanted {
                    self.watch.remove(socket);
                    return Ok(());
                }
                if self.watch.add(socket, self.name).is_ok() {
                    return Ok(());
                }
                // The system watches no more sockets: the transport can still try.
                link.watched = false;
            }
            transport
        };
        transport.call_method0(py, if wanted { "resume_reading" } else { "pause_reading" })?;
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
