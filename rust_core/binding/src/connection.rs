//! One connection, by shape an `asyncio.BufferedProtocol`: bytes go to the broker without Python.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mq9_core::broker::{ConnId, Terms};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::broker::Broker;
use crate::broker_types::{ConnectionStats, Permissions, SubscriptionInfo};
use crate::clock;
use crate::peer::{Pause, Peer};
use crate::sockets::{Socket, with_received};

/// A client's connection: the protocol object of its transport.
#[pyclass(frozen, module = "mq9._core")]
pub struct Connection {
    broker: Py<Broker>,
    id: ConnId,
    /// The number of the connection that clients and logs see.
    #[pyo3(get)]
    cid: u64,
    peer: Arc<Peer>,
}

impl Connection {
    pub fn new(broker: Py<Broker>, id: ConnId, cid: u64, peer: Arc<Peer>) -> Self {
        Self { broker, id, cid, peer }
    }

    /// Whether the place in the broker is still this connection's.
    fn is_here(&self) -> bool {
        let state = self.broker.get().lock();
        state.core.cid(self.id) == Some(self.cid)
    }

    fn drive(&self, py: Python<'_>) -> PyResult<()> {
        self.broker.get().drive(py)
    }
}

#[pymethods]
impl Connection {
    /// The transport is there; the session is told.
    fn connection_made(&self, py: Python<'_>, transport: Bound<'_, PyAny>) -> PyResult<()> {
        let encrypted = !transport.call_method1("get_extra_info", ("sslcontext",))?.is_none();
        // Any output that a socket does not take at once stays in the broker, where it is counted.
        // Transports with TLS say that they are full at the limit, others beyond it.
        let limit = u8::from(encrypted);
        transport.call_method1("set_write_buffer_limits", (limit, 0))?;
        let socket = transport.call_method1("get_extra_info", ("socket",))?;
        let socket = if encrypted || socket.is_none() {
            None
        } else {
            Socket::new(socket.call_method0("fileno")?.extract()?)
        };
        {
            let mut link = self.peer.lock();
            link.transport = Some(transport.clone().unbind());
            link.socket = socket;
        }
        if let Some(session) = self.peer.session(py) {
            session.call_method1(py, "on_made", (transport,))?;
        }
        if self.is_here() {
            self.broker.get().lock().core.greet(self.id, clock::mono_us());
        }
        self.drive(py)
    }

    /// From now on the broker reads the socket by itself, unless it is encrypted.
    fn read_socket(&self, py: Python<'_>) -> PyResult<()> {
        self.peer.read_socket(py)
    }

    /// Where the transport puts what it reads.
    fn get_buffer(&self, py: Python<'_>, _sizehint: isize) -> Py<PyByteArray> {
        self.broker.get().buffer.clone_ref(py)
    }

    /// So many bytes are in the buffer.
    fn buffer_updated(&self, py: Python<'_>, nbytes: usize) -> PyResult<()> {
        let broker = self.broker.get();
        let now_us = clock::mono_us();
        broker.given_us.store(now_us, Ordering::Relaxed);
        broker.with_counter(py, |core, counter| {
            with_received(broker.buffer.bind(py), nbytes, |chunk| {
                core.feed(self.id, chunk, counter, now_us);
            });
        })
    }

    /// The client will send no more: the transport closes when everything is written.
    fn eof_received(&self) -> bool {
        false
    }

    /// The transport is gone.
    #[pyo3(signature = (exc))]
    fn connection_lost(&self, py: Python<'_>, exc: Option<Py<PyAny>>) -> PyResult<()> {
        drop(exc);
        let reason = {
            let mut state = self.broker.get().lock();
            if state.core.cid(self.id) != Some(self.cid) {
                return Ok(());
            }
            let reason = state.core.reason(self.id).map(|reason| reason.to_string());
            self.peer.lock().last_stats = state.core.stats(self.id);
            state.core.remove(self.id);
            state.peers[self.id as usize] = None;
            reason
        };
        self.peer.end();
        let reason = reason.unwrap_or_else(|| "Client Closed".to_owned());
        self.broker.get().forget(py, self.cid)?;
        if let Some(session) = self.peer.end_session() {
            session.call_method1(py, "on_closed", (reason,))?;
        }
        self.drive(py)
    }

