//! Clients begin and end subscriptions.

use std::borrow::Cow;

use super::publish::violation;
use super::push::Subscribing;
use super::{ConnId, Front, Handler, RESERVED};
use crate::commands::{BROADCAST, INBOX, MAILBOX_MSG};
use crate::nats;
use crate::router::{Sid, SubId};

/// One subscription, for those who watch the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionInfo {
    /// Its connection.
    pub cid: u64,
    /// The client's name for it.
    pub sid: Vec<u8>,
    /// What it listens to.
    pub subject: Vec<u8>,
    /// Its queue group; empty for none.
    pub queue: Vec<u8>,
    /// Messages delivered.
    pub delivered: u64,
    /// Deliveries after which it ends; 0 for never.
    pub max: u64,
}

impl Front {
    pub(super) fn subscribe(
        &mut self,
        id: ConnId,
        subject: &[u8],
        queue: &[u8],
        sid: &[u8],
        handler: &mut dyn Handler,
    ) {
        let max_subscriptions = self.limits.max_subscriptions;
        let Some(conn) = self.conn(id) else { return };
        let (cid, verbose) = (conn.cid, conn.terms.verbose);
        let permissions = conn.terms.permissions.clone();
        // What counts is what it will hear, however that is written.
        let heard = heard_as(subject);
        if (is_reserved(subject) && !is_fed(subject) && !is_broadcast(subject))
            || permissions.as_ref().is_some_and(|rules| !rules.may_subscribe(&heard, queue))
        {
            self.write_err(id, &subscription_violation(subject, queue));
            return;
        }
        if max_subscriptions > 0 && conn.sids.len() >= max_subscriptions {
            self.write_err(id, b"maximum subscriptions exceeded");
            return;
        }
        let sid = Sid::from_slice(sid);
        if !conn.sids.contains_key(&sid) {
            if !nats::is_valid(subject) {
                self.write_err(id, b"Invalid Subject");
                return;
            }
            let filtered = permissions.as_ref().is_some_and(|rules| rules.needs_filter(&heard));
            let subscription = self.router.subscribe(id, &heard, queue, sid.clone());
            self.totals.inserts += 1;
            if is_fed(subject) {
                let rules = permissions.as_deref();
                let wish = Subscribing { cid, subject, queue, subscription, rules };
                if let Err(problem) = self.feed_subscription(&wish, handler) {
                    self.router.unsubscribe(subscription);
                    self.totals.removes += 1;
                    self.write_err(id, &unfed(subject, queue, problem));
                    return;
                }
            }
            if let Some(conn) = self.conn_mut(id) {
                conn.sids.insert(sid, subscription);
                conn.filtered |= filtered;
            }
            // Who shares broadcasts hears what is told from now on.
            if is_broadcast(subject) && queue.is_empty() {
                let reader = handler.catch_up(cid, subscription);
                self.set_reader(subscription, reader);
            }
        }
        if verbose {
            self.write(id, b"+OK\r\n");
        }
    }

    pub(super) fn unsubscribe(&mut self, id: ConnId, sid: &[u8], max: u64) {
        let Some(conn) = self.conn(id) else { return };
        let verbose = conn.terms.verbose;
        if let Some(&subscription) = conn.sids.get(sid)
            && let Some(known) = self.router.get_mut(subscription)
        {
            match max {
                0 => self.end_subscription(subscription),
                _ if max > known.delivered => known.max = max,
                _ => self.end_after(subscription, max),
            }
        }
        if verbose {
            self.write(id, b"+OK\r\n");
        }
    }

    pub(super) fn end_subscription(&mut self, id: SubId) {
        self.end_after(id, u64::MAX);
    }

    /// Ends a subscription whose client takes no more than `max` messages, of all that were written.
    fn end_after(&mut self, id: SubId, max: u64) {
        let Some(ended) = self.router.unsubscribe(id) else { return };
        self.totals.removes += 1;
        self.pushing.end(&ended, max);
        if let Some(conn) = self.conn_mut(ended.owner) {
            conn.sids.remove(&ended.sid);
            conn.readers -= usize::from(ended.reader != 0);
        }
    }

