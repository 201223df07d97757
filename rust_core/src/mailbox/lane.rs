//! One lane: the messages of one priority level of one mailbox, in `msg_id` order.
//!
//! A lane may hold one entry or ten million, so it is a list of packed chunks: some 70 bytes on the heap for
//! one entry, 24 bytes per entry for many. Two neighbours that together are less than half full
//! are joined, so that removed entries give their memory back whatever the order of removals.
//! Knows how chunks relate to each other; the packing is the business of `chunk`.

use super::chunk::{CHUNK_ENTRIES, Chunk, FIRST_CAPACITY, NEXT_CAPACITY};
use super::chunks::Chunks;
use super::lane_codec::LaneSnapshot;
use crate::log::Lsn;

/// What the index knows of a stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its offset in the mailbox.
    pub msg_id: u64,
    /// Where its record begins; [`Lsn::NONE`] in the memory tier.
    pub at: Lsn,
    /// Length of its record in bytes.
    pub len: u32,
    /// Wall time at which it got its `msg_id`.
    pub create_ms: u64,
    /// Free bits for the mailbox.
    pub flags: u8,
}

/// The messages of one level, in order.
#[derive(Debug, Default)]
pub struct Lane {
    /// Ascending and disjoint by `base_id`; none is empty.
    chunks: Chunks,
    live: usize,
}

impl Lane {
    /// A lane of chunks that keep its invariants, except for `until_ms`.
    pub(super) fn from_chunks(chunks: Chunks) -> Lane {
        let live = chunks.iter().map(Chunk::len).sum();
        let mut lane = Lane { chunks, live };
        lane.raise_until(0, lane.chunks.len());
        lane
    }

    /// Adds an entry, or replaces the one of the same `msg_id`. Fastest at the end.
    #[inline]
    pub fn put(&mut self, entry: Entry) {
        let Some(tail) = self.chunks.back_mut() else { return self.append_chunk(&entry) };
        if !tail.ends_before(entry.msg_id) {
            self.put_within(&entry);
        } else if tail.push(&entry) {
            self.live += 1;
        } else {
            self.append_chunk(&entry);
        }
    }

    /// The entry of `msg_id`.
    pub fn get(&self, msg_id: u64) -> Option<Entry> {
        self.chunks.get(self.chunk_of(msg_id)?)?.get(msg_id)
    }

    /// Removes and returns the entry of `msg_id`. Fastest at the front.
    pub fn remove(&mut self, msg_id: u64) -> Option<Entry> {
        let at = self.chunk_of(msg_id)?;
        let chunk = self.chunks.get_mut(at)?;
        let removed = chunk.remove(msg_id)?;
        self.live -= 1;
        let left = chunk.len();
        if left == 0 {
            self.chunks.remove(at);
        } else {
            chunk.trim();
        }
        if left < CHUNK_ENTRIES / 2 {
            self.join(at);
            if let Some(before) = at.checked_sub(1) {
                self.join(before);
            }
        }
        Some(removed)
    }

    /// Adds the entries of `next`, all of which must come after those here; false if they do not.
    pub fn append(&mut self, next: Lane) -> bool {
        let (last, first) = (self.last(), next.chunks.front());
        if last.zip(first).is_some_and(|(last, first)| first.base_id <= last.msg_id) {
            return false;
        }
        let at = self.chunks.len();
        self.live += next.live;
        self.chunks.append(&next.chunks);
        self.raise_until(at, self.chunks.len() - at);
        true
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.live
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The first entry.
    pub fn first(&self) -> Option<Entry> {
        self.chunks.front()?.first()
    }

    /// The last entry.
    pub fn last(&self) -> Option<Entry> {
        self.chunks.back()?.last()
    }

    /// Reads what a new entry needs, to have it in the processor's cache. What it returns means nothing.
    #[inline]
    pub(super) fn read_tail(&self) -> u64 {
        self.chunks.back().map_or(0, Chunk::read)
    }

    /// Entries with `msg_id` at or after `from`, ascending.
    pub fn iter_from(&self, from: u64) -> impl Iterator<Item = Entry> + '_ {
        let start = self.chunk_of(from).unwrap_or(0);
        self.chunks.range(start, usize::MAX).flat_map(move |chunk| {
            let index = chunk.position(from).unwrap_or_else(|index| index);
            chunk.iter(index..chunk.len())
        })
    }

