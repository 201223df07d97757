//! The class `Broker`: a running broker, its orders and its notices.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mq9_core::commands::{may_be_served, shape_of};
use mq9_core::engine::Engine;
use mq9_core::front::{ConnStats, Request};
use mq9_core::jetstream::Declared;
use mq9_core::nats;
use mq9_core::partition::{DeclaredAs, Unread};
use mq9_core::protocol::{Refusal, WireOptions};
use mq9_core::store::BroadcastLimits;
use mq9_runtime::{Notice, OpenStore, Runtime, clock};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::broker_types::{BrokerStats, ConnectionStats, Limits};
use crate::connection::Connection;
use crate::store::Store;
use crate::streams::declared;
use crate::subscriptions::SubscriptionList;
use crate::tls::Certificate;

/// So many notices are handed over in one turn of the event loop.
const NOTICES_PER_TURN: usize = 64;

/// A broker: connections and mailboxes on a thread of their own, which never waits for the interpreter.
#[pyclass(frozen, module = "mq9._core")]
pub struct Broker {
    runtime: Arc<Runtime>,
    /// Stays open for as long as the broker is there, unless it is closed.
    _store: Option<Py<Store>>,
    last_cid: AtomicU64,
    python: Mutex<Handlers>,
}

/// Whom to tell in Python.
#[derive(Default)]
struct Handlers {
    event_loop: Option<Py<PyAny>>,
    /// By connection, until it is gone.
    sessions: HashMap<u64, Session>,
    services: Vec<Arc<Py<PyAny>>>,
    /// Takes lines of the protocol, if they are logged.
    protocol_log: Option<Arc<Py<PyAny>>>,
}

struct Session {
    object: Py<PyAny>,
    /// Where its connection finds its last figures.
    last_stats: Arc<Mutex<Option<ConnStats>>>,
}

