//! The bytes of a lane in a snapshot of the store. All numbers are little-endian.
//!
//! | part  | at | bytes | what                                                             |
//! | ----- | -- | ----- | ---------------------------------------------------------------- |
//! | lane  |  0 |     8 | number of entries; the chunks follow, up to the end of the bytes |
//! | chunk |  0 |     8 | `base_id`, after every `msg_id` of the chunks before             |
//! |       |  8 |     8 | `base_ms`                                                        |
//! |       | 16 |     4 | number of entries, 1 to 512; they follow the 24 bytes of this    |
//! |       | 20 |     4 | zero                                                             |
//! | entry |  0 |     4 | `msg_id - base_id`, ascending                                    |
//! |       |  4 |     4 | `len`                                                            |
//! |       |  8 |     8 | `at`, the number of the LSN                                      |
//! |       | 16 |     1 | `flags`                                                          |
//! |       | 17 |     7 | `create_ms - base_ms`, signed, modulo 2^64                       |
//!
//! No checksum: that is up to the file which holds them.

use std::collections::VecDeque;

use super::chunk::{CHUNK_ENTRIES, Chunk, Entries, Packed};
use super::lane::Lane;
use crate::log::Lsn;

const LANE_HEADER: usize = 8;
const CHUNK_HEADER: usize = 24;
const ENTRY: usize = 24;

/// Chunks in one part of a snapshot: some 200 KB, so that a processor's cache holds what is being
/// read or written.
const PART_CHUNKS: usize = 16;

/// A lane as it was when the snapshot was taken.
#[derive(Debug, Clone)]
pub struct LaneSnapshot {
    chunks: Vec<Chunk>,
    live: usize,
}

impl LaneSnapshot {
    pub(super) fn new(chunks: Vec<Chunk>, live: usize) -> LaneSnapshot {
        LaneSnapshot { chunks, live }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.live
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The lane in parts of bounded size, in order. There is none of an empty lane.
    pub fn parts(&self) -> impl Iterator<Item = LanePart<'_>> {
        self.chunks.chunks(PART_CHUNKS).map(LanePart)
    }

    /// How many bytes [`LaneSnapshot::encode`] appends.
    pub fn encoded_len(&self) -> usize {
        LanePart(&self.chunks).encoded_len()
    }

    /// Appends the bytes from which [`Lane::decode`] makes the lane again.
    pub fn encode(&self, out: &mut Vec<u8>) {
        LanePart(&self.chunks).encode(out);
    }
}

/// Consecutive entries of a snapshot; encoded as if they were all of the lane.
#[derive(Debug, Clone, Copy)]
pub struct LanePart<'a>(&'a [Chunk]);

impl LanePart<'_> {
    fn live(&self) -> usize {
        self.0.iter().map(Chunk::len).sum()
    }

    fn encoded_len(&self) -> usize {
        LANE_HEADER + self.0.len() * CHUNK_HEADER + self.live() * ENTRY
    }

    /// Appends the bytes from which [`Lane::decode`] makes a lane of these entries.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        out.extend_from_slice(&(self.live() as u64).to_le_bytes());
        for chunk in self.0 {
            let count = chunk.len() as u64;
            out.extend_from_slice(&words(chunk.base_id, chunk.base_ms, count));
            for packed in chunk.live() {
                let id_len = u64::from(packed.id_offset) | u64::from(packed.len) << 32;
                out.extend_from_slice(&words(id_len, packed.at.number(), packed.ms_flags));
            }
        }
    }
}

impl Lane {
    /// The lane that was encoded to exactly these bytes, or `None` if they are not an encoding.
    pub fn decode(bytes: &[u8]) -> Option<Lane> {
        let (live, mut rest) = bytes.split_first_chunk::<LANE_HEADER>()?;
        let live = usize::try_from(u64::from_le_bytes(*live)).ok()?;
        if live > rest.len() / ENTRY {
            return None;
        }
        let mut chunks = VecDeque::with_capacity(live.div_ceil(CHUNK_ENTRIES));
        let mut decoded = 0;
        let mut previous_id = None;
        while !rest.is_empty() {
            let (chunk, last_id);
            (chunk, last_id, rest) = decode_chunk(rest)?;
            if previous_id.is_some_and(|previous| chunk.base_id <= previous) {
                return None;
            }
            previous_id = Some(last_id);
            decoded += chunk.len();
            chunks.push_back(chunk);
        }
        (decoded == live).then(|| Lane::from_chunks(chunks))
    }
}

/// The chunk at the beginning of `bytes`, its last `msg_id`, and the bytes after it.
fn decode_chunk(bytes: &[u8]) -> Option<(Chunk, u64, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<CHUNK_HEADER>()?;
    let [base_id, base_ms, count] = split_words(header)?;
    let count = usize::try_from(count).ok().filter(|n| (1..=CHUNK_ENTRIES).contains(n))?;
    let (body, rest) = rest.split_at_checked(count * ENTRY)?;

    let mut entries = Entries::with_capacity(count);
    let mut next_offset = 0;
    for bytes in body.chunks_exact(ENTRY) {
        let [id_len, at, ms_flags] = split_words(bytes)?;
        let id_offset = id_len as u32;
        if u64::from(id_offset) < next_offset {
            return None;
        }
        next_offset = u64::from(id_offset) + 1;
        let len = (id_len >> 32) as u32;
        entries.push(Packed { id_offset, len, at: Lsn::from_number(at), ms_flags });
    }
    let last_id = base_id.checked_add(next_offset - 1)?;
    Some((Chunk::from_packed(base_id, base_ms, entries), last_id, rest))
}

fn words(a: u64, b: u64, c: u64) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    bytes[..8].copy_from_slice(&a.to_le_bytes());
    bytes[8..16].copy_from_slice(&b.to_le_bytes());
    bytes[16..].copy_from_slice(&c.to_le_bytes());
    bytes
}

fn split_words(bytes: &[u8]) -> Option<[u64; 3]> {
    let (a, rest) = bytes.split_first_chunk::<8>()?;
    let (b, rest) = rest.split_first_chunk::<8>()?;
    let (c, _) = rest.split_first_chunk::<8>()?;
    Some([u64::from_le_bytes(*a), u64::from_le_bytes(*b), u64::from_le_bytes(*c)])
}
