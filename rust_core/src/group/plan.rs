//! Plans of what a FETCH or an ACK would do to a group. Everything here reads and nothing writes: the store
//! logs a plan before it applies it.
//!
//! Owns the order of a fetch and the reach of an ACK. Must not know time: a lease counts until
//! [`Group::expire_leases`] ends it.

use std::collections::{BTreeMap, BTreeSet};

use crate::mailbox::{Entry, Lane, Level};

use super::member::MemberId;
use super::{Delivered, Delivery, Group, Member};

/// How much one fetch may take, and of what.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// At most this many messages.
    pub max_msgs: usize,
    /// At most this many bytes of records, but never less than one message.
    pub max_bytes: u64,
    /// The least important level wanted.
    pub max_level: Level,
    /// A message delivered this often is dead; 0 for no limit.
    pub max_deliver: u32,
    /// No new message while this many are delivered and not acknowledged; 0 for no limit.
    pub max_ack_pending: usize,
    /// The member gets what it holds again.
    pub held: bool,
    /// The connection that asks.
    pub conn: u64,
}

/// A message chosen by a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// Its level.
    pub level: Level,
    /// Where it is stored.
    pub entry: Entry,
    /// How many times it has been delivered, this time included unless it is dead.
    pub count: u32,
    /// The member holds it, from this connection: it is the delivery that was, not another.
    pub again: bool,
}

impl Pick {
    /// The delivery that applying this pick makes.
    pub fn delivered(&self) -> Delivered {
        Delivered { level: self.level, msg_id: self.entry.msg_id, count: self.count }
    }
}

/// What a fetch would do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be delivered, in this order.
    pub picks: Vec<Pick>,
    /// Delivered too often: to be dead-lettered and then applied as acknowledged.
    pub dead: Vec<Pick>,
}

impl Plan {
    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.picks.is_empty() && self.dead.is_empty()
    }
}

impl Group {
    /// What `member` would get now: by level, then `msg_id`; its own unacknowledged messages and those
    /// available before new ones of the same level. `lanes` ascend by level.
    pub fn plan_fetch(
        &self,
        member: &Member,
        lanes: &[(Level, Lane)],
        limits: &FetchLimits,
    ) -> Plan {
        let own = if limits.held { self.own(member) } else { Vec::new() };
        let mut plan = Plan::default();
        let mut bytes_left = limits.max_bytes;
        let mut new = 0;
        for (level, lane) in lanes.iter().take_while(|(level, _)| *level <= limits.max_level) {
            let level = *level;
            for msg_id in self.again(&own, level) {
                let (Some(entry), Some(delivery)) = (lane.get(msg_id), self.deliveries.get(msg_id))
                else {
                    continue;
                };
                if plan.picks.len() >= limits.max_msgs {
                    return plan;
                }
                let conn = delivery.lease.and_then(|lease| self.leases.conn(lease));
                let again = conn == Some(limits.conn);
                let count = delivery.count;
                if !again && limits.max_deliver > 0 && count >= limits.max_deliver {
                    plan.dead.push(Pick { level, entry, count, again });
                    continue;
                }
                let count = if again { count } else { count.saturating_add(1) };
                if !plan.pick(Pick { level, entry, count, again }, &mut bytes_left) {
                    return plan;
                }
            }
            for entry in lane.iter_from(self.cursors[level.index()]) {
                // The dead are pending now, and will not be when this plan is applied.
                let pending = self.deliveries.len() - plan.dead.len() + new;
                if limits.max_ack_pending > 0 && pending >= limits.max_ack_pending {
                    break;
                }
                if plan.picks.len() >= limits.max_msgs
                    || !plan.pick(Pick { level, entry, count: 1, again: false }, &mut bytes_left)
                {
                    return plan;
                }
                new += 1;
            }
        }
        plan
    }