#[pymethods]
impl Broker {
    #[new]
    #[pyo3(signature = (limits, seed, *, store=None, payload_base64=false, jetstream=false,
        max_broadcasts=10_000, max_broadcast_bytes=67_108_864, broadcast_ttl_ms=86_400_000))]
    #[allow(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn new(
        limits: &Limits,
        seed: u64,
        store: Option<Py<Store>>,
        payload_base64: bool,
        jetstream: bool,
        max_broadcasts: u64,
        max_broadcast_bytes: u64,
        broadcast_ttl_ms: u64,
    ) -> PyResult<Self> {
        let broadcasts = BroadcastLimits {
            max_msgs: max_broadcasts,
            max_bytes: max_broadcast_bytes,
            max_age_ms: broadcast_ttl_ms,
        };
        let options = WireOptions { always_base64: payload_base64, jetstream, broadcasts };
        let start = |open: Option<&OpenStore>| {
            let lock = open.map(|open| Arc::clone(open.store()));
            let engine = Engine::new(limits.0, options, lock, seed, clock::moment());
            Runtime::start(engine, open)
        };
        let runtime = match &store {
            Some(store) => store.get().access().with_open(start),
            None => start(None),
        }?;
        let last_cid = AtomicU64::new(0);
        Ok(Self { runtime: Arc::new(runtime), _store: store, last_cid, python: Mutex::default() })
    }

    /// From now on this event loop hears what the broker has to tell.
    fn start(slf: &Bound<'_, Self>, event_loop: Bound<'_, PyAny>) -> PyResult<()> {
        let this = slf.get();
        let descriptor = this.runtime.notices().as_fd().as_raw_fd();
        event_loop.call_method1("add_reader", (descriptor, slf.getattr("hear")?))?;
        this.python().event_loop = Some(event_loop.unbind());
        Ok(())
    }

    /// Ends the broker and all its connections, and leaves the event loop alone.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let event_loop = self.python().event_loop.take();
        if let Some(event_loop) = event_loop {
            let descriptor = self.runtime.notices().as_fd().as_raw_fd();
            event_loop.call_method1(py, "remove_reader", (descriptor,))?;
        }
        py.detach(|| self.runtime.stop());
        Ok(())
    }

    /// Hands over some of what the broker has to tell; the rest comes with the next turn of the loop.
    fn hear(&self, py: Python<'_>) -> PyResult<()> {
        let notices = self.runtime.notices().take(NOTICES_PER_TURN);
        let mut taken: HashMap<u64, (usize, usize)> = HashMap::new();
        for notice in &notices {
            if let Notice::Request(request) = notice {
                let (requests, bytes) = taken.entry(request.cid).or_default();
                *requests += 1;
                *bytes += request.bytes();
            }
        }
        if !taken.is_empty() {
            self.runtime.order(move |pump, _| {
                for (cid, (requests, bytes)) in taken {
                    pump.engine().front_mut().requests_taken(cid, requests, bytes);
                }
            });
        }
        let mut failed = Ok(());
        for notice in notices {
            // One that fails must not keep others from being heard; of several the last one is told.
            if let Err(error) = self.tell(py, notice) {
                failed = Err(error);
            }
        }
        failed
    }

    /// Has everything that is due done, and replies that may leave sent, before it returns.
    fn settle(&self, py: Python<'_>) {
        py.detach(|| {
            self.runtime.ask(|pump, _| pump.settle());
            // Settling comes at the end of that round, before the next order.
            self.runtime.ask(|_, _| ());
        });
    }

    /// The broker stops: whoever waits for messages of a stream is told.
    fn end_pulls(&self, py: Python<'_>) {
        py.detach(|| self.runtime.ask(|pump, now| pump.engine().end_pulls(now)));
    }

    /// Answers a request once everything that was done to the store so far is durable; if it never will be, with a
    /// refusal in the shape of the `command`. Without one the payload promises nothing.
    #[pyo3(signature = (cid, subject, payload, *, command=None))]
    fn reply(&self, cid: u64, subject: &str, payload: Vec<u8>, command: Option<&str>) {
        let shape = command.map(|command| shape_of(command.as_bytes()));
        let subject = subject.to_owned();
        self.runtime.order(move |pump, _| {
            pump.engine().reply(cid, subject.as_bytes(), payload, shape);
        });
    }

    /// Answers a client that owns a mailbox, created at this time, with what of its inbox nobody has read. The messages
    /// of the reply are read by it; where nobody hears the reply nothing is.
    #[pyo3(signature = (cid, subject, address, created_ms, *, always_base64=false))]
    fn give_unread(
        &self,
        py: Python<'_>,
        cid: u64,
        subject: &str,
        address: &str,
        created_ms: u64,
        always_base64: bool,
    ) {
        let (subject, address) = (subject.to_owned(), address.to_owned());
        // Waits, so that who asks often gets one answer in a round.
        py.detach(|| {
            self.runtime.ask(move |pump, now| {
                let (reply, address) = (subject.as_bytes(), &*address);
                let asked = Unread { cid, reply, address, created_ms, always_base64 };
                pump.engine().give_unread(&asked, now);
            })
        });
    }

    /// Answers a request at once: only the connection that asked hears it.
    fn answer(&self, cid: u64, subject: &str, payload: Vec<u8>) {
        let subject = subject.to_owned();
        self.runtime.order(move |pump, now| {
            pump.engine().answer(cid, subject.as_bytes(), &payload, now);
        });
    }

    /// Answers a request that was not carried out, in the shape of its `command`: a word for the kind of reason, and
    /// the reason in words.
    fn refuse(&self, cid: u64, subject: &str, command: &str, kind: String, text: String) {
        let (shape, subject) = (shape_of(command.as_bytes()), subject.to_owned());
        let refusal = Refusal { kind: kind.into(), text };
        self.runtime.order(move |pump, _| {
            pump.engine().refuse(cid, subject.as_bytes(), shape, refusal);
        });
    }

    /// A request without a reply subject was not carried out: its client is told, and it is counted.
    fn refused(&self, cid: u64, subject: &str) {
        let subject = subject.to_owned();
        self.runtime
            .order(move |pump, _| pump.engine().front_mut().refused(cid, subject.as_bytes()));
    }

    /// Whether a client may publish to `subject`; one that is not there may not.
    fn may_publish(&self, py: Python<'_>, cid: u64, subject: &str) -> bool {
        let subject = subject.to_owned();
        let asked =
            self.ask(py, move |pump| pump.engine().front().may_publish(cid, subject.as_bytes()));
        asked.unwrap_or(false)
    }

    /// The number of a new connection, whose `session` is told what happens to it.
    fn connection(slf: &Bound<'_, Self>, session: Py<PyAny>) -> Connection {
        let this = slf.get();
        let cid = this.last_cid.fetch_add(1, Ordering::Relaxed) + 1;
        let last_stats = Arc::default();
        let entry = Session { object: session, last_stats: Arc::clone(&last_stats) };
        this.python().sessions.insert(cid, entry);
        Connection::new(Arc::clone(&this.runtime), cid, last_stats)
    }

    /// Other limits from now on.
    fn set_limits(&self, limits: &Limits) {
        let limits = limits.0;
        self.runtime.order(move |pump, _| pump.engine().front_mut().set_limits(limits));
    }

    /// Gives messages to `subject` to `handler(cid, subject, reply, headers, payload)`.
    fn serve(&self, subject: &str, handler: Py<PyAny>) -> PyResult<()> {
        if !nats::is_valid(subject.as_bytes()) {
            return Err(PyValueError::new_err(format!("{subject:?} is not a valid subject")));
        }
        if !may_be_served(subject.as_bytes()) {
            let problem = format!("{subject:?} is not in the table of commands");
            return Err(PyValueError::new_err(problem));
        }
        let service = {
            let mut python = self.python();
            python.services.push(Arc::new(handler));
            (python.services.len() - 1) as u32
        };
        let subject = subject.to_owned();
        self.runtime.order(move |pump, _| {
            pump.engine().front_mut().serve(service, subject.as_bytes());
        });
        Ok(())
    }

    /// Whether commands that nobody serves yet wait until somebody does, instead of being unknown.
    fn await_commands(&self, awaits: bool) {
        self.runtime.order(move |pump, _| pump.engine().front_mut().await_services(awaits));
    }

    /// Gives lines of the protocol to `handler(cid, text)`, or to nobody any more.
    #[pyo3(signature = (handler))]
    fn log_protocol(&self, handler: Option<Py<PyAny>>) {
        let wanted = handler.is_some();
        self.python().protocol_log = handler.map(Arc::new);
        self.runtime.order(move |pump, _| pump.engine().front_mut().log_protocol(wanted));
    }

    /// What the server says of itself in traces: the members of a JSON object, without its braces.
    fn introduce(&self, members: &str) {
        let members = members.to_owned();
        self.runtime.order(move |pump, _| pump.engine().front_mut().introduce(&members));
    }

    /// Counters over all connections; zeros once the broker has ended.
    fn stats(&self, py: Python<'_>) -> BrokerStats {
        let stats = self.ask(py, |pump| BrokerStats::new(pump.engine()));
        stats.unwrap_or_default()
    }

    /// Makes or changes a stream that the configuration declares: whether it was `unchanged`, `created` or `changed`, and
    /// else why it could not be.
    fn declare_stream(&self, py: Python<'_>, config: String) -> (&'static str, String) {
        let asked = py.detach(|| {
            self.runtime.ask(move |pump, now| pump.engine().declare_stream(&config, now))
        });
        outcome(asked.flatten())
    }

    /// The same for a consumer.
    fn declare_consumer(
        &self,
        py: Python<'_>,
        stream: String,
        name: String,
        config: String,
    ) -> (&'static str, String) {
        let consumer = declared((stream, name, config));
        let asked = py.detach(|| {
            self.runtime.ask(move |pump, now| pump.engine().declare_consumer(&consumer, now))
        });
        outcome(asked.flatten())
    }

    /// Requests to JetStream's API so far, and how many of them were refused.
    fn jetstream_requests(&self, py: Python<'_>) -> (u64, u64) {
        self.ask(py, |pump| pump.engine().partition().api_totals()).unwrap_or_default()
    }

    /// Counters of these connections, without those that are gone.
    fn connection_stats(&self, py: Python<'_>, cids: Vec<u64>) -> Vec<ConnectionStats> {
        let found = self.ask(py, move |pump| {
            let stats = |cid| pump.find(cid).and_then(|id| pump.engine().stats(id));
            cids.into_iter().filter_map(stats).collect::<Vec<_>>()
        });
        let epoch_ms = clock::epoch_ms();
        let stats = found.unwrap_or_default().into_iter();
        stats.map(|stats| ConnectionStats::new(stats, epoch_ms)).collect()
    }

    /// The subscriptions that these connections have now, to be looked at a few at a time.
    fn subscriptions(&self, py: Python<'_>, cids: Vec<u64>) -> SubscriptionList {
        let found = self.ask(py, move |pump| {
            let mut all = Vec::new();
            for cid in cids {
                if let Some(id) = pump.find(cid) {
                    let of_one = pump.engine().front().subscriptions_of(id);
                    all.extend(of_one.map(|subscription| (cid, subscription)));
                }
            }
            all
        });
        SubscriptionList::new(Arc::clone(&self.runtime), found.unwrap_or_default())
    }
}

