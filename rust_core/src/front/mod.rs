//! Clients of the broker, without sockets: bytes of each connection in, bytes for each connection out.
//!
//! Owns connections, their subscriptions and what waits to be written to them. Must not know how
//! bytes travel, what a mailbox is, nor who may connect: a `CONNECT` comes back as an [`Event`] and waits for
//! [`Front::accept`]. The same input in any split gives the same output. Time is a number of
//! microseconds of a clock that never goes back, passed in.

mod buffer_pool;
mod closing;
mod conn;
mod deliver;
mod feed;
mod output;
mod own;
mod permissions;
mod protocol_log;
mod publish;
mod push;
mod replies;
mod requests;
mod subscribe;
mod timers;
mod trace;

use std::borrow::Cow;
use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::commands::PREFIX as RESERVED;
use crate::router::Router;
pub use crate::router::SubId;
use crate::timer::Wheel;
use buffer_pool::BufferPool;
use conn::{Conn, Phase};
pub use conn::{ConnStats, Terms};
pub use output::Waiting;
pub use permissions::{InvalidSubject, Permissions, PermissionsBuilder};
pub use protocol_log::ProtocolLine;
pub use push::{Outlet, Room, Said, Subscribing};
pub use subscribe::SubscriptionInfo;
use timers::Alarm;
pub use trace::Trace;

/// A connection's place, from [`Front::open`] to [`Front::remove`].
pub type ConnId = u32;

/// What a connection may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of headers and payload of one message.
    pub max_payload: usize,
    /// Bytes of the arguments of one command.
    pub max_control_line: usize,
    /// Bytes waiting to be read by a client before it is cut off.
    pub max_pending: usize,
    /// Subscriptions of one connection; 0 for no limit.
    pub max_subscriptions: usize,
    /// Quiet time after which a client is asked whether it is there.
    pub ping_interval_ms: u64,
    /// Unanswered pings before a connection is given up.
    pub ping_max: u32,
    /// How long output may wait without any of it being taken.
    pub write_deadline_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_payload: 1 << 20,
            max_control_line: 4096,
            max_pending: 64 << 20,
            max_subscriptions: 0,
            ping_interval_ms: 120_000,
            ping_max: 2,
            write_deadline_ms: 10_000,
        }
    }
}

/// Something the caller has to do or decide.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A client has sent `CONNECT`: answer with [`Front::accept`] or [`Front::close`].
    Connect {
        /// Who.
        conn: ConnId,
        /// The JSON text.
        options: Box<[u8]>,
    },
    /// The first command of a client that has to authenticate is not `CONNECT`: answer as above.
    FirstCommand {
        /// Who.
        conn: ConnId,
    },
    /// A message for one of the server's own subjects.
    Request(Box<Request>),
    /// A message was traced: give it to [`Front::publish_trace`] with the time.
    Trace(Box<Trace>),
    /// What [`Front::expect`] was told to expect has not come in time.
    Late {
        /// Whose.
        conn: ConnId,
    },
    /// A line of the protocol, for the log: see [`Front::log_protocol`].
    Line(Box<ProtocolLine>),
    /// Write what is left, unless `abort`, and close the connection.
    Close {
        /// Whose.
        conn: ConnId,
        /// Without writing anything more.
        abort: bool,
    },
    /// The connection publishes faster than its readers read: read from it a little later.
    Stall {
        /// Whose.
        conn: ConnId,
    },
    /// The connection has asked for more than it takes: do not read from it until `Release`.
    Hold {
        /// Whose.
        conn: ConnId,
    },
    /// The connection may be read from again.
    Release {
        /// Whose.
        conn: ConnId,
    },
}

/// What connections listen to, and how much they can take.
pub trait Listeners {
    /// Whether a connection listens to a subject.
    fn hears(&self, cid: u64, subject: &[u8]) -> bool;

    /// Whether a connection has taken enough of what it was given to be given more.
    fn takes_more(&self, cid: u64) -> bool;

