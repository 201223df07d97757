//! The broker without threads, sockets and clocks: clients in front, mailboxes behind, and the order in which things
//! happen.
//!
//! Owns the one pump there is. The caller feeds what clients say, settles, writes the output of each connection, and
//! does what events ask for; tests do the same as the running broker. Front and partition meet here and nowhere else,
//! through commands and replies; push, which writes what it reads, also asks the front for room.

mod talkers;

use std::borrow::Cow;
use std::sync::Arc;

use crate::commands::{FETCH, Shape};
use crate::front::{ConnId, ConnStats, Event, Front, Limits, Permissions, Terms, Totals};
use crate::latency::Latencies;
use crate::log::Lsn;
use crate::partition::{Clock, DeclaredAs, DeclaredConsumer, Partition, Unread};
use crate::protocol::{Refusal, WireOptions};
use crate::store::FairLock;
use crate::time::Moment;
use talkers::Talkers;

/// How long a node that may not reply waits before it looks again by itself.
const SILENT_MS: u64 = 20;

/// Clients, mailboxes, and what passes between them.
pub struct Engine {
    front: Front,
    partition: Partition,
    /// When the partition has something to do by itself, in ms of the monotonic clock.
    partition_due_ms: Option<u64>,
    /// As one of several nodes that may not reply at the moment: what replies would go on with rests.
    is_silent: bool,
    talkers: Talkers,
}

impl Engine {
    /// An engine without clients. `seed` makes its choices among queue members; without a store there are no mailboxes.
    pub fn new(
        limits: Limits,
        options: WireOptions,
        store: Option<Arc<FairLock>>,
        seed: u64,
        now: Moment,
    ) -> Engine {
        let partition = Partition::new(store, options);
        let mut front = Front::new(limits, seed, now.mono_us);
        if partition.has_jetstream() {
            front.serve_jetstream();
        }
        Engine {
            front,
            partition,
            // Whatever was due when the store was opened.
            partition_due_ms: Some(0),
            is_silent: false,
            talkers: Talkers::default(),
        }
    }

    /// Takes in a connection by the number that clients and logs see.
    pub fn open(&mut self, cid: u64, must_authenticate: bool, now: Moment) -> ConnId {
        self.front.open(cid, must_authenticate, now.mono_us)
    }

    /// A client has said something: commands that are complete are carried out.
    pub fn feed(&mut self, id: ConnId, chunk: &[u8], now: Moment) {
        self.talkers.heard(id, now.mono_us);
        let mut access = self.partition.access(now);
        self.front.feed(id, chunk, &mut access, now.mono_us);
    }

    /// Lets a client in on these terms and goes on with what it said meanwhile.
    pub fn accept(&mut self, id: ConnId, terms: Terms, now: Moment) {
        let mut access = self.partition.access(now);
        self.front.accept(id, terms, &mut access, now.mono_us);
    }

    /// Other permissions from now on; subscriptions and waits they do not allow end.
    pub fn set_permissions(&mut self, id: ConnId, rules: Option<Arc<Permissions>>, now: Moment) {
        let mut access = self.partition.access(now);
        self.front.set_permissions(id, rules, &mut access);
    }

    /// The connection is a user's from now on, or nobody's: what it waits for is counted to that user.
    pub fn set_user(&mut self, id: ConnId, user: Option<Arc<str>>) {
        if let Some(cid) = self.front.cid(id) {
            self.partition.set_user(cid, user);
        }
    }

    /// The connection is gone: what it held goes back to its groups.
    pub fn remove(&mut self, id: ConnId, now: Moment) {
        if let Some(cid) = self.front.cid(id) {
            self.partition.disconnect(cid, &mut self.front, now.into());
            self.front.remove(id);
        }
    }

    /// Makes or changes a stream that the configuration declares; nothing where streams are not served.
    pub fn declare_stream(&mut self, config: &str, now: Moment) -> Option<DeclaredAs> {
        self.partition.declare_stream(config, now)
    }

    /// The same for a consumer.
    pub fn declare_consumer(
        &mut self,
        consumer: &DeclaredConsumer,
        now: Moment,
    ) -> Option<DeclaredAs> {
        self.partition.declare_consumer(consumer, now)
    }

    /// The broker stops: whoever waits for messages of a stream is told.
    pub fn end_pulls(&mut self, now: Moment) {
        self.partition.end_pulls(now);
    }

    /// Answers a control command once everything done so far is durable, or with a refusal of this shape if it never
    /// will be; without a shape the payload promises nothing.
    pub fn reply(&mut self, cid: u64, subject: &[u8], payload: Vec<u8>, shape: Option<Shape>) {
        self.partition.reply(cid, subject, payload, shape);
    }

    /// Answers an owner who asks for what of an inbox nobody has read. Who does not hear the answer reads nothing by it,
    /// and who may not fetch may not have the same in another way.
    pub fn give_unread(&mut self, asked: &Unread<'_>, now: Moment) {
        let &Unread { cid, reply, address, .. } = asked;
        if !self.front.listens(cid, reply) && !self.front.is_command(reply) {
            return;
        }
        let fetch = [FETCH, address.as_bytes()].concat();
        if self.front.denies_publish(cid, &fetch) {
            let text = format!("permission denied: you may not fetch from {address}");
            let refusal = Refusal { kind: "access_denied".into(), text };
            return self.partition.refuse(cid, reply, Shape::Unread, refusal);
        }
        self.partition.give_unread(asked, now.into());
    }

    /// Answers a request that was not carried out, in the shape of its command.
    pub fn refuse(&mut self, cid: u64, reply: &[u8], shape: Shape, refusal: Refusal) {
        self.partition.refuse(cid, reply, shape, refusal);
    }

