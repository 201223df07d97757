//! Subscriptions that are fed from mailboxes: where there is room, what is written, and what their readers are to be told.
//!
//! Owns the window: how far output may run ahead of a client. Must not know what a mailbox is, nor who reads it.

use super::conn::Phase;
use super::{ConnId, Front, Handler, Permissions};
use crate::nats;
use crate::router::{SubId, Subscription};

/// How many bytes of output may wait for a client before its readers wait too.
const WINDOW_BYTES: usize = 256 << 10;

/// A client wants to be fed.
#[derive(Clone, Copy)]
pub struct Subscribing<'a> {
    /// Its connection.
    pub cid: u64,
    /// What it subscribed to.
    pub subject: &'a [u8],
    /// Its queue group; empty for none.
    pub queue: &'a [u8],
    /// The subscription.
    pub subscription: SubId,
    /// What it may do.
    pub rules: Option<&'a Permissions>,
}

/// Where the messages of a reader go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlet {
    /// The connection.
    pub cid: u64,
    /// The subscription, unless it has become another's.
    pub subscription: SubId,
    /// The reader that feeds it.
    pub reader: u64,
}

/// How much may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes, of which the last message may take more.
    pub bytes: usize,
    /// Messages before the subscription ends.
    pub messages: u64,
}

/// What readers are to be told.
#[derive(Debug, Default)]
pub(super) struct Pushing {
    /// Readers whose subscriptions have ended.
    ended: Vec<u64>,
    /// Connections that have room again.
    roomy: Vec<u64>,
    /// Connections that have answered a ping.
    signs: Vec<u64>,
}

impl Pushing {
    pub fn end(&mut self, ended: &Subscription) {
        if ended.reader != 0 {
            self.ended.push(ended.reader);
        }
    }
}

impl Front {
    /// Whether readers are to be told something.
    pub fn has_news_for_readers(&self) -> bool {
        let Pushing { ended, roomy, signs } = &self.pushing;
        !(ended.is_empty() && roomy.is_empty() && signs.is_empty())
    }

    /// Readers whose subscriptions have ended since this was asked.
    pub fn take_ended(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.pushing.ended)
    }

    /// Connections that have room since this was asked, of those that [`Front::wait_for_room`] named.
    pub fn take_roomy(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.pushing.roomy)
    }

    /// Connections that have answered what [`Front::ask_for_sign`] wrote.
    pub fn take_signs(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.pushing.signs)
    }

    pub(super) fn feed_subscription(
        &mut self,
        wish: &Subscribing<'_>,
        handler: &mut dyn Handler,
    ) -> Result<(), Option<String>> {
        let reader = handler.subscribe(wish)?;
        if let Some(known) = self.router.get_mut(wish.subscription) {
            known.reader = reader;
        }
        Ok(())
    }

    /// How much may be written to a subscription; nothing if it has ended.
    pub fn room_at(&self, outlet: &Outlet) -> Option<Room> {
        let subscription = self.router.get(outlet.subscription)?;
        let conn = self.conn(subscription.owner)?;
        if subscription.reader != outlet.reader || conn.phase == Phase::Closing {
            return None;
        }
        let messages = match subscription.max {
            0 => u64::MAX,
            max => max.saturating_sub(subscription.delivered),
        };
        Some(Room { bytes: self.window().saturating_sub(conn.pending()), messages })
    }

    fn window(&self) -> usize {
        WINDOW_BYTES.min(self.limits.max_pending / 4).max(1)
    }

    /// Writes a message to a subscription that has room; `body` is headers, payload and CRLF. One that has had all it
    /// asked for ends.
    pub fn push(&mut self, outlet: &Outlet, subject: &[u8], headers: usize, body: &[u8]) {
        let known = self.router.get_mut(outlet.subscription);
        let Some(known) = known.filter(|known| known.reader == outlet.reader) else { return };
        known.delivered += 1;
        let (id, sid) = (known.owner, known.sid.clone());
        let exhausted = known.max > 0 && known.delivered >= known.max;
        self.write_message(id, &sid, subject, headers, body);
        if exhausted {
            self.end_subscription(outlet.subscription);
        }
    }

    /// Writes a last message to a subscription, a status without payload, and ends it.
    pub fn end_with_status(&mut self, outlet: &Outlet, subject: &[u8], status: &str) {
        let known = self.router.get(outlet.subscription);
        let Some(known) = known.filter(|known| known.reader == outlet.reader) else { return };
        let (id, sid) = (known.owner, known.sid.clone());
        let headers = format!("NATS/1.0 {status}\r\n\r\n");
        let body = [headers.as_bytes(), b"\r\n"].concat();
        self.write_message(id, &sid, subject, headers.len(), &body);
        self.end_subscription(outlet.subscription);
    }

    fn write_message(
        &mut self,
        id: ConnId,
        sid: &[u8],
        subject: &[u8],
        headers: usize,
        body: &[u8],
    ) {
        let Some(conn) = self.conn(id) else { return };
        let (headers, body) = match conn.terms.headers {
            true => (headers, body),
            false => (0, &body[headers..]),
        };
        let size = body.len() - 2;
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let sid_at = nats::msg_parts(&mut line, subject, b"", headers, size);
        if self.conn(id).is_some_and(|conn| conn.output.capacity() == 0) {
            let buffer = self.buffers.take();
            if let Some(conn) = self.conn_mut(id) {
                conn.output = buffer;
            }
        }
        if let Some(output) = self.output_of(id) {
            output.reserve(line.len() + sid.len() + body.len());
            output.extend_from_slice(&line[..sid_at]);
            output.extend_from_slice(sid);
            output.extend_from_slice(&line[sid_at..]);
            output.extend_from_slice(body);
            if let Some(conn) = self.conn_mut(id) {
                conn.out_msgs += 1;
                conn.out_bytes += size as u64;
            }
            self.totals.out_msgs += 1;
            self.totals.out_bytes += size as u64;
            if self.logging {
                self.log_told(id, &[&line[..sid_at], sid, &line[sid_at..]].concat());
            }
        }
        self.line = line;
    }

    /// A reader of this connection has more than there is room for: [`Front::take_roomy`] tells when there is.
    pub fn wait_for_room(&mut self, cid: u64) {
        let Some(id) = self.find(cid) else { return };
        if let Some(conn) = self.conn_mut(id) {
            conn.thirsty = true;
        }
        self.note_room(id);
    }

    /// Some of the output has gone.
    pub(super) fn note_room(&mut self, id: ConnId) {
        let window = self.window();
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.thirsty && conn.pending() <= window / 2 {
            conn.thirsty = false;
            let cid = conn.cid;
            self.pushing.roomy.push(cid);
        }
    }

    /// Asks a client to answer once it has read all that was written so far. False if it is asked already.
    pub fn ask_for_sign(&mut self, cid: u64) -> bool {
        let Some(id) = self.find(cid) else { return false };
        let Some(conn) = self.conn_mut(id) else { return false };
        if conn.sign.is_some() || conn.phase == Phase::Closing {
            return false;
        }
        conn.pings += 1;
        conn.sign = Some(conn.pings);
        self.write(id, b"PING\r\n");
        true
    }

    /// A pong has come.
    pub(super) fn note_sign(&mut self, id: ConnId) {
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.sign.is_some_and(|sign| sign <= conn.pongs) {
            conn.sign = None;
            let cid = conn.cid;
            self.pushing.signs.push(cid);
        }
    }
}
