//! A client publishes: checks, and the answer when nobody listens.

use super::trace;
use super::{Call, ConnId, Event, Front, Handled, Handler, RESERVED, Request};
use crate::commands::{self, BROADCAST, By, RAW_ACK};
use crate::front::deliver::{Audience, Message};
use crate::nats::{self, Publish};
use crate::router::{Hit, InterestId, Matches};

/// Reply subjects that only a server may use.
const RESERVED_REPLIES: [&[u8]; 3] = [b"_R_.", b"_GR_.", b"$JS.ACK."];
/// Whoever publishes here has a command carried out in its own name.
const COMMANDS: [&[u8]; 3] = [RESERVED, b"$JS.", b"$SYS."];
/// Headers that wish something of the broker begin with it.
const WISH: &[u8] = b"mq9-";
/// No version of the streams: which of them wants a subject has not been looked up.
pub(super) const STREAM_UNKNOWN: (u64, Option<u32>) = (0, None);
/// Requests to JetStream.
const JETSTREAM: [&[u8]; 2] = [b"$JS.API.", b"$JS.ACK."];

impl Front {
    /// Checks what the line of a publish tells; the connection is closed if it asks too much.
    pub(super) fn admit(&mut self, id: ConnId, publish: &Publish<'_>) -> bool {
        let max_payload = self.limits.max_payload;
        let Some(conn) = self.conn_mut(id) else { return false };
        let terms = &conn.terms;
        if publish.with_headers && !terms.headers {
            self.close(id, None, "Protocol Violation".into());
            return false;
        }
        if publish.size > max_payload {
            let error = b"Maximum Payload Violation";
            self.close(id, Some(error), "Maximum Message Payload Exceeded".into());
            return false;
        }
        if terms.pedantic && !nats::is_literal(publish.subject) {
            self.write_err(id, b"Invalid Publish Subject");
        }
        true
    }

    /// Routes a client's message; `body` is headers, payload and CRLF.
    pub(super) fn publish_from(
        &mut self,
        id: ConnId,
        publish: &Publish<'_>,
        body: &[u8],
        handler: &mut dyn Handler,
        now_us: u64,
    ) {
        let Some(conn) = self.conns.get_mut(id as usize).and_then(Option::as_deref_mut) else {
            return;
        };
        conn.in_msgs += 1;
        conn.in_bytes += publish.size as u64;
        self.totals.in_msgs += 1;
        self.totals.in_bytes += publish.size as u64;

        let mut route = std::mem::take(&mut conn.route);
        let hit = self.router.find_route(&mut route, publish.subject);
        self.totals.lookups += 1;
        self.totals.lookup_hits += u64::from(hit != Hit::None);
        if hit != Hit::Same {
            let permissions = conn.terms.permissions.as_ref();
            conn.allowed = permissions.is_none_or(|rules| rules.may_publish(publish.subject));
            conn.stream = STREAM_UNKNOWN;
        }

        let allowed = conn.allowed || conn.may_answer(publish.subject, now_us);
        let no_responders = conn.terms.no_responders && !publish.reply.is_empty();
        let answerable = conn.may_be_answered_at(publish.reply);
        let verbose = conn.terms.verbose;
        let headers = &body[..publish.headers];
        let asked = if headers.is_empty() { None } else { trace::asked(headers) };
        if let Some(asked) = &asked {
            let rules = conn.terms.permissions.as_ref();
            if !asked.destination.is_empty()
                && rules.is_some_and(|rules| !rules.may_publish(asked.destination))
            {
                conn.route = route;
                self.write_err(id, &violation(b"Publish to", asked.destination));
                return;
            }
            self.start_trace(id, publish, asked, headers);
        }
        if !allowed {
            let error = violation(b"Publish to", publish.subject);
            self.trace_error(&error);
            self.write_err(id, &error);
        } else if !answerable {
            let error = violation(b"Publish with Reply of", publish.reply);
            self.trace_error(&error);
            self.write_err(id, &error);
        } else {
            let message = Message {
                from: Some(id),
                audience: Audience::All,
                subject: publish.subject,
                reply: publish.reply,
                headers: publish.headers,
                body,
            };
            let only_traced = asked.is_some_and(|asked| asked.only);
            if publish.subject.starts_with(BROADCAST) && !only_traced {
                let stored = self.store_broadcast(id, &message, handler);
                if stored == Handled::Done {
                    self.trace_served(publish.subject);
                }
                if verbose && stored != Handled::Refused {
                    self.write(id, b"+OK\r\n");
                }
                if stored == Handled::Unknown {
                    let heard = self.broadcast(&message, route.matches(), now_us);
                    if heard == 0 && no_responders {
                        self.write_no_responders(id, publish);
                    }
                }
            } else if publish.subject.starts_with(RESERVED) && !only_traced {
                if self.command(id, &message, handler) {
                    self.trace_served(publish.subject);
                    if verbose {
                        self.write(id, b"+OK\r\n");
                    }
                }
            } else {
                if verbose {
                    self.write(id, b"+OK\r\n");
                }
                let mut delivered = 0;
                if !publish.subject.starts_with(RESERVED) {
                    delivered += self.deliver(&message, route.matches(), now_us);
                }
                if !only_traced {
                    let served = self.request_services(id, &message);
                    if served > 0 {
                        self.trace_served(publish.subject);
                    }
                    delivered += served;
                    if self.jetstream {
                        delivered += usize::from(self.give_to_streams(id, &message, handler));
                    }
                }
                if delivered == 0 && no_responders {
                    self.write_no_responders(id, publish);
                }
            }
        }
        if let Some(conn) = self.conn_mut(id) {
            conn.route = route;
        }
        self.end_trace();
    }

