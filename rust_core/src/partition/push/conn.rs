//! Deliveries of inboxes that a connection has not answered for, and the feeds that wait for it.
//!
//! A message of an inbox counts as read once the client has answered a ping that was written behind it: the one thing
//! every NATS client does by itself that proves it has taken what came before. Until then it is out with the connection,
//! and when that breaks it is unread again.

use std::collections::VecDeque;

use super::Pushes;
use super::members::State;
use crate::front::{Front, Outlet};
use crate::store::{MailboxRef, Store};
use crate::time::Now;

/// How much may be out with one connection.
const MAX_OUT: usize = 16_384;
const MAX_OUT_BYTES: usize = 4 << 20;

/// Messages that are recorded as read in one go.
const ANSWERED_AT_ONCE: usize = 1024;

/// A message of an inbox that was written to a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    /// Of which mailbox.
    pub of: MailboxRef,
    pub msg_id: u64,
    /// Who was given it.
    pub reader: u64,
    pub bytes: usize,
}

/// A connection that is fed.
#[derive(Debug, Default)]
pub(super) struct Conn {
    /// How many of its subscriptions are.
    pub readers: usize,
    /// Readers that wait for room.
    pub thirsty: Vec<u64>,
    /// In the order they were written.
    out: VecDeque<Out>,
    out_bytes: usize,
    /// How many of them the ping that is under way stands behind.
    asked: usize,
    /// How many of them the client has answered for, which could not be recorded yet.
    answered: usize,
    /// It is among those to be asked.
    is_to_ask: bool,
}

impl Conn {
    /// Whether it may be given more of an inbox.
    pub fn may_take(&self) -> bool {
        self.out.len() < MAX_OUT && self.out_bytes < MAX_OUT_BYTES
    }

    /// The last messages of a reader, so many, that the client passes over: no answer stands for them any more. Those it
    /// has answered for are not among them.
    pub fn take_back(&mut self, reader: u64, surplus: u64) -> Vec<u64> {
        let asked = self.asked;
        let mut first = self.out.len();
        let mut left = surplus;
        while first > self.answered && left > 0 {
            first -= 1;
            left -= u64::from(self.out[first].reader == reader);
        }
        let mut taken = Vec::new();
        for (at, out) in (first..).zip(self.out.split_off(first)) {
            if out.reader == reader {
                self.out_bytes -= out.bytes;
                self.asked -= usize::from(at < asked);
                taken.push(out.msg_id);
            } else {
                self.out.push_back(out);
            }
        }
        taken
    }
}

impl Pushes {
    /// Messages of an inbox were written to a connection.
    pub(super) fn note_out(&mut self, to: &Outlet, written: impl Iterator<Item = Out>) {
        let conn = self.conns.entry(to.cid).or_default();
        for out in written {
            conn.out.push_back(out);
            conn.out_bytes += out.bytes;
        }
        if conn.asked == 0 && !std::mem::replace(&mut conn.is_to_ask, true) {
            self.to_ask.push(to.cid);
        }
    }

    /// The client has answered: what was out when it was asked is read.
    pub(super) fn confirm(&mut self, cid: u64, store: &mut Store, now: Now) {
        let Some(conn) = self.conns.get_mut(&cid) else { return };
        conn.answered = std::mem::take(&mut conn.asked).max(conn.answered).min(conn.out.len());
        if conn.out.len() > conn.answered && !std::mem::replace(&mut conn.is_to_ask, true) {
            self.to_ask.push(cid);
        }
        self.record_answered(cid, store, now);
    }

    /// Records what a client has answered for. What cannot be recorded is tried again after a while, and counts against
    /// the connection meanwhile; when the connection ends first, it comes again.
    pub(super) fn record_answered(&mut self, cid: u64, store: &mut Store, now: Now) {
        let Some(conn) = self.conns.get_mut(&cid) else { return };
        while conn.answered > 0 {
            let Some(&Out { of, .. }) = conn.out.front() else { break };
            let some = conn.out.iter().take(conn.answered.min(ANSWERED_AT_ONCE));
            let msg_ids: Vec<u64> =
                some.take_while(|out| out.of == of).map(|out| out.msg_id).collect();
            if store.inbox_read(of.slot, of.number, &msg_ids, now).is_err() {
                self.unrecorded.push(cid);
                self.retry_later(now);
                break;
            }
            let read = conn.out.drain(..msg_ids.len());
            conn.out_bytes -= read.map(|out| out.bytes).sum::<usize>();
            conn.answered -= msg_ids.len();
            conn.asked = conn.asked.saturating_sub(msg_ids.len());
        }
        self.wake_thirsty(cid);
    }

    /// Asks clients to answer that were given something of an inbox.
    pub(super) fn ask_for_signs(&mut self, front: &mut Front) {
        for cid in std::mem::take(&mut self.to_ask) {
            let Some(conn) = self.conns.get_mut(&cid) else { continue };
            conn.is_to_ask = false;
            if conn.asked == 0 && conn.out.len() > conn.answered && front.ask_for_sign(cid) {
                conn.asked = conn.out.len();
            }
        }
    }

    /// A connection can take more.
    pub(super) fn wake_thirsty(&mut self, cid: u64) {
        let Some(conn) = self.conns.get_mut(&cid) else { return };
        for reader in std::mem::take(&mut conn.thirsty) {
            let Some(&id) = self.readers.get(&reader) else { continue };
            if let Some(feed) = self.feeds.get_mut(&id) {
                feed.members.set_state(reader, State::Ready);
            }
            self.activate(id);
        }
    }
}