    /// Answers a request at once: only the connection that asked hears it.
    pub fn answer(&mut self, cid: u64, subject: &[u8], payload: &[u8], now: Moment) {
        let mut access = self.partition.access(now);
        self.front.answer(cid, subject, b"", b"", payload, &mut access);
    }

    /// Whether something was done since [`Engine::settle`] that it has to finish, or something is due.
    pub fn wants_to_settle(&self, now: Moment) -> bool {
        self.partition.is_used()
            || (!self.is_silent
                && (self.front.may_have_room() || self.front.has_news_for_readers()))
            || self.due_in_ms(now) == Some(0)
    }

    /// Does what is due, writes what was logged, and lets the replies go that are true by now.
    pub fn settle(&mut self, now: Moment) {
        self.settle_with(now, None);
    }

    /// The same for a caller that can wait for the disk. If only one client has talked lately, one reply waits and syncs
    /// are quick, it syncs by itself what that reply waits for. `clock` tells the time since any instant.
    pub fn settle_or_sync(&mut self, now: Moment, clock: Clock<'_>) {
        self.settle_with(now, self.talkers.is_one(now.mono_us).then_some(clock));
    }

    /// Somebody who is no client has the caller do something: it should not wait for the disk.
    pub fn heard_other(&mut self, now: Moment) {
        self.talkers.heard_other(now.mono_us);
    }

    fn settle_with(&mut self, now: Moment, alone: Option<Clock<'_>>) {
        self.front.tick(now.mono_us);
        let settled = self.partition.settle(now, alone, &self.front);
        for cid in self.partition.take_thirsty() {
            self.front.wait_for_room(cid);
        }
        self.partition_due_ms =
            settled.and_then(|settled| Some(now.mono_ms().saturating_add(settled.sleep_ms?)));
        self.is_silent = settled.is_some_and(|settled| !settled.may_reply);
        if self.is_silent {
            // The stream says when this is over, or that another node leads: nobody asks again and again.
            let later_ms = now.mono_ms().saturating_add(SILENT_MS);
            self.partition_due_ms = self.partition_due_ms.map(|due_ms| due_ms.max(later_ms));
            return;
        }
        // Without a store there are still replies that promise nothing.
        self.release(settled.map(|settled| settled.acknowledged).unwrap_or_default(), now);
        if self.partition.may_go_on() {
            self.partition_due_ms = Some(now.mono_ms());
        }
        if self.front.is_holding() {
            let mut access = self.partition.access(now);
            self.front.retry_held(&mut access, now.mono_us);
        }
        let pushed = settled.and_then(|of| self.partition.push(&mut self.front, &of, now.into()));
        if let Some(sleep_ms) = pushed {
            let due_ms = now.mono_ms().saturating_add(sleep_ms);
            self.partition_due_ms = Some(self.partition_due_ms.map_or(due_ms, |at| at.min(due_ms)));
        }
    }

    /// Lets the replies go that depend on nothing behind `acknowledged`.
    fn release(&mut self, acknowledged: Lsn, now: Moment) {
        while let Some(told) = self.partition.next_broadcast(acknowledged) {
            self.front.tell(told.cid, &told.subject, told.headers, &told.body);
        }
        while let Some(reply) = self.partition.next_reply(acknowledged) {
            let mut access = self.partition.access(now);
            reply.publish(|answer_to, headers, payload| {
                let (cid, inbox) = (reply.cid, &reply.subject);
                let shown = reply.shown_subject().unwrap_or(inbox);
                let front = &mut self.front;
                front.answer_as(cid, inbox, shown, answer_to, headers, payload, &mut access);
            });
        }
        while let Some(told) = self.partition.next_announcement() {
            self.front.announce(told.subject.as_bytes(), &told.payload);
        }
    }

    /// How long the caller may wait for input before it settles again; nothing for as long as it likes.
    pub fn due_in_ms(&self, now: Moment) -> Option<u64> {
        let due_ms = [self.front.next_deadline_ms(), self.partition_due_ms].into_iter().flatten();
        due_ms.min().map(|due_ms| due_ms.saturating_sub(now.mono_ms()))
    }

    /// Whether the store has asked for upkeep since this was last asked.
    pub fn takes_upkeep(&mut self) -> bool {
        self.partition.takes_upkeep()
    }

    /// The next thing for the caller to do or to decide.
    pub fn next_event(&mut self, now: Moment) -> Option<Event> {
        loop {
            match self.front.next_event()? {
                Event::Trace(trace) => self.front.publish_trace(&trace, &now.timestamp()),
                event => return Some(event),
            }
        }
    }

    /// Ends a connection: an error to its client if there is one to tell, what waits, then the end.
    pub fn close(&mut self, id: ConnId, error: Option<&[u8]>, reason: Cow<'static, str>) {
        self.front.close(id, error, reason);
    }

    /// The clients, for what concerns them alone.
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// The clients, for what concerns them alone.
    pub fn front_mut(&mut self) -> &mut Front {
        &mut self.front
    }

    /// The mailboxes, for what concerns them alone.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Counters of a connection.
    pub fn stats(&self, id: ConnId) -> Option<ConnStats> {
        self.front.stats(id)
    }

    /// How long replies to messages have waited for the log.
    pub fn commit_latencies(&self) -> &Latencies {
        self.partition.commit_latencies()
    }

    /// Counters over all connections.
    pub fn totals(&self) -> Totals {
        self.front.totals()
    }

    /// Panics if a part of the engine does not agree with itself or with another. For tests.
    pub fn check_invariants(&self) {
        self.partition.check_invariants();
        self.front.check_invariants();
    }
}