    /// Whether a connection may publish to every subject that a pattern stands for.
    fn may_publish_all(&self, cid: u64, pattern: &[u8]) -> bool;
}

/// Takes messages to the server's own subjects where they are read, without a copy.
pub trait Handler {
    /// Carries out a request.
    fn call(&mut self, call: &Call<'_>) -> Handled;

    /// Stores a broadcast and tells it later; unknown if it is not to be stored.
    fn broadcast(&mut self, _call: &Call<'_>) -> Handled {
        Handled::Unknown
    }

    /// Feeds a subscription what broadcasts are stored, until [`Front::end_feed`], and says by which number; 0 if there
    /// are none.
    fn catch_up(&mut self, _cid: u64, _subscription: SubId) -> u64 {
        0
    }

    /// Carries out a request to a subject of JetStream. Unknown if nobody is there to do it.
    fn jetstream(&mut self, _call: &Call<'_>, _listeners: &dyn Listeners) -> Handled {
        Handled::Unknown
    }

    /// Changes whenever [`Handler::stream_of`] may give another answer than before; 0 if that is always none.
    fn streams_version(&self) -> u64 {
        0
    }

    /// The stream that stores messages of this subject.
    fn stream_of(&self, _subject: &[u8]) -> Option<u32> {
        None
    }

    /// Stores a message in a stream and answers its publisher.
    fn store_in(&mut self, _stream: u32, _call: &Call<'_>) {}

    /// Answers a request that is not carried out: of which kind the reason is, and in words for its sender.
    fn refuse(&mut self, call: &Call<'_>, kind: &'static str, text: String);

    /// Ends what a connection waits for and these rules do not allow (any more), and answers it. Says to which subjects
    /// it was published.
    fn enforce(&mut self, cid: u64, rules: &Permissions) -> Vec<Vec<u8>>;

    /// Feeds a subscription to a subject of the server, and says by which number; or why it is not fed, in words if it
    /// asks for something that is not there.
    fn subscribe(&mut self, wish: &Subscribing<'_>) -> Result<u64, Option<String>>;

    /// Whether a subscription that is fed may still be, under these rules; it is fed by them from now on.
    fn may_feed(&mut self, reader: u64, rules: Option<&Permissions>) -> bool;

    /// Whether a connection may ask for more, or must first be given what it asked for: `most` bytes can be for it at
    /// once.
    fn has_room(&self, cid: u64, most: usize) -> bool;
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// The subject is not one that the handler knows.
    Unknown,
    /// It was carried out, or its sender is told why not.
    Done,
    /// It was not carried out, and its sender asked for no answer.
    Refused,
}

/// Knows no subject.
impl Handler for () {
    fn call(&mut self, _call: &Call<'_>) -> Handled {
        Handled::Unknown
    }

    fn refuse(&mut self, _call: &Call<'_>, _kind: &'static str, _text: String) {}

    fn enforce(&mut self, _cid: u64, _rules: &Permissions) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn subscribe(&mut self, _wish: &Subscribing<'_>) -> Result<u64, Option<String>> {
        Err(None)
    }

    fn may_feed(&mut self, _reader: u64, _rules: Option<&Permissions>) -> bool {
        true
    }

    fn has_room(&self, _cid: u64, _most: usize) -> bool {
        true
    }
}

/// A message to a subject of the server.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The connection it came from.
    pub cid: u64,
    /// Its subject.
    pub subject: &'a [u8],
    /// Where an answer is expected; empty for nowhere.
    pub reply: &'a [u8],
    /// Header block as it came, empty for none.
    pub headers: &'a [u8],
    /// Its payload.
    pub payload: &'a [u8],
}

/// A message for one of the server's own subjects.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The number [`Front::serve`] gave.
    pub service: u32,
    /// The connection it came from.
    pub cid: u64,
    /// Its subject.
    pub subject: Box<[u8]>,
    /// Where an answer is expected; empty for nowhere.
    pub reply: Box<[u8]>,
    /// Header block as it came, empty for none.
    pub headers: Box<[u8]>,
    /// Its payload.
    pub payload: Box<[u8]>,
}

impl Request {
    /// What it takes of what its connection may have asked for.
    pub fn bytes(&self) -> usize {
        self.subject.len() + self.reply.len() + self.headers.len() + self.payload.len()
    }
}

/// Counters over all connections of clients, past ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections ever opened.
    pub connections: u64,
    /// Messages from clients.
    pub in_msgs: u64,
    /// Their bytes.
    pub in_bytes: u64,
    /// Messages to clients.
    pub out_msgs: u64,
    /// Their bytes.
    pub out_bytes: u64,
    /// Connections cut because they did not read.
    pub slow_consumers: u64,
    /// Messages to the broker's own subjects that were not carried out, and for which no answer was asked.
    pub refused: u64,
    /// Lookups of subjects, and those answered by the connection's last result.
    pub lookups: u64,
    /// See `lookups`.
    pub lookup_hits: u64,
    /// Subscriptions ever added.
    pub inserts: u64,
    /// Subscriptions ever removed.
    pub removes: u64,
}

