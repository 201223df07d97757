//! Mailboxes and the requests to them: a store, long polls, and replies that wait to be true.
//!
//! Owns what happens to a store and in which order. Must not know connections beyond their number, nor how a reply
//! travels: commands come in, replies go out. Push alone asks the front how much room a client has (decision 22).

mod broadcasts;
mod handler;
mod noted;
mod pending;
mod push;

use std::sync::Arc;
use std::time::Duration;

pub use broadcasts::{Broadcasts, Told};
pub use handler::{RequestHandler, Unread};
pub use noted::send_noted;
pub use pending::PendingReplies;
pub use push::{Pushes, Work};

pub use crate::jetstream::DeclaredConsumer;

use crate::commands::{Shape, shape_of};
use crate::front::{Call, Front, Handled, Handler, Listeners, Permissions, SubId, Subscribing};
use crate::jetstream::{Announcement, ApiError, Declared, JetStream};
use crate::latency::Latencies;
use crate::log::{Call as CallSync, Lsn, Syncer};
use crate::protocol::{Refusal, Reply, WireOptions};
use crate::store::{FairLock, Store, StoreGuard, Waits};
use crate::time::{Moment, Now};

/// Replies that a caller who is alone waits for the disk with. More than one keep it busy meanwhile.
const LONE_REPLIES: usize = 1;

/// How soon what nobody waits for is made durable: mostly something comes along that somebody does wait for.
const UNAWAITED_MS: u64 = 2;

/// What became of a declaration.
pub type DeclaredAs = Result<Declared, ApiError>;

/// Tells the time since any instant.
pub type Clock<'a> = &'a dyn Fn() -> Duration;

/// Who makes durable what was written.
enum Plan<'a> {
    /// The caller, now.
    Here(Clock<'a>),
    /// The sync thread, now.
    Thread,
    /// The sync thread, a little later: nobody waits for it.
    Later,
    /// The sync thread, when the stream is given what was written: replies wait for that as well.
    WithStream,
}

/// A store with the requests to it.
pub struct Partition {
    /// Shared with upkeep and with control commands.
    store: Option<Arc<FairLock>>,
    handler: RequestHandler,
    /// Streams and consumers, where they are served.
    jetstream: Option<Box<JetStream>>,
    /// Something was asked for since [`Partition::settle`].
    used: bool,
    upkeep_wanted: bool,
    /// What nobody asked for just now waits until replies have left.
    rests: bool,
    /// When the sync thread is called for what nobody waits for, in ms of the monotonic clock.
    sync_due_ms: Option<u64>,
}

/// What settling has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Replies that depend on nothing behind this may leave.
    pub acknowledged: Lsn,
    /// Time until there is something to do without being asked; nothing for never.
    pub sleep_ms: Option<u64>,
    /// A mailbox that is read has something new, or has gone.
    pub news: bool,
    /// In a cluster: no other node can lead yet. Else nothing may leave.
    pub may_reply: bool,
}

impl Partition {
    /// Nothing under way. Without a store no command is known.
    pub fn new(store: Option<Arc<FairLock>>, options: WireOptions) -> Partition {
        let handler = RequestHandler::new(options);
        let open = store.as_ref().filter(|_| options.jetstream);
        let open = open.and_then(|store| store.lock_if_open());
        let jetstream = open.map(|store| Box::new(JetStream::new(&store)));
        Partition {
            store,
            handler,
            jetstream,
            used: false,
            upkeep_wanted: false,
            rests: false,
            sync_due_ms: None,
        }
    }

    /// The store, for commands that are carried out elsewhere.
    pub fn store(&self) -> Option<&Arc<FairLock>> {
        self.store.as_ref()
    }

    /// Whether requests of JetStream clients are served.
    pub fn has_jetstream(&self) -> bool {
        self.jetstream.is_some()
    }

    /// The next message that the broker publishes in its own name.
    pub fn next_announcement(&mut self) -> Option<Announcement> {
        self.jetstream.as_mut()?.next_announcement()
    }

