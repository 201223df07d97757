//! A consumer group of one mailbox: what it was given, what it confirmed, who holds the rest.
//!
//! Owns cursors, deliveries, members and leases, all in memory. Must not know clocks, files, payloads
//! or the wire: monotonic milliseconds come in as arguments. Every change is split in two. A *plan*
//! (`plan_*`, `&self`) says what would happen; the store logs it; an *apply* call makes it so. On
//! recovery the store replays the apply calls alone, without leases, and arrives at the same state:
//!
//! | call                | logged as               | replayed as                           |
//! | ------------------- | ----------------------- | ------------------------------------- |
//! | `reset`             | the new start           | the same                              |
//! | `apply_delivered`   | member and deliveries   | the same with `lease_until` `None`    |
//! | `apply_acked`       | ids                     | the same                              |
//! | `nak`               | id                      | the same with `until` `None`          |
//! | `forget`            | removal of the message  | the same                              |
//! | `take_deliveries`   | removal of all messages | the same                              |
//! | `progress`, `release_member`, `expire_leases` | not at all    | not at all              |
//!
//! Four facts hold between calls. A delivery without a lease is in `available`, one with a lease is
//! not. A pending `msg_id` is below the cursor of its level. The deliveries of a member are what is left
//! of its last batch, and of the batches that this one was asked for besides: any other new batch detaches the rest. And no lease and no member is without deliveries.

mod codec;
mod invariants;
mod lease;
mod member;
mod plan;
pub mod ranges;
mod slab;

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::mailbox::{ById, LEVELS, Level};

use lease::{LeaseId, Leases};
use member::{MemberId, Members};

pub use codec::GroupSnapshot;
pub use member::Member;
pub use plan::{FetchLimits, Pick, Plan};

/// One message handed to a member: what the log remembers of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Its level.
    pub level: Level,
    /// Its offset in the mailbox, below `u64::MAX`.
    pub msg_id: u64,
    /// How many times it has been delivered, this time included.
    pub count: u32,
}

/// A message delivered and not yet acknowledged, as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending<'a> {
    /// The last delivery of it.
    pub delivered: Delivered,
    /// Who received it; nobody, once it was detached or returned.
    pub member: Option<&'a Member>,
    /// Until when it is out or parked; `None` if it may be delivered again now.
    pub until_mono_ms: Option<u64>,
}

/// How long a member may hold messages, and where they went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Until then they are its own.
    pub until_mono_ms: u64,
    /// The connection: over it, giving them again is the same delivery.
    pub conn: u64,
}

#[derive(Debug, Clone, Copy)]
struct Delivery {
    seq: u64,
    count: u32,
    member: Option<MemberId>,
    /// With a member: out with it. Without: parked by a `nak`.
    lease: Option<LeaseId>,
    level: Level,
}

/// The state of one consumer group of one mailbox.
#[derive(Debug)]
pub struct Group {
    start: [u64; LEVELS],
    cursors: [u64; LEVELS],
    next_seq: u64,
    deliveries: ById<Delivery>,
    /// Messages that left the mailbox while their member had more of the same batch: an ACK of one
    /// still confirms what came before it.
    gone: ById<Delivery>,
    available: BTreeSet<(Level, u64)>,
    members: Members,
    leases: Leases,
}

impl Group {
    /// A group that will be given, per level, the messages from `start` on.
    pub fn new(start: [u64; LEVELS]) -> Group {
        Group {
            start,
            cursors: start,
            next_seq: 0,
            deliveries: ById::default(),
            gone: ById::default(),
            available: BTreeSet::new(),
            members: Members::default(),
            leases: Leases::default(),
        }
    }

    /// Forgets everything and begins again at `start`. Returns what it was, which may take a while to drop.
    pub fn reset(&mut self, start: [u64; LEVELS]) -> Group {
        std::mem::replace(self, Group::new(start))
    }

