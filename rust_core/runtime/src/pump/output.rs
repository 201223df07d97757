//! Output on its way to the sockets, until a connection ends.

use mq9_core::front::ConnId;
use mq9_core::time::Moment;

use super::Pump;
use crate::link::{self, Layer};

/// How much is encrypted at once.
const ENCRYPTED_BYTES: usize = 256 << 10;

impl Pump {
    /// Offers a connection's output to its socket.
    pub(super) fn flush(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.links.get_mut(id as usize).and_then(Option::as_mut) else { return };
        if link.blocked || !link.is_established() {
            return;
        }
        match &mut link.layer {
            Layer::Plain => {
                let output = self.engine.front().output(id);
                let bytes = output.len();
                if bytes > 0 {
                    match link::write(&link.socket, output) {
                        Some(sent) if sent == bytes => self.engine.front_mut().written(id, sent),
                        Some(sent) => {
                            self.engine.front_mut().blocked(id, sent, now.mono_us);
                            self.set_blocked(id, true);
                        }
                        None => return self.lost(id, None, now),
                    }
                }
            }
            Layer::Tls(tls) => {
                let output = self.engine.front().output(id);
                let bytes = output.len().min(ENCRYPTED_BYTES);
                if bytes > 0 {
                    self.encrypted.clear();
                    if let Err(error) = tls.send(&output[..bytes], &mut self.encrypted) {
                        return self.tls_failed(id, &error, now);
                    }
                    match link::write(&link.socket, &self.encrypted) {
                        Some(sent) if sent == self.encrypted.len() => {
                            self.engine.front_mut().written(id, bytes);
                            if !self.engine.front().output(id).is_empty() {
                                self.engine.front_mut().offer_again(id);
                            }
                        }
                        Some(sent) => {
                            link.out.extend_from_slice(&self.encrypted[sent..]);
                            self.engine.front_mut().handed(id, bytes, now.mono_us);
                            self.set_blocked(id, true);
                        }
                        None => return self.lost(id, None, now),
                    }
                }
            }
            Layer::Unknown(_) => {}
        }
        self.end_if_written(id, now);
    }

    /// Writes what lies below the layer: the handshake, INFO before it, alerts. What a socket did not take before goes
    /// first, when the socket takes more.
    pub(super) fn flush_raw(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.links[id as usize].as_mut() else { return };
        if link.blocked || link.out.is_empty() {
            return;
        }
        match link::write(&link.socket, &link.out) {
            Some(sent) if sent == link.out.len() => link.out = Vec::new(),
            Some(sent) => {
                link.out.drain(..sent);
                self.engine.front_mut().blocked_below(id, sent, now.mono_us);
                self.set_blocked(id, true);
            }
            None => self.lost(id, None, now),
        }
    }

    /// The socket takes more.
    pub(super) fn writable(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.links[id as usize].as_mut() else { return };
        if !std::mem::take(&mut link.blocked) {
            return;
        }
        let had_some = !link.out.is_empty();
        self.flush_raw(id, now);
        let Some(link) = self.link(id) else { return };
        if had_some && !link.blocked {
            self.engine.front_mut().drained(id);
        }
        self.flush(id, now);
        if self.link(id).is_some_and(|link| !link.blocked) {
            self.engine.front_mut().unblocked(id);
            self.set_blocked(id, false);
        }
    }

    /// Panics unless what waits for a socket is known to it, to the engine and to the clocks.
    pub(super) fn check_output(&self, id: ConnId) {
        let Some(link) = self.link(id) else { return };
        let cid = link.cid;
        let waiting = self.engine.front().waiting(id);
        assert_eq!(link.blocked, link.watched.write, "{cid} is watched for what it waits for");
        assert!(link.blocked || link.out.is_empty(), "{cid}: nobody writes what is left");
        assert!(link.blocked || waiting.below == 0, "{cid}: output that went is thought to wait");
        assert!(waiting.below == 0 || !link.out.is_empty(), "{cid}: output that went below");
        let timed = waiting.timed || waiting.ends;
        assert!(!link.blocked || timed, "{cid} may read nothing for ever");
        assert!(link.blocked || !waiting.timed, "{cid} is cut off though it reads");
    }

    /// Writes what is left, and closes.
    pub(super) fn close_politely(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.links.get_mut(id as usize).and_then(Option::as_mut) else { return };
        link.closing = true;
        let established = link.is_established();
        self.watch(id);
        if established {
            self.flush(id, now);
        } else {
            self.lost(id, None, now);
        }
    }

    /// Closes a connection that was told to end once nothing is left to write.
    fn end_if_written(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.links.get_mut(id as usize).and_then(Option::as_mut) else { return };
        if !link.closing || link.blocked || !self.engine.front().unwritten(id).is_empty() {
            return;
        }
        if let Layer::Tls(tls) = &mut link.layer {
            self.encrypted.clear();
            tls.close(&mut self.encrypted);
            // A client that does not take the goodbye is gone all the same.
            let _ = link::write(&link.socket, &self.encrypted);
        }
        self.lost(id, None, now);
    }
}
