//! A message goes to everyone who listens: the cost of one delivery is a copy and a few bytes.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::buffer_pool::BufferPool;
use super::conn::{Conn, Phase};
use super::protocol_log::ProtocolLine;
use super::trace::{self, Trace};
use super::{ConnId, Event, Front};
use crate::nats;
use crate::router::{Matches, SubId, Subscription};

/// A message on its way.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    /// The connection that published it; none for the server itself.
    pub from: Option<ConnId>,
    pub audience: Audience,
    pub subject: &'a [u8],
    pub reply: &'a [u8],
    /// Bytes of headers at the front of `body`.
    pub headers: usize,
    /// Headers, payload and CRLF.
    pub body: &'a [u8],
}

/// Who of those that listen is to have a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    All,
    /// Those that no reader feeds: the others are given it by their reader.
    Unfed,
    /// One connection: it is an answer.
    Only(ConnId),
}

impl Audience {
    fn has(self, subscription: &Subscription) -> bool {
        match self {
            Audience::All => true,
            Audience::Unfed => subscription.reader == 0,
            Audience::Only(only) => only == subscription.owner,
        }
    }
}

impl<'a> Message<'a> {
    /// Headers and payload.
    pub fn content(&self) -> &'a [u8] {
        &self.body[..self.body.len() - 2]
    }
}

/// What all deliveries of one message share.
struct Delivery<'a> {
    message: &'a Message<'a>,
    /// `MSG subject ` and, from `sid_at` on, ` reply size` with CRLF.
    line: &'a [u8],
    sid_at: usize,
    max_pending: usize,
    now_us: u64,
    buffers: BufferPool,
    /// What is noted of the message, if anything is.
    trace: Option<Box<Trace>>,
    /// What recipients are told, if that is logged.
    log: Option<Vec<ProtocolLine>>,
    /// What deliveries add up to.
    count: usize,
    slow: bool,
}

impl Front {
    /// Writes `message` for all subscriptions of the interests and returns how many there were.
    pub(super) fn deliver(
        &mut self,
        message: &Message<'_>,
        matches: &Matches,
        now_us: u64,
    ) -> usize {
        if matches.is_empty() {
            return 0;
        }
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let size = message.content().len();
        let sid_at =
            nats::msg_parts(&mut line, message.subject, message.reply, message.headers, size);
        let mut delivery = Delivery {
            message,
            line: &line,
            sid_at,
            max_pending: self.limits.max_pending,
            now_us,
            buffers: std::mem::take(&mut self.buffers),
            trace: self.trace.take_if(|_| message.from.is_some()),
            log: self.logging.then(Vec::new),
            count: 0,
            slow: false,
        };
        let mut queued = 0;
        for &interest in matches {
            let (interest, mut members) = self.router.split(interest);
            for &id in interest.plain() {
                let Some(subscription) = members.get_mut(id) else { continue };
                if write(&mut self.conns, &mut self.dirty, subscription, &mut delivery)
                    && subscription.is_exhausted()
                {
                    self.exhausted.push(id);
                }
            }
            queued += usize::from(!interest.queues().is_empty());
        }
        if queued > 0 {
            self.deliver_to_queues(matches, queued, &mut delivery);
        }
        let (count, slow) = (delivery.count, delivery.slow);
        self.buffers = delivery.buffers;
        let (trace, log) = (delivery.trace, delivery.log);
        self.line = line;
        for line in log.into_iter().flatten() {
            self.log_line(line);
        }
        let written = if trace.as_ref().is_some_and(|trace| trace.only) { 0 } else { count };
        self.totals.out_msgs += written as u64;
        self.totals.out_bytes += (written * size) as u64;
        if let Some(mut trace) = trace {
            self.look_up_stops(&mut trace);
            self.trace = Some(trace);
        }
        if !self.exhausted.is_empty() {
            self.end_exhausted();
        }
        if slow {
            self.handle_slow(message.from, matches);
        }
        count
    }

    /// One member of each queue group gets the message. Groups of one name are one group, whichever
    /// of the matching subjects their members subscribed to.
    fn deliver_to_queues(&mut self, matches: &Matches, queued: usize, delivery: &mut Delivery<'_>) {
        if queued == 1 {
            for &interest in matches {
                for queue in 0..self.router.interest_at(interest).queues().len() {
                    let members = self.router.interest_at(interest).queues()[queue].members().len();
                    if members == 0 {
                        continue;
                    }
                    let first = self.pick(members);
                    let (interest, mut all) = self.router.split(interest);
                    let list = interest.queues()[queue].members();
                    for &id in list[first..].iter().chain(&list[..first]) {
                        let Some(subscription) = all.get_mut(id) else { continue };
                        if write(&mut self.conns, &mut self.dirty, subscription, delivery) {
                            if subscription.is_exhausted() {
                                self.exhausted.push(id);
                            }
                            break;
                        }
                    }
                }
            }
            return;
        }
        let mut groups: HashMap<&[u8], Vec<SubId>, FixedState> =
            HashMap::with_hasher(self.hasher.clone());
        for &interest in matches {
            for queue in self.router.interest_at(interest).queues() {
                groups.entry(queue.name()).or_default().extend(queue.members());
            }
        }
        let groups: Vec<Vec<SubId>> = groups.into_values().collect();
        for members in groups.iter().filter(|members| !members.is_empty()) {
            let first = self.pick(members.len());
            for &id in members[first..].iter().chain(&members[..first]) {
                let Some(subscription) = self.router.get_mut(id) else { continue };
                if write(&mut self.conns, &mut self.dirty, subscription, delivery) {
                    if subscription.is_exhausted() {
                        self.exhausted.push(id);
                    }
                    break;
                }
            }
        }
    }