    /// The way to carry out commands, at one instant.
    pub fn access(&mut self, now: Moment) -> Access<'_> {
        let Partition { store, handler, jetstream, used, .. } = self;
        handler.replies_mut().set_now(now.mono_us);
        let mut jetstream = jetstream.as_deref_mut();
        if let Some(jetstream) = &mut jetstream {
            jetstream.set_now(now.mono_us);
        }
        let now = now.into();
        Access { handler, jetstream, lock: store.as_deref(), store: None, used, now }
    }

    /// Connections whose pull requests wait until they have room, since this was asked.
    pub fn take_thirsty(&mut self) -> Vec<u64> {
        self.jetstream.as_mut().map_or_else(Vec::new, |jetstream| jetstream.take_thirsty())
    }

    /// Requests to JetStream's API so far, and how many of them were refused.
    pub fn api_totals(&self) -> (u64, u64) {
        self.jetstream.as_ref().map_or((0, 0), |jetstream| jetstream.api_totals())
    }

    /// Makes or changes a stream that is declared; nothing where streams are not served.
    pub fn declare_stream(&mut self, config: &str, now: Moment) -> Option<DeclaredAs> {
        let mut access = self.access(now);
        let now = access.now;
        let (jetstream, store) = access.streams()?;
        Some(jetstream.declare_stream(store, config, now))
    }

    /// The same for a consumer.
    pub fn declare_consumer(
        &mut self,
        consumer: &DeclaredConsumer,
        now: Moment,
    ) -> Option<DeclaredAs> {
        let mut access = self.access(now);
        let now = access.now;
        let (jetstream, store) = access.streams()?;
        Some(jetstream.declare_consumer(store, consumer, now))
    }

    /// The broker stops: requests for messages of streams end.
    pub fn end_pulls(&mut self, now: Moment) {
        let mut access = self.access(now);
        let now = access.now;
        if let Some((jetstream, store)) = access.streams() {
            jetstream.end_all_pulls(store, now);
        }
    }

    /// Whether something was asked for since it was settled.
    pub fn is_used(&self) -> bool {
        self.used
    }

    /// Subscriptions that are fed.
    pub fn pushes(&self) -> &Pushes {
        self.handler.pushes()
    }

    /// How long replies to messages have waited for the log.
    pub fn commit_latencies(&self) -> &Latencies {
        self.handler.replies().latencies()
    }

    /// Whether some reply waits for more to be durable.
    pub fn is_waiting(&self) -> bool {
        self.handler.replies().is_waiting()
    }

    /// Does what is due, ends long polls, and writes what was logged. Nothing without a store. `alone` is for a caller
    /// that has nobody else to serve: it may sync what one reply waits for, instead of the sync thread. `listeners` says
    /// whether a connection still listens where it has asked for messages, and can take them.
    pub fn settle(
        &mut self,
        now: Moment,
        alone: Option<Clock<'_>>,
        listeners: &dyn Listeners,
    ) -> Option<Settled> {
        (self.used, self.rests) = (false, false);
        self.handler.replies_mut().set_now(now.mono_us);
        let (mono_us, now) = (now.mono_us, Now::from(now));
        let mut store = self.store.as_ref()?.lock_if_open()?;
        let mut more = store.tick(now);
        let mut pulls_due_ms = None;
        self.rests = !self.handler.replies().is_short();
        if !self.rests {
            more |= self.handler.collect(&mut store, now);
        }
        if let Some(jetstream) = &mut self.jetstream {
            jetstream.set_now(mono_us);
            if !self.rests {
                more |= jetstream.settle(&mut store, now, listeners);
                pulls_due_ms = jetstream.next_due_ms().map(|at| at.saturating_sub(now.mono_ms));
            }
            self.handler.send_all(jetstream.take_outgoing());
        }
        let syncer = store.syncer();
        let news = store.has_news();
        let readers_wait =
            store.end() > syncer.acknowledged() && (news || self.handler.is_read_when_durable());
        let plan = self.plan_sync(&syncer, readers_wait, alone);
        let call = if matches!(plan, Plan::Thread) { CallSync::Now } else { CallSync::Later };
        let flushed = store.flush_and(call);
        if matches!(plan, Plan::WithStream) && !store.has_outgoing() {
            // What was waited for is on its way: there may be no next time.
            syncer.call_thread();
        }
        self.upkeep_wanted |= store.asks_for_upkeep();
        let sleep_ms = if more { Some(0) } else { store.sleep_ms(now) };
        // Nobody waits for the disk because of the store.
        drop(store);
        let (sync_ms, took) = self.sync_as_planned(&syncer, plan, now);
        self.handler.replies_mut().set_now(mono_us.saturating_add(took));
        // What could not be written is tried again with the next round; nobody is told it is done.
        if let Err(error) = flushed.and_then(|()| syncer.check()) {
            self.handler.fail(syncer.acknowledged(), &error);
        }
        let sleep_ms = sleep_ms.into_iter().chain(sync_ms).chain(pulls_due_ms).min();
        let may_reply = syncer.may_reply(now.mono_ms);
        Some(Settled { acknowledged: syncer.acknowledged(), sleep_ms, news, may_reply })
    }

    /// Whether something has waited until replies had left, and may go on now.
    pub fn may_go_on(&self) -> bool {
        self.rests && self.handler.replies().is_short()
    }

    /// Who makes durable what will be written.
    fn plan_sync<'a>(
        &self,
        syncer: &Syncer,
        readers_wait: bool,
        alone: Option<Clock<'a>>,
    ) -> Plan<'a> {
        if !syncer.is_always() {
            return Plan::Thread;
        }
        let replies = self.handler.replies();
        let waiting = replies.waiting_beyond(syncer.acknowledged(), LONE_REPLIES + 1);
        match (waiting.max(usize::from(readers_wait)), alone) {
            (0, _) => Plan::Later,
            (1..=LONE_REPLIES, Some(clock)) if syncer.is_quick() => Plan::Here(clock),
            _ if syncer.has_stream() => Plan::WithStream,
            _ => Plan::Thread,
        }
    }

    /// How long until this is to be called again for it, in ms, and how long it took, in us.
    fn sync_as_planned(&mut self, syncer: &Syncer, plan: Plan<'_>, now: Now) -> (Option<u64>, u64) {
        let due_ms = self.sync_due_ms.take();
        let again_ms = match plan {
            Plan::Here(clock) => {
                let begin = clock();
                syncer.sync_here(clock);
                let took = clock().saturating_sub(begin);
                return (None, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            }
            Plan::Later if syncer.is_synced() => None,
            Plan::Later if due_ms.is_none_or(|due_ms| due_ms > now.mono_ms) => {
                let due_ms = due_ms.unwrap_or(now.mono_ms.saturating_add(UNAWAITED_MS));
                self.sync_due_ms = Some(due_ms);
                Some(due_ms - now.mono_ms)
            }
            Plan::Later => {
                syncer.call_thread();
                None
            }
            // It was called when that was written, or will be.
            Plan::Thread | Plan::WithStream => None,
        };
        (again_ms, 0)
    }

    /// Goes on feeding subscriptions, if there is something to be fed. How long until this is to be called again for it.
    pub fn push(&mut self, front: &mut Front, settled: &Settled, now: Now) -> Option<u64> {
        let is_due = settled.news
            || self.handler.pushes().is_due(settled.acknowledged, now)
            || self.handler.broadcasts().due_in_ms(now) == Some(0);
        if !is_due && !front.has_news_for_readers() {
            return self.handler.retry_in_ms(now);
        }
        let mut store = self.store.as_ref()?.lock_if_open()?;
        let mut again = false;
        if let Some(jetstream) = &mut self.jetstream {
            for cid in front.roomy() {
                again |= jetstream.go_on_with(&mut store, *cid);
            }
        }
        // Whoever has read something, and says so, will not be given it again: not after a crash either.
        let end = store.end();
        self.handler.hear(&mut store, front, now);
        if store.end() > end {
            // Tried again when it fails, as with everything that was logged.
            let _ = store.flush_and(CallSync::Later);
            self.sync_due_ms.get_or_insert(now.mono_ms.saturating_add(UNAWAITED_MS));
        }
        let more = again | self.handler.go_on(&mut store, front, now);
        let retry_ms = self.handler.retry_in_ms(now);
        // Nobody waits until it is written what was given. Mostly that is written with the answer to it.
        let write_ms = (store.end() > end).then_some(UNAWAITED_MS);
        more.then_some(0).into_iter().chain(retry_ms).chain(write_ms).min()
    }

    /// Whether the store has asked for upkeep since this was last asked.
    pub fn takes_upkeep(&mut self) -> bool {
        std::mem::take(&mut self.upkeep_wanted)
    }

    /// The next stored broadcast that may be told.
    pub fn next_broadcast(&mut self, acknowledged: Lsn) -> Option<Told> {
        self.handler.next_broadcast(acknowledged)
    }

    /// The next reply that may leave.
    pub fn next_reply(&mut self, acknowledged: Lsn) -> Option<Reply> {
        self.handler.replies_mut().next(acknowledged)
    }

    /// Answers with `payload` once everything done so far is durable, or with a refusal of this shape if it never will
    /// be; without a shape the payload promises nothing.
    pub fn reply(&mut self, cid: u64, subject: &[u8], payload: Vec<u8>, shape: Option<Shape>) {
        let store = self.store.as_ref().and_then(|store| store.lock_if_open());
        let end = store.map_or_else(Lsn::default, |store| store.end());
        self.used = true;
        self.handler.reply_at(end, cid, subject, payload, shape);
    }

    /// Answers an owner who asks for what of an inbox nobody has read.
    pub fn give_unread(&mut self, asked: &Unread<'_>, now: Now) {
        if let Some(mut store) = self.store.as_ref().and_then(|store| store.lock_if_open()) {
            self.used = true;
            self.handler.give_unread(&mut store, asked, now);
        }
    }

    /// Answers a request that was not carried out.
    pub fn refuse(&mut self, cid: u64, reply: &[u8], shape: Shape, refusal: Refusal) {
        self.used = true;
        self.handler.refuse(cid, reply, shape, refusal);
    }

    /// The connection is a user's from now on, or nobody's.
    pub fn set_user(&mut self, cid: u64, user: Option<Arc<str>>) {
        // Without a store nobody waits, and the end of the connection is not told.
        if self.store.is_some() {
            if let Some(jetstream) = &mut self.jetstream {
                jetstream.set_user(cid, user.clone());
            }
            self.handler.set_user(cid, user);
        }
    }

    /// A connection closes: what it has said counts, then what it held goes back.
    pub fn disconnect(&mut self, cid: u64, front: &mut Front, now: Now) {
        if let Some(mut store) = self.store.as_ref().and_then(|store| store.lock_if_open()) {
            self.handler.hear(&mut store, front, now);
            self.handler.disconnect(&mut store, cid, now);
            if let Some(jetstream) = &mut self.jetstream {
                jetstream.disconnect(&mut store, cid, now);
            }
            self.used = true;
        }
    }

    /// Panics if what is known of requests is not what the store knows of them. For tests.
    pub fn check_invariants(&self) {
        if let Some(store) = self.store.as_ref().and_then(|store| store.lock_if_open()) {
            self.handler.check_invariants(&store);
            self.jetstream.iter().for_each(|jetstream| jetstream.check_invariants());
            store.check_invariants();
        }
    }
}

