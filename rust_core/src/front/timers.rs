//! Timers of connections: pings, and deadlines.

use super::conn::Phase;
use super::{ConnId, Event, Front};

/// A client is asked for a first sign of life, and its round trip is measured, this soon.
const FIRST_PING_MS: u64 = 2_000;

/// The caller has this long to decide on a client that says `CONNECT`.
const DECISION_MS: u64 = 30_000;

/// How many alarms are handled in one call, so that none of them stalls the connections.
const ALARMS_PER_TICK: usize = 1024;

/// Something that is due for a connection.
#[derive(Debug)]
pub(super) struct Alarm {
    conn: ConnId,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Ping,
    /// `CONNECT` has not come.
    Authentication,
    /// Nothing has been read by the client since output was offered to it.
    Write,
    /// The connection was told to close and is still there.
    Close,
    /// What the caller expects of the client has not come.
    Expected,
}

impl Front {
    /// Does what is due; the time until more may be, if any is known.
    pub fn tick(&mut self, now_us: u64) -> Option<u64> {
        self.now_us = now_us;
        let now_ms = now_us / 1000;
        let mut due = Vec::new();
        let more = self.timers.advance(now_ms, ALARMS_PER_TICK, &mut due);
        for alarm in due {
            self.alarm(alarm, now_us);
        }
        if more {
            return Some(0);
        }
        self.timers.next_deadline().map(|deadline_ms| deadline_ms.saturating_sub(now_ms))
    }