    /// Ends the subscriptions that have had all they asked for.
    fn end_exhausted(&mut self) {
        while let Some(id) = self.exhausted.pop() {
            self.end_subscription(id);
        }
    }

    /// Cuts off who does not read, and slows down who writes too much.
    fn handle_slow(&mut self, from: Option<ConnId>, matches: &Matches) {
        let mut slow: Vec<ConnId> = Vec::new();
        for &interest in matches {
            let interest = self.router.interest_at(interest);
            let queued = interest.queues().iter().flat_map(|queue| queue.members());
            for &id in interest.plain().iter().chain(queued) {
                let Some(owner) = self.router.get(id).map(|subscription| subscription.owner) else {
                    continue;
                };
                if self.conn(owner).is_some_and(|conn| conn.pending() > self.limits.max_pending) {
                    slow.push(owner);
                }
            }
        }
        for id in slow {
            self.cut_slow(id, "Slow Consumer (Pending Bytes)");
        }
        if let Some(from) = from
            && !self.events.iter().any(|event| *event == Event::Stall { conn: from })
        {
            self.events.push_back(Event::Stall { conn: from });
        }
    }
}

impl Subscription {
    fn is_exhausted(&self) -> bool {
        self.max > 0 && self.delivered >= self.max
    }
}

/// Writes the message for one subscription; false if it does not get it.
#[inline]
fn write(
    conns: &mut [Option<Box<Conn>>],
    dirty: &mut Vec<ConnId>,
    subscription: &mut Subscription,
    delivery: &mut Delivery<'_>,
) -> bool {
    let message = delivery.message;
    let Some(conn) = conns.get_mut(subscription.owner as usize).and_then(Option::as_deref_mut)
    else {
        return false;
    };
    let to_itself = message.from == Some(subscription.owner);
    if conn.phase == Phase::Closing
        || subscription.is_exhausted()
        || (to_itself && !conn.terms.echo)
        || !message.audience.has(subscription)
        || (conn.filtered && !conn.may_receive(message.subject))
    {
        if let Some(trace) = &mut delivery.trace {
            trace.note_refusal(conn, subscription, to_itself);
        }
        return false;
    }
    if conn.pending() > delivery.max_pending {
        delivery.slow = true;
        if let Some(trace) = &mut delivery.trace {
            trace.note(subscription, trace::SLOW);
        }
        return false;
    }
    if let Some(trace) = &mut delivery.trace {
        trace.note(subscription, "");
        if trace.only {
            delivery.count += 1;
            return true;
        }
    }
    if conn.output.capacity() == 0 {
        conn.output = delivery.buffers.take();
    }
    if message.headers > 0 && !conn.terms.headers {
        let payload = &message.body[message.headers..];
        let mut line = Vec::new();
        let sid_at =
            nats::msg_parts(&mut line, message.subject, message.reply, 0, payload.len() - 2);
        if let Some(log) = &mut delivery.log {
            log.push(told(conn, subscription, &line, sid_at));
        }
        conn.put(&line, sid_at, &subscription.sid, payload);
    } else {
        if let Some(log) = &mut delivery.log {
            log.push(told(conn, subscription, delivery.line, delivery.sid_at));
        }
        conn.put(delivery.line, delivery.sid_at, &subscription.sid, message.body);
    }
    subscription.delivered += 1;
    conn.out_msgs += 1;
    conn.out_bytes += message.content().len() as u64;
    if !conn.dirty {
        conn.dirty = true;
        dirty.push(subscription.owner);
    }
    if !message.reply.is_empty() {
        conn.expect_answer(message.reply, delivery.now_us);
    }
    delivery.count += 1;
    // Half way to being cut off, those who write are slowed down.
    delivery.slow |= conn.pending() > delivery.max_pending / 2;
    true
}

#[cold]
fn told(conn: &Conn, subscription: &Subscription, line: &[u8], sid_at: usize) -> ProtocolLine {
    let line = [&line[..sid_at], &subscription.sid, &line[sid_at..]].concat();
    ProtocolLine::told(conn.cid, &line)
}

impl Trace {
    fn note(&mut self, subscription: &Subscription, error: &'static str) {
        self.met.push((subscription.owner, subscription.sid.clone(), error));
    }

    /// Notes why an open connection does not get the message; one that ends is not met at all.
    fn note_refusal(&mut self, conn: &Conn, subscription: &Subscription, to_itself: bool) {
        if conn.phase == Phase::Closing || subscription.is_exhausted() {
            return;
        }
        let unheard = to_itself && !conn.terms.echo;
        self.note(subscription, if unheard { trace::NO_ECHO } else { trace::DENIED });
    }
}

impl Conn {
    #[inline]
    fn put(&mut self, line: &[u8], sid_at: usize, sid: &[u8], body: &[u8]) {
        self.output.reserve(line.len() + sid.len() + body.len());
        self.output.extend_from_slice(&line[..sid_at]);
        self.output.extend_from_slice(sid);
        self.output.extend_from_slice(&line[sid_at..]);
        self.output.extend_from_slice(body);
    }

    pub(super) fn may_receive(&self, subject: &[u8]) -> bool {
        self.terms.permissions.as_ref().is_none_or(|rules| rules.may_receive(subject))
    }

    #[inline]
    fn expect_answer(&mut self, reply: &[u8], now_us: u64) {
        if let Some(allowance) = self.terms.permissions.as_ref().and_then(|rules| rules.responses) {
            self.replies.give(reply, allowance, now_us);
        }
    }
}