    /// `member` received these messages, in this order. They are its own as `hold` says;
    /// without one (replay) they may be delivered again at once. What it held and did not receive
    /// again is detached: available to all, confirmed only by name; unless it `keeps` that. Nothing delivered
    /// changes nothing. Returns how many were detached.
    pub fn apply_delivered(
        &mut self,
        member: &Member,
        deliveries: impl IntoIterator<Item = Delivered>,
        hold: Option<Hold>,
        keeps: bool,
    ) -> usize {
        let mut deliveries = deliveries.into_iter().peekable();
        if deliveries.peek().is_none() {
            return 0;
        }
        let member = self.members.enter(member);
        let lease = hold.map(|hold| self.leases.open(hold.until_mono_ms, Some(hold.conn)));
        let (held, gone) = if keeps { Default::default() } else { self.members.take_batch(member) };
        self.forget_gone(gone);
        self.deliver(deliveries, Some(member), lease);
        if keeps {
            let deliveries = &self.deliveries;
            self.members.compact(member, |(seq, msg_id)| {
                deliveries.get(msg_id).is_some_and(|d| d.seq == seq && d.member == Some(member))
            });
        }
        let mut detached = 0;
        for (seq, msg_id) in held {
            if self.stands(member, seq, msg_id) {
                self.detach(msg_id, None);
                detached += 1;
            }
        }
        detached
    }

    /// The record of these deliveries is lost, as later ones show: the messages go to whoever asks, and
    /// are not passed over.
    pub fn recover_deliveries(&mut self, deliveries: impl IntoIterator<Item = Delivered>) {
        self.deliver(deliveries.into_iter(), None, None);
    }

    /// These messages are done with, in any order; others than pending ones are passed over. Returns
    /// how many were pending.
    pub fn apply_acked(&mut self, msg_ids: impl IntoIterator<Item = u64>) -> usize {
        let mut deliveries = std::mem::take(&mut self.deliveries);
        let before = deliveries.len();
        let mut untrimmed: SmallVec<[MemberId; 1]> = SmallVec::new();
        for run in ranges::runs_of(msg_ids) {
            deliveries.remove_range(run, |msg_id, delivery| {
                self.let_go(msg_id, &delivery);
                if let Some(member) = delivery.member
                    && untrimmed.last() != Some(&member)
                {
                    untrimmed.push(member);
                }
            });
        }
        let confirmed = before - deliveries.len();
        self.deliveries = deliveries;
        for member in untrimmed {
            self.trim(Some(member));
        }
        confirmed
    }

    /// Gives a pending message back: it belongs to nobody any more, and is available at once or, with a
    /// deadline, to nobody until then. False if it is not pending. The deadline is volatile; that the
    /// message was given back is not, or a later cumulative ACK would confirm it after a restart.
    pub fn nak(&mut self, msg_id: u64, until_mono_ms: Option<u64>) -> bool {
        let member = match self.deliveries.get(msg_id) {
            Some(delivery) => delivery.member,
            None => return false,
        };
        self.detach(msg_id, until_mono_ms);
        self.trim(member);
        true
    }

    /// The member that holds this message needs it at least until `until_mono_ms`; also if its lease
    /// has ended and nobody else has taken the message yet. False if no member holds it.
    pub fn progress(&mut self, msg_id: u64, until_mono_ms: u64) -> bool {
        let Some(delivery) = self.deliveries.get_mut(msg_id) else { return false };
        if delivery.member.is_none() {
            return false;
        }
        let deadline_ms = delivery.lease.and_then(|lease| self.leases.deadline_ms(lease));
        if deadline_ms.is_some_and(|deadline_ms| deadline_ms >= until_mono_ms) {
            return true;
        }
        let conn = delivery.lease.and_then(|lease| self.leases.conn(lease));
        let lease = self.leases.open(until_mono_ms, conn);
        self.leases.add(lease, msg_id);
        match delivery.lease.replace(lease) {
            Some(old) => self.leases.leave(old),
            None => drop(self.available.remove(&(delivery.level, msg_id))),
        }
        true
    }

    /// The connection of `member` closed: what is out with it becomes available, and stays its own to
    /// acknowledge. Returns how many messages became available.
    pub fn release_member(&mut self, member: &Member) -> usize {
        let Some(id) = self.members.id_of(member) else { return 0 };
        let before = self.available.len();
        for (seq, msg_id) in self.members.order(id) {
            let Some(delivery) = self.deliveries.get_mut(msg_id) else { continue };
            if delivery.seq != seq || delivery.member != Some(id) {
                continue;
            }
            if let Some(lease) = delivery.lease.take() {
                self.leases.leave(lease);
                self.available.insert((delivery.level, msg_id));
            }
        }
        self.available.len() - before
    }

