//! A set of subjects and patterns, asked only whether a subject meets any of them.

use super::Matches;
use super::interest::InterestId;
use super::trie::Trie;

/// Patterns that cannot be told apart once they are in.
#[derive(Debug)]
pub struct Patterns {
    trie: Trie,
    is_empty: bool,
}

impl Patterns {
    /// A set that nothing meets.
    pub fn new() -> Self {
        Self { trie: Trie::new(0), is_empty: true }
    }

    /// Adds a valid subject or pattern.
    pub fn insert(&mut self, pattern: &[u8]) {
        self.trie.insert(pattern, InterestId::new(0));
        self.is_empty = false;
    }

    /// Whether `subject` meets any of them.
    pub fn matches(&self, subject: &[u8]) -> bool {
        if self.is_empty {
            return false;
        }
        let mut found = Matches::new();
        self.trie.matches(subject, &mut found);
        !found.is_empty()
    }
}

impl Default for Patterns {
    fn default() -> Self {
        Self::new()
    }
}
