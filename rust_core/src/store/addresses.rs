//! Which slot an address has. Keeps no addresses itself: they are read from the slots.

use std::hash::BuildHasher;

use hashbrown::HashTable;

/// The slots of all addresses, 8 bytes each. The hash is kept, so that a growing table and most
/// failed comparisons need not look at slots, which are rarely in the processor's cache.
#[derive(Default)]
pub struct Addresses {
    table: HashTable<Known>,
    hasher: foldhash::fast::RandomState,
}

struct Known {
    hash: u32,
    slot: u32,
}

/// The table looks at the highest and the lowest bits of a hash.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl Addresses {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The slot of an address; `has` tells whether a slot has it.
    pub fn find(&self, address: &str, has: impl Fn(u32) -> bool) -> Option<u32> {
        self.find_hash(self.hash(address), has)
    }

    /// The slot of an address of which the hash is known.
    pub fn find_hash(&self, hash: u32, has: impl Fn(u32) -> bool) -> Option<u32> {
        let known = self.table.find(spread(hash), |k| k.hash == hash && has(k.slot))?;
        Some(known.slot)
    }

    /// Adds an address that is not there yet.
    pub fn add(&mut self, address: &str, slot: u32) {
        let hash = self.hash(address);
        self.table.insert_unique(spread(hash), Known { hash, slot }, |k| spread(k.hash));
    }

    /// Forgets the address of a slot.
    pub fn remove(&mut self, address: &str, slot: u32) {
        let hash = self.hash(address);
        if let Ok(found) = self.table.find_entry(spread(hash), |known| known.slot == slot) {
            found.remove();
        }
    }

    /// The hash of an address.
    pub fn hash(&self, address: &str) -> u32 {
        self.hasher.hash_one(address) as u32
    }
}