    pub(super) fn end_all_subscriptions(&mut self, id: ConnId) {
        let Some(conn) = self.conn_mut(id) else { return };
        conn.readers = 0;
        for (_, subscription) in std::mem::take(&mut conn.sids) {
            if let Some(ended) = self.router.unsubscribe(subscription) {
                self.pushing.end(&ended, u64::MAX);
            }
            self.totals.removes += 1;
        }
    }

    /// Ends the subscriptions and waits that the client's permissions do not allow (any more), and tells it.
    pub(super) fn enforce_permissions(&mut self, id: ConnId, handler: &mut dyn Handler) {
        let Some(conn) = self.conn(id) else { return };
        let Some(rules) = conn.terms.permissions.clone() else {
            let known = conn.sids.values().filter_map(|&id| self.router.get(id));
            for reader in known.map(|known| known.reader).filter(|&reader| reader != 0) {
                handler.may_feed(reader, None);
            }
            return;
        };
        let cid = conn.cid;
        let mut filtered = false;
        let mut refused: Vec<(SubId, Vec<u8>)> = Vec::new();
        for (sid, &subscription) in &conn.sids {
            let Some((subject, queue)) = self.router.subject_of(subscription) else { continue };
            let reader = self.router.get(subscription).map_or(0, |known| known.reader);
            let fed = reader == 0 || handler.may_feed(reader, Some(&rules));
            if fed && rules.may_subscribe(subject, queue) {
                filtered |= rules.needs_filter(subject);
            } else {
                let mut error = subscription_violation(subject, queue);
                error.extend_from_slice(b" (sid \"");
                error.extend_from_slice(sid);
                error.extend_from_slice(b"\")");
                refused.push((subscription, error));
            }
        }
        for (subscription, error) in refused {
            self.end_subscription(subscription);
            self.write_err(id, &error);
        }
        for subject in handler.enforce(cid, &rules) {
            self.write_err(id, &violation(b"Publish to", &subject));
        }
        if let Some(conn) = self.conn_mut(id) {
            conn.filtered = filtered;
        }
    }

    /// The subscriptions of one connection, in no order.
    pub fn subscriptions_of(&self, id: ConnId) -> impl Iterator<Item = SubId> {
        self.conn(id).into_iter().flat_map(|conn| conn.sids.values().copied())
    }

    /// What is to be known of a subscription, if it is still there and this connection's.
    pub fn subscription(&self, cid: u64, id: SubId) -> Option<SubscriptionInfo> {
        let known = self.router.get(id)?;
        if self.cid(known.owner) != Some(cid) {
            return None;
        }
        let (subject, queue) = self.router.subject_of(id)?;
        Some(SubscriptionInfo {
            cid,
            sid: known.sid.to_vec(),
            subject: subject.to_vec(),
            queue: queue.to_vec(),
            delivered: known.delivered,
            max: known.max,
        })
    }
}

/// Whether a subscription asks for the broker's own traffic by name.
fn is_reserved(subject: &[u8]) -> bool {
    subject.starts_with(RESERVED)
}

/// Whether a subscription is fed from a mailbox.
fn is_fed(subject: &[u8]) -> bool {
    [INBOX, MAILBOX_MSG].iter().any(|prefix| subject.starts_with(prefix))
}

fn is_broadcast(subject: &[u8]) -> bool {
    subject.starts_with(BROADCAST)
}

/// The subject that matches the same: in broadcasts, `#` at the end is written for `>`.
fn heard_as(subject: &[u8]) -> Cow<'_, [u8]> {
    match subject.strip_suffix(b".#") {
        Some(front) if is_broadcast(subject) => [front, b".>"].concat().into(),
        _ => subject.into(),
    }
}

/// The error for a subscription that is not fed.
fn unfed(subject: &[u8], queue: &[u8], problem: Option<String>) -> Vec<u8> {
    let mut text = subscription_violation(subject, queue);
    if let Some(problem) = problem {
        text.extend_from_slice(b": ");
        text.extend_from_slice(problem.as_bytes());
    }
    text
}

fn subscription_violation(subject: &[u8], queue: &[u8]) -> Vec<u8> {
    let mut text = violation(b"Subscription to", subject);
    if !queue.is_empty() {
        text.extend_from_slice(b" using queue \"");
        text.extend_from_slice(queue);
        text.push(b'"');
    }
    text
}