/// The partition during one chunk of input: the store is locked when it is first needed.
pub struct Access<'a> {
    handler: &'a mut RequestHandler,
    jetstream: Option<&'a mut JetStream>,
    lock: Option<&'a FairLock>,
    store: Option<StoreGuard<'a>>,
    used: &'a mut bool,
    now: Now,
}

impl Access<'_> {
    fn lock(&mut self) -> Option<()> {
        if self.store.is_none() {
            self.store = self.lock?.lock_if_open();
            *self.used |= self.store.is_some();
        }
        self.store.is_some().then_some(())
    }

    /// Who carries out commands and what on, if that is open.
    fn open(&mut self) -> Option<(&mut RequestHandler, &mut Store)> {
        self.lock()?;
        self.record_acks();
        self.store.as_deref_mut().map(|store| (&mut *self.handler, store))
    }

    /// JetStream and what it works on.
    fn streams(&mut self) -> Option<(&mut JetStream, &mut Store)> {
        self.open()?;
        Some((self.jetstream.as_deref_mut()?, self.store.as_deref_mut()?))
    }

    /// Acknowledgements that wait to be carried out together are, before anybody else looks at the store.
    fn record_acks(&mut self) {
        if let (Some(jetstream), Some(store)) = (&mut self.jetstream, &mut self.store)
            && jetstream.has_acks()
        {
            jetstream.record_acks(store, self.now);
        }
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        // A panic left the store in the middle of a change: nobody uses it any more.
        if !std::thread::panicking() {
            self.record_acks();
        }
    }
}