/// One server's connections and the routing between them.
#[derive(Debug)]
pub struct Front {
    limits: Limits,
    conns: Vec<Option<Box<Conn>>>,
    free: Vec<ConnId>,
    router: Router,
    by_cid: HashMap<u64, ConnId, FixedState>,
    /// Seeded from outside: not to be foreseen by clients, and the same in every replay.
    hasher: FixedState,
    /// The server's own subjects, each with the number of the service that answers it.
    services: Vec<(Box<[u8]>, u32)>,
    /// More of them will come: who asks for one waits for it.
    awaits_services: bool,
    /// Connections whose next request waits until they have taken what they asked for.
    held: Vec<ConnId>,
    requests: requests::Requests,
    /// One of those may have room since they were last tried.
    room: bool,
    /// What readers of mailboxes are to be told.
    pushing: push::Pushing,
    /// Connections with output that has not been offered to the caller.
    dirty: Vec<ConnId>,
    events: VecDeque<Event>,
    timers: Wheel<Alarm>,
    /// The latest time that was passed in.
    now_us: u64,
    random: u64,
    totals: Totals,
    own: own::Own,
    /// Space that every delivery needs for a moment.
    line: Vec<u8>,
    body: Vec<u8>,
    exhausted: Vec<SubId>,
    buffers: BufferPool,
    /// What is noted of the message on its way, if its sender wants to know.
    trace: Option<Box<Trace>>,
    traces: u64,
    introduction: Box<str>,
    /// Messages may be for streams.
    jetstream: bool,
    /// Lines of the protocol become events.
    logging: bool,
}

impl Front {
    /// A broker without connections. `seed` makes its choices among queue members.
    pub fn new(limits: Limits, seed: u64, now_us: u64) -> Self {
        Self {
            limits,
            conns: Vec::new(),
            free: Vec::new(),
            router: Router::new(seed),
            by_cid: HashMap::with_hasher(FixedState::with_seed(seed)),
            hasher: FixedState::with_seed(seed),
            services: Vec::new(),
            awaits_services: false,
            held: Vec::new(),
            requests: requests::Requests::default(),
            room: false,
            pushing: push::Pushing::default(),
            dirty: Vec::new(),
            events: VecDeque::new(),
            timers: Wheel::new(now_us / 1000),
            now_us,
            random: seed | 1,
            totals: Totals::default(),
            own: own::Own::default(),
            line: Vec::new(),
            body: Vec::new(),
            exhausted: Vec::new(),
            buffers: BufferPool::default(),
            trace: None,
            traces: 0,
            introduction: r#""name":"""#.into(),
            jetstream: false,
            logging: false,
        }
    }

