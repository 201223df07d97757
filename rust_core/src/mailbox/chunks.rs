//! The chunks of a lane, in order. The last one, mostly the only one, lies in the lane itself: a trip to memory less
//! when a mailbox is used that has not been for a while. Knows nothing of what chunks hold.

use super::blocks::Blocks;
use super::chunk::Chunk;

/// Any number of chunks. A copy shares what they hold, and costs little however many there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunks {
    /// Those before the last one; never empty.
    before: Option<Box<Blocks<Chunk>>>,
    /// There is none only if there are none at all.
    last: Option<Chunk>,
}

impl Chunks {
    pub(super) fn len(&self) -> usize {
        self.before() + usize::from(self.last.is_some())
    }

    fn before(&self) -> usize {
        self.before.as_ref().map_or(0, |before| before.len())
    }

    /// How many places of memory a copy counts up.
    pub(super) fn shares(&self) -> usize {
        self.before.as_ref().map_or(0, |before| before.blocks()) + usize::from(self.last.is_some())
    }

    pub(super) fn get(&self, at: usize) -> Option<&Chunk> {
        if at == self.before() { self.last.as_ref() } else { self.before.as_ref()?.get(at) }
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Chunk> {
        if at == self.before() { self.last.as_mut() } else { self.before.as_mut()?.get_mut(at) }
    }

    pub(super) fn front(&self) -> Option<&Chunk> {
        self.get(0)
    }

    pub(super) fn back(&self) -> Option<&Chunk> {
        self.last.as_ref()
    }

    #[inline]
    pub(super) fn back_mut(&mut self) -> Option<&mut Chunk> {
        self.last.as_mut()
    }

    pub(super) fn push_back(&mut self, chunk: Chunk) {
        if let Some(last) = self.last.replace(chunk) {
            self.before.get_or_insert_default().push_back(last);
        }
    }

    /// Puts those of another lane behind these.
    pub(super) fn append(&mut self, next: &Chunks) {
        next.iter().for_each(|chunk| self.push_back(chunk.clone()));
    }

    /// Puts a chunk before the one at `at`, or behind all.
    pub(super) fn insert(&mut self, at: usize, chunk: Chunk) {
        if at >= self.len() {
            return self.push_back(chunk);
        }
        self.before.get_or_insert_default().insert(at, chunk);
    }

    pub(super) fn remove(&mut self, at: usize) {
        if at == self.before() {
            self.last = self.before.as_mut().and_then(|before| before.pop_back());
        } else if let Some(before) = &mut self.before {
            before.remove(at);
        }
        self.before.take_if(|before| before.len() == 0);
    }

    /// How many at the beginning are so; those behind them must not be.
    pub(super) fn partition_point(&self, mut is_so: impl FnMut(&Chunk) -> bool) -> usize {
        if self.last.as_ref().is_some_and(&mut is_so) {
            return self.len();
        }
        self.before.as_ref().map_or(0, |before| before.partition_point(is_so))
    }

    /// Those from `start` on, up to before `end`.
    pub(super) fn range(
        &self,
        start: usize,
        end: usize,
    ) -> impl DoubleEndedIterator<Item = &Chunk> {
        let number = self.before();
        let before = self.before.iter();
        let before = before.flat_map(move |b| b.range(start.min(number), end.min(number)));
        before.chain(self.last.iter().filter(move |_| (start..end).contains(&number)))
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Chunk> {
        self.range(0, usize::MAX)
    }

    /// All of them, in slices of at most so many.
    pub(super) fn slices(&self, most: usize) -> impl Iterator<Item = &[Chunk]> {
        let before = self.before.iter().flat_map(move |before| before.slices(most));
        before.chain(self.last.iter().map(std::slice::from_ref))
    }

    /// Bytes on the heap, without those of the chunks.
    pub(super) fn heap_bytes(&self) -> usize {
        self.before.as_ref().map_or(0, |before| size_of::<Blocks<Chunk>>() + before.heap_bytes())
    }
}
