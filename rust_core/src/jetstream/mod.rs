//! JetStream's wire API on the store: streams, consumers, pull requests and acknowledgements.
//!
//! Owns what requests mean, in which words they are answered, and which requests wait. Must not know connections beyond
//! their number, nor how an answer travels. What it does not serve is refused with nats-server's own codes.

mod acks;
mod advisory;
mod api;
mod consumer_config;
mod consumers;
mod dead_letters;
mod declared;
mod duration;
mod envelope;
mod error;
mod monitor;
mod priority;
mod publish;
mod pull_queue;
mod pulls;
mod purges;
mod reads;
mod stream_config;
mod streams;
mod unserved;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

pub use consumer_config::ConsumerConfig;
pub use dead_letters::stream_of_subject;
pub use declared::{Checked, Declared, DeclaredConsumer, check};
pub use envelope::Envelope;
pub use error::ApiError;
pub use monitor::{Detail, stream_detail};
pub use publish::{level_of_letter, publish_noted};
pub use stream_config::StreamConfig;

use crate::front::{Call, Handled, Listeners};
use crate::log::Lsn;
use crate::protocol::{Answer, Reply, ReplySubject};
use crate::router::{Matches, Router, Sid};
use crate::store::{ConsumerKey, Store, StreamKey};
use crate::time::{Moment, Now};

/// What may wait to be sent before nothing more is asked for.
const MAX_OUTGOING: usize = 16 << 20;

/// A stream's place among those that are served; another's when it is removed.
pub type StreamIx = u32;

/// A stream that is served.
#[derive(Debug)]
struct Served {
    key: StreamKey,
    config: StreamConfig,
    /// Where it listens, in the router of streams.
    listens: Vec<crate::router::SubId>,
}

/// Something to be sent to a client.
#[derive(Debug)]
pub struct Outgoing {
    /// It may leave once the log is durable up to here.
    pub known: Lsn,
    /// What it says, and to whom.
    pub reply: Reply,
}

/// A message that the broker publishes in its own name.
#[derive(Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Its subject.
    pub subject: String,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// JetStream, as far as it is not in the store.
#[derive(Debug)]
pub struct JetStream {
    streams: Vec<Option<Served>>,
    by_name: HashMap<Box<str>, StreamIx, foldhash::fast::RandomState>,
    router: Router,
    /// Changes whenever a subject may be another stream's.
    version: u64,
    outgoing: Vec<Outgoing>,
    outgoing_bytes: usize,
    /// What streams may want before everybody is told.
    advisories: VecDeque<Announcement>,
    announcements: VecDeque<Announcement>,
    pulls: pull_queue::Pulls,
    purges: VecDeque<purges::PurgeUnderWay>,
    unrecorded: Option<acks::Unrecorded>,
    /// The consumer whose turn it was last.
    served_last: Option<ConsumerKey>,
    /// The instant of what is carried out, in us of the monotonic clock: requests expire that exactly.
    now_us: u64,
    /// Requests to the API, and those that were refused.
    requests: u64,
    errors: u64,
    ids: u64,
}

impl JetStream {
    /// Serves the streams of a store.
    pub fn new(store: &Store) -> JetStream {
        let mut jetstream = JetStream {
            streams: Vec::new(),
            by_name: HashMap::default(),
            router: Router::new(0),
            version: 1,
            outgoing: Vec::new(),
            outgoing_bytes: 0,
            advisories: VecDeque::new(),
            announcements: VecDeque::new(),
            pulls: pull_queue::Pulls::default(),
            purges: VecDeque::new(),
            unrecorded: None,
            served_last: None,
            now_us: 0,
            requests: 0,
            errors: 0,
            ids: 0,
        };
        let mut all: Vec<(&str, StreamKey)> = store.streams().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        for (_, key) in all {
            let info = store.stream_info(key);
            let config = info.and_then(|info| StreamConfig::stored(&info.config));
            if let Some(config) = config {
                jetstream.add(key, config);
            }
        }
        jetstream
    }

    /// What is carried out from now on happens at this instant.
    pub fn set_now(&mut self, mono_us: u64) {
        self.now_us = mono_us;
    }

    /// Changes whenever [`JetStream::stream_of`] may give another answer than before.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The stream that stores messages of this subject.
    pub fn stream_of(&self, subject: &[u8]) -> Option<StreamIx> {
        let mut matches = Matches::new();
        self.router.matches(subject, &mut matches);
        let interest = self.router.interest_at(*matches.first()?);
        self.router.get(*interest.plain().first()?).map(|subscription| subscription.owner)
    }

