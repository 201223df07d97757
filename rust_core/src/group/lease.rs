//! Leases: the messages that are out, and until when.
//!
//! Owns the leases of a group, ordered by deadline. Volatile: nothing here is logged or stored. Does
//! not know who holds a message, only its `msg_id`; whether a message is still under a lease is
//! recorded in its delivery, so an entry of a lease may be out of date.

use std::collections::{BTreeMap, BTreeSet};

use super::slab::{Slab, Slot};

/// The short name of a lease that covers at least one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseId(Slot);

#[derive(Debug)]
struct Lease {
    deadline_ms: u64,
    /// The connection that they were given to; none if they rest, or nobody knows.
    conn: Option<u64>,
    /// Whether nobody holds them: they rest until then.
    rests: bool,
    /// Messages still under it. Never 0 between calls of the group.
    live: usize,
    /// All messages that were ever under it.
    msg_ids: Vec<u64>,
}

/// The running leases of a group.
#[derive(Debug, Default)]
pub(super) struct Leases {
    table: Slab<Lease>,
    by_deadline: BTreeSet<(u64, LeaseId)>,
    /// Those under which somebody holds messages.
    held: usize,
}

impl Leases {
    /// A new lease. The caller must add a message, or it stays until its deadline.
    pub(super) fn open(&mut self, deadline_ms: u64, conn: Option<u64>) -> LeaseId {
        self.held += 1;
        self.enter(Lease { deadline_ms, conn, rests: false, live: 0, msg_ids: Vec::new() })
    }

    /// The same, for messages that nobody holds until then.
    pub(super) fn park(&mut self, deadline_ms: u64) -> LeaseId {
        self.enter(Lease { deadline_ms, conn: None, rests: true, live: 0, msg_ids: Vec::new() })
    }

    fn enter(&mut self, lease: Lease) -> LeaseId {
        let deadline_ms = lease.deadline_ms;
        let id = LeaseId(self.table.insert(lease));
        self.by_deadline.insert((deadline_ms, id));
        id
    }

    fn end(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.table.remove(id.0)?;
        self.held -= usize::from(!lease.rests);
        Some(lease)
    }

    /// How many are held by somebody.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn add(&mut self, id: LeaseId, msg_id: u64) {
        let lease = self.table.get_mut(id.0);
        debug_assert!(lease.is_some(), "a message under a lease that is over");
        if let Some(lease) = lease {
            lease.live += 1;
            lease.msg_ids.push(msg_id);
        }
    }

    /// One message is no longer under the lease; the last one ends it.
    pub(super) fn leave(&mut self, id: LeaseId) {
        let lease = self.table.get_mut(id.0);
        debug_assert!(lease.is_some(), "a message leaves a lease that is over");
        let Some(lease) = lease else { return };
        lease.live -= 1;
        if lease.live == 0 {
            self.by_deadline.remove(&(lease.deadline_ms, id));
            self.end(id);
        }
    }

    pub(super) fn deadline_ms(&self, id: LeaseId) -> Option<u64> {
        self.table.get(id.0).map(|lease| lease.deadline_ms)
    }

    pub(super) fn conn(&self, id: LeaseId) -> Option<u64> {
        self.table.get(id.0).and_then(|lease| lease.conn)
    }

    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        self.by_deadline.first().map(|&(deadline_ms, _)| deadline_ms)
    }

    /// Ends the first lease whose deadline has come, and returns the messages it ever covered.
    /// The caller must clear the id from those still under it before opening another.
    pub(super) fn end_due(&mut self, now_mono_ms: u64) -> Option<(LeaseId, Vec<u64>)> {
        let &(deadline_ms, id) = self.by_deadline.first()?;
        if deadline_ms > now_mono_ms {
            return None;
        }
        self.by_deadline.pop_first();
        let msg_ids = self.end(id).map(|lease| lease.msg_ids).unwrap_or_default();
        Some((id, msg_ids))
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Panics unless the leases are those of `held`, the messages that are under each. For tests.
    pub(super) fn check_invariants(&self, held: &BTreeMap<LeaseId, BTreeSet<u64>>) {
        self.table.check_invariants();
        assert_eq!(self.table.len(), held.len(), "a lease without deliveries");
        assert_eq!(self.by_deadline.len(), held.len(), "deadlines of leases");
        let of_somebody = held.keys().filter(|id| self.table.get(id.0).is_some_and(|l| !l.rests));
        assert_eq!(self.held, of_somebody.count(), "leases that are held");
        for (id, msg_ids) in held {
            let lease = self.table.get(id.0);
            let known = lease.is_some_and(|lease| {
                lease.live == msg_ids.len()
                    && msg_ids.iter().all(|msg_id| lease.msg_ids.contains(msg_id))
                    && self.by_deadline.contains(&(lease.deadline_ms, *id))
            });
            assert!(known, "the lease of {msg_ids:?} is {lease:?}");
        }
    }
}
