//! Storage of slots, in blocks that stay where they are, so that finding one costs no trip to memory besides the
//! slot itself, and many slots never have to be moved at once. Knows nothing of what is in a slot.

use super::indexes::SlotIx;
use super::slot::Slot;

/// Slots of a block. The list of blocks of a million slots fits the processor's cache.
const BLOCK: usize = 1024;

/// All slots by index. Those that are free are used again.
#[derive(Default)]
pub struct Slots {
    blocks: Vec<Vec<Option<Slot>>>,
    free: Vec<SlotIx>,
    len: u32,
}

impl Slots {
    /// The indexes of all of them from number `from` on, used or free.
    pub fn indexes(&self, from: u32) -> impl Iterator<Item = SlotIx> + use<> {
        (from..self.len).map(SlotIx)
    }

    /// A used slot.
    #[inline]
    pub fn get(&self, index: SlotIx) -> Option<&Slot> {
        let index = index.0 as usize;
        self.blocks.get(index / BLOCK)?.get(index % BLOCK)?.as_ref()
    }

    /// A used slot, to change it.
    #[inline]
    pub fn get_mut(&mut self, index: SlotIx) -> Option<&mut Slot> {
        self.place(index)?.as_mut()
    }

    /// A slot that somebody knows to be in use. Panics if it is not: to pass over that would lose what was to be done.
    #[inline]
    pub fn in_use(&self, index: SlotIx) -> &Slot {
        self.get(index).unwrap_or_else(|| not_in_use(index))
    }

    /// The same, to change it.
    #[inline]
    pub fn in_use_mut(&mut self, index: SlotIx) -> &mut Slot {
        self.get_mut(index).unwrap_or_else(|| not_in_use(index))
    }

    fn place(&mut self, index: SlotIx) -> Option<&mut Option<Slot>> {
        let index = index.0 as usize;
        self.blocks.get_mut(index / BLOCK)?.get_mut(index % BLOCK)
    }

    /// The index that the next slot gets.
    pub fn next(&self) -> SlotIx {
        self.free.last().copied().unwrap_or(SlotIx(self.len))
    }

    /// Adds a slot; its index is what [`Slots::next`] said.
    pub fn add(&mut self, slot: Slot) {
        if let Some(index) = self.free.pop() {
            let place = self.place(index);
            debug_assert!(place.as_ref().is_some_and(|p| p.is_none()), "slot {index} is not free");
            if let Some(place) = place {
                *place = Some(slot);
            }
            return;
        }
        self.len += 1;
        match self.blocks.last_mut().filter(|block| block.len() < BLOCK) {
            Some(block) => block.push(Some(slot)),
            None => {
                // A small store has one small block.
                let first = self.blocks.is_empty();
                let mut block = if first { Vec::new() } else { Vec::with_capacity(BLOCK) };
                block.push(Some(slot));
                self.blocks.push(block);
            }
        }
    }

    /// Takes a slot out; its index is free.
    pub fn take(&mut self, index: SlotIx) -> Option<Slot> {
        let slot = self.place(index)?.take()?;
        self.free.push(index);
        Some(slot)
    }

    /// All used slots with their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (SlotIx, &Slot)> {
        let slots = self.blocks.iter().flatten().enumerate();
        slots.filter_map(|(index, slot)| Some((SlotIx(index as u32), slot.as_ref()?)))
    }

    /// Panics unless every slot is either used or free. For tests.
    pub fn check_invariants(&self) {
        let places: usize = self.blocks.iter().map(Vec::len).sum();
        assert_eq!(self.len as usize, places, "slots");
        assert_eq!(self.iter().count() + self.free.len(), places, "used and free slots");
        assert!(self.free.iter().all(|&index| self.get(index).is_none()), "a free slot is used");
    }

    /// All used slots, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.blocks.iter_mut().flatten().flatten()
    }
}

#[cold]
fn not_in_use(index: SlotIx) -> ! {
    panic!("slot {index} is not in use")
}
