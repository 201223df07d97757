//! One chunk of a lane: up to [`CHUNK_ENTRIES`] entries packed into 24 bytes each, in `msg_id`
//! order. Owns the packing and the room inside a chunk; knows nothing of its neighbours.
//!
//! The small header lives in the lane, the entries behind an [`Arc`]: snapshots share them, and
//! the first change after a snapshot copies that one chunk. Taking the first entry only moves
//! `head`, so a queue that is being consumed copies nothing.

use std::cmp::Ordering;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use super::lane::Entry;
use crate::log::Lsn;

/// Most entries in a chunk.
pub(super) const CHUNK_ENTRIES: usize = 512;

/// Capacity of a chunk that follows none or one with room: most mailboxes never hold more.
pub(super) const FIRST_CAPACITY: usize = 2;

/// Capacity of a chunk that follows a full one: more entries are likely to come.
pub(super) const NEXT_CAPACITY: usize = 128;

/// Chunks with no more room than this are not worth trimming.
const SMALL_CAPACITY: usize = 8;

/// Bytes before the entries of a shared block: its counters.
const COUNTERS: usize = 2 * size_of::<usize>();

/// An entry relative to the bases of its chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed {
    /// `msg_id - base_id`
    pub(super) id_offset: u32,
    /// Length of the record.
    pub(super) len: u32,
    /// Where the record begins.
    pub(super) at: Lsn,
    /// `create_ms - base_ms` as a signed number in the high 56 bits, the flags in the low 8.
    pub(super) ms_flags: u64,
}

/// What stands where no entry is.
pub(super) const NO_ENTRY: Packed = Packed { id_offset: 0, len: 0, at: Lsn::NONE, ms_flags: 0 };

impl Packed {
    /// The creation time, given the base of the chunk.
    pub(super) fn create_ms(self, base_ms: u64) -> u64 {
        base_ms.wrapping_add(((self.ms_flags as i64) >> 8) as u64)
    }

    fn unpack(self, base_id: u64, base_ms: u64) -> Entry {
        Entry {
            msg_id: base_id.wrapping_add(u64::from(self.id_offset)),
            at: self.at,
            len: self.len,
            create_ms: self.create_ms(base_ms),
            flags: self.ms_flags as u8,
        }
    }
}

/// A run of entries. The live ones are `room[head..end]`; a lane drops a chunk without any.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    /// At or before every `msg_id` in here, after every one in the chunks before.
    pub(super) base_id: u64,
    /// What creation times are relative to.
    pub(super) base_ms: u64,
    /// No live entry here was created later. Too high after the latest one was removed.
    pub(super) peak_ms: u64,
    /// The highest `peak_ms` of this chunk and all before, kept by the lane. Never falls from a
    /// chunk to the next.
    pub(super) until_ms: u64,
    /// Counters and entries in one place: a message to a mailbox that has not been used for a while costs
    /// one trip to memory here.
    room: Arc<[Packed]>,
    head: u32,
    end: u32,
}

impl Chunk {
    /// A chunk of one entry with room for `capacity`.
    pub(super) fn new(entry: &Entry, capacity: usize) -> Chunk {
        let packed =
            Packed { id_offset: 0, len: entry.len, at: entry.at, ms_flags: u64::from(entry.flags) };
        Chunk::from_packed(entry.msg_id, entry.create_ms, [packed].into_iter(), capacity)
    }

    /// A chunk of entries that are already packed, ascending, relative to these bases, with room for `capacity`.
    pub(super) fn from_packed(
        base_id: u64,
        base_ms: u64,
        entries: impl ExactSizeIterator<Item = Packed>,
        capacity: usize,
    ) -> Chunk {
        let end = entries.len() as u32;
        let room = with_room(entries, capacity);
        let entries = room.iter().take(end as usize);
        let peak_ms = entries.map(|p| p.create_ms(base_ms)).max().unwrap_or(0);
        Chunk { base_id, base_ms, peak_ms, until_ms: peak_ms, room, head: 0, end }
    }

    /// The live entries.
    pub(super) fn live(&self) -> &[Packed] {
        self.room.get(self.head as usize..self.end as usize).unwrap_or_default()
    }

    /// How many live entries there are.
    pub(super) fn len(&self) -> usize {
        self.live().len()
    }

