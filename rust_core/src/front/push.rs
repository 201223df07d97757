//! Subscriptions that are fed from mailboxes: where there is room, what is written, and what their readers are to be told.
//!
//! Owns the window: how far output may run ahead of a client. Must not know what a mailbox is, nor who reads it.

use super::conn::Phase;
use super::{ConnId, Front, Handler, Listeners, Permissions};
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

/// What a client has said that its readers are to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The subscription of a reader has ended. The client passes over so many of the last messages that were written
    /// to it: they were more than it asks for.
    Ended {
        /// The reader.
        reader: u64,
        /// How many messages.
        surplus: u64,
    },
    /// A connection has answered what [`Front::ask_for_sign`] wrote.
    Sign(u64),
}

/// What readers are to be told.
#[derive(Debug, Default)]
pub(super) struct Pushing {
    /// In the order in which it was said: whether an answer stands for what is surplus depends on it.
    said: Vec<Said>,
    /// Connections that have room again.
    roomy: Vec<u64>,
}

impl Pushing {
    /// A subscription has ended, whose client wanted no more than `max` messages.
    pub fn end(&mut self, ended: &Subscription, max: u64) {
        if ended.reader != 0 {
            let surplus = ended.delivered.saturating_sub(max);
            self.said.push(Said::Ended { reader: ended.reader, surplus });
        }
    }
}

impl Listeners for Front {
    fn hears(&self, cid: u64, subject: &[u8]) -> bool {
        self.listens(cid, subject)
    }

    fn takes_more(&self, cid: u64) -> bool {
        let conn = self.find(cid).and_then(|id| self.conn(id));
        conn.is_some_and(|conn| conn.pending() <= self.window())
    }

    fn may_publish_all(&self, cid: u64, pattern: &[u8]) -> bool {
        let conn = self.find(cid).and_then(|id| self.conn(id));
        conn.is_some_and(|conn| {
            conn.terms.permissions.as_ref().is_none_or(|rules| rules.may_publish_all(pattern))
        })
    }
}

impl Front {
    /// Connections that [`Front::take_roomy`] will name.
    pub fn roomy(&self) -> &[u64] {
        &self.pushing.roomy
    }

    /// Whether readers are to be told something.
    pub fn has_news_for_readers(&self) -> bool {
        !(self.pushing.said.is_empty() && self.pushing.roomy.is_empty())
    }

