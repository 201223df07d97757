//! Pull requests: they wait, take turns, are answered message by message, and end.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;
use serde::Deserialize;

use super::publish::header_block;
use super::{JetStream, Outgoing, duration};
use crate::front::{Call, Handled};
use crate::log::Lsn;
use crate::protocol::OneMessage;
use crate::store::{ConsumerKey, Offer, Store};
use crate::time::Now;

/// Most messages that are given in one go.
const AT_ONCE: usize = 256;
/// Most consumers that are served in one go.
const CONSUMERS_AT_ONCE: usize = 1024;

/// Whether a connection listens to a subject.
pub type Hears<'a> = &'a dyn Fn(u64, &[u8]) -> bool;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PullRequest {
    batch: i64,
    expires: i64,
    no_wait: bool,
    max_bytes: i64,
    idle_heartbeat: i64,
}

/// A request that waits for messages.
#[derive(Debug)]
struct Pull {
    cid: u64,
    inbox: Box<[u8]>,
    left: u64,
    bytes_left: Option<u64>,
    no_wait: bool,
    delivered: u64,
    expires_ms: Option<u64>,
    heartbeat_ms: u64,
    next_heartbeat_ms: Option<u64>,
}

/// The requests of one consumer, and when the first of them has something to be told.
#[derive(Debug, Default)]
struct Queue {
    pulls: VecDeque<Pull>,
    due_ms: Option<u64>,
}

impl Queue {
    fn next_due_ms(&self) -> Option<u64> {
        let times = self.pulls.iter().flat_map(|pull| [pull.expires_ms, pull.next_heartbeat_ms]);
        times.flatten().min()
    }

    fn asked(&self) -> u64 {
        self.pulls.iter().map(|pull| pull.left).sum()
    }
}

/// All requests that wait.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    queues: HashMap<ConsumerKey, Queue, foldhash::fast::RandomState>,
    due: BTreeSet<(u64, ConsumerKey)>,
}

impl Pulls {
    fn arm(&mut self, key: ConsumerKey) {
        let Some(queue) = self.queues.get_mut(&key) else { return };
        let due_ms = queue.next_due_ms();
        if due_ms != queue.due_ms {
            let before = std::mem::replace(&mut queue.due_ms, due_ms);
            if let Some(before) = before {
                self.due.remove(&(before, key));
            }
            if let Some(due_ms) = due_ms {
                self.due.insert((due_ms, key));
            }
        }
        if queue.pulls.is_empty() {
            self.queues.remove(&key);
        }
    }

    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }
}

fn parse_pull(body: &[u8]) -> Result<PullRequest, String> {
    let text = body.trim_ascii();
    if !text.starts_with(b"{") {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        return Ok(PullRequest { batch: number.unwrap_or(1), ..PullRequest::default() });
    }
    let request: PullRequest = serde_json::from_slice(text).map_err(|error| {
        if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
    })?;
    if request.idle_heartbeat > 0 && request.idle_heartbeat.saturating_mul(2) > request.expires {
        return Err("heartbeat value too large".to_owned());
    }
    Ok(request)
}

fn ms(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0).div_ceil(1_000_000)
}

impl JetStream {
    /// A client asks a consumer for messages.
    pub(super) fn pull(
        &mut self,
        store: &mut Store,
        stream: &str,
        consumer: &str,
        call: &Call<'_>,
        now: Now,
    ) -> Handled {
        let Ok(key) = self.find_consumer(store, stream, consumer) else { return Handled::Unknown };
        self.pull_from(store, key, call.payload, call, now);
        Handled::Done
    }

    pub(super) fn pull_from(
        &mut self,
        store: &mut Store,
        key: ConsumerKey,
        body: &[u8],
        call: &Call<'_>,
        now: Now,
    ) {
        if call.reply.is_empty() {
            return;
        }
        let known = store.end();
        if let Err(status) = self.try_pull(store, key, body, call, now) {
            self.status(call.cid, call.reply, known, &status);
        }
    }