    /// True when no entry can be added in the middle.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= CHUNK_ENTRIES
    }

    /// True when a push fails for want of room.
    pub(super) fn is_closed(&self) -> bool {
        self.end as usize >= CHUNK_ENTRIES && (self.head as usize) < CHUNK_ENTRIES / 2
    }

    /// The first live entry.
    pub(super) fn first(&self) -> Option<Entry> {
        self.live().first().map(|p| p.unpack(self.base_id, self.base_ms))
    }

    /// The last live entry.
    pub(super) fn last(&self) -> Option<Entry> {
        self.live().last().map(|p| p.unpack(self.base_id, self.base_ms))
    }

    /// True when `msg_id` comes after every entry.
    #[inline]
    pub(super) fn ends_before(&self, msg_id: u64) -> bool {
        let last = self.live().last();
        last.is_none_or(|p| self.base_id.wrapping_add(u64::from(p.id_offset)) < msg_id)
    }

    /// The live entries at `range`.
    pub(super) fn iter(
        &self,
        range: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = Entry> + use<'_> {
        let (base_id, base_ms) = (self.base_id, self.base_ms);
        let entries = self.live().get(range).unwrap_or_default();
        entries.iter().map(move |p| p.unpack(base_id, base_ms))
    }

    /// Where `msg_id` is among the live entries, or where it would be inserted.
    pub(super) fn position(&self, msg_id: u64) -> Result<usize, usize> {
        let live = self.live();
        let (Some(first), Some(last)) = (live.first(), live.last()) else { return Err(0) };
        let Some(distance) = msg_id.checked_sub(self.base_id) else { return Err(0) };
        let Ok(offset) = u32::try_from(distance) else { return Err(live.len()) };
        if offset <= first.id_offset {
            return if offset == first.id_offset { Ok(0) } else { Err(0) };
        }
        if offset > last.id_offset {
            return Err(live.len());
        }
        // Ids are distinct, so an entry bounds the position of another by the distance of their
        // ids: without holes the two ends leave one candidate. Else a probe on the straight line
        // between them leaves few, mostly in the same cache line.
        let mut high = live.len().min((offset - first.id_offset) as usize + 1);
        let mut low = live.len().saturating_sub((last.id_offset - offset) as usize + 1);
        if high - low > 1 {
            let span = u64::from(last.id_offset - first.id_offset);
            let line = u64::from(offset - first.id_offset) * (live.len() as u64 - 1) / span;
            let probe = (line as usize).clamp(low, high - 1);
            let found = live.get(probe).map_or(offset, |p| p.id_offset);
            match found.cmp(&offset) {
                Ordering::Equal => return Ok(probe),
                Ordering::Less => {
                    low = probe + 1;
                    high = high.min(probe + (offset - found) as usize + 1);
                }
                Ordering::Greater => {
                    high = probe;
                    low = low.max(probe.saturating_sub((found - offset) as usize));
                }
            }
        }
        let window = live.get(low..high).unwrap_or_default();
        match window.binary_search_by_key(&offset, |p| p.id_offset) {
            Ok(index) => Ok(low + index),
            Err(index) => Err(low + index),
        }
    }

    /// The entry of `msg_id`.
    pub(super) fn get(&self, msg_id: u64) -> Option<Entry> {
        let index = self.position(msg_id).ok()?;
        Some(self.live().get(index)?.unpack(self.base_id, self.base_ms))
    }

    /// Adds an entry whose `msg_id` is after all others; false if there is no room or it does not
    /// fit the bases.
    #[inline]
    pub(super) fn push(&mut self, entry: &Entry) -> bool {
        if self.is_closed() {
            return false;
        }
        let Some(packed) = self.pack(entry) else { return false };
        let end = self.make_vacant();
        Arc::make_mut(&mut self.room)[end] = packed;
        self.end += 1;
        self.note_ms(entry.create_ms);
        true
    }

    /// Adds an entry in its place; false if there is no room, it does not fit the bases, or its
    /// `msg_id` is taken.
    pub(super) fn insert(&mut self, entry: &Entry) -> bool {
        let Err(index) = self.position(entry.msg_id) else { return false };
        if self.is_full() || self.pack_ms(entry).is_none() || !self.reach_down(entry.msg_id) {
            return false;
        }
        let Some(packed) = self.pack(entry) else { return false };
        if index == 0 && self.head > 0 {
            self.head -= 1;
            let head = self.head as usize;
            if let Some(slot) = Arc::make_mut(&mut self.room).get_mut(head) {
                *slot = packed;
            }
        } else {
            let end = self.make_vacant();
            let index = self.head as usize + index;
            let behind = &mut Arc::make_mut(&mut self.room)[index..=end];
            behind.rotate_right(1);
            behind[0] = packed;
            self.end += 1;
        }
        self.note_ms(entry.create_ms);
        true
    }

    /// Overwrites the entry of the same `msg_id`; false if there is none or it does not fit.
    pub(super) fn replace(&mut self, entry: &Entry) -> bool {
        let (Ok(index), Some(packed)) = (self.position(entry.msg_id), self.pack(entry)) else {
            return false;
        };
        let index = self.head as usize + index;
        if let Some(slot) = Arc::make_mut(&mut self.room).get_mut(index) {
            *slot = packed;
        }
        self.note_ms(entry.create_ms);
        true
    }

    /// Removes and returns the entry of `msg_id`.
    pub(super) fn remove(&mut self, msg_id: u64) -> Option<Entry> {
        let index = self.position(msg_id).ok()?;
        let removed = self.live().get(index)?.unpack(self.base_id, self.base_ms);
        if index == 0 {
            self.head += 1;
            return Some(removed);
        }
        let (head, after) = (self.head as usize, self.len() - index - 1);
        let room = Arc::make_mut(&mut self.room);
        if index < after {
            room.copy_within(head..head + index, head + 1);
            self.head += 1;
        } else {
            room.copy_within(head + index + 1..self.end as usize, head + index);
            self.end -= 1;
        }
        Some(removed)
    }

    /// Gives memory back when less than 3/8 of it holds live entries. A third of slack is left, so
    /// that the next trim or growth is as many operations away as this one copied entries.
    pub(super) fn trim(&mut self) {
        let (live, capacity) = (self.len(), self.room.len());
        if capacity > SMALL_CAPACITY && live * 8 < capacity * 3 {
            let until_ms = self.until_ms;
            *self = self.part(0..live, live / 3);
            self.until_ms = until_ms;
        }
    }

    /// A new chunk of the live entries at `range`, with room for `spare` more. Empty ranges give
    /// an empty chunk.
    pub(super) fn part(&self, range: Range<usize>, spare: usize) -> Chunk {
        let source = self.live().get(range).unwrap_or_default();
        let shift = source.first().map_or(0, |p| p.id_offset);
        let base_id = self.base_id.wrapping_add(u64::from(shift));
        let moved = source.iter().map(|p| Packed { id_offset: p.id_offset - shift, ..*p });
        Chunk::from_packed(base_id, self.base_ms, moved, source.len() + spare)
    }

    /// This chunk and the one after it in one, if `next` fits the bases.
    pub(super) fn joined(&self, next: &Chunk) -> Option<Chunk> {
        let total = self.len() + next.len();
        let mut joined = self.part(0..self.len(), next.len() + total / 3);
        for entry in next.iter(0..next.len()) {
            if !joined.push(&entry) {
                return None;
            }
        }
        joined.until_ms = next.until_ms;
        Some(joined)
    }

    /// Bytes on the heap, shared or not.
    pub(super) fn heap_bytes(&self) -> usize {
        COUNTERS + size_of_val(&*self.room)
    }

    /// Reads the counters and the last entry, to have them in the processor's cache. What it returns means nothing.
    #[inline]
    pub(super) fn read(&self) -> u64 {
        let last = self.room.get((self.end as usize).wrapping_sub(1));
        Arc::strong_count(&self.room) as u64 ^ last.map_or(0, |p| u64::from(p.id_offset))
    }

    fn pack(&self, entry: &Entry) -> Option<Packed> {
        pack(self.base_id, self.base_ms, entry)
    }

    fn pack_ms(&self, entry: &Entry) -> Option<u64> {
        pack_ms(self.base_ms, entry)
    }

    /// Lowers `base_id` to `msg_id` if it is above; false if the last entry is too far from it.
    fn reach_down(&mut self, msg_id: u64) -> bool {
        let Some(shift) = self.base_id.checked_sub(msg_id).filter(|shift| *shift > 0) else {
            return true;
        };
        let last = self.live().last().map_or(0, |p| p.id_offset);
        let Ok(shift) = u32::try_from(shift) else { return false };
        if last.checked_add(shift).is_none() {
            return false;
        }
        for packed in Arc::make_mut(&mut self.room).iter_mut() {
            packed.id_offset = packed.id_offset.wrapping_add(shift);
        }
        self.base_id = msg_id;
        true
    }

    /// Makes sure that there is room behind the last entry; returns where.
    #[inline]
    fn make_vacant(&mut self) -> usize {
        let end = self.end as usize;
        if end == self.room.len() || end >= CHUNK_ENTRIES {
            self.make_room();
        }
        self.end as usize
    }

    /// Drops dead entries if they are half of all or the chunk may not grow, else grows.
    #[cold]
    fn make_room(&mut self) {
        let (dead, end) = (self.head as usize, self.end as usize);
        if dead > 0 && (dead * 2 >= end || end >= CHUNK_ENTRIES) {
            Arc::make_mut(&mut self.room).copy_within(dead..end, 0);
            (self.head, self.end) = (0, (end - dead) as u32);
        } else {
            let entries = self.room[..end].iter().copied();
            self.room = with_room(entries, (end * 2).clamp(1, CHUNK_ENTRIES));
        }
    }

    #[inline]
    fn note_ms(&mut self, create_ms: u64) {
        self.peak_ms = self.peak_ms.max(create_ms);
        self.until_ms = self.until_ms.max(create_ms);
    }
}

/// Entries with room for `capacity`.
fn with_room(entries: impl ExactSizeIterator<Item = Packed>, capacity: usize) -> Arc<[Packed]> {
    let vacant = capacity.saturating_sub(entries.len());
    entries.chain(repeat_n(NO_ENTRY, vacant)).collect()
}

#[inline]
fn pack(base_id: u64, base_ms: u64, entry: &Entry) -> Option<Packed> {
    let id_offset = u32::try_from(entry.msg_id.checked_sub(base_id)?).ok()?;
    let ms_flags = pack_ms(base_ms, entry)?;
    Some(Packed { id_offset, len: entry.len, at: entry.at, ms_flags })
}

/// Time and flags in one word, if the distance to the base fits 56 bits with sign.
#[inline]
fn pack_ms(base_ms: u64, entry: &Entry) -> Option<u64> {
    let distance = entry.create_ms.wrapping_sub(base_ms);
    let shifted = distance << 8;
    (((shifted as i64) >> 8) as u64 == distance).then_some(shifted | u64::from(entry.flags))
}
