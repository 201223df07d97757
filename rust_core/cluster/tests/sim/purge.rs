//! Only what all nodes have for good leaves the stream.

use mq9_cluster::Role;

use super::world::{Event, World};

impl World {
    /// A leader that hears all others removes what lies before the least that any of them has for good.
    pub(super) fn purge(&mut self) {
        self.soon(500, 4_000, Event::Purge);
        let is_heard = |node: &&super::node::Node| {
            node.member.is_some() && self.now >= node.paused_until && self.now >= node.cut_off_until
        };
        let heard: Vec<_> = self.nodes.iter().filter(is_heard).collect();
        let leads = |node: &&super::node::Node| {
            node.member.as_ref().is_some_and(|member| member.role() == Role::Leading)
        };
        let is_all = heard.len() == self.nodes.len() || self.rules.purges_blindly;
        let has_leader = heard.iter().any(leads) && self.now >= self.leaderless_until;
        let least = heard.iter().map(|node| node.sequence_for_ever()).min().unwrap_or(0);
        if is_all && has_leader {
            let before = least.saturating_sub(self.chance.between(0, 20));
            self.purged += self.stream.purge(before);
        }
    }
}
