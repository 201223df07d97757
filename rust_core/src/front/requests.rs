//! Requests on their way to the caller: bounded for each connection, and for all of them together.
//!
//! Owns who waits until there is room. A connection without room is held: its input waits, and it is not read from.

use std::collections::VecDeque;

use super::conn::Conn;
use super::{ConnId, Event, Front, Handler};
use crate::commands::{self, By};
use crate::nats;

/// What a connection may have asked for that the caller has not taken.
const MAX_REQUESTS: usize = 256;
const MAX_REQUEST_BYTES: usize = 2 << 20;

/// The same for all connections together: from half of it on, a connection has one request with the caller.
const MAX_ALL_REQUESTS: usize = 1 << 16;
const MAX_ALL_BYTES: usize = 64 << 20;

/// What the caller has not taken, and who waits because it is so much.
#[derive(Debug, Default)]
pub(super) struct Requests {
    count: usize,
    bytes: usize,
    /// Who came first is first.
    crowd: VecDeque<ConnId>,
}

impl Requests {
    fn are_half(&self) -> bool {
        self.count >= MAX_ALL_REQUESTS / 2 || self.bytes >= MAX_ALL_BYTES / 2
    }

    fn are_all(&self) -> bool {
        self.count >= MAX_ALL_REQUESTS || self.bytes >= MAX_ALL_BYTES
    }

    /// Whether somebody who waited may ask by now.
    fn may_go_on(&self) -> bool {
        !self.crowd.is_empty() && !self.are_half()
    }

    pub fn knows(&self, id: ConnId) -> bool {
        self.crowd.contains(&id)
    }

    /// So many bytes are one more request of a connection.
    pub fn add(&mut self, conn: &mut Conn, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
        conn.requests += 1;
        conn.request_bytes += bytes;
    }
}

impl Front {
    /// Goes on with the requests of connections that have room again.
    pub fn retry_held(&mut self, handler: &mut dyn Handler, now_us: u64) {
        self.now_us = now_us;
        self.room = false;
        for id in std::mem::take(&mut self.held) {
            if self.has_room(id, handler) {
                self.go_on(id, handler, now_us);
            } else {
                self.held.push(id);
            }
        }
        // Each asks once at least, or waits for something else.
        while self.requests.may_go_on()
            && let Some(id) = self.requests.crowd.pop_front()
        {
            self.go_on(id, handler, now_us);
        }
    }

    /// Whether some connection waits for room.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty() || !self.requests.crowd.is_empty()
    }

    /// Whether one of them may have it by now.
    pub fn may_have_room(&self) -> bool {
        (self.room && !self.held.is_empty()) || self.requests.may_go_on()
    }

    /// Whether the request at the front of a connection's input can be carried out now; if not, it waits.
    pub(super) fn may_ask(&mut self, id: ConnId, subject: &[u8], handler: &dyn Handler) -> bool {
        if !self.has_room(id, handler) || self.is_awaited(subject) {
            self.held.push(id);
        } else if self.is_crowded(id) && self.is_served(subject) {
            self.requests.crowd.push_back(id);
        } else {
            return true;
        }
        if let Some(conn) = self.conn_mut(id) {
            conn.admitted = true;
            conn.held = true;
            self.events.push_back(Event::Hold { conn: id });
        }
        false
    }

    /// The caller has taken so many requests of a connection, with so many bytes.
    pub fn requests_taken(&mut self, cid: u64, requests: usize, bytes: usize) {
        self.room = true;
        debug_assert!(self.requests.count >= requests && self.requests.bytes >= bytes);
        self.requests.count = self.requests.count.saturating_sub(requests);
        self.requests.bytes = self.requests.bytes.saturating_sub(bytes);
        if let Some(conn) = self.find(cid).and_then(|id| self.conn_mut(id)) {
            debug_assert!(conn.requests >= requests && conn.request_bytes >= bytes);
            conn.requests = conn.requests.saturating_sub(requests);
            conn.request_bytes = conn.request_bytes.saturating_sub(bytes);
        }
    }

    fn go_on(&mut self, id: ConnId, handler: &mut dyn Handler, now_us: u64) {
        let Some(conn) = self.conn_mut(id) else { return };
        if std::mem::replace(&mut conn.held, false) {
            self.resume(id, handler, now_us);
            if self.conn(id).is_some_and(|conn| !conn.held) {
                self.events.push_back(Event::Release { conn: id });
            }
        }
    }

    /// Whether a connection has taken enough of what it was given to ask for more, and the caller of what it asked.
    fn has_room(&self, id: ConnId, handler: &dyn Handler) -> bool {
        let most = self.limits.max_pending / 4;
        self.conn(id).is_none_or(|conn| {
            conn.pending() <= most
                && conn.requests < MAX_REQUESTS
                && conn.request_bytes < MAX_REQUEST_BYTES
                && handler.has_room(conn.cid, most - conn.pending())
        })
    }

    /// Whether all together have asked for so much that this one has to wait.
    fn is_crowded(&self, id: ConnId) -> bool {
        let has_some = || self.conn(id).is_some_and(|conn| conn.requests > 0);
        self.requests.are_half() && (self.requests.are_all() || has_some())
    }

    /// Whether it is a command that will be served soon.
    fn is_awaited(&self, subject: &[u8]) -> bool {
        self.awaits_services
            && commands::find(subject).is_some_and(|command| command.by != By::Partition)
            && !self.is_served(subject)
    }

    fn is_served(&self, subject: &[u8]) -> bool {
        self.services.iter().any(|(pattern, _)| nats::matches(pattern, subject))
    }
}
