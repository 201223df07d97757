//! Pull requests: they are answered message by message, some at a time, and end.

use serde::Deserialize;

use super::publish::header_block;
use super::pull_queue::Pull;
use super::{JetStream, Outgoing, duration};
use crate::front::{Call, Handled, Listeners, Permissions};
use crate::log::Lsn;
use crate::nats::Number;
use crate::protocol::{Answer, OneMessage, Reply, ReplySubject};
use crate::store::{ConsumerKey, MOST_GIVEN, Offer, Store, Waits};
use crate::time::Now;

/// Most bytes of one consumer that are given in one go.
const TURN_BYTES: usize = 1 << 20;
/// Most bytes of all consumers that are given in one go.
const SETTLED_BYTES: usize = 8 << 20;
/// Most consumers that are served in one go.
const CONSUMERS_AT_ONCE: usize = 1024;
/// Most requests that are told something in one go.
const DUE_AT_ONCE: usize = 1024;
/// Most requests of a consumer that are looked at to see who is still there.
const PRUNED_AT_ONCE: usize = 1024;
/// Most requests that are looked at for one message: those without room for it and those that nobody listens for.
const TRIED_AT_ONCE: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PullRequest {
    batch: i64,
    expires: i64,
    no_wait: bool,
    max_bytes: i64,
    idle_heartbeat: i64,
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
        (stream, consumer): (&str, &str),
        call: &Call<'_>,
        now: Now,
        listeners: &dyn Listeners,
    ) -> Handled {
        let Ok(key) = self.find_consumer(store, stream, consumer) else { return Handled::Unknown };
        self.pull_from(store, key, call.payload, call, now, listeners);
        Handled::Done
    }

    pub(super) fn pull_from(
        &mut self,
        store: &mut Store,
        key: ConsumerKey,
        body: &[u8],
        call: &Call<'_>,
        now: Now,
        listeners: &dyn Listeners,
    ) {
        if call.reply.is_empty() {
            return;
        }
        let known = store.end();
        if let Err(status) = self.try_pull(store, key, body, call, now, listeners) {
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
        listeners: &dyn Listeners,
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
        if request.no_wait {
            let there = store.deliverable(key);
            if there == 0 && request.expires == 0 {
                return Err("404 No Messages".to_owned());
            }
            // What has expired is no longer asked for.
            self.look_at_due(store, now, listeners);
            if there > 0 && u128::from(there) < self.pulls.asked(key) {
                return Err("408 Requests Pending".to_owned());
            }
        }
        let is_full = |waiting: usize| max_waiting > 0 && waiting >= max_waiting;
        if is_full(self.pulls.waiting(key)) {
            self.look_at_due(store, now, listeners);
            self.prune(store, key, now, listeners);
        }
        let allowed = store.check_waits(call.cid, self.pulls.user(call.cid), self.waits(call.cid));
        if is_full(self.pulls.waiting(key)) || allowed.is_err() {
            return Err("409 Exceeded MaxWaiting".to_owned());
        }
        let heartbeat_ms = ms(request.idle_heartbeat);
        let mut pull = Pull::new(call.cid, call.subject, call.reply);
        pull.left = batch;
        pull.bytes_left = (max_bytes > 0).then_some(max_bytes);
        pull.no_wait = request.no_wait;
        // One that ends before it begins is told so.
        let expires_us = u64::try_from(request.expires).unwrap_or(0).div_ceil(1000);
        pull.expires_us = (request.expires != 0).then(|| self.now_us.saturating_add(expires_us));
        pull.heartbeat_ms = heartbeat_ms;
        pull.next_heartbeat_ms =
            (heartbeat_ms > 0).then(|| now.mono_ms.saturating_add(heartbeat_ms));
        self.pulls.add(key, pull);
        self.serve(store, key, now, listeners);
        Ok(())
    }

    /// How many requests wait for messages: of all, and of this connection and its user.
    pub fn waits(&self, cid: u64) -> Waits {
        Waits {
            all: self.pulls.len(),
            of_user: self.pulls.of_user(cid).map_or(0, |(_, pulls)| pulls),
            of_connection: self.pulls.of_conn(cid),
        }
    }

    /// Requests of a consumer that nobody listens for end.
    pub(super) fn prune(
        &mut self,
        store: &mut Store,
        key: ConsumerKey,
        now: Now,
        listeners: &dyn Listeners,
    ) {
        let hears = |pull: &Pull| listeners.hears(pull.cid, &pull.inbox);
        let before = self.pulls.waiting(key);
        self.pulls.prune(key, PRUNED_AT_ONCE, hears);
        let waiting = self.pulls.waiting(key);
        if waiting < before {
            store.set_waiting(key, waiting, now);
        }
    }

    /// Gives some of a consumer's messages to those who wait for them, in turns. Returns their bytes, and those of what
    /// became dead letters.
    fn serve(
        &mut self,
        store: &mut Store,
        key: ConsumerKey,
        now: Now,
        listeners: &dyn Listeners,
    ) -> usize {
        let end = store.end().number();
        self.move_exhausted(store, now);
        let moved = usize::try_from(store.end().number() - end).unwrap_or(usize::MAX);
        let before = self.outgoing_bytes;
        let mut more = true;
        while more && self.outgoing_bytes - before < TURN_BYTES {
            more = self.serve_some(store, key, now, listeners);
        }
        if more {
            store.mark_consumer(key);
        }
        // As long as too much is out nobody is told that there is nothing.
        if store.deliverable(key) == 0 && !store.is_full(key) {
            self.end_where_messages_end(key, store.end());
        }
        store.set_waiting(key, self.pulls.waiting(key), now);
        self.tell_events(store, now);
        moved.saturating_add(self.outgoing_bytes - before)
    }

    fn serve_some(
        &mut self,
        store: &mut Store,
        key: ConsumerKey,
        now: Now,
        listeners: &dyn Listeners,
    ) -> bool {
        let wanted = usize::try_from(self.pulls.asked(key)).unwrap_or(MOST_GIVEN).min(MOST_GIVEN);
        if wanted == 0 {
            return false;
        }
        // What cannot be read or written now is tried again with the next message.
        let Ok(mut offers) = store.offers(key, wanted, now) else { return false };
        shorten(&mut offers);
        if offers.is_empty() {
            return false;
        }
        let Some((name, last, to_come)) = store.consumer_progress(key) else { return false };
        let stream = store.stream_of_consumer(key);
        let headers_only = store.consumer_policy(key).is_some_and(|policy| policy.headers_only);
        let fetched = match store.read_offers(key, &offers) {
            Ok(Some(fetched)) => fetched,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let start = format!("$JS.ACK.{stream}.{name}").into_bytes();
        let (mut reply, mut heard) = (Vec::new(), Vec::new());
        let mut given: Vec<Offer> = Vec::new();
        let mut pending = to_come;
        let mut out: Vec<(Outgoing, u64)> = Vec::new();
        let mut more = false;
        let known = fetched.known();
        for (offer, (meta, message)) in offers.iter().zip(fetched.iter()) {
            let headers = header_block(message.headers);
            let (count, seq, ns) = (offer.count, meta.msg_id + 1, meta.create_ms * 1_000_000);
            let number = last.consumer + 1 + given.len() as u64;
            let behind = pending.saturating_sub(u64::from(count == 1));
            reply.clear();
            reply.extend_from_slice(&start);
            for part in [count.into(), seq, number, ns, behind] {
                reply.push(b'.');
                reply.extend_from_slice(Number::new(part).as_bytes());
            }
            let size =
                (message.key.len() + reply.len() + headers.len() + message.payload.len()) as u64;
            // A request that has no room for it ends, and the next one is tried.
            let Turn { id, ended, untried } = self.next_turn(key, size, listeners, &mut heard);
            out.extend(ended.into_iter().map(|status| (status.at(known), u64::MAX)));
            more |= untried;
            let Some(id) = id else { break };
            let Some((cid, to)) = self.pulls.given(key, id, size, now.mono_ms) else { break };
            pending = behind;
            let subject = message.key.as_bytes();
            let one = if headers_only {
                let size = format!("Nats-Msg-Size: {}\r\n", message.payload.len());
                let headers = header_block(&[message.headers, size.as_bytes()].concat());
                OneMessage::new(subject, &reply, &headers, b"")
            } else {
                OneMessage::new(subject, &reply, &headers, message.payload)
            };
            let reply = Reply::of_jetstream(cid, to, Answer::Message(one));
            out.push((Outgoing { known, reply }, meta.msg_id));
            given.push(*offer);
        }
        let is_given = store.give(key, &given, now).is_ok();
        let known = store.shown_when(&fetched);
        if is_given {
            let to = out.iter().filter(|(_, msg_id)| *msg_id != u64::MAX);
            store.note_holders(key, to.map(|(outgoing, msg_id)| (*msg_id, outgoing.reply.cid)));
        }
        for (outgoing, msg_id) in out {
            if msg_id == u64::MAX {
                self.send(outgoing);
            } else if is_given {
                self.send(Outgoing { known, ..outgoing });
            } else {
                // The log takes nothing now: nobody is given anything, and those who would have been may ask again.
                let Reply { cid, subject: inbox, .. } = outgoing.reply;
                let theirs = self.pulls.theirs(cid).into_iter();
                for (of, id) in theirs.filter(|(of, _)| *of == key) {
                    if self.pulls.get(of, id).is_some_and(|pull| *pull.inbox == *inbox) {
                        self.pulls.remove(of, id);
                    }
                }
                self.status(cid, &inbox, known, "408 Request Timeout");
            }
        }
        is_given && (more || !given.is_empty())
    }

    /// Whose turn it is to be given a message of `size` bytes. Requests that nobody listens for end; those of
    /// connections that take nothing now wait until these do. `heard` has those that somebody listens for.
    fn next_turn(
        &mut self,
        key: ConsumerKey,
        size: u64,
        listeners: &dyn Listeners,
        heard: &mut Vec<u64>,
    ) -> Turn {
        let mut turn = Turn { id: None, ended: Vec::new(), untried: false };
        for _ in 0..TRIED_AT_ONCE {
            let Some((id, pull)) = self.pulls.take_turn(key) else { return turn };
            let cid = pull.cid;
            if !heard.contains(&id) {
                if !listeners.hears(cid, &pull.inbox) {
                    self.pulls.remove(key, id);
                    continue;
                }
                heard.push(id);
            }
            let why = if pull.is_over(self.now_us) {
                Some("408 Request Timeout")
            } else if pull.bytes_left.is_some_and(|left| left < size) {
                Some("409 Message Size Exceeds MaxBytes")
            } else {
                None
            };
            if let Some(why) = why {
                let pull = self.pulls.remove(key, id);
                turn.ended.extend(pull.map(|pull| Ended { pull, why }));
            } else if !listeners.takes_more(cid) {
                self.pulls.put_aside(key, id);
            } else {
                turn.id = Some(id);
                return turn;
            }
        }
        turn.untried = true;
        turn
    }

    /// Serves all who may have something to be given or told, some of it at a time. Says whether there is more to do at
    /// once.
    pub fn settle(&mut self, store: &mut Store, now: Now, listeners: &dyn Listeners) -> bool {
        let exhausted = self.move_exhausted(store, now);
        self.tell_events(store, now);
        self.store_advisories(store, now);
        let mut bytes = 0;
        // Each at most once: whoever has more goes on when others have had their turn.
        for _ in 0..store.ready_consumers().min(CONSUMERS_AT_ONCE) {
            if bytes >= SETTLED_BYTES {
                break;
            }
            let Some(key) = store.next_ready_consumer(self.served_last) else { break };
            self.served_last = Some(key);
            if self.pulls.waiting(key) > 0 {
                bytes += self.serve(store, key, now, listeners);
            }
        }
        self.look_at_due(store, now, listeners);
        let purges = self.go_on_purging(store, now);
        exhausted || purges || store.has_ready_consumers()
    }

    /// A connection that could take no more has room again: its requests go on. Says whether there are any.
    pub fn go_on_with(&mut self, store: &mut Store, cid: u64) -> bool {
        let back = self.pulls.put_back(cid);
        back.iter().for_each(|key| store.mark_consumer(*key));
        !back.is_empty()
    }

    /// Connections whose requests were put aside until they have room, since this was asked.
    pub fn take_thirsty(&mut self) -> Vec<u64> {
        self.pulls.take_thirsty()
    }

    /// Tells some of the requests that have expired, or are to be told that all is well.
    fn look_at_due(&mut self, store: &mut Store, now: Now, listeners: &dyn Listeners) {
        for _ in 0..DUE_AT_ONCE {
            let Some((key, id)) = self.pulls.take_due(now.mono_ms) else { break };
            self.on_due(store, key, id, now, listeners);
        }
    }

    /// Nothing is to come for the requests of a consumer that do not wait for more.
    fn end_where_messages_end(&mut self, key: ConsumerKey, known: Lsn) {
        for pull in self.pulls.take_ending(key) {
            let status = if pull.is_over(self.now_us) {
                with_pending("408 Request Timeout", &pull)
            } else {
                "404 No Messages".to_owned()
            };
            self.status(pull.cid, &pull.inbox, known, &status);
        }
    }

    /// A request has expired, or is to be told that all is well.
    fn on_due(
        &mut self,
        store: &mut Store,
        key: ConsumerKey,
        id: u64,
        now: Now,
        listeners: &dyn Listeners,
    ) {
        // As in nats-server, this is when requests end that do not wait, if too much is out: their clients have gone on.
        if store.is_full(key) || store.deliverable(key) == 0 {
            self.end_where_messages_end(key, store.end());
            store.set_waiting(key, self.pulls.waiting(key), now);
        }
        let Some(pull) = self.pulls.get(key, id) else { return };
        let (cid, inbox) = (pull.cid, pull.inbox.clone());
        let is_over = pull.is_over(self.now_us);
        let hears = listeners.hears(cid, &inbox);
        if hears && !is_over {
            let last = store.consumer_progress(key).map(|(_, last, _)| last).unwrap_or_default();
            let status = format!(
                "100 Idle Heartbeat\r\nNats-Last-Consumer: {}\r\nNats-Last-Stream: {}",
                last.consumer, last.stream
            );
            self.status(cid, &inbox, store.end(), &status);
            self.pulls.beat(key, id, now.mono_ms);
            return;
        }
        let Some(pull) = self.pulls.remove(key, id) else { return };
        if hears {
            let status = with_pending("408 Request Timeout", &pull);
            self.status(cid, &inbox, store.end(), &status);
        }
        store.set_waiting(key, self.pulls.waiting(key), now);
    }

    /// A consumer has gone: whoever waits for its messages is told.
    pub(super) fn end_pulls(&mut self, key: ConsumerKey, known: Lsn) {
        for pull in self.pulls.take_all(key) {
            self.status(pull.cid, &pull.inbox, known, "409 Consumer Deleted");
        }
    }

    /// The broker stops: whoever waits for messages is told, and may ask elsewhere.
    pub fn end_all_pulls(&mut self, store: &mut Store, now: Now) {
        for key in self.pulls.consumers() {
            for pull in self.pulls.take_all(key) {
                let status = with_pending("409 Server Shutdown", &pull);
                self.status(pull.cid, &pull.inbox, store.end(), &status);
            }
            store.set_waiting(key, 0, now);
        }
    }

    /// Ends the requests of a connection that these rules do not allow, and says where they were asked.
    pub fn enforce(
        &mut self,
        store: &mut Store,
        cid: u64,
        rules: &Permissions,
        now: Now,
    ) -> Vec<Vec<u8>> {
        let mut ended = Vec::new();
        for (key, id) in self.pulls.theirs(cid) {
            let allowed = |pull: &Pull| rules.may_publish(&pull.subject);
            if self.pulls.get(key, id).is_none_or(allowed) {
                continue;
            }
            if let Some(pull) = self.pulls.remove(key, id) {
                self.status(cid, &pull.inbox, store.end(), "409 Permission Ended");
                ended.push(pull.subject.into_vec());
            }
            store.set_waiting(key, self.pulls.waiting(key), now);
        }
        ended
    }

    /// A connection has closed: its requests end.
    pub fn disconnect(&mut self, store: &mut Store, cid: u64, now: Now) {
        for (key, id) in self.pulls.theirs(cid) {
            self.pulls.remove(key, id);
            store.set_waiting(key, self.pulls.waiting(key), now);
        }
        self.pulls.set_user(cid, None);
    }

    pub(super) fn status(&mut self, cid: u64, inbox: &[u8], known: Lsn, status: &str) {
        self.send(status_to(cid, inbox, known, status));
    }

    /// When something is to be done without being asked, in ms of the monotonic clock.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.pulls.next_due_ms()
    }
}

