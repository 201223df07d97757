//! The broker, as Python sees it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mq9_core::broker::{self, ConnId};
use mq9_core::nats;
use mq9_core::post::{Post, PostOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::alarm::Alarm;
use crate::broker_types::{BrokerStats, Limits, SubscriptionInfo};
use crate::clock;
use crate::connection::Connection;
use crate::drive::Driving;
use crate::mail::{Counter, settle};
use crate::panics::left_in_the_middle;
use crate::peer::Peer;
use crate::reading::{LINGER_US, Reading, STORE, name_of};
use crate::running::Running;
use crate::sockets::Socket;
use crate::store::Store;
use crate::watch::Watch;

/// What one read can bring. All connections share one buffer: a chunk is used up before the next.
pub const READ_BYTES: usize = 256 << 10;

/// Longest time between two looks at the clocks.
const MAX_SLEEP_MS: u64 = 60_000;

/// All connections of a server and the routing between them. Belongs to the thread of the loop.
#[pyclass(frozen, module = "mq9._core")]
pub struct Broker {
    pub state: Mutex<State>,
    pub buffer: Py<PyByteArray>,
    pub alarm: Alarm,
    pub driving: Driving,
    /// When input came last, by a socket that is read here.
    pub active_us: AtomicU64,
    /// When it came last by a transport, which only the loop can look at.
    pub given_us: AtomicU64,
    pub watch: Arc<Watch>,
    pub reading: Reading,
    store: Option<Py<Store>>,
}

pub struct State {
    pub core: broker::Broker,
    pub post: Post,
    /// By connection, what Python knows of it.
    pub peers: Vec<Option<Arc<Peer>>>,
    pub services: Vec<Arc<Py<PyAny>>>,
    /// Takes lines of the protocol, if they are logged.
    pub protocol_log: Option<Arc<Py<PyAny>>>,
}

#[pymethods]
impl Broker {
    #[new]
    #[pyo3(signature = (limits, seed, *, store=None, payload_base64=false))]
    fn new(
        py: Python<'_>,
        limits: &Limits,
        seed: u64,
        store: Option<Py<Store>>,
        payload_base64: bool,
    ) -> PyResult<Self> {
        let core = broker::Broker::new(limits.0, seed, clock::mono_us());
        let post = Post::new(PostOptions { always_base64: payload_base64 });
        let buffer = PyByteArray::new_with(py, READ_BYTES, |_| Ok(()))?.unbind();
        let state =
            State { core, post, peers: Vec::new(), services: Vec::new(), protocol_log: None };
        let (alarm, driving) = (Alarm::default(), Driving::default());
        let (active_us, given_us) = (AtomicU64::new(0), AtomicU64::new(0));
        let (watch, reading) = (Arc::new(Watch::new()?), Reading::new());
        let state = Mutex::new(state);
        Ok(Self { state, buffer, alarm, driving, active_us, given_us, watch, reading, store })
    }

    /// From now on the broker runs on this event loop.
    fn start(slf: &Bound<'_, Self>, event_loop: Bound<'_, PyAny>) -> PyResult<()> {
        let this = slf.get();
        if let Some(bell) = this.bell(slf.py())? {
            this.watch.add(bell, STORE)?;
        }
        let descriptor = this.watch.descriptor();
        event_loop.call_method1("add_reader", (descriptor, slf.getattr("read")?))?;
        let (round, ring) = (slf.getattr("round")?.unbind(), slf.getattr("ring")?.unbind());
        this.alarm.start(event_loop.unbind(), round, ring);
        this.tick(slf.py())
    }

    /// The event loop is left alone again.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Some(event_loop) = self.alarm.stop(py)? else { return Ok(()) };
        event_loop.call_method1(py, "remove_reader", (self.watch.descriptor(),))?;
        Ok(())
    }

    /// A socket has something to read, or more is durable.
    fn read(&self, py: Python<'_>) -> PyResult<()> {
        self.read_on(py)
    }

    /// Everything that could be read has been read: what it brought about goes out.
    fn round(&self, py: Python<'_>) -> PyResult<()> {
        if self.alarm.round_over() { self.tick(py) } else { self.drive(py) }?;
        self.read_on(py)?;
        let given_us = self.given_us.load(Ordering::Relaxed);
        if clock::mono_us().saturating_sub(given_us) < LINGER_US {
            self.alarm.round_soon(py, false)?;
        }
        Ok(())
    }

    /// Something is due.
    fn ring(&self, py: Python<'_>) -> PyResult<()> {
        self.alarm.rung();
        self.tick(py)
    }

    /// Does what is due: pings and deadlines, what the store has to do, replies that may leave.
    pub fn tick(&self, py: Python<'_>) -> PyResult<()> {
        let sleep_ms = {
            let mut state = self.lock();
            let State { core, post, .. } = &mut *state;
            let sleep_ms = core.tick(clock::mono_us()).unwrap_or(MAX_SLEEP_MS);
            let store_ms = self.with_running(|running| settle(core, post, running?));
            sleep_ms.min(store_ms.unwrap_or(MAX_SLEEP_MS)).min(MAX_SLEEP_MS)
        };
        self.alarm.wake_in(py, sleep_ms)?;
        self.drive(py)
    }

    /// Answers a request once everything that was done to the store so far is durable; if it never
    /// will be, with `failed`. Without `failed` the payload promises nothing.
    #[pyo3(signature = (cid, subject, payload, *, failed=None))]
    fn reply(
        &self,
        py: Python<'_>,
        cid: u64,
        subject: &str,
        payload: Vec<u8>,
        failed: Option<Vec<u8>>,
    ) -> PyResult<()> {
        {
            let mut state = self.lock();
            let end = self.with_running(|running| running.map(Running::end)).unwrap_or_default();
            state.post.reply_at(end, cid, subject.as_bytes(), payload, failed);
        }
        self.end_round(py, true)
    }

    /// Answers a request at once: only the connection that asked hears it.
    fn answer(&self, py: Python<'_>, cid: u64, subject: &str, payload: &[u8]) -> PyResult<()> {
        let used = self.count(|core, counter| {
            core.answer(cid, subject.as_bytes(), b"", b"", payload, counter);
        });
        if used {
            self.end_round(py, true)?;
        }
        self.drive(py)
    }

    /// A request without a reply subject was not carried out: its client is told, and it is counted.
    fn refused(&self, py: Python<'_>, cid: u64, subject: &str) -> PyResult<()> {
        self.lock().core.refused(cid, subject.as_bytes());
        self.drive(py)
    }

    /// Whether a client may publish to `subject`; one that is not there may not.
    fn may_publish(&self, cid: u64, subject: &str) -> bool {
        self.lock().core.may_publish(cid, subject.as_bytes())
    }

    /// A new connection: the protocol to give to the event loop.
    #[pyo3(signature = (session, *, auth_required))]
    fn connection(
        slf: &Bound<'_, Self>,
        session: Py<PyAny>,
        auth_required: bool,
    ) -> PyResult<Connection> {
        let mut state = slf.get().lock();
        let id = state.core.open(auth_required, clock::mono_us());
        let cid = state.core.cid(id).unwrap_or_default();
        let peer = Peer::new(session, Arc::clone(&slf.get().watch), name_of(id, cid));
        let slot = id as usize;
        if state.peers.len() <= slot {
            state.peers.resize_with(slot + 1, || None);
        }
        state.peers[slot] = Some(Arc::clone(&peer));
        Ok(Connection::new(slf.clone().unbind(), id, cid, peer))
    }

    /// Other limits from now on.
    fn set_limits(&self, limits: &Limits) {
        self.lock().core.set_limits(limits.0);
    }

    /// Gives messages to `subject` to `handler(cid, subject, reply, headers, payload)`.
    fn serve(&self, subject: &str, handler: Py<PyAny>) -> PyResult<()> {
        if !nats::is_valid(subject.as_bytes()) {
            return Err(PyValueError::new_err(format!("{subject:?} is not a valid subject")));
        }
        let mut state = self.lock();
        state.services.push(Arc::new(handler));
        let service = (state.services.len() - 1) as u32;
        state.core.serve(service, subject.as_bytes());
        Ok(())
    }

    /// Gives lines of the protocol to `handler(cid, text)`, or to nobody any more.
    #[pyo3(signature = (handler))]
    fn log_protocol(&self, handler: Option<Py<PyAny>>) {
        let mut state = self.lock();
        state.core.log_protocol(handler.is_some());
        state.protocol_log = handler.map(Arc::new);
    }

    /// What the server says of itself in traces: the members of a JSON object, without its braces.
    fn introduce(&self, members: &str) {
        self.lock().core.introduce(members);
    }

    /// Counters over all connections.
    fn stats(&self) -> BrokerStats {
        BrokerStats::new(&self.lock().core)
    }

    /// The subscriptions of all connections.
    fn subscriptions(&self) -> Vec<SubscriptionInfo> {
        let state = self.lock();
        let connections = 0..state.peers.len() as ConnId;
        connections.flat_map(|id| state.core.subscriptions_of(id)).map(Into::into).collect()
    }
}