    /// When something is due, in ms of the clock.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.timers.next_deadline()
    }

    /// A client that has not been let in within this time is sent away.
    pub fn expect_authentication(&mut self, id: ConnId, timeout_ms: u64, now_us: u64) {
        self.set_deadline(id, Kind::Authentication, now_us / 1000 + timeout_ms);
    }

    /// Without [`Front::expect_nothing`] within this time there is an [`Event::Late`].
    pub fn expect(&mut self, id: ConnId, timeout_ms: u64, now_us: u64) {
        self.set_deadline(id, Kind::Expected, now_us / 1000 + timeout_ms);
    }

    /// What was expected has come.
    pub fn expect_nothing(&mut self, id: ConnId) {
        self.cancel_deadline(id);
    }

    /// A decision that does not come must not keep a client for ever.
    pub(super) fn expect_decision(&mut self, id: ConnId) {
        if self.conn(id).is_some_and(|conn| conn.deadline.is_none()) {
            let deadline_ms = self.now_us / 1000 + DECISION_MS;
            self.set_deadline(id, Kind::Authentication, deadline_ms);
        }
    }

    pub(super) fn pong(&mut self, id: ConnId, now_us: u64) {
        let Some(conn) = self.conn_mut(id) else { return };
        conn.pings_out = 0;
        conn.pongs = conn.pings.min(conn.pongs + 1);
        if let Some(sent_us) = conn.ping_sent_us.take() {
            conn.rtt_us = (now_us - sent_us.min(now_us)).max(1);
        }
        self.note_sign(id);
    }

    pub(super) fn schedule_first_ping(&mut self, id: ConnId, now_us: u64) {
        let wait_ms = FIRST_PING_MS.min(self.limits.ping_interval_ms);
        // Clients that came together are not asked together.
        let spread_ms = self.pick(wait_ms as usize / 5 + 1) as u64;
        self.schedule_ping(id, now_us / 1000 + wait_ms + spread_ms);
    }

    pub(super) fn start_write_deadline(&mut self, id: ConnId, now_us: u64) {
        self.cancel_write_deadline(id);
        // The deadline of a closing connection is for its end, not for one write.
        if self.conn(id).is_some_and(|conn| conn.phase != Phase::Closing) {
            let deadline_ms = now_us / 1000 + self.limits.write_deadline_ms;
            let key = self.timers.insert(deadline_ms, Alarm { conn: id, kind: Kind::Write });
            if let Some(conn) = self.conn_mut(id) {
                conn.write_deadline = Some(key);
            }
        }
    }

    pub(super) fn cancel_write_deadline(&mut self, id: ConnId) {
        if let Some(key) = self.conn_mut(id).and_then(|conn| conn.write_deadline.take()) {
            self.timers.cancel(key);
        }
    }

    pub(super) fn start_closing_deadline(&mut self, id: ConnId) {
        let deadline_ms = self.now_us / 1000 + self.limits.write_deadline_ms;
        self.set_deadline(id, Kind::Close, deadline_ms);
    }

    pub(super) fn cancel_deadline(&mut self, id: ConnId) {
        if let Some(key) = self.conn_mut(id).and_then(|conn| conn.deadline.take()) {
            self.timers.cancel(key);
        }
    }

    pub(super) fn cancel_ping(&mut self, id: ConnId) {
        if let Some(key) = self.conn_mut(id).and_then(|conn| conn.ping.take()) {
            self.timers.cancel(key);
        }
    }

    fn set_deadline(&mut self, id: ConnId, kind: Kind, deadline_ms: u64) {
        self.cancel_deadline(id);
        if self.conn(id).is_some() {
            let key = self.timers.insert(deadline_ms, Alarm { conn: id, kind });
            if let Some(conn) = self.conn_mut(id) {
                conn.deadline = Some(key);
            }
        }
    }

    fn schedule_ping(&mut self, id: ConnId, at_ms: u64) {
        let key = self.timers.insert(at_ms, Alarm { conn: id, kind: Kind::Ping });
        if let Some(conn) = self.conn_mut(id) {
            conn.ping = Some(key);
        }
    }

    fn alarm(&mut self, alarm: Alarm, now_us: u64) {
        let id = alarm.conn;
        if matches!(alarm.kind, Kind::Write) && self.may_be_slow(id) {
            // One that is not there any more does not answer pings.
            if let Some(conn) = self.conn_mut(id) {
                conn.write_deadline = None;
            }
            return self.start_write_deadline(id, now_us);
        }
        if let Some(conn) = self.conn_mut(id) {
            match alarm.kind {
                Kind::Ping => {
                    conn.ping = None;
                    self.ping(id, now_us);
                }
                Kind::Authentication => {
                    conn.deadline = None;
                    self.close(
                        id,
                        Some(b"Authentication Timeout"),
                        "Authentication Timeout".into(),
                    );
                }
                Kind::Write => {
                    conn.write_deadline = None;
                    self.cut_slow(id, "Slow Consumer (Write Deadline)");
                }
                Kind::Close => {
                    conn.deadline = None;
                    self.abort(id);
                }
                Kind::Expected => {
                    conn.deadline = None;
                    self.events.push_back(Event::Late { conn: id });
                }
            }
        }
    }

    fn ping(&mut self, id: ConnId, now_us: u64) {
        let (interval_ms, ping_max) = (self.limits.ping_interval_ms, self.limits.ping_max);
        let Some(conn) = self.conn_mut(id) else { return };
        let quiet_us = now_us.saturating_sub(conn.active_us);
        // Where a deadline is set for the handshake, that one counts.
        let in_handshake =
            matches!(conn.phase, Phase::Fresh | Phase::Deciding { .. }) && conn.deadline.is_some();
        // Who is pushed to may answer a ping when it is done with what came before: it is enough that it talks.
        let is_unmeasured = conn.rtt_us == 0 && (conn.readers == 0 || conn.pings_out == 0);
        if !in_handshake && (is_unmeasured || quiet_us / 1000 >= interval_ms / 2) {
            if conn.pings_out >= ping_max {
                self.close(id, Some(b"Stale Connection"), "Stale Connection".into());
                return;
            }
            conn.pings_out += 1;
            conn.pings += 1;
            conn.ping_sent_us.get_or_insert(now_us);
            self.write(id, b"PING\r\n");
        }
        self.schedule_ping(id, now_us / 1000 + interval_ms);
    }
}