    /// Tells all who listen to broadcasts: whoever listens to more by a wildcard is not among them.
    fn broadcast(&mut self, message: &Message<'_>, matches: &Matches, now_us: u64) -> usize {
        let of_broadcasts = |&&interest: &&InterestId| {
            self.router.interest_at(interest).subject().starts_with(BROADCAST)
        };
        let matches: Matches = matches.iter().filter(of_broadcasts).copied().collect();
        self.deliver(message, &matches, now_us)
    }

    /// Has a broadcast stored, if its sender wishes that: it is told when it is durable. Refused is also one that pretends
    /// to be stored.
    fn store_broadcast(
        &mut self,
        id: ConnId,
        message: &Message<'_>,
        handler: &mut dyn Handler,
    ) -> Handled {
        let (headers, payload) = message.content().split_at(message.headers);
        if !has_wishes(headers) {
            return Handled::Unknown;
        }
        let Some(cid) = self.cid(id) else { return Handled::Unknown };
        let Message { subject, reply, .. } = *message;
        let stored = handler.broadcast(&Call { cid, subject, reply, headers, payload });
        if stored == Handled::Refused {
            self.refused(cid, subject);
        }
        stored
    }

    /// Tells a stored broadcast to all who listen and have been told all before it.
    pub fn tell(&mut self, cid: u64, subject: &[u8], headers: usize, body: &[u8]) {
        let mut matches = Matches::new();
        self.router.matches(subject, &mut matches);
        let (from, audience) = (self.by_cid.get(&cid).copied(), Audience::Unfed);
        let message = Message { from, audience, subject, reply: b"", headers, body };
        self.broadcast(&message, &matches, self.now_us);
    }

    /// Answers a connection at `subject`, where its own subscriptions hear it and no others: whoever
    /// else listens there must not learn what was asked. Says how many they were. An answer that was asked for at a
    /// subject of the server is what the client could have sent there itself.
    pub fn answer(
        &mut self,
        cid: u64,
        subject: &[u8],
        reply: &[u8],
        headers: &[u8],
        payload: &[u8],
        handler: &mut dyn Handler,
    ) -> usize {
        self.answer_as(cid, subject, subject, reply, headers, payload, handler)
    }

    /// The same, with a message that shows another subject than the one where the client listens for it.
    #[allow(clippy::too_many_arguments, reason = "the parts of a message, and where it goes")]
    pub fn answer_as(
        &mut self,
        cid: u64,
        inbox: &[u8],
        subject: &[u8],
        reply: &[u8],
        headers: &[u8],
        payload: &[u8],
        handler: &mut dyn Handler,
    ) -> usize {
        let Some(&id) = self.by_cid.get(&cid) else { return 0 };
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        for part in [headers, payload, b"\r\n"] {
            body.extend_from_slice(part);
        }
        let headers = headers.len();
        let audience = Audience::Only(id);
        let message = Message { from: None, audience, subject, reply, headers, body: &body };
        let heard = if inbox.starts_with(RESERVED) {
            let message = Message { subject: inbox, reply: b"", ..message };
            self.send_answer(id, &message, handler)
        } else {
            self.deliver_answer(id, inbox, &message)
        };
        self.body = body;
        heard
    }