    fn try_pull(
        &mut self,
        store: &mut Store,
        key: ConsumerKey,
        body: &[u8],
        call: &Call<'_>,
        now: Now,
    ) -> Result<(), String> {
        store.tick(now);
        let Some(policy) = store.consumer_policy(key) else { return Ok(()) };
        let request = parse_pull(body).map_err(|why| format!("400 Bad Request - {why}"))?;
        let batch = u64::try_from(request.batch.max(1)).unwrap_or(1);
        if policy.max_batch > 0 && batch > policy.max_batch {
            return Err(format!("409 Exceeded MaxRequestBatch of {}", policy.max_batch));
        }
        if policy.max_expires_ms > 0 && ms(request.expires) > policy.max_expires_ms {
            let most = duration::duration_text(policy.max_expires_ms);
            return Err(format!("409 Exceeded MaxRequestExpires of {most}"));
        }
        let max_bytes = u64::try_from(request.max_bytes).unwrap_or(0);
        if policy.max_bytes > 0 && max_bytes > policy.max_bytes {
            return Err(format!("409 Exceeded MaxRequestMaxBytes of {}", policy.max_bytes));
        }
        let max_waiting = policy.max_waiting as usize;
        let queue = self.pulls.queues.entry(key).or_default();
        if request.no_wait {
            let there = store.deliverable(key);
            if there == 0 && request.expires <= 0 {
                self.pulls.arm(key);
                return Err("404 No Messages".to_owned());
            }
            if there > 0 && there < queue.asked() {
                return Err("408 Requests Pending".to_owned());
            }
        }
        if max_waiting > 0 && queue.pulls.len() >= max_waiting {
            return Err("409 Exceeded MaxWaiting".to_owned());
        }
        let heartbeat_ms = ms(request.idle_heartbeat);
        let after = |ms: u64| (ms > 0).then(|| now.mono_ms.saturating_add(ms));
        queue.pulls.push_back(Pull {
            cid: call.cid,
            inbox: call.reply.into(),
            left: batch,
            bytes_left: (max_bytes > 0).then_some(max_bytes),
            no_wait: request.no_wait,
            delivered: 0,
            expires_ms: after(ms(request.expires)),
            heartbeat_ms,
            next_heartbeat_ms: after(heartbeat_ms),
        });
        self.serve(store, key, now);
        Ok(())
    }

    /// Gives a consumer's messages to those who wait for them, in turns.
    fn serve(&mut self, store: &mut Store, key: ConsumerKey, now: Now) {
        while self.serve_some(store, key, now) {}
        self.end_of_messages(store, key);
        let waiting = self.pulls.queues.get(&key).map_or(0, |queue| queue.pulls.len());
        store.set_waiting(key, waiting, now);
        self.pulls.arm(key);
        self.tell_events(store, now);
    }

