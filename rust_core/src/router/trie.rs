//! Patterns by their tokens.
//!
//! One table holds the steps of all nodes: from a node by a token to the next. A node costs no map of
//! its own, and a walk is a list of nodes per token, never a recursion.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hasher};

use super::Matches;
use super::interest::InterestId;
use crate::nats::tokens;

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node {
    parent: u32,
    token: Box<[u8]>,
    children: u32,
    /// The steps by `*` and by `>`, found without the table.
    any: u32,
    rest: u32,
    interest: Option<InterestId>,
}

#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    free: Vec<u32>,
    steps: HashTable<u32>,
    hasher: FixedState,
}

impl Trie {
    pub fn new(seed: u64) -> Self {
        let nodes = vec![Node::new(NONE, b"")];
        Self {
            nodes,
            free: Vec::new(),
            steps: HashTable::new(),
            hasher: FixedState::with_seed(seed),
        }
    }

    /// The interest in exactly this pattern.
    pub fn get(&self, pattern: &[u8]) -> Option<InterestId> {
        let mut at = ROOT;
        for token in tokens(pattern) {
            at = self.step(at, token)?;
        }
        self.node(at).interest
    }

    pub fn insert(&mut self, pattern: &[u8], interest: InterestId) {
        let mut at = ROOT;
        for token in tokens(pattern) {
            at = match self.step(at, token) {
                Some(next) => next,
                None => self.add(at, token),
            };
        }
        self.nodes[at as usize].interest = Some(interest);
    }

    /// Removes a pattern and the nodes only it needed.
    pub fn remove(&mut self, pattern: &[u8]) {
        let mut at = ROOT;
        for token in tokens(pattern) {
            match self.step(at, token) {
                Some(next) => at = next,
                None => return,
            }
        }
        self.nodes[at as usize].interest = None;
        while at != ROOT && self.node(at).children == 0 && self.node(at).interest.is_none() {
            let parent = self.node(at).parent;
            self.drop_leaf(at);
            at = parent;
        }
    }

    /// The interests whose pattern `subject` meets. True if they depend on its last token: false
    /// means that any other in its place would meet the same.
    pub fn matches(&self, subject: &[u8], found: &mut Matches) -> bool {
        if self.node(ROOT).children == 0 {
            return false;
        }
        let before = found.len();
        let mut named = false;
        let mut level: SmallVec<[u32; 16]> = SmallVec::from_slice(&[ROOT]);
        let mut next: SmallVec<[u32; 16]> = SmallVec::new();
        for token in tokens(subject) {
            if level.is_empty() && found.len() == before {
                // No pattern begins like this, whatever follows.
                return false;
            }
            if token.is_empty() {
                // Nobody can subscribe to such a subject, so no pattern stands for it.
                found.truncate(before);
                return true;
            }
            next.clear();
            named = false;
            for &at in &level {
                let node = self.node(at);
                named |= node.has_named_steps();
                if node.rest != NONE {
                    found.extend(self.node(node.rest).interest);
                }
                if node.any != NONE {
                    next.push(node.any);
                }
                if node.has_named_steps() {
                    next.extend(self.named_step(at, token));
                }
            }
            std::mem::swap(&mut level, &mut next);
        }
        found.extend(level.iter().filter_map(|&at| self.node(at).interest));
        named
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn step(&self, at: u32, token: &[u8]) -> Option<u32> {
        match token {
            b"*" => Some(self.node(at).any).filter(|&next| next != NONE),
            b">" => Some(self.node(at).rest).filter(|&next| next != NONE),
            _ => self.named_step(at, token),
        }
    }

    /// The step by a token that is not a wildcard: those have no entry in the table.
    fn named_step(&self, at: u32, token: &[u8]) -> Option<u32> {
        let hash = hash(&self.hasher, at, token);
        let same = |&next: &u32| {
            let node = self.node(next);
            node.parent == at && *node.token == *token
        };
        self.steps.find(hash, same).copied()
    }

    fn add(&mut self, parent: u32, token: &[u8]) -> u32 {
        let node = Node::new(parent, token);
        let id = match self.free.pop() {
            Some(free) => {
                self.nodes[free as usize] = node;
                free
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.nodes[parent as usize].children += 1;
        match token {
            b"*" => self.nodes[parent as usize].any = id,
            b">" => self.nodes[parent as usize].rest = id,
            _ => {
                let (nodes, hasher) = (&self.nodes, &self.hasher);
                self.steps.insert_unique(hash(hasher, parent, token), id, |&next| {
                    let node = &nodes[next as usize];
                    hash(hasher, node.parent, &node.token)
                });
            }
        }
        id
    }

    fn drop_leaf(&mut self, id: u32) {
        let node = std::mem::replace(&mut self.nodes[id as usize], Node::new(NONE, b""));
        let parent = &mut self.nodes[node.parent as usize];
        parent.children -= 1;
        match &*node.token {
            b"*" => parent.any = NONE,
            b">" => parent.rest = NONE,
            token => {
                let hash = hash(&self.hasher, node.parent, token);
                if let Ok(entry) = self.steps.find_entry(hash, |&next| next == id) {
                    entry.remove();
                }
            }
        }
        self.free.push(id);
    }
}

impl Node {
    fn new(parent: u32, token: &[u8]) -> Self {
        Self { parent, token: token.into(), children: 0, any: NONE, rest: NONE, interest: None }
    }

    /// Whether a token that is no wildcard leads on from here.
    fn has_named_steps(&self) -> bool {
        self.children > u32::from(self.any != NONE) + u32::from(self.rest != NONE)
    }
}

fn hash(hasher: &FixedState, parent: u32, token: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u32(parent);
    hasher.write(token);
    hasher.finish()
}
