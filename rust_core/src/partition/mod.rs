//! Mailboxes and the requests to them: a store, long polls, and replies that wait to be true.
//!
//! Owns what happens to a store and in which order. Must not know connections beyond their number, nor how a reply
//! travels: commands come in, replies go out, so that a partition could as well be behind a queue or a network.

mod handler;
mod pending;

use std::sync::Arc;

pub use handler::RequestHandler;
pub use pending::PendingReplies;

use crate::commands::{Shape, shape_of};
use crate::front::{Call, Handled, Handler, Permissions};
use crate::log::Lsn;
use crate::protocol::{Refusal, Reply, WireOptions};
use crate::store::{FairLock, Store, StoreGuard};
use crate::time::Now;

/// A store with the requests to it.
pub struct Partition {
    /// Shared with upkeep and with control commands.
    store: Option<Arc<FairLock>>,
    handler: RequestHandler,
    /// Something was asked for since [`Partition::settle`].
    used: bool,
    upkeep_wanted: bool,
}

/// What settling has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Replies that depend on nothing behind this may leave.
    pub acknowledged: Lsn,
    /// Time until there is something to do without being asked; nothing for never.
    pub sleep_ms: Option<u64>,
}

impl Partition {
    /// Nothing under way. Without a store no command is known.
    pub fn new(store: Option<Arc<FairLock>>, options: WireOptions) -> Partition {
        let handler = RequestHandler::new(options);
        Partition { store, handler, used: false, upkeep_wanted: false }
    }

    /// The store, for commands that are carried out elsewhere.
    pub fn store(&self) -> Option<&Arc<FairLock>> {
        self.store.as_ref()
    }

    /// The way to carry out commands, at one instant.
    pub fn access(&mut self, now: Now) -> Access<'_> {
        let Partition { store, handler, used, .. } = self;
        Access { handler, lock: store.as_deref(), store: None, used, now }
    }

    /// Whether something was asked for since it was settled.
    pub fn is_used(&self) -> bool {
        self.used
    }

    /// Whether some reply waits for more to be durable.
    pub fn is_waiting(&self) -> bool {
        self.handler.replies().is_waiting()
    }

    /// Does what is due, ends long polls, and writes what was logged. Nothing without a store.
    pub fn settle(&mut self, now: Now) -> Option<Settled> {
        self.used = false;
        let mut store = self.store.as_ref()?.lock_if_open()?;
        let mut more = store.tick(now);
        more |= self.handler.collect(&mut store, now);
        // What could not be written is tried again with the next round; nobody is told it is done.
        if let Err(error) = store.flush().and_then(|()| store.syncer().check()) {
            self.handler.replies_mut().fail(store.acknowledged(), &error);
        }
        self.upkeep_wanted |= store.asks_for_upkeep();
        let sleep_ms = if more { Some(0) } else { store.sleep_ms(now) };
        Some(Settled { acknowledged: store.acknowledged(), sleep_ms })
    }

    /// Whether the store has asked for upkeep since this was last asked.
    pub fn takes_upkeep(&mut self) -> bool {
        std::mem::take(&mut self.upkeep_wanted)
    }

    /// The next reply that may leave.
    pub fn next_reply(&mut self, acknowledged: Lsn) -> Option<Reply> {
        self.handler.replies_mut().next(acknowledged)
    }

    /// Answers with `payload` once the log is durable up to `end`, or with a refusal of this shape if it never will
    /// be; without a shape the payload promises nothing.
    pub fn reply_at(
        &mut self,
        end: Lsn,
        cid: u64,
        subject: &[u8],
        payload: Vec<u8>,
        shape: Option<Shape>,
    ) {
        self.used = true;
        self.handler.reply_at(end, cid, subject, payload, shape);
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
            self.handler.set_user(cid, user);
        }
    }

    /// A connection has closed.
    pub fn disconnect(&mut self, cid: u64, now: Now) {
        if let Some(mut store) = self.store.as_ref().and_then(|store| store.lock_if_open()) {
            self.handler.disconnect(&mut store, cid, now);
            self.used = true;
        }
    }

    /// Panics if what is known of requests is not what the store knows of them. For tests.
    pub fn check_invariants(&self) {
        if let Some(store) = self.store.as_ref().and_then(|store| store.lock_if_open()) {
            self.handler.check_invariants(&store);
            store.check_invariants();
        }
    }
}

/// The partition during one chunk of input: the store is locked when it is first needed.
pub struct Access<'a> {
    handler: &'a mut RequestHandler,
    lock: Option<&'a FairLock>,
    store: Option<StoreGuard<'a>>,
    used: &'a mut bool,
    now: Now,
}

impl Access<'_> {
    /// Who carries out commands and what on, if that is open.
    fn open(&mut self) -> Option<(&mut RequestHandler, &mut Store)> {
        if self.store.is_none() {
            self.store = self.lock?.lock_if_open();
            *self.used |= self.store.is_some();
        }
        self.store.as_deref_mut().map(|store| (&mut *self.handler, store))
    }
}

impl Handler for Access<'_> {
    fn call(&mut self, call: &Call<'_>) -> Handled {
        let now = self.now;
        let open = self.open();
        open.map_or(Handled::Unknown, |(handler, store)| handler.call(store, call, now))
    }

    fn refuse(&mut self, call: &Call<'_>, kind: &'static str, text: String) {
        let refusal = Refusal { kind: kind.into(), text };
        self.handler.refuse(call.cid, call.reply, shape_of(call.subject), refusal);
        *self.used = true;
    }

    fn enforce(&mut self, cid: u64, rules: &Permissions) -> Vec<Vec<u8>> {
        let open = self.open();
        open.map_or_else(Vec::new, |(handler, store)| handler.enforce(store, cid, rules))
    }

    fn has_room(&self, cid: u64, most: usize) -> bool {
        self.handler.replies().has_room(cid, most)
    }
}