impl Broker {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(left_in_the_middle)
    }

    /// What was read goes out with the rest of this round, or now if there is no loop.
    pub fn end_round(&self, py: Python<'_>, store_used: bool) -> PyResult<()> {
        if self.alarm.round_soon(py, store_used)? { Ok(()) } else { self.drive(py) }
    }

    /// What the store rings when more is durable.
    fn bell(&self, py: Python<'_>) -> PyResult<Option<Socket>> {
        let Some(store) = &self.store else { return Ok(None) };
        Ok(Socket::new(store.bind(py).call_method0("fileno")?.extract()?))
    }

    pub fn with_running<T>(&self, call: impl FnOnce(Option<&Running>) -> T) -> T {
        match &self.store {
            Some(store) => store.get().with_running(call),
            None => call(None),
        }
    }

    /// Carries out input of a connection, by `run`, which gets the broker and the way to the store.
    pub fn with_counter(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut broker::Broker, &mut Counter<'_>),
    ) -> PyResult<()> {
        let used = self.count(run);
        self.end_round(py, used)
    }

    /// Calls `run` with the broker and the way to the store; whether that way was used.
    fn count(&self, run: impl FnOnce(&mut broker::Broker, &mut Counter<'_>)) -> bool {
        let mut state = self.lock();
        let State { core, post, .. } = &mut *state;
        self.with_running(|running| {
            let mut counter = Counter::new(post, running.map(Running::store));
            run(core, &mut counter);
            counter.was_used()
        })
    }

    /// A connection is gone: what it held goes back to its groups.
    pub fn forget(&self, py: Python<'_>, cid: u64) -> PyResult<()> {
        {
            let mut state = self.lock();
            self.with_running(|running| {
                if let Some(running) = running {
                    let mut store = running.store().lock();
                    state.post.disconnect(&mut store, cid, clock::now());
                }
            });
        }
        self.end_round(py, self.store.is_some())
    }
}

impl State {
    pub fn peer(&self, id: ConnId) -> Option<Arc<Peer>> {
        self.peers.get(id as usize)?.clone()
    }
}
