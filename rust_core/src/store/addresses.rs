//! Finds the slot of an address. Keeps no addresses itself: they are read from the slots.
//!
//! A table with linear probing: what is looked for is mostly in the one line of the processor's cache where the
//! search begins. Tables that keep their marks apart from their entries cost two trips to memory.

use std::hash::BuildHasher;

use super::indexes::SlotIx;

/// The slots of all addresses, 8 bytes each and as many vacant. The hash is kept, so that a growing table and most
/// failed comparisons need not look at slots, which are rarely in the processor's cache.
#[derive(Default)]
pub struct Addresses {
    /// None or a power of two, at most five eighths of them used. From where the hash of an entry says up to where
    /// the entry is, none is vacant.
    places: Vec<Known>,
    len: usize,
    hasher: foldhash::fast::RandomState,
}

#[derive(Clone, Copy)]
struct Known {
    hash: u32,
    slot: SlotIx,
}

/// A place without an entry. No slot has this index: there would be no memory for so many.
const VACANT: Known = Known { hash: 0, slot: SlotIx(u32::MAX) };

/// Places of the first table.
const FIRST: usize = 8;

impl Known {
    fn is_vacant(self) -> bool {
        self.slot == VACANT.slot
    }
}

impl Addresses {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The slot of an address; `has` tells whether a slot has it.
    pub fn find(&self, address: &str, has: impl Fn(SlotIx) -> bool) -> Option<SlotIx> {
        self.find_hash(self.hash(address), has)
    }

    /// The slot of an address of which the hash is known.
    #[inline]
    pub fn find_hash(&self, hash: u32, has: impl Fn(SlotIx) -> bool) -> Option<SlotIx> {
        let at = self.position(hash, has)?;
        self.places.get(at).map(|known| known.slot)
    }

    /// Adds an address that is not there yet.
    pub fn add(&mut self, address: &str, slot: SlotIx) {
        self.add_hash(self.hash(address), slot);
    }

    fn add_hash(&mut self, hash: u32, slot: SlotIx) {
        if self.len >= self.places.len() / 8 * 5 {
            self.grow();
        }
        self.len += 1;
        self.put(Known { hash, slot });
    }

    /// Forgets the address of a slot.
    pub fn remove(&mut self, address: &str, slot: SlotIx) {
        self.remove_hash(self.hash(address), slot);
    }

    fn remove_hash(&mut self, hash: u32, slot: SlotIx) {
        let hole = self.position(hash, |known| known == slot);
        debug_assert!(hole.is_some(), "the address of slot {slot} is not there");
        let Some(mut hole) = hole else { return };
        self.len -= 1;
        // Those behind it move up, so that no search ends too early.
        let mut at = hole;
        loop {
            at = self.after(at);
            let known = self.places[at];
            if known.is_vacant() {
                break;
            }
            if self.distance(self.home(known.hash), at) >= self.distance(hole, at) {
                self.places[hole] = known;
                hole = at;
            }
        }
        self.places[hole] = VACANT;
    }

    /// Panics unless there is an entry for each of these, and no other. For tests.
    pub fn check_invariants<'a>(&self, all: impl Iterator<Item = (&'a str, SlotIx)>) {
        let mut count = 0;
        for (address, slot) in all {
            count += 1;
            let found = self.find(address, |at| at == slot);
            assert_eq!(found, Some(slot), "address {address} leads nowhere");
        }
        let used = self.places.iter().filter(|known| !known.is_vacant()).count();
        assert_eq!((self.len, used), (count, count), "addresses of mailboxes that are not there");
    }

    /// The hash of an address.
    pub fn hash(&self, address: &str) -> u32 {
        self.hasher.hash_one(address) as u32
    }

    #[inline]
    fn position(&self, hash: u32, has: impl Fn(SlotIx) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        loop {
            let known = *self.places.get(at)?;
            if known.is_vacant() {
                return None;
            }
            if known.hash == hash && has(known.slot) {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// Puts an entry where a search for it ends.
    fn put(&mut self, known: Known) {
        let mut at = self.home(known.hash);
        while !self.places[at].is_vacant() {
            at = self.after(at);
        }
        self.places[at] = known;
    }

    #[cold]
    fn grow(&mut self) {
        let places = vec![VACANT; (self.places.len() * 2).max(FIRST)];
        let before = std::mem::replace(&mut self.places, places);
        before.into_iter().filter(|known| !known.is_vacant()).for_each(|known| self.put(known));
    }

    /// Where the search for a hash begins.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        // By the highest bits, so that entries keep their order in a table twice as large, which is then filled from
        // front to back.
        ((u64::from(hash) * self.places.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    /// How many places `to` is behind `from`.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Many addresses of the same hash, and some that begin at the last place and go round the end of the table.
    fn hash() -> impl Strategy<Value = u32> {
        prop_oneof![0..3u32, (u32::MAX - 2)..=u32::MAX, Just(1 << 31), any::<u32>()]
    }

    proptest! {
        #[test]
        fn it_finds_what_a_map_finds(
            hashes in prop::collection::vec(hash(), 48),
            steps in prop::collection::vec((any::<bool>(), 0..48usize), 1..400),
        ) {
            let (mut addresses, mut model) = (Addresses::default(), BTreeMap::new());
            for (slot, (add, which)) in (0..).map(SlotIx).zip(steps) {
                if let Some(slot) = model.remove(&which) {
                    addresses.remove_hash(hashes[which], slot);
                }
                if add {
                    model.insert(which, slot);
                    addresses.add_hash(hashes[which], slot);
                }
                for (which, hash) in hashes.iter().enumerate() {
                    let slot = model.get(&which).copied();
                    prop_assert_eq!(addresses.find_hash(*hash, |at| slot == Some(at)), slot);
                }
                let used = addresses.places.iter().filter(|known| !known.is_vacant()).count();
                prop_assert_eq!((used, addresses.len()), (model.len(), model.len()));
                prop_assert!(used <= addresses.places.len() / 8 * 5);
            }
        }
    }
}
