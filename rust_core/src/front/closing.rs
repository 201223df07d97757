//! Connections end: politely, or at once.

use std::borrow::Cow;

use super::conn::Phase;
use super::{ConnId, Event, Front};

impl Front {
    /// Ends a connection: an error to its client if there is one to tell, what waits, then the end.
    pub fn close(&mut self, id: ConnId, error: Option<&[u8]>, reason: Cow<'static, str>) {
        if let Some(error) = error {
            self.write_err(id, error);
        }
        self.end(id, reason, false);
    }

    /// Ends a connection that does not read.
    pub(super) fn cut_slow(&mut self, id: ConnId, reason: &'static str) {
        if self.conn(id).is_some_and(|conn| conn.phase != Phase::Closing) {
            self.totals.slow_consumers += 1;
            self.end(id, reason.into(), true);
        }
    }

    /// Forgets a connection whose socket is gone.
    pub fn remove(&mut self, id: ConnId) {
        self.end_all_subscriptions(id);
        self.cancel_deadline(id);
        self.cancel_write_deadline(id);
        self.cancel_ping(id);
        if let Some(slot) = self.conns.get_mut(id as usize)
            && let Some(conn) = slot.take()
        {
            self.forget_own(id, &conn.stats());
            self.by_cid.remove(&conn.cid);
            self.free.push(id);
        }
    }

    fn end(&mut self, id: ConnId, reason: Cow<'static, str>, abort: bool) {
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.phase == Phase::Closing {
            return;
        }
        conn.phase = Phase::Closing;
        conn.reason = Some(reason);
        conn.input = Vec::new();
        if abort {
            conn.drop_output();
        }
        self.end_all_subscriptions(id);
        self.cancel_ping(id);
        self.cancel_write_deadline(id);
        self.start_closing_deadline(id);
        self.events.push_back(Event::Close { conn: id, abort });
    }

    /// The time for a polite end is over.
    pub(super) fn abort(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_mut(id) {
            conn.drop_output();
            self.events.push_back(Event::Close { conn: id, abort: true });
        }
    }
}