    /// How many entries have a `msg_id` at or after `from`. Counts chunks, from the nearer end.
    pub fn count_from(&self, from: u64) -> usize {
        let Some(at) = self.chunk_of(from) else { return self.live };
        let Some(chunk) = self.chunks.get(at) else { return 0 };
        let before = chunk.position(from).unwrap_or_else(|index| index);
        if at < self.chunks.len() / 2 {
            self.live - before - self.chunks.range(0, at).map(Chunk::len).sum::<usize>()
        } else {
            let after = self.chunks.range(at + 1, usize::MAX).map(Chunk::len).sum::<usize>();
            chunk.len() - before + after
        }
    }

    /// Entries with `msg_id` before `end`, descending.
    pub fn iter_back(&self, end: u64) -> impl Iterator<Item = Entry> + '_ {
        let count = self.chunk_of(end).map_or(0, |at| at + 1);
        self.chunks.range(0, count).rev().flat_map(move |chunk| {
            let index = chunk.position(end).unwrap_or_else(|index| index);
            chunk.iter(0..index).rev()
        })
    }

    /// The first `msg_id` (in `msg_id` order) whose `create_ms` is at or after `ms`.
    pub fn first_since(&self, ms: u64) -> Option<u64> {
        let start = self.chunks.partition_point(|chunk| chunk.until_ms < ms);
        // The bounds may be too high after removals: go on until an entry says so.
        self.chunks
            .range(start, usize::MAX)
            .filter(|chunk| chunk.peak_ms >= ms)
            .flat_map(|chunk| chunk.iter(0..chunk.len()))
            .find(|entry| entry.create_ms >= ms)
            .map(|entry| entry.msg_id)
    }

    /// The lane as it is now, to be encoded by another thread. Copies no entries; later changes
    /// copy the chunks that they touch, and lists of some chunks, one time each.
    pub fn snapshot(&self) -> LaneSnapshot {
        LaneSnapshot::new(self.chunks.clone(), self.live)
    }

    /// How many places of memory a snapshot counts up.
    pub fn shares(&self) -> usize {
        self.chunks.shares()
    }

    /// Bytes on the heap, including what is shared with snapshots.
    pub fn heap_bytes(&self) -> usize {
        let entries: usize = self.chunks.iter().map(Chunk::heap_bytes).sum();
        entries + self.chunks.heap_bytes()
    }

    /// Panics unless entries ascend and are as many as are counted. For tests: it looks at all of them.
    pub fn check_invariants(&self) {
        let (mut count, mut next_id, mut until_ms) = (0, 0, 0);
        for chunk in self.chunks.iter() {
            assert!(chunk.len() > 0, "an empty chunk");
            assert!(chunk.base_id >= next_id, "a chunk that begins before the last one ends");
            for entry in chunk.iter(0..chunk.len()) {
                assert!(entry.msg_id >= next_id, "{} is not in order", entry.msg_id);
                assert!(entry.create_ms <= chunk.peak_ms, "{} is later", entry.msg_id);
                next_id = entry.msg_id + 1;
                count += 1;
            }
            assert!(chunk.until_ms >= chunk.peak_ms.max(until_ms), "times of chunks");
            until_ms = chunk.until_ms;
        }
        assert_eq!(self.live, count, "entries of a lane");
    }

    /// The one chunk that can hold `msg_id`.
    fn chunk_of(&self, msg_id: u64) -> Option<usize> {
        let front = self.chunks.front()?;
        let distance = msg_id.checked_sub(front.base_id)?;
        if self.is_chunk_of(0, msg_id) {
            return Some(0);
        }
        // Ids are mostly spread evenly, so a straight line from the first to the last chunk hits.
        let last = self.chunks.len() - 1;
        let span = self.chunks.back()?.base_id.saturating_sub(front.base_id);
        let guess = (distance as f64 / span as f64 * last as f64) as usize;
        let guess = guess.min(last);
        if self.is_chunk_of(guess, msg_id) {
            return Some(guess);
        }
        self.chunks.partition_point(|chunk| chunk.base_id <= msg_id).checked_sub(1)
    }

    fn is_chunk_of(&self, at: usize, msg_id: u64) -> bool {
        self.chunks.get(at).is_some_and(|chunk| chunk.base_id <= msg_id)
            && self.chunks.get(at + 1).is_none_or(|chunk| msg_id < chunk.base_id)
    }

    #[cold]
    fn append_chunk(&mut self, entry: &Entry) {
        let tail = self.chunks.back();
        let capacity =
            if tail.is_some_and(Chunk::is_closed) { NEXT_CAPACITY } else { FIRST_CAPACITY };
        let mut chunk = Chunk::new(entry, capacity);
        chunk.until_ms = chunk.until_ms.max(tail.map_or(0, |tail| tail.until_ms));
        self.chunks.push_back(chunk);
        self.live += 1;
    }

    /// Puts an entry that is not the last one.
    #[cold]
    fn put_within(&mut self, entry: &Entry) {
        let at = self.chunk_of(entry.msg_id).unwrap_or(0);
        if self.chunks.get_mut(at).is_some_and(|chunk| chunk.replace(entry)) {
            self.raise_until(at, 1);
            return;
        }
        self.remove(entry.msg_id);
        self.insert(entry);
        self.live += 1;
    }

    /// Adds an entry whose `msg_id` is not there, in the chunk where it belongs, at the beginning
    /// of the next one, or in a chunk of its own between the two.
    fn insert(&mut self, entry: &Entry) {
        let at = self.chunk_of(entry.msg_id).unwrap_or(0);
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push_back(Chunk::new(entry, 1));
            return;
        };
        if chunk.insert(entry) {
            self.raise_until(at, 1);
            return;
        }
        let (len, full) = (chunk.len(), chunk.is_full());
        let index = chunk.position(entry.msg_id).unwrap_or_else(|index| index);
        let next = self.chunks.get_mut(at + 1);
        if index == len && next.is_some_and(|next| next.insert(entry)) {
            self.raise_until(at + 1, 1);
            return;
        }
        let Some(chunk) = self.chunks.get(at) else {
            debug_assert!(false, "the chunk of {} is gone", entry.msg_id);
            return;
        };
        if full && 0 < index && index < len {
            let halves = [chunk.part(0..len / 2, 0), chunk.part(len / 2..len, 0)];
            self.exchange(at, halves);
            self.insert(entry);
        } else {
            let (before, after) = (chunk.part(0..index, 0), chunk.part(index..len, 0));
            self.exchange(at, [before, Chunk::new(entry, 1), after]);
        }
    }

    /// Puts the parts that are not empty in the place of a chunk.
    fn exchange<const N: usize>(&mut self, at: usize, parts: [Chunk; N]) {
        self.chunks.remove(at);
        let mut end = at;
        for part in parts.into_iter().filter(|part| part.len() > 0) {
            self.chunks.insert(end, part);
            end += 1;
        }
        self.raise_until(at, end - at);
    }

    /// Restores the order of `until_ms` after `changed` chunks from `at` on got other entries.
    fn raise_until(&mut self, at: usize, changed: usize) {
        let before = at.checked_sub(1).and_then(|before| self.chunks.get(before));
        let mut until_ms = before.map_or(0, |chunk| chunk.until_ms);
        let mut index = at;
        while let Some(chunk) = self.chunks.get_mut(index) {
            if index >= at + changed && chunk.until_ms >= until_ms {
                break;
            }
            until_ms = until_ms.max(chunk.until_ms);
            chunk.until_ms = until_ms;
            index += 1;
        }
    }

    /// Joins the chunk with the next one if together they are less than half full.
    #[inline]
    fn join(&mut self, at: usize) {
        let (Some(chunk), Some(next)) = (self.chunks.get(at), self.chunks.get(at + 1)) else {
            return;
        };
        if chunk.len() + next.len() >= CHUNK_ENTRIES / 2 {
            return;
        }
        let Some(joined) = chunk.joined(next) else { return };
        if let Some(chunk) = self.chunks.get_mut(at) {
            *chunk = joined;
        }
        self.chunks.remove(at + 1);
    }
}