fn outcome(declared: Option<DeclaredAs>) -> (&'static str, String) {
    match declared {
        Some(Ok(Declared::Unchanged)) => ("unchanged", String::new()),
        Some(Ok(Declared::Created)) => ("created", String::new()),
        Some(Ok(Declared::Changed)) => ("changed", String::new()),
        Some(Err(error)) => ("refused", error.description.into_owned()),
        None => ("refused", "the broker is not open".to_owned()),
    }
}

impl Broker {
    fn python(&self) -> MutexGuard<'_, Handlers> {
        self.python.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut mq9_runtime::Pump) -> T + Send + 'static,
    ) -> Option<T> {
        py.detach(|| self.runtime.ask(|pump, _| question(pump)))
    }

    fn session(&self, py: Python<'_>, cid: u64) -> Option<Py<PyAny>> {
        self.python().sessions.get(&cid).map(|session| session.object.clone_ref(py))
    }

    fn tell(&self, py: Python<'_>, notice: Notice) -> PyResult<()> {
        match notice {
            Notice::Connect { cid, options } => {
                if let Some(session) = self.session(py, cid) {
                    let options = PyBytes::new(py, &options);
                    session.call_method1(py, pyo3::intern!(py, "on_connect"), (options,))?;
                }
            }
            Notice::FirstCommand { cid } => {
                if let Some(session) = self.session(py, cid) {
                    session.call_method0(py, pyo3::intern!(py, "on_first_command"))?;
                }
            }
            Notice::Request(request) => self.request(py, &request)?,
            Notice::Line(line) => self.log(py, line.cid, &line.text)?,
            Notice::LinesMissed(count) => {
                self.log(py, 0, format!("{count} lines came too fast to be logged").as_bytes())?;
            }
            Notice::Secured { cid, facts } => {
                if let Some(session) = self.session(py, cid) {
                    let client = facts.client.map(Certificate::from);
                    let facts = (facts.version, facts.cipher_suite, client);
                    session.call_method1(py, pyo3::intern!(py, "on_secured"), facts)?;
                }
            }
            Notice::Closed { cid, reason, detail, stats } => {
                // The session holds the connection: nobody else could end that circle.
                let ended = self.python().sessions.remove(&cid);
                if let Some(Session { object, last_stats }) = ended {
                    *last_stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
                    let name = pyo3::intern!(py, "on_closed");
                    object.call_method1(py, name, (reason, detail))?;
                }
            }
        }
        Ok(())
    }

    fn log(&self, py: Python<'_>, cid: u64, text: &[u8]) -> PyResult<()> {
        let handler = self.python().protocol_log.clone();
        if let Some(handler) = handler {
            handler.call1(py, (cid, PyBytes::new(py, text)))?;
        }
        Ok(())
    }

    fn request(&self, py: Python<'_>, request: &Request) -> PyResult<()> {
        let handler = self.python().services.get(request.service as usize).cloned();
        let Some(handler) = handler else { return Ok(()) };
        let text = |bytes: &[u8]| PyString::new(py, &String::from_utf8_lossy(bytes)).unbind();
        let (subject, reply) = (text(&request.subject), text(&request.reply));
        let (headers, payload) =
            (PyBytes::new(py, &request.headers), PyBytes::new(py, &request.payload));
        handler.call1(py, (request.cid, subject, reply, headers, payload))?;
        Ok(())
    }
}