    /// What clients have said since this was asked, in that order.
    pub fn take_said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.pushing.said)
    }

    /// Connections that have room since this was asked, of those that [`Front::wait_for_room`] named.
    pub fn take_roomy(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.pushing.roomy)
    }

    pub(super) fn feed_subscription(
        &mut self,
        wish: &Subscribing<'_>,
        handler: &mut dyn Handler,
    ) -> Result<(), Option<String>> {
        let reader = handler.subscribe(wish)?;
        self.set_reader(wish.subscription, reader);
        Ok(())
    }

    /// A subscription is fed by this reader from now on; by none if it is 0.
    pub(super) fn set_reader(&mut self, subscription: SubId, reader: u64) {
        let Some(known) = self.router.get_mut(subscription) else { return };
        let (owner, before) = (known.owner, std::mem::replace(&mut known.reader, reader));
        if let Some(conn) = self.conn_mut(owner) {
            conn.readers += usize::from(reader != 0);
            conn.readers -= usize::from(before != 0);
        }
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

    /// Whether a subscription is to hear what is told at a subject.
    pub fn wants(&self, outlet: &Outlet, subject: &[u8]) -> bool {
        let Some((pattern, _)) = self.router.subject_of(outlet.subscription) else { return false };
        let owner = self.router.get(outlet.subscription).map(|known| known.owner);
        let conn = owner.and_then(|id| self.conn(id));
        nats::matches(pattern, subject) && conn.is_some_and(|conn| conn.may_receive(subject))
    }

    /// The reader of a subscription is done: the subscription hears from now on what is told.
    pub fn end_feed(&mut self, outlet: &Outlet) {
        let known = self.router.get(outlet.subscription);
        if known.is_some_and(|known| known.reader == outlet.reader) {
            self.set_reader(outlet.subscription, 0);
        }
    }

    /// Whether all that waits for a client is what was written ahead of it because it reads mailboxes: it may take its
    /// time with that.
    pub(super) fn may_be_slow(&self, id: ConnId) -> bool {
        let most = self.window() + self.limits.max_payload;
        self.conn(id).is_some_and(|conn| conn.readers > 0 && conn.pending() <= most)
    }

    fn window(&self) -> usize {
        WINDOW_BYTES.min(self.limits.max_pending / 4).max(1)
    }

    /// Writes messages of one subject to a subscription that has room for them; each is the length of its headers, and
    /// headers, payload and CRLF. One that has had all it asked for ends.
    pub fn push<'a>(
        &mut self,
        outlet: &Outlet,
        subject: &[u8],
        messages: impl Iterator<Item = (usize, &'a [u8])>,
    ) {
        let known = self.router.get(outlet.subscription);
        let Some(known) = known.filter(|known| known.reader == outlet.reader) else { return };
        let (id, sid) = (known.owner, known.sid.clone());
        let written = self.write_messages(id, &sid, subject, messages);
        if let Some(known) = self.router.get_mut(outlet.subscription) {
            known.delivered += written;
            if known.max > 0 && known.delivered >= known.max {
                self.end_subscription(outlet.subscription);
            }
        }
    }

    /// Writes a last message to a subscription, a status without payload, and ends it.
    pub fn end_with_status(&mut self, outlet: &Outlet, subject: &[u8], status: &str) {
        let known = self.router.get(outlet.subscription);
        let Some(known) = known.filter(|known| known.reader == outlet.reader) else { return };
        let (id, sid) = (known.owner, known.sid.clone());
        let headers = format!("NATS/1.0 {status}\r\n\r\n");
        let body = [headers.as_bytes(), b"\r\n"].concat();
        self.write_messages(id, &sid, subject, std::iter::once((headers.len(), &body[..])));
        self.end_subscription(outlet.subscription);
    }

    /// How many there were; a connection that is closing is written nothing.
    fn write_messages<'a>(
        &mut self,
        id: ConnId,
        sid: &[u8],
        subject: &[u8],
        messages: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> u64 {
        let Some(with_headers) = self.conn(id).map(|conn| conn.terms.headers) else { return 0 };
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let verb: &[u8] = if with_headers { b"HMSG " } else { b"MSG " };
        for part in [verb, subject, b" ", sid, b" "] {
            line.extend_from_slice(part);
        }
        if self.conn(id).is_some_and(|conn| conn.output.capacity() == 0) {
            let buffer = self.buffers.take();
            if let Some(conn) = self.conn_mut(id) {
                conn.output = buffer;
            }
        }
        let (mut count, mut bytes) = (0, 0);
        let mut logged = Vec::new();
        let logging = self.logging;
        // Neighbours mostly have the same lengths: those are written anew only when they change.
        let (stem, mut lengths) = (line.len(), None);
        if let Some(output) = self.output_of(id) {
            for (headers, body) in messages {
                let body = if with_headers { body } else { &body[headers..] };
                let size = body.len() - 2;
                if lengths.replace((headers, size)) != Some((headers, size)) {
                    line.truncate(stem);
                    if with_headers {
                        line.extend_from_slice(nats::Number::new(headers as u64).as_bytes());
                        line.push(b' ');
                    }
                    line.extend_from_slice(nats::Number::new(size as u64).as_bytes());
                    line.extend_from_slice(b"\r\n");
                }
                if logging {
                    logged.push(line.clone());
                }
                output.reserve(line.len() + body.len());
                output.extend_from_slice(&line);
                output.extend_from_slice(body);
                (count, bytes) = (count + 1, bytes + size as u64);
            }
            if let Some(conn) = self.conn_mut(id) {
                conn.out_msgs += count;
                conn.out_bytes += bytes;
            }
            self.totals.out_msgs += count;
            self.totals.out_bytes += bytes;
            for told in &logged {
                self.log_told(id, told);
            }
        }
        self.line = line;
        count
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
            self.pushing.said.push(Said::Sign(cid));
        }
    }
}
