//! Members of a group, and what each received in which order.
//!
//! Owns the table of members that hold deliveries. Knows nothing of levels, counts or leases: whether
//! an entry of a member's order still stands is asked of the caller, who keeps the deliveries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::slab::{Slab, Slot};
use crate::mailbox::ById;

/// An order of fewer entries is left as it is.
const COMPACT_FROM: usize = 64;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MemberId(Slot);

/// One message a member received: the delivery's `seq` and its `msg_id`.
pub(super) type Received = (u64, u64);

#[derive(Debug)]
struct Holder {
    member: Arc<Member>,
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
    ids: HashMap<Arc<Member>, MemberId, RandomState>,
    table: Slab<Holder>,
    names: Names,
}

/// The members by their short names.
#[derive(Debug, Default, Clone)]
pub(super) struct Names(ById<Arc<Member>>);

impl Names {
    pub(super) fn get(&self, id: MemberId) -> Option<&Member> {
        self.0.get(id.0.number()).map(|member| &**member)
    }

    /// How many items a copy does not share.
    pub(super) fn unshared(&self) -> usize {
        self.0.unshared()
    }
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
        let member = Arc::new(member.clone());
        let holder = Holder {
            member: Arc::clone(&member),
            live: 0,
            order: VecDeque::new(),
            gone: Vec::new(),
        };
        let id = MemberId(self.table.insert(holder));
        self.names.0.insert(id.0.number(), Arc::clone(&member));
        self.ids.insert(member, id);
        id
    }

    pub(super) fn names(&self) -> &Names {
        &self.names
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
        let holder = self.table.get_mut(id.0);
        debug_assert!(holder.is_some(), "a delivery to a member that is not there");
        if let Some(holder) = holder {
            holder.live += 1;
            holder.order.push_back((seq, msg_id));
        }
    }

    /// The delivery `seq` is no longer the member's. If it was the last one, returns what has gone
    /// of its batch.
    pub(super) fn lose(&mut self, id: MemberId, seq: u64) -> Vec<u64> {
        let holder = self.table.get_mut(id.0);
        debug_assert!(holder.is_some(), "a member that is not there loses a delivery");
        let Some(holder) = holder else { return Vec::new() };
        holder.live -= 1;
        if holder.live == 0 {
            if let Some(holder) = self.table.remove(id.0) {
                self.names.0.remove(id.0.number());
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

    /// Drops what no longer stands anywhere in the member's order, once that is most of it: a member that keeps its
    /// first message and asks for others besides has an order without end otherwise.
    pub(super) fn compact(&mut self, id: MemberId, stands: impl Fn(Received) -> bool) {
        let Some(holder) = self.table.get_mut(id.0) else { return };
        if holder.order.len() > 2 * holder.live + COMPACT_FROM {
            holder.order.retain(|&received| stands(received));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Panics unless the members are those of `held`, what each received and has not lost, and `gone`, what has left
    /// the mailbox of it. For tests.
    pub(super) fn check_invariants(
        &self,
        held: &BTreeMap<MemberId, BTreeSet<Received>>,
        gone: &BTreeMap<MemberId, BTreeSet<u64>>,
    ) {
        self.table.check_invariants();
        let counts = [self.table.len(), self.ids.len(), self.names.0.len()];
        assert_eq!(counts, [held.len(); 3], "a member without deliveries");
        assert!(gone.keys().all(|id| held.contains_key(id)), "what has gone of no member's");
        for (id, received) in held {
            let Some(holder) = self.table.get(id.0) else {
                unreachable!("deliveries {received:?} of a member that is not there")
            };
            assert_eq!(holder.live, received.len(), "deliveries of {:?}", holder.member);
            assert_eq!(self.ids.get(&holder.member), Some(id), "place of {:?}", holder.member);
            assert_eq!(self.names.get(*id), Some(&*holder.member), "name of {id:?}");
            let order: BTreeSet<Received> = holder.order.iter().copied().collect();
            let ascends = holder.order.iter().is_sorted_by_key(|(seq, _)| seq);
            assert!(ascends && order.len() == holder.order.len(), "order of {:?}", holder.member);
            assert!(order.is_superset(received), "{received:?} not in the order of {holder:?}");
            let left = gone.get(id).cloned().unwrap_or_default();
            assert!(holder.gone.len() == left.len(), "what has gone of {holder:?}: {left:?}");
            assert!(holder.gone.iter().all(|id| left.contains(id)), "{holder:?}: {left:?}");
        }
    }
}
