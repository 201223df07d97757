//! Output waits here until the caller takes it.
//!
//! The caller asks for the connections with output, offers it to the socket, and says how much went
//! ([`Broker::written`]) or was taken over by a transport that will report when it is gone
//! ([`Broker::handed`], [`Broker::drained`]). Until then further output stays here and counts.

use super::conn::Phase;
use super::spares::MIN_BYTES;
use super::{Broker, ConnId};
use crate::nats;

impl Broker {
    /// A connection whose output should be offered to its socket.
    pub fn next_dirty(&mut self) -> Option<ConnId> {
        let id = self.dirty.pop()?;
        if let Some(conn) = self.conn_mut(id) {
            conn.dirty = false;
        }
        Some(id)
    }

    /// What waits to be written to a connection; nothing while the transport has some of it.
    pub fn output(&self, id: ConnId) -> &[u8] {
        match self.conn(id) {
            Some(conn) if conn.in_flight == 0 => &conn.output,
            _ => b"",
        }
    }

    /// What waits to be written to a connection, whatever the transport still has: its last bytes.
    pub fn unwritten(&self, id: ConnId) -> &[u8] {
        self.conn(id).map_or(b"", |conn| &conn.output)
    }

    /// The first bytes of the output have gone to the socket.
    pub fn written(&mut self, id: ConnId, bytes: usize) {
        let Some(conn) = self.conn_mut(id) else { return };
        if bytes < conn.output.len() {
            conn.output.drain(..bytes);
        } else if conn.output.capacity() < MIN_BYTES {
            conn.output.clear();
        } else {
            let output = std::mem::take(&mut conn.output);
            self.spares.give(output);
        }
    }

    /// The first bytes of the output are the transport's now, which has yet to write them.
    pub fn handed(&mut self, id: ConnId, bytes: usize, now_us: u64) {
        self.written(id, bytes);
        if let Some(conn) = self.conn_mut(id) {
            conn.in_flight = bytes;
            self.start_write_deadline(id, now_us);
        }
    }

    /// The transport has written all it had; what waits may be offered again.
    pub fn drained(&mut self, id: ConnId) {
        let Some(conn) = self.conn_mut(id) else { return };
        conn.in_flight = 0;
        let (closing, waiting) = (conn.phase == Phase::Closing, !conn.output.is_empty());
        // The deadline of a closing connection is for its end, not for one write.
        if !closing {
            self.cancel_deadline(id);
        }
        if waiting {
            self.mark_dirty(id);
        }
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
