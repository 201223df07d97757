//! A ledger of promises to clients, and whether they were kept.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use mq9_cluster::{Alarm, Digest, Position};

/// A promise that was broken.
#[derive(Debug)]
pub enum Broken {
    Lost { op: u64, node: usize },
    Doubled { op: u64, node: usize },
    Reordered { op: u64, before: u64, node: usize },
    StaleRead { op: u64, node: usize },
    Differs { sequence: u64, node: usize },
    TwoLead { sequence: u64, term: u64, node: usize },
    Alarm { alarm: Alarm, node: usize },
    NoLeader,
    Apart,
}

impl Broken {
    pub fn is_alarm(&self) -> bool {
        matches!(self, Broken::Alarm { alarm: Alarm::Forgotten { .. } | Alarm::Differs { .. }, .. })
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Lost { op, node } => {
                write!(f, "node {node} lacks {op}, which was acknowledged")
            }
            Broken::Doubled { op, node } => write!(f, "node {node} has {op} twice"),
            Broken::Reordered { op, before, node } => {
                write!(f, "node {node} has {op} behind {before} of the same client")
            }
            Broken::StaleRead { op, node } => {
                write!(f, "a read at node {node} did not show {op}, which was acknowledged")
            }
            Broken::Differs { sequence, node } => {
                write!(f, "at {sequence} node {node} holds something else than another")
            }
            Broken::TwoLead { sequence, term, node } => {
                write!(
                    f,
                    "node {node} acknowledged {sequence} in term {term}, beside another leader"
                )
            }
            Broken::Alarm { alarm, node } => write!(f, "node {node}: {alarm}"),
            Broken::NoLeader => write!(f, "in the end not one node leads"),
            Broken::Apart => write!(f, "in the end a node is behind"),
        }
    }
}

/// What clients know.
#[derive(Default)]
pub struct Ledger {
    /// Operations whose clients were told that they are stored.
    pub acknowledged: Vec<u64>,
    digests: HashMap<u64, (Digest, usize)>,
    /// By sequence: the term in which it was acknowledged, and by which node.
    leaders: BTreeMap<u64, (u64, usize)>,
}

impl Ledger {
    /// Clients are told that a batch is stored. Each term has one node that says so, behind all of the term before.
    pub fn acknowledge(
        &mut self,
        sequence: u64,
        term: u64,
        node: usize,
        ops: Vec<u64>,
    ) -> Result<(), Broken> {
        let fits =
            |earlier: (u64, usize), later: (u64, usize)| earlier.0 < later.0 || earlier == later;
        let own = (term, node);
        let before = self.leaders.range(..sequence).next_back();
        let after = self.leaders.range(sequence + 1..).next();
        let is_alone = before.is_none_or(|(_, &before)| fits(before, own))
            && after.is_none_or(|(_, &after)| fits(own, after));
        if self.leaders.insert(sequence, own).is_some() || !is_alone {
            return Err(Broken::TwoLead { sequence, term, node });
        }
        self.acknowledged.extend(ops);
        Ok(())
    }

    /// At equal sequences all nodes hold the same.
    pub fn agree(&mut self, position: Position, ops: usize, node: usize) -> Result<(), Broken> {
        let seen = self.digests.entry(position.sequence).or_insert((position.digest, ops));
        match *seen == (position.digest, ops) {
            true => Ok(()),
            false => Err(Broken::Differs { sequence: position.sequence, node }),
        }
    }

    /// A read right now must show everything that was acknowledged.
    pub fn check_read(&self, shown: &HashSet<u64>, node: usize) -> Result<(), Broken> {
        match self.acknowledged.iter().find(|&op| !shown.contains(op)) {
            Some(&op) => Err(Broken::StaleRead { op, node }),
            None => Ok(()),
        }
    }

    /// A log at the end of a run: everything acknowledged is there, once, and each client's in its order.
    pub fn check_log(&self, ops: impl Iterator<Item = u64>, node: usize) -> Result<(), Broken> {
        let (mut seen, mut last) = (HashSet::new(), HashMap::new());
        for op in ops {
            if !seen.insert(op) {
                return Err(Broken::Doubled { op, node });
            }
            // The low bits of an operation are its client.
            if let Some(before) = last.insert(op & 3, op)
                && before > op
            {
                return Err(Broken::Reordered { op, before, node });
            }
        }
        match self.acknowledged.iter().find(|&op| !seen.contains(op)) {
            Some(&op) => Err(Broken::Lost { op, node }),
            None => Ok(()),
        }
    }
}
