//! Who receives the messages of a group, and what each received in which order.
//!
//! Owns the table of members that hold deliveries. Knows nothing of levels, counts or leases: whether
//! an entry of a member's order still stands is asked of the caller, who keeps the deliveries.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::slab::{Slab, Slot};

/// A consumer within a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Member {
    /// It said its name, and keeps it across connections.
    Named(Box<str>),
    /// It did not: it is its connection.
    Conn {
        /// Which run of the broker the connection belongs to, so that numbers may start over.
        epoch: u32,
        /// The number of the connection in that run.
        conn: u64,
    },
}

impl Member {
    /// The member of that name.
    pub fn named(name: impl Into<Box<str>>) -> Member {
        Member::Named(name.into())
    }
}

/// The short name of a member that holds deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberId(Slot);

/// One message a member received: the delivery's `seq` and its `msg_id`.
pub(super) type Received = (u64, u64);

#[derive(Debug)]
struct Holder {
    member: Member,
    /// Deliveries that are this member's now. Never 0 between calls of the group.
    live: usize,
    /// What it received, ascending in `seq`; may hold entries that are no longer its own.
    order: VecDeque<Received>,
    /// Messages of its batch that have left the mailbox.
    gone: Vec<u64>,
}

/// The members that hold deliveries; one without any is forgotten.
#[derive(Debug, Default)]
pub(super) struct Members {
    ids: HashMap<Member, MemberId, RandomState>,
    table: Slab<Holder>,
}

impl Members {
    pub(super) fn id_of(&self, member: &Member) -> Option<MemberId> {
        self.ids.get(member).copied()
    }

    /// The id of `member`, entered if new. The caller must give it a delivery, or it stays forever.
    pub(super) fn enter(&mut self, member: &Member) -> MemberId {
        if let Some(id) = self.id_of(member) {
            return id;
        }
        let holder =
            Holder { member: member.clone(), live: 0, order: VecDeque::new(), gone: vec![] };
        let id = MemberId(self.table.insert(holder));
        self.ids.insert(member.clone(), id);
        id
    }

    pub(super) fn name(&self, id: MemberId) -> Option<&Member> {
        self.table.get(id.0).map(|holder| &holder.member)
    }

    /// What the member received, in order; entries may have been taken from it since.
    pub(super) fn order(&self, id: MemberId) -> impl Iterator<Item = Received> + '_ {
        self.table.get(id.0).into_iter().flat_map(|holder| holder.order.iter().copied())
    }

    /// Takes the order away, and what has gone of it: a new batch is about to replace it.
    pub(super) fn take_batch(&mut self, id: MemberId) -> (VecDeque<Received>, Vec<u64>) {
        let Some(holder) = self.table.get_mut(id.0) else { return Default::default() };
        (std::mem::take(&mut holder.order), std::mem::take(&mut holder.gone))
    }

    /// A message of the member's batch has left the mailbox. False if the member has nothing else.
    pub(super) fn note_gone(&mut self, id: MemberId, msg_id: u64) -> bool {
        let holder = self.table.get_mut(id.0);
        holder.map(|holder| holder.gone.push(msg_id)).is_some()
    }

    /// The member received a message. `seq` is above all it received before.
    pub(super) fn receive(&mut self, id: MemberId, seq: u64, msg_id: u64) {
        if let Some(holder) = self.table.get_mut(id.0) {
            holder.live += 1;
            holder.order.push_back((seq, msg_id));
        }
    }

    /// The delivery `seq` is no longer the member's. If it was the last one, returns what has gone
    /// of its batch.
    pub(super) fn lose(&mut self, id: MemberId, seq: u64) -> Vec<u64> {
        let Some(holder) = self.table.get_mut(id.0) else { return Vec::new() };
        holder.live -= 1;
        if holder.live == 0 {
            if let Some(holder) = self.table.remove(id.0) {
                self.ids.remove(&holder.member);
                return holder.gone;
            }
        } else if holder.order.front().is_some_and(|&(first, _)| first == seq) {
            holder.order.pop_front();
        }
        Vec::new()
    }

    /// Drops what leads the member's order and no longer stands, so that acknowledging a batch one by
    /// one does not walk over its beginning again and again.
    pub(super) fn trim(&mut self, id: MemberId, stands: impl Fn(Received) -> bool) {
        let Some(holder) = self.table.get_mut(id.0) else { return };
        while holder.order.front().is_some_and(|&received| !stands(received)) {
            holder.order.pop_front();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
