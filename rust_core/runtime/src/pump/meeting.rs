//! Greets a client, in plain text or in TLS, whichever comes first.

use mq9_core::front::ConnId;
use mq9_core::time::Moment;

use super::Pump;
use crate::link::{Layer, Link, TlsTerms};
use crate::notices::Notice;
use crate::tls::{TlsError, TlsLayer};

const HANDSHAKE_FAILURE: &str = "TLS Handshake Failure";

impl Pump {
    pub(super) fn tls_failed(&mut self, id: ConnId, error: &TlsError, now: Moment) {
        let agreed = self.link(id).is_some_and(Link::is_established);
        let reason = if agreed { "TLS Error" } else { HANDSHAKE_FAILURE };
        self.engine.close(id, None, reason.into());
        self.lost(id, Some(error.to_string()), now);
    }

    /// Meets a client that has just connected.
    pub(super) fn begin(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.links[id as usize].as_ref() else { return };
        let Layer::Unknown(terms) = &link.layer else { return self.begin_plain(id, now) };
        let terms = terms.clone();
        match terms.first {
            None => self.begin_tls(id, &terms, now),
            Some(0) => self.tell_info(id, &terms, now),
            Some(wait_ms) => self.expect(id, wait_ms, now),
        }
    }

    /// Tells the client in plain text whom it speaks to; then it begins with TLS, or need not.
    fn tell_info(&mut self, id: ConnId, terms: &TlsTerms, now: Moment) {
        if let Some(link) = self.links[id as usize].as_mut() {
            link.out.extend(link.info.take().unwrap_or_default());
        }
        self.flush_raw(id, now);
        if terms.plain_allowed {
            self.expect(id, terms.timeout_ms, now);
        } else {
            self.begin_tls(id, terms, now);
        }
    }

    pub(super) fn begin_tls(&mut self, id: ConnId, terms: &TlsTerms, now: Moment) {
        self.expect(id, terms.timeout_ms, now);
        match TlsLayer::new(&terms.config) {
            Ok(tls) => {
                if let Some(link) = self.links[id as usize].as_mut() {
                    link.layer = Layer::Tls(Box::new(tls));
                }
            }
            Err(error) => self.tls_failed(id, &error, now),
        }
    }

    pub(super) fn begin_plain(&mut self, id: ConnId, now: Moment) {
        if let Some(link) = self.links[id as usize].as_mut() {
            link.layer = Layer::Plain;
        }
        self.ready_to_talk(id, now);
    }

    /// The handshake is over.
    pub(super) fn established(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.link(id) else { return };
        if let Layer::Tls(tls) = &link.layer
            && let Some(facts) = tls.facts()
        {
            let (cid, facts) = (link.cid, Box::new(facts.clone()));
            self.news.push(Notice::Secured { cid, facts });
        }
        self.ready_to_talk(id, now);
    }

    /// What the client is told passes from now on, and it is expected to talk.
    fn ready_to_talk(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.links[id as usize].as_mut() else { return };
        link.patience_ms = link.auth_timeout_ms;
        let info = link.info.take();
        let front = self.engine.front_mut();
        front.expect_nothing(id);
        if let Some(info) = info {
            front.write(id, &info);
        }
        self.start_waiting(id, now);
    }

    fn expect(&mut self, id: ConnId, timeout_ms: u64, now: Moment) {
        if let Some(link) = self.links[id as usize].as_mut() {
            link.patience_ms = Some(timeout_ms);
        }
        self.start_waiting(id, now);
    }

    /// The time for what is expected of a client begins. Before it is read from, it cannot be late; nor is it asked for
    /// a sign of life, since some clients take the first line behind their CONNECT for the answer to their own ping.
    pub(super) fn start_waiting(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.links[id as usize].as_mut().filter(|link| link.is_read()) else {
            return;
        };
        let (patience_ms, talks) = (link.patience_ms.take(), link.is_established());
        let front = self.engine.front_mut();
        if talks {
            front.greet(id, now.mono_us);
        }
        match patience_ms {
            Some(timeout_ms) if talks => front.expect_authentication(id, timeout_ms, now.mono_us),
            Some(timeout_ms) => front.expect(id, timeout_ms, now.mono_us),
            None => {}
        }
    }

    /// What was expected of a client before it may talk has not come.
    pub(super) fn late(&mut self, id: ConnId, now: Moment) {
        let Some(link) = self.link(id) else { return };
        match &link.layer {
            Layer::Unknown(terms) if link.info.is_some() => {
                let terms = terms.clone();
                self.tell_info(id, &terms, now);
            }
            Layer::Unknown(_) => self.begin_plain(id, now),
            Layer::Tls(_) => {
                self.engine.close(id, None, HANDSHAKE_FAILURE.into());
                self.lost(id, Some("it took too long".to_owned()), now);
            }
            Layer::Plain => debug_assert!(false, "nothing is expected of a plain connection"),
        }
    }
}
