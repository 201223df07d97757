//! The class `Connection`: what is done with one connection of the broker, by orders.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};

use mq9_core::front::{ConnStats, Terms};
use mq9_runtime::{Greeting, Runtime, TlsTerms, clock};
use pyo3::prelude::*;

use crate::broker_types::{ConnectionStats, Permissions};
use crate::sockets;
use crate::tls::TlsConfig;

/// A client's connection, before, while and after it is open.
#[pyclass(frozen, module = "mq9._core")]
pub struct Connection {
    runtime: Arc<Runtime>,
    /// The number of the connection that clients and logs see.
    #[pyo3(get)]
    cid: u64,
    /// Its figures when it ended.
    last_stats: Arc<Mutex<Option<ConnStats>>>,
}

impl Connection {
    pub fn new(
        runtime: Arc<Runtime>,
        cid: u64,
        last_stats: Arc<Mutex<Option<ConnStats>>>,
    ) -> Connection {
        Connection { runtime, cid, last_stats }
    }
}

#[pymethods]
impl Connection {
    /// The broker takes over a socket, which is its own from now on, and meets its client: with `info`, in TLS if there
    /// is a `tls`. It waits so long for a client that begins with TLS before it is told anything; None is for ever.
    #[pyo3(signature = (
        descriptor, info, *, auth_required, auth_timeout_ms, tls, tls_first_ms, tls_timeout_ms,
        allow_non_tls, paused
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn adopt(
        &self,
        descriptor: RawFd,
        info: Vec<u8>,
        auth_required: bool,
        auth_timeout_ms: Option<u64>,
        tls: Option<&TlsConfig>,
        tls_first_ms: Option<u64>,
        tls_timeout_ms: u64,
        allow_non_tls: bool,
        paused: bool,
    ) -> PyResult<()> {
        let socket = sockets::owned(descriptor)?;
        let tls = tls.map(|tls| TlsTerms {
            config: tls.0.clone(),
            first: tls_first_ms,
            plain_allowed: allow_non_tls,
            timeout_ms: tls_timeout_ms,
        });
        let must_authenticate = auth_required;
        let greeting = Greeting { info, must_authenticate, auth_timeout_ms, tls, paused };
        let cid = self.cid;
        self.runtime.order(move |pump, now| pump.adopt(cid, socket, greeting, now));
        Ok(())
    }

    /// Sends protocol bytes as they are.
    fn send(&self, data: Vec<u8>) {
        let cid = self.cid;
        self.runtime.order(move |pump, _| {
            if let Some(id) = pump.find(cid) {
                pump.engine().front_mut().write(id, &data);
            }
        });
    }

    /// Lets the client in; input that was held goes on.
    #[pyo3(signature = (*, verbose, pedantic, echo, headers, no_responders, permissions, name, own))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn accept(
        &self,
        verbose: bool,
        pedantic: bool,
        echo: bool,
        headers: bool,
        no_responders: bool,
        permissions: Option<&Permissions>,
        name: &str,
        own: bool,
    ) {
        let permissions = permissions.map(|rules| Arc::clone(&rules.0));
        let name = name.into();
        let terms =
            Terms { verbose, pedantic, echo, headers, no_responders, name, own, permissions };
        let cid = self.cid;
        self.runtime.order(move |pump, now| pump.accept(cid, terms, now));
    }

    /// The client is not read from until `resume_reading`.
    fn pause_reading(&self) {
        let cid = self.cid;
        self.runtime.order(move |pump, now| pump.set_asked(cid, false, now));
    }

    /// The client may be read from again.
    fn resume_reading(&self) {
        let cid = self.cid;
        self.runtime.order(move |pump, now| pump.set_asked(cid, true, now));
    }

    /// Other permissions from now on; subscriptions and waits they do not allow end.
    fn set_permissions(&self, permissions: Option<&Permissions>) {
        let permissions = permissions.map(|rules| Arc::clone(&rules.0));
        let cid = self.cid;
        self.runtime.order(move |pump, now| {
            if let Some(id) = pump.find(cid) {
                pump.engine().set_permissions(id, permissions, now);
            }
        });
    }

    /// The connection is this user's from now on; what its FETCHes wait for is counted to it.
    fn set_user(&self, user: Option<&str>) {
        let (cid, user) = (self.cid, user.map(Arc::from));
        self.runtime.order(move |pump, _| {
            if let Some(id) = pump.find(cid) {
                pump.engine().set_user(id, user);
            }
        });
    }

    /// Sends `-ERR 'error'` if there is one, writes what waits, and closes.
    fn close(&self, error: Option<String>, reason: String) {
        let cid = self.cid;
        self.runtime.order(move |pump, _| {
            pump.close(cid, error.as_deref().map(str::as_bytes), reason);
        });
    }

    /// Closes at once.
    fn abort(&self) {
        let cid = self.cid;
        self.runtime.order(move |pump, now| pump.abort(cid, now));
    }

    /// Counters of the connection; the last ones if it is gone, None if it was never there.
    fn stats(&self, py: Python<'_>) -> Option<ConnectionStats> {
        let last = *self.last_stats.lock().unwrap_or_else(PoisonError::into_inner);
        let live = || {
            let cid = self.cid;
            py.detach(|| {
                self.runtime.ask(move |pump, _| {
                    let id = pump.find(cid)?;
                    pump.engine().stats(id)
                })
            })
        };
        let stats = last.or_else(|| live().flatten())?;
        Some(ConnectionStats::new(stats, clock::epoch_ms()))
    }
}
