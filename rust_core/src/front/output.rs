//! Output waits here until the caller takes it.
//!
//! The caller asks for the connections with output, offers it to the socket, and says how much went
//! ([`Front::written`], [`Front::blocked`]) or was taken over by a layer that encrypts it and reports when it is gone
//! ([`Front::handed`], [`Front::drained`]). Until then further output stays here and counts.

use super::buffer_pool::MIN_BYTES;
use super::conn::{Conn, Phase};
use super::{ConnId, Front};
use crate::nats;

/// How a connection's output stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Bytes that a layer below has and has not reported to be gone.
    pub below: usize,
    /// The client must take something within the write deadline.
    pub timed: bool,
    /// The connection ends, and has a deadline for that.
    pub ends: bool,
}

impl Front {
    /// A connection whose output should be offered to its socket.
    pub fn next_dirty(&mut self) -> Option<ConnId> {
        let id = self.dirty.pop()?;
        if let Some(conn) = self.conn_mut(id) {
            conn.dirty = false;
        }
        Some(id)
    }

    /// What waits to be written to a connection; nothing while a layer below has some of it.
    pub fn output(&self, id: ConnId) -> &[u8] {
        match self.conn(id) {
            Some(conn) if conn.in_flight == 0 => conn.unwritten(),
            _ => b"",
        }
    }

    /// What waits to be written to a connection, whatever a layer below still has: its last bytes.
    pub fn unwritten(&self, id: ConnId) -> &[u8] {
        self.conn(id).map_or(b"", Conn::unwritten)
    }

    /// The first bytes of the output have gone to the socket.
    pub fn written(&mut self, id: ConnId, bytes: usize) {
        self.room |= bytes > 0;
        let Some(conn) = self.conn_mut(id) else { return };
        conn.written = conn.written.saturating_add(bytes).min(conn.output.len());
        if conn.thirsty {
            self.note_room(id);
        }
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.written < conn.output.len() {
            // Bytes move once at most, however small the pieces are that the socket takes.
            if conn.written >= conn.output.len() / 2 {
                conn.output.drain(..conn.written);
                conn.written = 0;
            }
            return;
        }
        conn.written = 0;
        if conn.output.capacity() < MIN_BYTES {
            conn.output.clear();
        } else {
            let output = std::mem::take(&mut conn.output);
            self.buffers.give(output);
        }
    }

    /// The socket has taken so many bytes and takes no more for now: within the write deadline it must.
    pub fn blocked(&mut self, id: ConnId, bytes: usize, now_us: u64) {
        self.written(id, bytes);
        self.blocked_after(id, bytes, now_us);
    }

    /// A client that takes something gets the whole time again.
    fn blocked_after(&mut self, id: ConnId, bytes: usize, now_us: u64) {
        if bytes > 0 || self.conn(id).is_some_and(|conn| conn.write_deadline.is_none()) {
            self.start_write_deadline(id, now_us);
        }
    }

    /// The socket has taken everything that was offered.
    pub fn unblocked(&mut self, id: ConnId) {
        self.cancel_write_deadline(id);
    }

    /// The first bytes of the output are with a layer below now, which has yet to write them.
    pub fn handed(&mut self, id: ConnId, bytes: usize, now_us: u64) {
        self.written(id, bytes);
        if let Some(conn) = self.conn_mut(id) {
            conn.in_flight = bytes;
            self.start_write_deadline(id, now_us);
        }
    }

    /// The layer below has got rid of so many bytes of what it had, not all: within the write deadline it must.
    pub fn blocked_below(&mut self, id: ConnId, bytes: usize, now_us: u64) {
        self.blocked_after(id, bytes, now_us);
    }

    /// There is more output than was offered at once.
    pub fn offer_again(&mut self, id: ConnId) {
        self.mark_dirty(id);
    }

    /// The layer below has written all it had; what waits may be offered again.
    pub fn drained(&mut self, id: ConnId) {
        let Some(conn) = self.conn_mut(id) else { return };
        conn.in_flight = 0;
        self.room = true;
        self.note_room(id);
        let Some(conn) = self.conn(id) else { return };
        let waiting = !conn.unwritten().is_empty();
        // The next that it does not take has the whole time again.
        self.unblocked(id);
        if waiting {
            self.mark_dirty(id);
        }
    }

    /// How a connection's output stands.
    pub fn waiting(&self, id: ConnId) -> Waiting {
        self.conn(id).map_or_else(Waiting::default, |conn| Waiting {
            below: conn.in_flight,
            timed: conn.write_deadline.is_some(),
            ends: conn.phase == Phase::Closing,
        })
    }

    /// Writes to a connection, as it is.
    pub fn write(&mut self, id: ConnId, bytes: &[u8]) {
        if let Some(output) = self.output_of(id) {
            output.extend_from_slice(bytes);
            if self.logging {
                self.log_told(id, bytes);
            }
        }
    }

    pub(super) fn write_err(&mut self, id: ConnId, text: &[u8]) {
        if let Some(output) = self.output_of(id) {
            nats::err(output, text);
            if self.logging {
                self.log_told(id, &[b"-ERR ", text].concat());
            }
        }
    }

    /// Where to append output for a connection, unless it is closing or hopelessly behind.
    pub(super) fn output_of(&mut self, id: ConnId) -> Option<&mut Vec<u8>> {
        let max_pending = self.limits.max_pending;
        let conn = self.conn(id).filter(|conn| conn.phase != Phase::Closing)?;
        if conn.pending() > max_pending {
            self.cut_slow(id, "Slow Consumer (Pending Bytes)");
            return None;
        }
        self.mark_dirty(id);
        self.conn_mut(id).map(|conn| &mut conn.output)
    }

    pub(super) fn mark_dirty(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id as usize).and_then(Option::as_deref_mut)
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(id);
        }
    }
}

impl Conn {
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.output[self.written..]
    }

    pub(super) fn drop_output(&mut self) {
        self.output = Vec::new();
        self.written = 0;
    }
}
