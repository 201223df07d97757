//! What a connection was given of inboxes and has not answered for, and which feeds wait for it.
//!
//! A message of an inbox counts as read once the client has answered a ping that was written behind it: the one thing
//! every NATS client does by itself that proves it has taken what came before. Until then it is out with the connection,
//! and when that breaks it is unread again.

use std::collections::VecDeque;

use super::Pushes;
use super::feed::FeedId;
use crate::front::Front;
use crate::store::{IDS_AT_ONCE, MailboxRef, Store};
use crate::time::Now;

/// How much may be out with one connection.
const MAX_OUT: usize = 16_384;
const MAX_OUT_BYTES: usize = 4 << 20;

/// A connection that is fed.
#[derive(Debug, Default)]
pub(super) struct Conn {
    /// How many of its subscriptions are.
    pub readers: usize,
    /// Feeds that wait for room.
    pub thirsty: Vec<FeedId>,
    /// Messages of inboxes in the order they were written, each with its bytes.
    out: VecDeque<(MailboxRef, u64, usize)>,
    out_bytes: usize,
    /// How many of them the ping that is under way stands behind.
    asked: usize,
    /// It is among those to be asked.
    is_to_ask: bool,
}

impl Conn {
    /// Whether it may be given more of an inbox.
    pub fn may_take(&self) -> bool {
        self.out.len() < MAX_OUT && self.out_bytes < MAX_OUT_BYTES
    }
}

impl Pushes {
    /// A message of an inbox was written to a connection.
    pub(super) fn note_out(&mut self, cid: u64, watched: MailboxRef, msg_id: u64, bytes: usize) {
        let conn = self.conns.entry(cid).or_default();
        conn.out.push_back((watched, msg_id, bytes));
        conn.out_bytes += bytes;
        if conn.asked == 0 && !std::mem::replace(&mut conn.is_to_ask, true) {
            self.to_ask.push(cid);
        }
    }

    /// The client has answered: what was out when it was asked is read.
    pub(super) fn confirm(&mut self, cid: u64, store: &mut Store, now: Now) {
        let Some(conn) = self.conns.get_mut(&cid) else { return };
        let asked = std::mem::take(&mut conn.asked).min(conn.out.len());
        let read: Vec<_> = conn.out.drain(..asked).collect();
        conn.out_bytes -= read.iter().map(|(_, _, bytes)| bytes).sum::<usize>();
        if !conn.out.is_empty() && !std::mem::replace(&mut conn.is_to_ask, true) {
            self.to_ask.push(cid);
        }
        for of_one in read.chunk_by(|a, b| a.0 == b.0) {
            let MailboxRef { slot, number } = of_one[0].0;
            for some in of_one.chunks(IDS_AT_ONCE) {
                let msg_ids: Vec<u64> = some.iter().map(|(_, msg_id, _)| *msg_id).collect();
                // What cannot be recorded now comes again when the connection has ended.
                let _ = store.inbox_read(slot, number, &msg_ids, now);
            }
        }
        self.wake_thirsty(cid);
    }

    /// Asks clients to answer that were given something of an inbox.
    pub(super) fn ask_for_signs(&mut self, front: &mut Front) {
        for cid in std::mem::take(&mut self.to_ask) {
            let Some(conn) = self.conns.get_mut(&cid) else { continue };
            conn.is_to_ask = false;
            if conn.asked == 0 && !conn.out.is_empty() && front.ask_for_sign(cid) {
                conn.asked = conn.out.len();
            }
        }
    }

    /// A connection can take more.
    pub(super) fn wake_thirsty(&mut self, cid: u64) {
        let Some(conn) = self.conns.get_mut(&cid) else { return };
        for id in std::mem::take(&mut conn.thirsty) {
            let feed = self.feeds.get_mut(&id);
            for member in feed.into_iter().flat_map(|feed| &mut feed.members) {
                member.is_thirsty &= member.outlet.cid != cid;
            }
            self.activate(id);
        }
    }
}