    fn serve_some(&mut self, store: &mut Store, key: ConsumerKey, now: Now) -> bool {
        let Some(queue) = self.pulls.queues.get_mut(&key) else { return false };
        let wanted = usize::try_from(queue.asked()).unwrap_or(AT_ONCE).min(AT_ONCE);
        if wanted == 0 {
            return false;
        }
        // What cannot be read or written now is tried again with the next message.
        let Ok(offers) = store.offers(key, wanted, now) else { return false };
        if offers.is_empty() {
            return false;
        }
        let Some(info) = store.consumer_info(key) else { return false };
        let (stream, headers_only) = (
            store.stream_of_consumer(key),
            store.consumer_policy(key).is_some_and(|policy| policy.headers_only),
        );
        let fetched = match store.read_offers(key, &offers) {
            Ok(Some(fetched)) => fetched,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let known = fetched.known();
        let start = format!("$JS.ACK.{stream}.{}", info.name);
        let mut given: Vec<Offer> = Vec::new();
        let mut pending = info.pending;
        let mut out: Vec<Outgoing> = Vec::new();
        let mut statuses = Vec::new();
        for (offer, (meta, message)) in offers.iter().zip(fetched.iter()) {
            let headers = header_block(message.headers);
            let (count, seq, ns) = (offer.count, meta.msg_id + 1, meta.create_ms * 1_000_000);
            let number = info.delivered.consumer + 1 + given.len() as u64;
            let behind = pending.saturating_sub(u64::from(count == 1));
            let reply = format!("{start}.{count}.{seq}.{number}.{ns}.{behind}").into_bytes();
            let size =
                (message.key.len() + reply.len() + headers.len() + message.payload.len()) as u64;
            // A request that has no room for it ends, and the next one is tried.
            while let Some(pull) = queue.pulls.front()
                && pull.bytes_left.is_some_and(|left| left < size)
            {
                if let Some(pull) = queue.pulls.pop_front() {
                    statuses.push((out.len(), pull));
                }
            }
            let Some(mut pull) = queue.pulls.pop_front() else { break };
            pull.left -= 1;
            pull.delivered += 1;
            pull.bytes_left = pull.bytes_left.map(|left| left - size);
            pull.next_heartbeat_ms =
                (pull.heartbeat_ms > 0).then(|| now.mono_ms.saturating_add(pull.heartbeat_ms));
            pending = behind;
            let mut one = OneMessage {
                subject: message.key.as_bytes().into(),
                reply,
                headers,
                payload: message.payload.to_vec(),
                promises: false,
            };
            if headers_only {
                let size = format!("Nats-Msg-Size: {}\r\n", one.payload.len());
                one.headers = header_block(&[message.headers, size.as_bytes()].concat());
                one.payload.clear();
            }
            let (cid, inbox) = (pull.cid, pull.inbox.clone());
            out.push(Outgoing { cid, inbox, known, message: one });
            given.push(*offer);
            if pull.left > 0 {
                queue.pulls.push_back(pull);
            }
        }
        if store.give(key, &given, now).is_err() {
            // The log takes nothing now: nobody is given anything, and those who would have been may ask again.
            for Outgoing { cid, inbox, .. } in out {
                queue.pulls.retain(|pull| pull.cid != cid || pull.inbox != inbox);
                let headers = b"NATS/1.0 408 Request Timeout\r\n\r\n".to_vec();
                let message = OneMessage { headers, ..OneMessage::default() };
                self.outgoing.push(Outgoing { cid, inbox, known, message });
            }
            return false;
        }
        let more = !given.is_empty();
        let mut statuses = statuses.into_iter().peekable();
        for (at, outgoing) in out.into_iter().enumerate() {
            while let Some((_, pull)) = statuses.next_if(|(before, _)| *before <= at) {
                self.out_of_bytes(&pull, known);
            }
            self.outgoing.push(outgoing);
        }
        for (_, pull) in statuses {
            self.out_of_bytes(&pull, known);
        }
        more
    }

    fn out_of_bytes(&mut self, pull: &Pull, known: Lsn) {
        let status = with_pending("409 Message Size Exceeds MaxBytes", pull);
        self.status(pull.cid, &pull.inbox, known, &status);
    }

    /// Requests that do not wait end where the messages end.
    fn end_of_messages(&mut self, store: &Store, key: ConsumerKey) {
        if store.deliverable(key) > 0 {
            return;
        }
        let Some(queue) = self.pulls.queues.get_mut(&key) else { return };
        let is_over = |pull: &Pull| pull.no_wait && pull.delivered > 0;
        let (over, rest): (VecDeque<Pull>, _) =
            std::mem::take(&mut queue.pulls).into_iter().partition(is_over);
        queue.pulls = rest;
        for pull in over {
            self.status(pull.cid, &pull.inbox, store.end(), "404 No Messages");
        }
    }

    /// Serves all who may have something to be given or told. Says whether there is more to do at once.
    pub fn settle(&mut self, store: &mut Store, now: Now, hears: Hears<'_>) -> bool {
        self.tell_events(store, now);
        for _ in 0..CONSUMERS_AT_ONCE {
            let Some(key) = store.next_ready_consumer() else { break };
            if let Some(queue) = self.pulls.queues.get_mut(&key) {
                queue.pulls.retain(|pull| hears(pull.cid, &pull.inbox));
                self.serve(store, key, now);
            }
        }
        while let Some(&(due_ms, key)) = self.pulls.due.first()
            && due_ms <= now.mono_ms
        {
            self.on_due(store, key, now, hears);
        }
        store.has_ready_consumers()
    }

    /// Some requests of a consumer have expired, or are to be told that all is well.
    fn on_due(&mut self, store: &mut Store, key: ConsumerKey, now: Now, hears: Hears<'_>) {
        let Some(queue) = self.pulls.queues.get_mut(&key) else { return };
        let last = store.consumer_info(key).map(|info| info.delivered).unwrap_or_default();
        let mut told = Vec::new();
        queue.pulls.retain_mut(|pull| {
            if !hears(pull.cid, &pull.inbox) {
                return false;
            }
            if pull.expires_ms.is_some_and(|at| at <= now.mono_ms) {
                let status = if pull.no_wait && pull.delivered > 0 {
                    "404 No Messages".to_owned()
                } else {
                    with_pending("408 Request Timeout", pull)
                };
                told.push((pull.cid, pull.inbox.clone(), status));
                return false;
            }
            if pull.next_heartbeat_ms.is_some_and(|at| at <= now.mono_ms) {
                pull.next_heartbeat_ms = Some(now.mono_ms.saturating_add(pull.heartbeat_ms));
                let status = format!(
                    "100 Idle Heartbeat\r\nNats-Last-Consumer: {}\r\nNats-Last-Stream: {}",
                    last.consumer, last.stream
                );
                told.push((pull.cid, pull.inbox.clone(), status));
            }
            true
        });
        let waiting = queue.pulls.len();
        for (cid, inbox, status) in told {
            self.status(cid, &inbox, store.end(), &status);
        }
        store.set_waiting(key, waiting, now);
        self.pulls.arm(key);
    }

    /// A consumer has gone: whoever waits for its messages is told.
    pub(super) fn end_pulls(&mut self, key: ConsumerKey, known: Lsn) {
        let Some(queue) = self.pulls.queues.get_mut(&key) else { return };
        for pull in std::mem::take(&mut queue.pulls) {
            self.status(pull.cid, &pull.inbox, known, "409 Consumer Deleted");
        }
        self.pulls.arm(key);
    }

    /// A connection has closed: its requests end.
    pub fn disconnect(&mut self, store: &mut Store, cid: u64, now: Now) {
        let is_theirs = |queue: &Queue| queue.pulls.iter().any(|pull| pull.cid == cid);
        let queues = self.pulls.queues.iter();
        let theirs: Vec<ConsumerKey> =
            queues.filter(|(_, queue)| is_theirs(queue)).map(|(key, _)| *key).collect();
        for key in theirs {
            if let Some(queue) = self.pulls.queues.get_mut(&key) {
                queue.pulls.retain(|pull| pull.cid != cid);
                store.set_waiting(key, queue.pulls.len(), now);
            }
            self.pulls.arm(key);
        }
    }

    fn status(&mut self, cid: u64, inbox: &[u8], known: Lsn, status: &str) {
        let headers = format!("NATS/1.0 {status}\r\n\r\n").into_bytes();
        let message = OneMessage { headers, ..OneMessage::default() };
        self.outgoing.push(Outgoing { cid, inbox: inbox.into(), known, message });
    }

    /// When something is to be done without being asked, in ms of the monotonic clock.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.pulls.next_due_ms()
    }
}

fn with_pending(status: &str, pull: &Pull) -> String {
    let (messages, bytes) = (pull.left, pull.bytes_left.unwrap_or(0));
    format!("{status}\r\nNats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {bytes}")
}