    /// Whether a connection listens to a subject.
    pub fn listens(&self, cid: u64, subject: &[u8]) -> bool {
        let Some(&id) = self.by_cid.get(&cid) else { return false };
        let mut matches = Matches::new();
        self.router.matches(subject, &mut matches);
        let is_own = |id_of: &crate::router::SubId| {
            self.router.get(*id_of).is_some_and(|subscription| subscription.owner == id)
        };
        matches.iter().any(|&interest| {
            let interest = self.router.interest_at(interest);
            let queues = interest.queues().iter().flat_map(|queue| queue.members());
            interest.plain().iter().chain(queues).any(is_own)
        })
    }

    /// Publishes a message in the broker's own name to all who listen.
    pub fn announce(&mut self, subject: &[u8], payload: &[u8]) {
        let mut matches = Matches::new();
        self.router.matches(subject, &mut matches);
        if matches.is_empty() {
            return;
        }
        let body = [payload, b"\r\n"].concat();
        let audience = Audience::All;
        let message =
            Message { from: None, audience, subject, reply: b"", headers: 0, body: &body };
        self.deliver(&message, &matches, self.now_us);
    }

    /// Gives a message to JetStream: as a request to it, or to the stream that wants its subject. True if it was wanted.
    fn give_to_streams(
        &mut self,
        id: ConnId,
        message: &Message<'_>,
        handler: &mut dyn Handler,
    ) -> bool {
        let Some(conn) = self.conn_mut(id) else { return false };
        let (cid, subject, reply) = (conn.cid, message.subject, message.reply);
        let call = || {
            let (headers, payload) = message.content().split_at(message.headers);
            Call { cid, subject, reply, headers, payload }
        };
        if JETSTREAM.iter().any(|start| subject.starts_with(start)) {
            return handler.jetstream(&call(), self) != Handled::Unknown;
        }
        let version = handler.streams_version();
        if conn.stream.0 != version {
            conn.stream = (version, handler.stream_of(subject));
        }
        let Some(stream) = conn.stream.1 else { return false };
        handler.store_in(stream, &call());
        true
    }

    fn deliver_answer(&mut self, id: ConnId, subject: &[u8], message: &Message<'_>) -> usize {
        let Some(conn) = self.conn_mut(id) else { return 0 };
        let mut inbox = std::mem::take(&mut conn.inbox);
        self.router.find_route(&mut inbox, subject);
        let heard = self.deliver(message, inbox.matches(), self.now_us);
        if let Some(conn) = self.conn_mut(id) {
            conn.inbox = inbox;
        }
        heard
    }

    fn send_answer(
        &mut self,
        id: ConnId,
        message: &Message<'_>,
        handler: &mut dyn Handler,
    ) -> usize {
        let Some(conn) = self.conn(id) else { return 0 };
        // The permission may have ended since it was asked for.
        if !conn.may_be_answered_at(message.subject) {
            self.write_err(id, &violation(b"Publish to", message.subject));
            return 0;
        }
        usize::from(self.command(id, message, handler))
    }

    /// Has a message to a subject of the broker carried out by the handler or a service. False if it was not and its
    /// client, who asked for no answer, was told so.
    fn command(&mut self, id: ConnId, message: &Message<'_>, handler: &mut dyn Handler) -> bool {
        let Some(cid) = self.cid(id) else { return false };
        let (subject, reply) = (message.subject, message.reply);
        let (headers, payload) = message.content().split_at(message.headers);
        let call = Call { cid, subject, reply, headers, payload };
        match handler.call(&call) {
            Handled::Done => true,
            Handled::Unknown if self.request_services(id, message) > 0 => true,
            Handled::Unknown if !reply.is_empty() => {
                let command = String::from_utf8_lossy(&subject[RESERVED.len()..]);
                handler.refuse(&call, "unknown_command", format!("unknown command {command:?}"));
                true
            }
            Handled::Unknown | Handled::Refused => {
                self.refused(cid, subject);
                false
            }
        }
    }

    /// What a client published to a subject of the broker was not carried out, and it asked for no answer: it is told
    /// with the one error that every client shows and survives.
    pub fn refused(&mut self, cid: u64, subject: &[u8]) {
        self.totals.refused += 1;
        if let Some(&id) = self.by_cid.get(&cid) {
            self.write_err(id, &violation(b"Publish to", subject));
        }
    }

