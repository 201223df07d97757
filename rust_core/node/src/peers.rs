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

    /// Why `own`, which has taken `sequence` messages, must not make a stream that is missing; none if it may. A node that
    /// holds something knows that there was one, and a new one would be another. So nobody makes one unless most of
    /// the `members` are here, and all that were heard of hold nothing.
    pub fn keep_from_beginning(
        &self,
        members: &[u32],
        own: u32,
        sequence: u64,
        now: u64,
    ) -> Option<String> {
        if sequence > 0 {
            return Some("the stream is gone, but this node holds what was in it".to_owned());
        }
        let others = || {
            self.heard.values().filter(|(peer, _)| members.contains(&peer.node) && peer.node != own)
        };
        if let Some((peer, _)) = others().find(|(peer, _)| peer.sequence > 0) {
            return Some(format!(
                "the stream is gone, but node {} holds what was in it: this node, which holds nothing, makes no new one",
                peer.node
            ));
        }
        let here = 1 + others().filter(|(_, at)| now < at + AWAY_MS).count();
        let needed = members.len() / 2 + 1;
        (here < needed).then(|| {
            format!(
                "there is no stream yet: it is made once {needed} of the {} nodes are here",
                members.len()
            )
        })
    }

    fn followers(&self, own: u32, now: u64) -> impl Iterator<Item = &Peer> {
        self.present(now).filter(move |peer| peer.node != own && peer.role == Role::Following)
    }
}
