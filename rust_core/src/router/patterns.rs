//! A set of subjects and patterns, asked only whether subjects meet any of them.

use super::Matches;
use super::interest::InterestId;
use super::trie::Trie;
use crate::nats;

/// Patterns that cannot be told apart once they are in.
#[derive(Debug)]
pub struct Patterns {
    trie: Trie,
    all: Vec<Box<[u8]>>,
}

impl Patterns {
    /// A set that nothing meets.
    pub fn new() -> Self {
        Self { trie: Trie::new(0), all: Vec::new() }
    }

    /// Adds a valid subject or pattern.
    pub fn insert(&mut self, pattern: &[u8]) {
        self.trie.insert(pattern, InterestId::new(0));
        self.all.push(pattern.into());
    }

    /// Whether `subject` meets any of them.
    pub fn matches(&self, subject: &[u8]) -> bool {
        if self.all.is_empty() {
            return false;
        }
        let mut found = Matches::new();
        self.trie.matches(subject, &mut found);
        !found.is_empty()
    }

    /// Whether each subject that `pattern` stands for meets the same one of them.
    pub fn covers(&self, pattern: &[u8]) -> bool {
        self.all.iter().any(|one| nats::covers(one, pattern))
    }

    /// Whether some subject that `pattern` stands for meets one of them.
    pub fn overlaps(&self, pattern: &[u8]) -> bool {
        self.all.iter().any(|one| nats::overlaps(one, pattern))
    }
}

impl Default for Patterns {
    fn default() -> Self {
        Self::new()
    }
}
