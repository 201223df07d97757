//! Fetches of the model that found nothing yet, and connections that close.

use mq9_core::mailbox::{LEVELS, Level};
use mq9_core::store::Fetch;

use crate::groups::Member;
use crate::model::{Model, Reply};

/// A fetch that found nothing yet.
pub struct Waiter {
    pub id: u64,
    pub request: Fetch,
    pub cursors: [u64; LEVELS],
    pub until_ms: u64,
}

impl Model {
    pub fn wait(&mut self, id: u64, mut request: Fetch, cursors: [u64; LEVELS]) {
        let until_ms = self.now.mono_ms + request.wait_ms;
        if let Some(group) = &mut request.group {
            group.force = false;
        }
        self.waiters.push(Waiter { id, request, cursors, until_ms });
    }

    /// A connection closed: what it holds is available, and its waits end unanswered.
    pub fn disconnect(&mut self, conn: u64) {
        let member = Some(Member::Conn(self.epoch, conn));
        let (closed, open) = self.waiters.drain(..).partition(|waiter| waiter.request.conn == conn);
        self.waiters = open;
        let closed: Vec<Waiter> = closed;
        closed.iter().for_each(|waiter| self.note_wait_used(&waiter.request));
        let addresses: Vec<String> = self.mailboxes.iter().map(|m| m.address.clone()).collect();
        for address in addresses {
            for group in &mut self.get(&address).unwrap().groups {
                for delivery in group.deliveries.iter_mut().filter(|d| d.member == member) {
                    delivery.until_ms = None;
                }
            }
            if self.holders.contains(&(conn, address.clone())) {
                self.touch(&address);
            }
        }
        self.holders.retain(|(holder, _)| *holder != conn);
    }

    /// Answers the waits that can be, in the mailboxes of `order` one after the other.
    pub fn completions(&mut self, order: &[String]) -> Vec<(u64, Reply)> {
        while let Some(address) = order.iter().find(|address| self.touched.contains(address)) {
            self.touched.retain(|touched| touched != address);
            self.answer_waiters(address);
        }
        self.touched.clear();
        let mut over = std::mem::take(&mut self.over);
        over.sort_by_key(|(id, _)| *id);
        over
    }

    fn answer_waiters(&mut self, address: &str) {
        let mut waiters = std::mem::take(&mut self.waiters);
        // A group that had nothing for one waiter is not asked again for the next of that level.
        let mut empty: Vec<(String, Level)> = Vec::new();
        let mut at = 0;
        while at < waiters.len() {
            let request = waiters[at].request.clone();
            let asks = request.group.as_ref().map(|group| (group.name.clone(), request.max_level));
            if request.address != address || asks.as_ref().is_some_and(|asks| empty.contains(asks))
            {
                at += 1;
                continue;
            }
            let cursors = waiters[at].cursors;
            std::mem::swap(&mut self.waiters, &mut waiters);
            let batch = self.try_fetch(&request, &cursors);
            std::mem::swap(&mut self.waiters, &mut waiters);
            if batch.is_empty() {
                empty.extend(asks);
                at += 1;
            } else {
                let waiter = waiters.remove(at);
                self.over.push((waiter.id, Reply::Batch(batch)));
            }
        }
        self.waiters = waiters;
    }

    /// The first waiter that could be answered with something its member does not hold already.
    pub fn overlooked(&self) -> Option<u64> {
        let overlooked = self.waiters.iter().find(|waiter| {
            let Some(group) = &waiter.request.group else { return false };
            !self.plan(&waiter.request, group, None).batch.is_empty()
        });
        overlooked.map(|waiter| waiter.id)
    }
}