    /// Hands the message to the services that answer its subject, and says how many they are.
    fn request_services(&mut self, id: ConnId, message: &Message<'_>) -> usize {
        if !message.subject.starts_with(b"$") {
            return 0;
        }
        let Some(cid) = self.cid(id) else { return 0 };
        let (subject, reply) = (message.subject, message.reply);
        let (headers, payload) = message.content().split_at(message.headers);
        let bytes = subject.len() + reply.len() + headers.len() + payload.len();
        let mut asked = 0;
        // Few enough to be looked through, and a subject with empty tokens is answered as well.
        for (pattern, service) in &self.services {
            if !nats::matches(pattern, subject) {
                continue;
            }
            asked += 1;
            if let Some(conn) = self.conns.get_mut(id as usize).and_then(Option::as_deref_mut) {
                self.requests.add(conn, bytes);
            }
            self.events.push_back(Event::Request(Box::new(Request {
                service: *service,
                cid,
                subject: subject.into(),
                reply: reply.into(),
                headers: headers.into(),
                payload: payload.into(),
            })));
        }
        asked
    }

    /// Whether a client may publish to `subject`, answers aside; one that is not there may not.
    pub fn may_publish(&self, cid: u64, subject: &[u8]) -> bool {
        let conn = self.by_cid.get(&cid).and_then(|&id| self.conn(id));
        conn.is_some_and(|conn| {
            conn.terms.permissions.as_ref().is_none_or(|rules| rules.may_publish(subject))
        })
    }

    /// Whether publishing to `subject` is denied to a client by name.
    pub fn denies_publish(&self, cid: u64, subject: &[u8]) -> bool {
        let rules = self
            .by_cid
            .get(&cid)
            .and_then(|&id| self.conn(id))
            .and_then(|conn| conn.terms.permissions.as_ref());
        rules.is_some_and(|rules| rules.denies_publish(subject))
    }

    /// Whether an answer at `subject` is a command, which is carried out whoever listens.
    pub fn is_command(&self, subject: &[u8]) -> bool {
        subject.starts_with(RESERVED)
    }

    /// Tells a requester, at a subscription of its own, that nobody listens.
    fn write_no_responders(&mut self, id: ConnId, publish: &Publish<'_>) {
        let mut matches = Matches::new();
        self.router.matches(publish.reply, &mut matches);
        let own = matches.iter().find_map(|&interest| {
            self.router.interest_at(interest).plain().iter().find_map(|&subscription| {
                self.router.get(subscription).filter(|subscription| subscription.owner == id)
            })
        });
        let Some(sid) = own.map(|subscription| subscription.sid.clone()) else { return };
        if let Some(output) = self.output_of(id) {
            nats::no_responders(output, publish.reply, &sid, publish.subject);
        }
    }
}

impl super::conn::Conn {
    /// Whether answers to this client may go to `reply`. A responder publishes them in its own name: where that
    /// is a command, the client must be allowed to give it itself.
    pub(super) fn may_be_answered_at(&self, reply: &[u8]) -> bool {
        let is_one_of = |starts: &[&[u8]]| starts.iter().any(|start| reply.starts_with(start));
        if is_one_of(&RESERVED_REPLIES) {
            return false;
        }
        let rules = self.terms.permissions.as_ref();
        let asks_who = || commands::find(reply).is_some_and(|known| known.by == By::CallerForUser);
        !is_one_of(&COMMANDS) || (!asks_who() && rules.is_none_or(|rules| rules.may_publish(reply)))
    }

    /// Whether a message may be published to `subject`, asked without the last result at hand.
    pub(super) fn may_publish(&mut self, subject: &[u8], now_us: u64) -> bool {
        let rules = self.terms.permissions.as_ref();
        rules.is_none_or(|rules| rules.may_publish(subject)) || self.may_answer(subject, now_us)
    }

    /// Whether the subject is one where an answer of this client is expected. To acknowledge is no answer.
    fn may_answer(&mut self, subject: &[u8], now_us: u64) -> bool {
        if subject.starts_with(RAW_ACK) {
            return false;
        }
        let allowance = self.terms.permissions.as_ref().and_then(|rules| rules.responses);
        allowance.is_some_and(|allowance| self.replies.take(subject, allowance, now_us))
    }
}

/// Whether headers may have one of the broker's names, however it is written.
fn has_wishes(headers: &[u8]) -> bool {
    headers.windows(WISH.len()).any(|some| some.eq_ignore_ascii_case(WISH))
}

/// The text of a violation of permissions.
pub(super) fn violation(what: &[u8], subject: &[u8]) -> Vec<u8> {
    [b"Permissions Violation for ", what, b" \"", subject, b"\""].concat()
}
