//! A list in blocks that its copies share: to copy one of thousands is to count up some tens of blocks. The first
//! change to a block that is shared copies that one. Knows nothing of what it holds.

use std::collections::VecDeque;
use std::sync::Arc;

/// Most items in a block: as many are copied when a shared one changes. Few in tests, so that they have many blocks.
const BLOCK: usize = if cfg!(test) { 6 } else { 128 };

/// What has no more room than this is not worth trimming.
const SMALL: usize = 16;

/// Any number of items, in order.
#[derive(Debug, Clone)]
pub(super) struct Blocks<T> {
    /// None is empty. Two neighbours have more than half a block together.
    blocks: VecDeque<Block<T>>,
    len: usize,
}

#[derive(Debug, Clone)]
struct Block<T> {
    /// How many items there are: kept here, so that a search reads one place of memory.
    len: usize,
    items: Arc<Vec<T>>,
}

impl<T: Clone> Block<T> {
    fn new(items: Vec<T>) -> Block<T> {
        Block { len: items.len(), items: Arc::new(items) }
    }

    fn change<U>(&mut self, change: impl FnOnce(&mut Vec<T>) -> U) -> U {
        let items = Arc::make_mut(&mut self.items);
        let outcome = change(items);
        self.len = items.len();
        outcome
    }
}

impl<T> Default for Blocks<T> {
    fn default() -> Blocks<T> {
        Blocks { blocks: VecDeque::new(), len: 0 }
    }
}

impl<T: Clone> Blocks<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many places of memory a copy counts up.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        let (block, index) = self.find(at)?;
        self.blocks.get(block)?.items.get(index)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let (block, index) = self.find(at)?;
        Arc::make_mut(&mut self.blocks.get_mut(block)?.items).get_mut(index)
    }

    pub(super) fn push_back(&mut self, item: T) {
        self.len += 1;
        match self.blocks.back_mut().filter(|block| block.len < BLOCK) {
            Some(block) => block.change(|items| items.push(item)),
            None => self.blocks.push_back(Block::new(vec![item])),
        }
    }

    /// Takes the last one out.
    pub(super) fn pop_back(&mut self) -> Option<T> {
        self.remove(self.len.checked_sub(1)?)
    }

    /// Puts an item before the one at `at`, or behind all.
    pub(super) fn insert(&mut self, at: usize, item: T) {
        let Some((mut block, mut index)) = self.find(at) else { return self.push_back(item) };
        if self.blocks[block].len == BLOCK {
            let half = self.blocks[block].change(|items| items.split_off(BLOCK / 2));
            self.blocks.insert(block + 1, Block::new(half));
            if index > BLOCK / 2 {
                (block, index) = (block + 1, index - BLOCK / 2);
            }
        }
        self.blocks[block].change(|items| items.insert(index, item));
        self.len += 1;
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        let (block, index) = self.find(at)?;
        self.len -= 1;
        let removed = self.blocks[block].change(|items| {
            let removed = items.remove(index);
            if is_roomy(items.len(), items.capacity()) {
                items.shrink_to(items.len() * 2);
            }
            removed
        });
        if self.blocks[block].len == 0 {
            self.blocks.remove(block);
        }
        if is_roomy(self.blocks.len(), self.blocks.capacity()) {
            self.blocks.shrink_to(self.blocks.len() * 2);
        }
        self.join(block);
        if let Some(before) = block.checked_sub(1) {
            self.join(before);
        }
        Some(removed)
    }

    /// How many at the beginning are so; those behind them must not be.
    pub(super) fn partition_point(&self, mut is_so: impl FnMut(&T) -> bool) -> usize {
        let begins =
            self.blocks.partition_point(|block| block.items.first().is_some_and(&mut is_so));
        let Some(last) = begins.checked_sub(1) else { return 0 };
        let before: usize = self.blocks.range(..last).map(|block| block.len).sum();
        before + self.blocks[last].items.partition_point(is_so)
    }

    /// Those from `start` on, up to before `end`.
    pub(super) fn range(&self, start: usize, end: usize) -> impl DoubleEndedIterator<Item = &T> {
        let (first, from) = self.find(start).unwrap_or((self.blocks.len(), 0));
        let (last, to) = self.find(end).unwrap_or((self.blocks.len(), 0));
        let touched = first..self.blocks.len().min(last + 1).max(first);
        self.blocks.range(touched).enumerate().flat_map(move |(n, block)| {
            let from = if n == 0 { from } else { 0 };
            let to = if first + n == last { to } else { block.len };
            block.items.get(from..to).unwrap_or_default()
        })
    }

    /// All of them, in slices of at most so many.
    pub(super) fn slices(&self, most: usize) -> impl Iterator<Item = &[T]> {
        self.blocks.iter().flat_map(move |block| block.items.chunks(most))
    }

    /// Bytes on the heap, without those of the items.
    pub(super) fn heap_bytes(&self) -> usize {
        let of = |block: &Block<T>| block.items.capacity() * size_of::<T>();
        let blocks: usize = self.blocks.iter().map(of).sum();
        // Each has counters and the vector itself, too.
        blocks + self.blocks.len() * 40 + self.blocks.capacity() * size_of::<Block<T>>()
    }

    /// The block of an item, and where in it; none behind the last one.
    fn find(&self, at: usize) -> Option<(usize, usize)> {
        if at >= self.len {
            return None;
        }
        let mut start = 0;
        if at < self.len / 2 {
            for (number, block) in self.blocks.iter().enumerate() {
                if at < start + block.len {
                    return Some((number, at - start));
                }
                start += block.len;
            }
            return None;
        }
        let mut end = self.len;
        for (number, block) in self.blocks.iter().enumerate().rev() {
            start = end - block.len;
            if at >= start {
                return Some((number, at - start));
            }
            end = start;
        }
        None
    }

    /// Joins a block with the next one if together they are at most half full.
    fn join(&mut self, block: usize) {
        let (Some(first), Some(next)) = (self.blocks.get(block), self.blocks.get(block + 1)) else {
            return;
        };
        if first.len + next.len > BLOCK / 2 {
            return;
        }
        if let Some(next) = self.blocks.remove(block + 1) {
            self.blocks[block].change(|items| items.extend(next.items.iter().cloned()));
        }
    }
}

