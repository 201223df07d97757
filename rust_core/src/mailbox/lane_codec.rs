//! The bytes of a lane in a snapshot of the store. All numbers are little-endian.
//!
//! | part  | at | bytes | what                                                             |
//! | ----- | -- | ----- | ---------------------------------------------------------------- |
//! | lane  |  0 |     8 | number of entries; the chunks follow, up to the end of the bytes |
//! | chunk |  0 |     8 | `base_id`, after every `msg_id` of the chunks before             |
//! |       |  8 |     8 | `base_ms`                                                        |
//! |       | 16 |     4 | number of entries, 1 to 512                                      |
//! |       | 20 |     4 | bytes of the packed entries, which follow; see `packing`         |
//!
//! Where the last number is zero, as in what earlier versions wrote, entries follow that are not packed:
//!
//! | part  | at | bytes | what                                                             |
//! | ----- | -- | ----- | ---------------------------------------------------------------- |
//! | entry |  0 |     4 | `msg_id - base_id`, ascending                                    |
//! |       |  4 |     4 | `len`                                                            |
//! |       |  8 |     8 | `at`, the number of the LSN                                      |
//! |       | 16 |     1 | `flags`                                                          |
//! |       | 17 |     7 | `create_ms - base_ms`, signed, modulo 2^64                       |
//!
//! No checksum: that is up to the file which holds them.

use super::chunk::{CHUNK_ENTRIES, Chunk, Packed};
use super::chunks::Chunks;
use super::lane::Lane;
use super::packing::{self, pack, unpack};
use crate::log::Lsn;
use crate::wire::bytes::{Put, Reader};

const LANE_HEADER: usize = 8;
const CHUNK_HEADER: usize = 24;
/// Bytes of an entry that is not packed.
const PLAIN: usize = 24;

/// Chunks in one part of a snapshot: some 200 KB in memory, so that a processor's cache holds what is being
/// read or written.
const PART_CHUNKS: usize = 16;

/// A lane as it was when the snapshot was taken.
#[derive(Debug, Clone)]
pub struct LaneSnapshot {
    chunks: Chunks,
    live: usize,
}

impl LaneSnapshot {
    pub(super) fn new(chunks: Chunks, live: usize) -> LaneSnapshot {
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
        self.chunks.slices(PART_CHUNKS).map(LanePart)
    }

    /// Appends the bytes from which [`Lane::decode`] makes the lane again.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self.live, self.chunks.iter(), out);
    }
}

/// Consecutive entries of a snapshot; encoded as if they were all of the lane.
#[derive(Debug, Clone, Copy)]
pub struct LanePart<'a>(&'a [Chunk]);

impl LanePart<'_> {
    /// Appends the bytes from which [`Lane::decode`] makes a lane of these entries.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self.0.iter().map(Chunk::len).sum(), self.0.iter(), out);
    }
}

fn encode<'a>(live: usize, chunks: impl Iterator<Item = &'a Chunk>, out: &mut Vec<u8>) {
    out.put_u64(live as u64);
    for chunk in chunks {
        out.put_u64(chunk.base_id);
        out.put_u64(chunk.base_ms);
        out.put_u32(chunk.len() as u32);
        let length_at = out.len();
        out.put_u32(0);
        pack(chunk.live(), out);
        let packed = (out.len() - length_at - 4) as u32;
        out[length_at..length_at + 4].copy_from_slice(&packed.to_le_bytes());
    }
}

impl Lane {
    /// The lane that was encoded to exactly these bytes, or `None` if they are not an encoding.
    pub fn decode(bytes: &[u8]) -> Option<Lane> {
        let (live, mut rest) = bytes.split_first_chunk::<LANE_HEADER>()?;
        let live = usize::try_from(u64::from_le_bytes(*live)).ok()?;
        if live > rest.len() / packing::LEAST {
            return None;
        }
        let mut chunks = Chunks::default();
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
    let (header, rest) = bytes.split_at_checked(CHUNK_HEADER)?;
    let from = &mut Reader::new(header);
    let (base_id, base_ms) = (from.u64()?, from.u64()?);
    let count = usize::try_from(from.u32()?).ok().filter(|n| (1..=CHUNK_ENTRIES).contains(n))?;
    let (entries, rest) = match usize::try_from(from.u32()?).ok()? {
        0 => {
            let (plain, rest) = rest.split_at_checked(count * PLAIN)?;
            (decode_plain(plain, count)?, rest)
        }
        packed => {
            let (packed, rest) = rest.split_at_checked(packed)?;
            (unpack(packed, count)?, rest)
        }
    };
    let last_id = base_id.checked_add(u64::from(entries.last()?.id_offset))?;
    Some((Chunk::from_packed(base_id, base_ms, entries.into_iter(), count), last_id, rest))
}

/// Entries that are not packed.
fn decode_plain(bytes: &[u8], count: usize) -> Option<Vec<Packed>> {
    let mut entries = Vec::with_capacity(count);
    let mut next_offset = 0;
    let from = &mut Reader::new(bytes);
    for _ in 0..count {
        let (id_offset, len) = (from.u32()?, from.u32()?);
        if u64::from(id_offset) < next_offset {
            return None;
        }
        next_offset = u64::from(id_offset) + 1;
        entries.push(Packed {
            id_offset,
            len,
            at: Lsn::from_number(from.u64()?),
            ms_flags: from.u64()?,
        });
    }
    Some(entries)
}