    /// The transport has more than it can write.
    fn pause_writing(&self) {
        self.peer.lock().full = true;
    }

    /// The transport has written all it had.
    fn resume_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.peer.lock().full = false;
        let broker = self.broker.get();
        let holding = {
            let mut state = broker.lock();
            if state.core.cid(self.id) == Some(self.cid) {
                state.core.drained(self.id);
            }
            state.core.is_holding()
        };
        broker.drive(py)?;
        // Who has read may have room for what it asked for.
        if holding { broker.end_round(py, true) } else { Ok(()) }
    }

    /// Sends protocol bytes as they are.
    fn send(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if self.is_here() {
            self.broker.get().lock().core.write(self.id, data);
        }
        self.drive(py)
    }

    /// Lets the client in; input that was held goes on.
    #[pyo3(signature = (*, verbose, pedantic, echo, headers, no_responders, permissions, name))]
    #[allow(clippy::too_many_arguments)]
    fn accept(
        &self,
        py: Python<'_>,
        verbose: bool,
        pedantic: bool,
        echo: bool,
        headers: bool,
        no_responders: bool,
        permissions: Option<&Permissions>,
        name: &str,
    ) -> PyResult<()> {
        if !self.is_here() {
            return Ok(());
        }
        let permissions = permissions.map(|rules| Arc::clone(&rules.0));
        let name = name.into();
        let terms = Terms { verbose, pedantic, echo, headers, no_responders, name, permissions };
        self.broker.get().with_counter(py, |core, counter| {
            core.accept(self.id, terms, counter, clock::mono_us());
        })?;
        self.peer.resume(py, Pause::Deciding)?;
        self.drive(py)
    }

    /// The client is not read from until `resume_reading`.
    fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        self.peer.pause(py, Pause::Session)
    }

    /// The client may be read from again.
    fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        self.peer.resume(py, Pause::Session)
    }

    /// Without a `CONNECT` within this time the connection is closed.
    fn expect_auth(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<()> {
        if self.is_here() {
            let mut state = self.broker.get().lock();
            state.core.expect_authentication(self.id, timeout_ms, clock::mono_us());
        }
        self.drive(py)
    }

    /// Other permissions from now on; subscriptions and waits they do not allow end.
    fn set_permissions(&self, py: Python<'_>, permissions: Option<&Permissions>) -> PyResult<()> {
        if self.is_here() {
            let permissions = permissions.map(|rules| Arc::clone(&rules.0));
            self.broker.get().with_counter(py, |core, counter| {
                core.set_permissions(self.id, permissions, counter);
            })?;
        }
        self.drive(py)
    }

    /// The connection is this user's from now on; what its FETCHes wait for is counted to it.
    fn set_user(&self, user: Option<&str>) {
        let broker = self.broker.get();
        let mut state = broker.lock();
        // Without a store nobody waits, and the end of the connection is not told.
        let may_wait = broker.with_running(|running| running.is_some());
        if may_wait && state.core.cid(self.id) == Some(self.cid) {
            state.post.set_user(self.cid, user.map(Arc::from));
        }
    }

    /// Sends `-ERR 'error'` if there is one, writes what waits, and closes.
    fn close(&self, py: Python<'_>, error: Option<&str>, reason: String) -> PyResult<()> {
        if self.is_here() {
            let error = error.map(str::as_bytes);
            self.broker.get().lock().core.close(self.id, error, reason.into());
        }
        self.drive(py)
    }

    /// Counters of the connection; the last ones if it is gone.
    fn stats(&self) -> Option<ConnectionStats> {
        let live = self.broker.get().lock().core.stats(self.id);
        let stats = live.filter(|stats| stats.cid == self.cid).or(self.peer.lock().last_stats)?;
        Some(ConnectionStats::new(stats, clock::epoch_ms()))
    }

    /// Its subscriptions.
    fn subscriptions(&self) -> Vec<SubscriptionInfo> {
        if !self.is_here() {
            return Vec::new();
        }
        let state = self.broker.get().lock();
        state.core.subscriptions_of(self.id).into_iter().map(Into::into).collect()
    }
}