/// Whether less than a quarter of the room is used.
fn is_roomy(len: usize, capacity: usize) -> bool {
    capacity > SMALL && len * 4 < capacity
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Push,
        Pop,
        Insert(usize),
        Remove(usize),
        Change(usize),
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Push),
            1 => Just(Step::Pop),
            2 => any::<usize>().prop_map(Step::Insert),
            3 => any::<usize>().prop_map(Step::Remove),
            1 => any::<usize>().prop_map(Step::Change),
            1 => Just(Step::Copy),
        ]
    }

    /// Numbers that never descend, as those that are searched by halving.
    fn filled(len: usize) -> Blocks<u32> {
        let mut blocks = Blocks::default();
        (0..len as u32).for_each(|n| blocks.push_back(n * 100));
        blocks
    }

    fn agree(blocks: &Blocks<u32>, model: &[u32]) {
        assert_eq!(blocks.len(), model.len());
        assert!(blocks.range(0, usize::MAX).eq(model));
        assert!(blocks.slices(4).all(|slice| (1..=4).contains(&slice.len())));
        assert!(blocks.slices(4).flatten().eq(model));
        for at in 0..=model.len() {
            assert_eq!(blocks.get(at), model.get(at));
            let end = (at + 7).min(model.len());
            assert!(blocks.range(at, end).eq(&model[at..end]));
            assert!(blocks.range(at, end).rev().eq(model[at..end].iter().rev()));
        }
        for n in model.iter().flat_map(|n| [*n, *n + 1]) {
            let so = |item: &u32| *item < n;
            assert_eq!(blocks.partition_point(so), model.partition_point(so));
        }
        let lens: Vec<usize> = blocks.blocks.iter().map(|block| block.len).collect();
        assert!(lens.iter().all(|len| (1..=BLOCK).contains(len)), "{lens:?}");
        assert!(blocks.blocks.iter().all(|block| block.len == block.items.len()));
        assert!(lens.windows(2).all(|two| two[0] + two[1] > BLOCK / 2), "{lens:?}");
    }

    proptest! {
        #[test]
        fn it_holds_what_a_vector_holds_and_copies_stay(
            len in 0..40usize,
            steps in prop::collection::vec(step(), 1..80),
        ) {
            let mut blocks = filled(len);
            let mut model: Vec<u32> = blocks.range(0, usize::MAX).copied().collect();
            let mut copies = Vec::new();
            for step in steps {
                let at = |n: usize, ends: usize| n % (model.len() + ends).max(1);
                // One that fits between its neighbours.
                let before = |at: usize| at.checked_sub(1).map_or(0, |before| model[before]);
                match step {
                    Step::Push => {
                        let item = before(model.len()) + 1;
                        blocks.push_back(item);
                        model.push(item);
                    }
                    Step::Pop => prop_assert_eq!(blocks.pop_back(), model.pop()),
                    Step::Insert(n) => {
                        let at = at(n, 1);
                        let item = before(at);
                        blocks.insert(at, item);
                        model.insert(at, item);
                    }
                    Step::Remove(n) => {
                        let at = at(n, 0);
                        let there = (at < model.len()).then(|| model.remove(at));
                        prop_assert_eq!(blocks.remove(at), there);
                    }
                    Step::Change(n) => {
                        let at = at(n, 0);
                        let item = before(at);
                        if let Some(place) = model.get_mut(at) {
                            *place = item;
                            *blocks.get_mut(at).expect("it is there") = item;
                        }
                    }
                    Step::Copy => copies.push((blocks.clone(), model.clone())),
                }
                agree(&blocks, &model);
            }
            for (copy, then) in copies {
                agree(&copy, &then);
            }
        }
    }

    #[test]
    fn a_copy_shares_all_but_what_changes() {
        let mut blocks = filled(10 * BLOCK);
        let copy = blocks.clone();
        *blocks.get_mut(3 * BLOCK).expect("it is there") = 0;
        let shared = blocks.blocks.iter().zip(&copy.blocks);
        let shared = shared.filter(|(ours, theirs)| Arc::ptr_eq(&ours.items, &theirs.items));
        assert_eq!((shared.count(), blocks.blocks()), (9, 10));
    }

    #[test]
    fn those_that_go_give_their_memory_back() {
        let mut blocks = filled(200 * BLOCK);
        let before = blocks.heap_bytes();
        for n in 0..199 * BLOCK {
            blocks.remove(n % (blocks.len() / 2 + 1));
        }
        assert!(blocks.heap_bytes() < before / 20, "{} of {before}", blocks.heap_bytes());
    }
}
