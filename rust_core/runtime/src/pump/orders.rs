//! Orders that others may give to the thread of the broker.

use std::os::fd::OwnedFd;

use mq9_core::engine::Engine;
use mq9_core::front::{ConnId, Terms};
use mq9_core::time::Moment;

use super::Pump;
use crate::link::{Greeting, Link, Pause};

/// What orders may ask for. Connections are named by the number that clients see; whoever has gone is passed over.
impl Pump {
    /// Takes over a socket and meets its client.
    pub fn adopt(&mut self, cid: u64, socket: OwnedFd, greeting: Greeting, now: Moment) {
        let id = self.engine.open(cid, greeting.must_authenticate, now);
        if self.links.len() <= id as usize {
            self.links.resize_with(id as usize + 1, || None);
        }
        self.links[id as usize] = Some(Link::new(cid, socket, greeting));
        self.watch(id);
        self.begin(id, now);
    }

    /// The engine, for what needs no socket.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The place of a connection, if it is there.
    pub fn find(&self, cid: u64) -> Option<ConnId> {
        self.engine.front().find(cid)
    }

    /// Lets a client in.
    pub fn accept(&mut self, cid: u64, terms: Terms, now: Moment) {
        if let Some(id) = self.find(cid) {
            self.set_reading(id, Pause::Deciding, true);
            self.engine.accept(id, terms, now);
        }
    }

    /// Reads from a client, or does not.
    pub fn set_asked(&mut self, cid: u64, wanted: bool, now: Moment) {
        if let Some(id) = self.find(cid) {
            self.set_reading(id, Pause::Asked, wanted);
            self.start_waiting(id, now);
        }
    }

    /// Ends a connection: an error to its client if there is one to tell, what waits, then the end.
    pub fn close(&mut self, cid: u64, error: Option<&[u8]>, reason: String) {
        if let Some(id) = self.find(cid) {
            self.engine.close(id, error, reason.into());
        }
    }

    /// Ends a connection at once.
    pub fn abort(&mut self, cid: u64, now: Moment) {
        if let Some(id) = self.find(cid) {
            self.lost(id, None, now);
        }
    }

    /// Settles, whether anything asks for it or not.
    pub fn settle(&mut self) {
        self.unsettled = true;
    }

    /// Panics unless sockets and the engine agree on what is on its way. For tests: it looks at all connections.
    pub fn check_invariants(&self) {
        self.engine.check_invariants();
        for id in 0..self.links.len() {
            self.check_output(id as ConnId);
        }
    }

    /// The thread ends with this round.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }
}
