//! Invariants of a group between two calls. For tests: it looks at everything.

use std::collections::{BTreeMap, BTreeSet};

use super::{Group, Member};

impl Group {
    /// Panics unless cursors, deliveries, members and leases agree with each other.
    pub fn check_invariants(&self) {
        for (level, (start, cursor)) in self.start.iter().zip(&self.cursors).enumerate() {
            assert!(start <= cursor, "cursor of level {} before its start", level + 1);
        }
        let (mut leases, mut members, mut gone) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (mut available, mut seqs) = (0, BTreeSet::new());
        let mut count = 0;
        for (msg_id, delivery) in self.deliveries.iter() {
            count += 1;
            let cursor = self.cursors[delivery.level.index()];
            assert!(msg_id < cursor, "{msg_id} is out and would be delivered as new");
            assert!(seqs.insert(delivery.seq), "two deliveries numbered {}", delivery.seq);
            let is_available = self.available.contains(&(delivery.level, msg_id));
            assert!(delivery.lease.is_none() == is_available, "{msg_id} is both out and available");
            available += usize::from(is_available);
            if let Some(lease) = delivery.lease {
                leases.entry(lease).or_insert_with(BTreeSet::new).insert(msg_id);
            }
            if let Some(member) = delivery.member {
                let received = members.entry(member).or_insert_with(BTreeSet::new);
                received.insert((delivery.seq, msg_id));
            }
        }
        assert_eq!(self.deliveries.len(), count, "deliveries");
        assert_eq!(self.available.len(), available, "available, but never delivered");
        assert!(seqs.last().is_none_or(|last| *last < self.next_seq), "numbers of deliveries");
        for (msg_id, delivery) in self.gone.iter() {
            assert!(self.deliveries.get(msg_id).is_none(), "{msg_id} is out and has gone");
            let Some(member) = delivery.member else {
                unreachable!("{msg_id} has gone, and was nobody's")
            };
            gone.entry(member).or_insert_with(BTreeSet::new).insert(msg_id);
        }
        self.leases.check_invariants(&leases);
        self.members.check_invariants(&members, &gone);
    }

    /// What is out, with the connection it was given to, and whose it is.
    pub fn out_with_connections(&self) -> impl Iterator<Item = (u64, u64, &Member)> {
        self.deliveries.iter().filter_map(|(msg_id, delivery)| {
            let conn = self.leases.conn(delivery.lease?)?;
            Some((msg_id, conn, self.members.names().get(delivery.member?)?))
        })
    }
}