    /// Carries out a request to the API, or an acknowledgement. Unknown if nobody is there to do it.
    pub fn call(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        now: Now,
        listeners: &dyn Listeners,
    ) -> Handled {
        if self.joins_acks(call) {
            return Handled::Done;
        }
        self.record_acks(store, now);
        if call.subject.starts_with(acks::ACK) {
            return self.acknowledge(store, call, now, listeners);
        }
        self.request(store, call, now, listeners)
    }

    /// Whether more may be asked for before what was asked for leaves.
    pub fn has_room(&self) -> bool {
        self.outgoing_bytes < MAX_OUTGOING
    }

    /// The connection is a user's from now on, or nobody's.
    pub fn set_user(&mut self, cid: u64, user: Option<Arc<str>>) {
        self.pulls.set_user(cid, user);
    }

    /// Requests to the API so far, and how many of them were refused.
    pub fn api_totals(&self) -> (u64, u64) {
        (self.requests, self.errors)
    }

    /// Panics if what is known of requests is not what the store knows of them. For tests.
    pub fn check_invariants(&self) {
        self.pulls.check_invariants();
    }

    /// Takes what is to be sent to clients.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        self.outgoing_bytes = 0;
        std::mem::take(&mut self.outgoing)
    }

    /// The next message that the broker publishes in its own name.
    pub fn next_announcement(&mut self) -> Option<Announcement> {
        self.announcements.pop_front()
    }

    fn add(&mut self, key: StreamKey, config: StreamConfig) -> StreamIx {
        let free = self.streams.iter().position(Option::is_none);
        let ix = free.unwrap_or(self.streams.len()) as StreamIx;
        if free.is_none() {
            self.streams.push(None);
        }
        let listens = self.listen(ix, &config);
        self.by_name.insert(config.name.as_str().into(), ix);
        self.streams[ix as usize] = Some(Served { key, config, listens });
        ix
    }

    fn listen(&mut self, ix: StreamIx, config: &StreamConfig) -> Vec<crate::router::SubId> {
        self.version += 1;
        let subjects = config.subjects.iter();
        subjects
            .map(|subject| self.router.subscribe(ix, subject.as_bytes(), b"", Sid::new()))
            .collect()
    }

    fn change(&mut self, ix: StreamIx, config: StreamConfig) {
        let listens = self.listen(ix, &config);
        let Some(Some(served)) = self.streams.get_mut(ix as usize) else { return };
        served.config = config;
        for id in std::mem::replace(&mut served.listens, listens) {
            self.router.unsubscribe(id);
        }
    }

    fn remove(&mut self, ix: StreamIx) {
        let Some(served) = self.streams.get_mut(ix as usize).and_then(Option::take) else { return };
        for id in served.listens {
            self.router.unsubscribe(id);
        }
        self.by_name.remove(served.config.name.as_str());
        self.version += 1;
    }

    fn find(&self, name: &str) -> Option<(StreamIx, &Served)> {
        let ix = *self.by_name.get(name)?;
        Some((ix, self.get(ix)?))
    }

    fn get(&self, ix: StreamIx) -> Option<&Served> {
        self.streams.get(ix as usize)?.as_ref()
    }

    fn served(&self) -> impl Iterator<Item = &Served> {
        self.streams.iter().flatten()
    }

    /// Answers a request once the log is durable up to `known`; with `promises` only if it will be. Refusals wait as well:
    /// answers come in the order of the requests.
    fn answer(&mut self, call: &Call<'_>, known: Lsn, promises: bool, payload: Vec<u8>) {
        self.answer_to(call.cid, call.reply, known, promises, payload);
    }

    fn answer_to(&mut self, cid: u64, inbox: &[u8], known: Lsn, promises: bool, payload: Vec<u8>) {
        if !inbox.is_empty() {
            let answer = Answer::Given { payload, promises };
            let reply = Reply::of_jetstream(cid, ReplySubject::from_slice(inbox), answer);
            self.send(Outgoing { known, reply });
        }
    }

    fn send(&mut self, outgoing: Outgoing) {
        self.outgoing_bytes += outgoing.reply.subject.len() + outgoing.reply.said_bytes();
        self.outgoing.push(outgoing);
    }
}

/// The time that JSON has: RFC 3339 in UTC; the zero time of nats-server for 0.
fn timestamp(wall_ms: u64) -> String {
    if wall_ms == 0 {
        return "0001-01-01T00:00:00Z".to_owned();
    }
    Moment { wall_us: wall_ms.saturating_mul(1000), mono_us: 0 }.timestamp()
}