    /// Takes in a connection by the number that clients and logs see, which nobody had before. One that must
    /// authenticate may say nothing before its `CONNECT`.
    pub fn open(&mut self, cid: u64, must_authenticate: bool, now_us: u64) -> ConnId {
        debug_assert!(!self.by_cid.contains_key(&cid), "connection {cid} is open");
        self.totals.connections += 1;
        let conn = Box::new(Conn::new(cid, must_authenticate, self.hasher.clone(), now_us));
        let id = match self.free.pop() {
            Some(free) => {
                self.conns[free as usize] = Some(conn);
                free
            }
            None => {
                self.conns.push(Some(conn));
                (self.conns.len() - 1) as ConnId
            }
        };
        self.by_cid.insert(cid, id);
        id
    }

    /// The client can be written to: from now on it is asked for signs of life.
    pub fn greet(&mut self, id: ConnId, now_us: u64) {
        if self.conn(id).is_some_and(|conn| conn.ping.is_none()) {
            self.schedule_first_ping(id, now_us);
        }
    }

    /// The place of a connection, by the number that clients and logs see.
    pub fn find(&self, cid: u64) -> Option<ConnId> {
        self.by_cid.get(&cid).copied()
    }

    /// The number of a connection that clients and logs see.
    pub fn cid(&self, id: ConnId) -> Option<u64> {
        self.conn(id).map(|conn| conn.cid)
    }

    /// Other limits from now on; what waits already is not cut.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Answers messages to `subject` by events with this service's number.
    pub fn serve(&mut self, service: u32, subject: &[u8]) {
        self.services.push((subject.into(), service));
    }

    /// Whether commands of the caller wait until they are served, instead of being unknown.
    pub fn await_services(&mut self, awaits: bool) {
        self.awaits_services = awaits;
        self.room = true;
    }

    /// Streams may want messages of clients from now on.
    pub fn serve_jetstream(&mut self) {
        self.jetstream = true;
    }

    /// The next thing for the caller to do.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.conns.len() - self.free.len()
    }

    /// Counters of one connection.
    pub fn stats(&self, id: ConnId) -> Option<ConnStats> {
        self.conn(id).map(Conn::stats)
    }

    /// Why a connection was closed, once it is closing.
    pub fn reason(&self, id: ConnId) -> Option<&Cow<'static, str>> {
        self.conn(id)?.reason.as_ref()
    }

    /// Panics unless connections, subscriptions and lists of them agree. For tests: it looks at all of them.
    pub fn check_invariants(&self) {
        let open =
            || self.conns.iter().enumerate().filter_map(|(id, conn)| Some((id, conn.as_ref()?)));
        assert_eq!(open().count(), self.by_cid.len(), "connections by their number");
        for (id, conn) in open() {
            assert_eq!(self.by_cid.get(&conn.cid), Some(&(id as ConnId)), "place of {}", conn.cid);
            assert!(conn.written <= conn.output.len(), "written more than there was");
            let waits = !conn.unwritten().is_empty() && conn.in_flight == 0;
            let offered =
                conn.dirty || conn.write_deadline.is_some() || conn.phase == Phase::Closing;
            assert!(!waits || offered, "output of {} that nobody was told of", conn.cid);
            let timed = conn.write_deadline.is_some() || conn.phase == Phase::Closing;
            assert!(conn.in_flight == 0 || timed, "what {} was given has no end", conn.cid);
            assert!(!conn.dirty || self.dirty.contains(&(id as ConnId)), "offers of {}", conn.cid);
            assert!(
                !conn.held
                    || self.held.contains(&(id as ConnId))
                    || self.requests.knows(id as ConnId),
                "{} held for ever",
                conn.cid
            );
        }
        let subscriptions: usize = open().map(|(_, conn)| conn.sids.len()).sum();
        assert_eq!(
            subscriptions,
            self.router.len(),
            "subscriptions of connections and of the router"
        );
    }

    fn conn(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(id as usize)?.as_deref()
    }

    fn conn_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(id as usize)?.as_deref_mut()
    }

    /// A number below `bound`, which is not 0.
    fn pick(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((u128::from(self.random) * bound as u128) >> 64) as usize
    }
}
