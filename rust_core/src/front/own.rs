//! Connections of the broker's own parts, which are no clients: counters leave out what they do.

use super::{ConnId, ConnStats, Front, Totals};

/// Those that are open, and what the others have done.
#[derive(Debug, Default)]
pub(super) struct Own {
    open: Vec<ConnId>,
    past: Totals,
}

impl Front {
    /// Counters over all connections of clients.
    pub fn totals(&self) -> Totals {
        let mut own = self.own.past;
        for &id in &self.own.open {
            own.count(&self.conn(id).expect("it is removed from here with its connection").stats());
        }
        Totals {
            connections: self.totals.connections - own.connections,
            in_msgs: self.totals.in_msgs - own.in_msgs,
            in_bytes: self.totals.in_bytes - own.in_bytes,
            out_msgs: self.totals.out_msgs - own.out_msgs,
            out_bytes: self.totals.out_bytes - own.out_bytes,
            ..self.totals
        }
    }

    /// Subscriptions of all clients.
    pub fn subscriptions(&self) -> usize {
        let own = |&id: &ConnId| self.conn(id).map_or(0, |conn| conn.sids.len());
        self.router.len() - self.own.open.iter().map(own).sum::<usize>()
    }

    /// A connection is the broker's own, or is not.
    pub(super) fn set_own(&mut self, id: ConnId, own: bool) {
        self.own.open.retain(|&open| open != id);
        if own {
            self.own.open.push(id);
        }
    }

    /// A connection goes: what it did remains left out.
    pub(super) fn forget_own(&mut self, id: ConnId, stats: &ConnStats) {
        if self.own.open.contains(&id) {
            self.own.past.count(stats);
            self.set_own(id, false);
        }
    }
}

impl Totals {
    fn count(&mut self, stats: &ConnStats) {
        self.connections += 1;
        self.in_msgs += stats.in_msgs;
        self.in_bytes += stats.in_bytes;
        self.out_msgs += stats.out_msgs;
        self.out_bytes += stats.out_bytes;
    }
}