    /// The message left the mailbox: deleted, expired or replaced. True if it was pending.
    pub fn forget(&mut self, msg_id: u64) -> bool {
        let Some(delivery) = self.deliveries.remove(msg_id) else { return false };
        self.let_go(msg_id, &delivery);
        if delivery.member.is_some_and(|member| self.members.note_gone(member, msg_id)) {
            self.gone.insert(msg_id, Delivery { lease: None, ..delivery });
        }
        self.trim(delivery.member);
        true
    }

    /// Every message left the mailbox: nothing is out any more. Returns what was, which may take a while to drop.
    pub fn take_deliveries(&mut self) -> Group {
        let mut rest = Group::new(self.start);
        rest.cursors = self.cursors;
        rest.next_seq = self.next_seq;
        std::mem::replace(self, rest)
    }

    /// Lets go of up to `most` deliveries of a group that is used no more: to drop them all at once takes a while. Returns
    /// how many it were.
    pub fn drop_some(&mut self, most: usize) -> usize {
        for done in 0..most {
            let Some((msg_id, delivery)) = self.deliveries.pop_first() else { return done };
            self.let_go(msg_id, &delivery);
        }
        most
    }

    /// When the next lease ends.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.leases.next_deadline_ms()
    }

    /// Ends the leases whose deadline is at or before now. Returns how many messages became available.
    pub fn expire_leases(&mut self, now_mono_ms: u64) -> usize {
        let before = self.available.len();
        while let Some((lease, msg_ids)) = self.leases.end_due(now_mono_ms) {
            for msg_id in msg_ids {
                let Some(delivery) = self.deliveries.get_mut(msg_id) else { continue };
                if delivery.lease == Some(lease) {
                    delivery.lease = None;
                    self.available.insert((delivery.level, msg_id));
                }
            }
        }
        self.available.len() - before
    }

    /// Whether the group was ever given this message since its start; of a message that is gone, whose
    /// level nobody knows, whether it may have been.
    pub fn was_given(&self, msg_id: u64, level: Option<Level>) -> bool {
        let given = |l: Level| (self.start[l.index()]..self.cursors[l.index()]).contains(&msg_id);
        level.map_or_else(|| Level::all().any(given), given)
    }

    /// Per level, where the group was pinned.
    pub fn start(&self) -> &[u64; LEVELS] {
        &self.start
    }

    /// Per level, the first `msg_id` not yet delivered for the first time.
    pub fn cursors(&self) -> &[u64; LEVELS] {
        &self.cursors
    }

    /// Messages of a level that were given and may be given again, ascending.
    pub fn available_at(&self, level: Level) -> impl Iterator<Item = u64> + '_ {
        let of_level = (level, 0)..=(level, u64::MAX);
        self.available.range(of_level).map(|(_, msg_id)| *msg_id)
    }

    /// How many messages are delivered and not yet acknowledged.
    pub fn outstanding(&self) -> usize {
        self.deliveries.len()
    }

    /// How many members hold messages.
    pub fn holders(&self) -> usize {
        self.members.len()
    }

    /// How many members have time left for what they hold; none, if their connections closed or their leases ended.
    pub fn active_members(&self) -> usize {
        self.members.len().min(self.leases.held())
    }

    /// The message with the lowest number that is delivered and not yet acknowledged.
    pub fn first_outstanding(&self) -> Option<u64> {
        self.deliveries.iter().next().map(|(msg_id, _)| msg_id)
    }

    /// How many leases are running.
    pub fn leases(&self) -> usize {
        self.leases.len()
    }

    /// A message delivered and not yet acknowledged.
    pub fn pending(&self, msg_id: u64) -> Option<Pending<'_>> {
        self.deliveries.get(msg_id).map(|delivery| self.view(msg_id, delivery))
    }

    /// Those of these messages that are delivered and not yet acknowledged.
    pub fn pending_of(&self, msg_ids: &[u64]) -> Vec<u64> {
        let mut pending = Vec::with_capacity(msg_ids.len());
        for run in ranges::runs_of(msg_ids.iter().copied()) {
            let from = self.deliveries.iter_from(run.start).map(|(msg_id, _)| msg_id);
            for msg_id in from.take_while(|msg_id| *msg_id < run.end) {
                pending.push(msg_id);
            }
        }
        pending
    }

    /// All messages delivered and not yet acknowledged, in the order of their last delivery.
    pub fn all_pending(&self) -> impl Iterator<Item = Pending<'_>> {
        let mut ordered: Vec<_> = self.deliveries.iter().collect();
        ordered.sort_unstable_by_key(|(_, delivery)| delivery.seq);
        ordered.into_iter().map(|(msg_id, delivery)| self.view(msg_id, delivery))
    }

    fn view(&self, msg_id: u64, delivery: &Delivery) -> Pending<'_> {
        Pending {
            delivered: Delivered { level: delivery.level, msg_id, count: delivery.count },
            member: delivery.member.and_then(|member| self.members.names().get(member)),
            until_mono_ms: delivery.lease.and_then(|lease| self.leases.deadline_ms(lease)),
        }
    }

    /// Whether what `member` received as `seq` is still its own.
    fn stands(&self, member: MemberId, seq: u64, msg_id: u64) -> bool {
        self.deliveries.get(msg_id).is_some_and(|d| d.seq == seq && d.member == Some(member))
    }

    /// Records deliveries, in place of earlier ones of the same messages.
    fn deliver(
        &mut self,
        all: impl Iterator<Item = Delivered>,
        member: Option<MemberId>,
        lease: Option<LeaseId>,
    ) {
        let mut deliveries = std::mem::take(&mut self.deliveries);
        let mut replaced = Vec::new();
        let new = all.map(|Delivered { level, msg_id, count }| {
            let seq = self.next_seq;
            self.next_seq += 1;
            let cursor = &mut self.cursors[level.index()];
            *cursor = (*cursor).max(msg_id.saturating_add(1));
            if let Some(member) = member {
                self.members.receive(member, seq, msg_id);
            }
            match lease {
                Some(lease) => self.leases.add(lease, msg_id),
                None => drop(self.available.insert((level, msg_id))),
            }
            (msg_id, Delivery { seq, count, member, lease, level })
        });
        deliveries.insert_all(new, |msg_id, earlier| replaced.push((msg_id, earlier)));
        self.deliveries = deliveries;
        // The new holds come before the old ones go, or a member or lease in both would end between.
        for (msg_id, earlier) in replaced {
            self.let_go(msg_id, &earlier);
            if let Some(delivery) = self.deliveries.get(msg_id).filter(|d| d.lease.is_none()) {
                // It went with the earlier one.
                self.available.insert((delivery.level, msg_id));
            }
        }
    }

    /// Undoes what a delivery that ends holds in members, leases and the available set.
    fn let_go(&mut self, msg_id: u64, delivery: &Delivery) {
        match delivery.lease {
            Some(lease) => self.leases.leave(lease),
            None => drop(self.available.remove(&(delivery.level, msg_id))),
        }
        if let Some(member) = delivery.member {
            let gone = self.members.lose(member, delivery.seq);
            self.forget_gone(gone);
        }
    }

    /// Nothing is left that an ACK of these could confirm.
    fn forget_gone(&mut self, msg_ids: Vec<u64>) {
        for msg_id in msg_ids {
            self.gone.remove(msg_id);
        }
    }

    /// Takes a pending message from its member: available, or parked until the deadline.
    fn detach(&mut self, msg_id: u64, until_mono_ms: Option<u64>) {
        let delivery = self.deliveries.get(msg_id).copied();
        debug_assert!(delivery.is_some(), "{msg_id} is detached and not pending");
        let Some(mut delivery) = delivery else { return };
        self.let_go(msg_id, &delivery);
        delivery.member = None;
        delivery.lease = until_mono_ms.map(|deadline_ms| self.leases.park(deadline_ms));
        match delivery.lease {
            Some(lease) => self.leases.add(lease, msg_id),
            None => drop(self.available.insert((delivery.level, msg_id))),
        }
        self.deliveries.insert(msg_id, delivery);
    }

    fn trim(&mut self, member: Option<MemberId>) {
        let Some(member) = member else { return };
        let deliveries = &self.deliveries;
        self.members.trim(member, |(seq, msg_id)| {
            deliveries.get(msg_id).is_some_and(|d| d.seq == seq && d.member == Some(member))
        });
    }
}
