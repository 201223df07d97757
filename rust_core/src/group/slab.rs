//! Numbered slots that are reused: how a delivery names its member and its lease in four bytes.
//!
//! Owns nothing but storage; knows neither members nor leases. A slot is only as good as the promise
//! of its user not to keep one after removing it.

use std::num::NonZeroU32;

/// The number of a slot in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(NonZeroU32);

impl Slot {
    pub(super) fn number(self) -> u64 {
        u64::from(self.0.get())
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Values in numbered slots.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<Slot>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.slots[slot.index()] = Some(value);
            return slot;
        }
        // Four thousand million slots do not fit in memory, so this never saturates.
        let slot = Slot(NonZeroU32::MIN.saturating_add(self.slots.len() as u32));
        self.slots.push(Some(value));
        slot
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        self.slots.get(slot.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.slots.get_mut(slot.index())?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.slots.get_mut(slot.index())?.take()?;
        self.free.push(slot);
        if self.free.len() == self.slots.len() {
            self.slots.clear();
            self.free.clear();
        }
        Some(value)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Panics unless the free slots are those without a value. For tests.
    pub(super) fn check_invariants(&self) {
        let vacant = self.slots.iter().filter(|slot| slot.is_none()).count();
        assert_eq!(self.free.len(), vacant, "free slots of a group's table");
        assert!(self.free.iter().all(|&slot| self.get(slot).is_none()), "a free slot in use");
    }
}