/// Whose turn it is.
struct Turn {
    /// The request, if there is one.
    id: Option<u64>,
    /// Those that are over, or have no room for the message.
    ended: Vec<Ended>,
    /// There are more that could be tried.
    untried: bool,
}

/// A request that has ended.
struct Ended {
    pull: Pull,
    /// Its status.
    why: &'static str,
}

impl Ended {
    fn at(self, known: Lsn) -> Outgoing {
        let status = with_pending(self.why, &self.pull);
        status_to(self.pull.cid, &self.pull.inbox, known, &status)
    }
}

/// No more messages at once than their bytes allow, but one.
fn shorten(offers: &mut Vec<Offer>) {
    let mut bytes = 0;
    let fits = offers.iter().take_while(|offer| {
        let before = bytes;
        bytes += offer.bytes() as usize;
        before < TURN_BYTES
    });
    let count = fits.count();
    offers.truncate(count);
}

fn status_to(cid: u64, inbox: &[u8], known: Lsn, status: &str) -> Outgoing {
    let headers = format!("NATS/1.0 {status}\r\n\r\n").into_bytes();
    let answer = Answer::Message(OneMessage::new(b"", b"", &headers, b""));
    let reply = Reply::of_jetstream(cid, ReplySubject::from_slice(inbox), answer);
    Outgoing { known, reply }
}

fn with_pending(status: &str, pull: &Pull) -> String {
    let (messages, bytes) = (pull.left, pull.bytes_left.unwrap_or(0));
    format!("{status}\r\nNats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {bytes}")
}
