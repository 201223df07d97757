//! Counts of messages that were given up since the store was opened, by where they came from.
//!
//! They stay when their group or queue goes, so that they never fall. Nothing here is durable.

use hashbrown::HashMap;

/// Most origins that are told apart.
const MOST: usize = 500;

/// Messages that were given up, by the address of their mailbox or their subject.
#[derive(Debug, Default)]
pub struct DeadCounts {
    by_origin: HashMap<Box<str>, u64, foldhash::fast::RandomState>,
    others: u64,
}

impl DeadCounts {
    /// One more.
    pub(super) fn add(&mut self, origin: &str) {
        if let Some(count) = self.by_origin.get_mut(origin) {
            *count += 1;
        } else if self.by_origin.len() < MOST {
            self.by_origin.insert(origin.into(), 1);
        } else {
            self.others += 1;
        }
    }

    /// Where they came from, and how many from each.
    pub fn by_origin(&self) -> impl Iterator<Item = (&str, u64)> {
        self.by_origin.iter().map(|(origin, count)| (&**origin, *count))
    }

    /// Those of all other origins.
    pub fn others(&self) -> u64 {
        self.others
    }
}