impl Handler for Access<'_> {
    fn call(&mut self, call: &Call<'_>) -> Handled {
        let now = self.now;
        self.open();
        let Some(store) = self.store.as_deref_mut() else { return Handled::Unknown };
        let jetstream = self.jetstream.as_deref();
        let pulls = |cid| jetstream.map_or_else(Waits::default, |jetstream| jetstream.waits(cid));
        self.handler.call(store, call, pulls, now)
    }

    fn broadcast(&mut self, call: &Call<'_>) -> Handled {
        let now = self.now;
        if let Some((handler, store)) = self.open() {
            return handler.broadcast(store, call, now);
        }
        let is_request = !call.reply.is_empty();
        self.refuse(call, "unavailable", "broadcasts cannot be stored now".to_owned());
        if is_request { Handled::Done } else { Handled::Refused }
    }

    fn catch_up(&mut self, cid: u64, subscription: SubId) -> u64 {
        let now = self.now;
        let open = self.open();
        open.map_or(0, |(handler, store)| handler.catch_up(store, cid, subscription, now))
    }

    fn jetstream(&mut self, call: &Call<'_>, listeners: &dyn Listeners) -> Handled {
        let now = self.now;
        // Acknowledgements may wait for those behind them.
        self.lock();
        let (Some(jetstream), Some(store)) = (&mut self.jetstream, &mut self.store) else {
            return Handled::Unknown;
        };
        jetstream.call(store, call, now, listeners)
    }

    fn streams_version(&self) -> u64 {
        self.jetstream.as_ref().map_or(0, |jetstream| jetstream.version())
    }

    fn stream_of(&self, subject: &[u8]) -> Option<u32> {
        self.jetstream.as_ref()?.stream_of(subject)
    }

    fn store_in(&mut self, stream: u32, call: &Call<'_>) {
        let now = self.now;
        if let Some((jetstream, store)) = self.streams() {
            jetstream.publish(store, stream, call, now);
        }
    }

    fn refuse(&mut self, call: &Call<'_>, kind: &'static str, text: String) {
        let refusal = Refusal { kind: kind.into(), text };
        self.handler.refuse(call.cid, call.reply, shape_of(call.subject), refusal);
        *self.used = true;
    }

    fn enforce(&mut self, cid: u64, rules: &Permissions) -> Vec<Vec<u8>> {
        let now = self.now;
        let open = self.open();
        let mut ended =
            open.map_or_else(Vec::new, |(handler, store)| handler.enforce(store, cid, rules));
        if let Some((jetstream, store)) = self.streams() {
            ended.extend(jetstream.enforce(store, cid, rules, now));
        }
        ended
    }

    fn subscribe(&mut self, wish: &Subscribing<'_>) -> Result<u64, Option<String>> {
        let now = self.now;
        let Some((handler, store)) = self.open() else { return Err(None) };
        handler.pushes_mut().subscribe(store, wish, now)
    }

    fn may_feed(&mut self, reader: u64, rules: Option<&Permissions>) -> bool {
        *self.used = true;
        self.handler.may_feed(reader, rules)
    }

    fn has_room(&self, cid: u64, most: usize) -> bool {
        self.handler.replies().has_room(cid, most)
            && self.handler.broadcasts().has_room()
            && self.jetstream.as_ref().is_none_or(|jetstream| jetstream.has_room())
    }
}
