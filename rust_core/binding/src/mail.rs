//! The broker's way to the store: commands of a chunk under one lock, one write for a whole round of
//! the event loop, and replies when what they promise is durable.

use std::sync::MutexGuard;

use mq9_core::broker::{self, Called, Desk, DeskCall, Permissions};
use mq9_core::post::Post;
use mq9_core::store::{Store as CoreStore, Turns};
use mq9_core::time::Now;

use crate::clock;
use crate::running::Running;

/// The store during one chunk: locked when it is first needed, and at one instant.
pub struct Counter<'a> {
    post: &'a mut Post,
    store: Option<&'a Turns>,
    open: Option<(MutexGuard<'a, CoreStore>, Now)>,
    refused: bool,
}

impl<'a> Counter<'a> {
    pub fn new(post: &'a mut Post, store: Option<&'a Turns>) -> Self {
        Self { post, store, open: None, refused: false }
    }

    /// Whether there is something to write or to answer.
    pub fn was_used(&self) -> bool {
        self.open.is_some() || self.refused
    }
}

impl Desk for Counter<'_> {
    fn call(&mut self, call: &DeskCall<'_>) -> Called {
        let Some(store) = self.store else { return Called::Unknown };
        let (store, now) = self.open.get_or_insert_with(|| (store.lock(), clock::now()));
        self.post.call(store, call, *now)
    }

    fn refuse(&mut self, call: &DeskCall<'_>, problem: &str) {
        self.post.refuse(call, problem);
        self.refused = true;
    }

    fn enforce(&mut self, cid: u64, rules: &Permissions) -> Vec<Vec<u8>> {
        let Some(store) = self.store else { return Vec::new() };
        let (store, _) = self.open.get_or_insert_with(|| (store.lock(), clock::now()));
        self.post.enforce(store, cid, rules)
    }

    fn has_room(&self, cid: u64, most: usize) -> bool {
        self.post.has_room(cid, most)
    }
}

/// Writes what was logged, ends long polls, publishes the replies that may leave, and goes on with
/// requests that waited for that. Returns the time until the store has something to do by itself.
pub fn settle(core: &mut broker::Broker, post: &mut Post, running: &Running) -> Option<u64> {
    let now = clock::now();
    let (acknowledged, sleep_ms) = {
        let mut store = running.store().lock();
        let mut more = store.tick(now);
        more |= post.collect(&mut store, now);
        // What could not be written is tried again with the next round; nobody is told it is done.
        if let Err(error) = store.flush().and_then(|()| store.syncer().check()) {
            post.fail(store.acknowledged(), &error);
        }
        running.keep_up(&mut store);
        (store.acknowledged(), if more { Some(0) } else { store.sleep_ms(now) })
    };
    let mut used = false;
    while let Some(reply) = post.next_reply(acknowledged) {
        let mut counter = Counter::new(post, Some(running.store()));
        reply.publish(|answer_to, headers, payload| {
            core.answer(reply.cid, &reply.subject, answer_to, headers, payload, &mut counter);
        });
        used |= counter.was_used();
    }
    if core.is_holding() {
        let mut counter = Counter::new(post, Some(running.store()));
        core.retry_held(&mut counter, clock::mono_us());
        used |= counter.was_used();
    }
    // What was asked just now is written and answered in the next round.
    if used { Some(0) } else { sleep_ms }
}
