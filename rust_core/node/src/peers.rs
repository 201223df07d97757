//! The other nodes, as far as this one has heard: the number that all have, and those that could lead.

use std::collections::BTreeMap;

use crate::status::{Peer, Role};

/// A node that was not heard of for so long may be away.
const AWAY_MS: u64 = 3_000;

/// What others said last, and when. Times are in milliseconds of one clock.
#[derive(Debug, Default)]
pub struct Peers {
    heard: BTreeMap<u32, (Peer, u64)>,
}

impl Peers {
    /// A node says where it is.
    pub fn hear(&mut self, peer: Peer, now: u64) {
        self.heard.insert(peer.node, (peer, now));
    }

    fn present(&self, now: u64) -> impl Iterator<Item = &Peer> {
        let present = move |(peer, at): &&(Peer, u64)| {
            now < at + AWAY_MS && matches!(peer.role, Role::Following | Role::Leading)
        };
        self.heard.values().filter(present).map(|(peer, _)| peer)
    }

    /// Up to where all `members` have the stream for good; none while one of them is away. Others do not count.
    pub fn durable_at_all(&self, members: &[u32], now: u64) -> Option<u64> {
        let found: Vec<u64> = self
            .present(now)
            .filter(|peer| members.contains(&peer.node))
            .map(|peer| peer.durable)
            .collect();
        if found.len() < members.len() { None } else { found.into_iter().min() }
    }

    /// Who of the `members` could lead instead of `own`: a node that follows, with room for messages if any has it, and
    /// then with the most of the stream.
    pub fn best_placed(&self, members: &[u32], own: u32, now: u64) -> Option<&Peer> {
        let known = self.followers(own, now).filter(|peer| members.contains(&peer.node));
        known.max_by_key(|peer| (!peer.is_full, peer.sequence))
    }

    /// Whether `node` follows.
    pub fn follows(&self, own: u32, node: u32, now: u64) -> bool {
        self.followers(own, now).any(|peer| peer.node == node)
    }

    fn followers(&self, own: u32, now: u64) -> impl Iterator<Item = &Peer> {
        self.present(now).filter(move |peer| peer.node != own && peer.role == Role::Following)
    }
}