    /// Messages that nobody holds and that have been delivered `max_deliver` times, at most so many.
    pub fn exhausted(&self, lanes: &[(Level, Lane)], max_deliver: u32, most: usize) -> Vec<Pick> {
        let delivered = self.available.iter().filter_map(|&(level, msg_id)| {
            let count = self.deliveries.get(msg_id)?.count;
            let (_, lane) = lanes.iter().find(|(l, _)| *l == level)?;
            Some(Pick { level, entry: lane.get(msg_id)?, count, again: false })
        });
        delivered.filter(|pick| pick.count >= max_deliver).take(most).collect()
    }

    /// What an ACK of these messages would confirm, each added to `out` once: only themselves, or with `cumulative`
    /// all that the member who last received a message was given up to it, in delivery order. Each comes with its level,
    /// `None` if it has left the mailbox. One that has left adds nothing itself, one that the group is done with nothing at all; `Err` names one that it was never
    /// given.
    pub fn plan_acks(
        &self,
        msg_ids: impl Iterator<Item = (u64, Option<Level>)>,
        cumulative: bool,
        out: &mut Vec<u64>,
    ) -> Result<(), u64> {
        let mut single = BTreeSet::new();
        let mut in_order = Vec::new();
        let mut reach: BTreeMap<MemberId, u64> = BTreeMap::new();
        for (msg_id, level) in msg_ids {
            let pending = self.deliveries.get(msg_id);
            match pending.or_else(|| self.gone.get(msg_id)) {
                None if !self.was_given(msg_id, level) => return Err(msg_id),
                None => {}
                Some(Delivery { member: Some(member), seq, .. }) if cumulative => {
                    let furthest = reach.entry(*member).or_default();
                    *furthest = (*furthest).max(*seq);
                }
                Some(_) if pending.is_some() && single.insert(msg_id) => in_order.push(msg_id),
                Some(_) => {}
            }
        }
        for (member, furthest) in reach {
            let order = self.members.order(member).take_while(|&(seq, _)| seq <= furthest);
            let standing = order.filter(|&(seq, msg_id)| self.stands(member, seq, msg_id));
            out.extend(standing.map(|(_, msg_id)| msg_id));
        }
        out.extend(in_order);
        Ok(())
    }

    /// What `member` holds, by level and `msg_id`.
    fn own(&self, member: &Member) -> Vec<(Level, u64)> {
        let Some(member) = self.members.id_of(member) else { return Vec::new() };
        let mut own: Vec<_> = self
            .members
            .order(member)
            .filter_map(|(seq, msg_id)| {
                let delivery = self.deliveries.get(msg_id)?;
                let stands = delivery.seq == seq && delivery.member == Some(member);
                stands.then_some((delivery.level, msg_id))
            })
            .collect();
        own.sort_unstable();
        own
    }

    /// Messages of a level that may be delivered again, ascending: the member's own and those
    /// available. One may be both.
    fn again<'a>(
        &'a self,
        own: &'a [(Level, u64)],
        level: Level,
    ) -> impl Iterator<Item = u64> + 'a {
        let first = own.partition_point(|&(l, _)| l < level);
        let end = own.partition_point(|&(l, _)| l <= level);
        let mut own = own[first..end].iter().peekable();
        let mut available = self.available.range((level, 0)..=(level, u64::MAX)).peekable();
        std::iter::from_fn(move || {
            let next = match (own.peek(), available.peek()) {
                (Some(&a), Some(&b)) => a.min(b),
                (Some(&one), None) | (None, Some(&one)) => one,
                (None, None) => return None,
            };
            own.next_if_eq(&next);
            available.next_if_eq(&next);
            Some(next.1)
        })
    }
}

impl Plan {
    /// Adds a pick unless it goes over the bytes; the first one never does.
    fn pick(&mut self, pick: Pick, bytes_left: &mut u64) -> bool {
        let len = u64::from(pick.entry.len);
        if len > *bytes_left && !self.picks.is_empty() {
            return false;
        }
        *bytes_left = bytes_left.saturating_sub(len);
        self.picks.push(pick);
        true
    }
}
