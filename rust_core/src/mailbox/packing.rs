//! The entries of a chunk in few bytes: each is told by how it differs from what the one before it lets expect.
//!
//! Messages that come one after the other have ids, places and times that follow from each other, so that most
//! entries take four to six bytes instead of 24. Checkpoints consist of little else.

use super::chunk::{NO_ENTRY, Packed};
use crate::log::Lsn;
use crate::wire::bytes::{Put, Reader};

/// An entry takes at least this many bytes.
pub(super) const LEAST: usize = 4;

/// Appends `entries`, whose ids ascend.
pub(super) fn pack(entries: &[Packed], out: &mut Vec<u8>) {
    let (mut before, mut next_id) = (NO_ENTRY, 0);
    for entry in entries {
        let fields = [
            u64::from(entry.id_offset).wrapping_sub(next_id),
            zigzag(u64::from(entry.len).wrapping_sub(u64::from(before.len))),
            zigzag(entry.at.number().wrapping_sub(expected_at(before))),
            zigzag(entry.ms_flags.wrapping_sub(before.ms_flags)),
        ];
        if fields.iter().all(|field| *field < 0x80) {
            out.extend_from_slice(&fields.map(|field| field as u8));
        } else {
            fields.iter().for_each(|field| out.put_varint(*field));
        }
        (before, next_id) = (*entry, u64::from(entry.id_offset) + 1);
    }
}

/// The `count` entries that were packed into exactly these bytes; `None` if they were not.
pub(super) fn unpack(bytes: &[u8], count: usize) -> Option<Vec<Packed>> {
    let mut from = Reader::new(bytes);
    let mut entries = Vec::with_capacity(count);
    let (mut before, mut next_id) = (NO_ENTRY, 0_u64);
    for _ in 0..count {
        let [id, len, at, ms_flags] =
            [from.varint()?, from.varint()?, from.varint()?, from.varint()?];
        let id_offset = u32::try_from(next_id.checked_add(id)?).ok()?;
        let len = u64::from(before.len).wrapping_add(unzigzag(len));
        let at = expected_at(before).wrapping_add(unzigzag(at));
        before = Packed {
            id_offset,
            len: u32::try_from(len).ok()?,
            at: Lsn::from_number(at),
            ms_flags: before.ms_flags.wrapping_add(unzigzag(ms_flags)),
        };
        next_id = u64::from(id_offset) + 1;
        entries.push(before);
    }
    from.is_empty().then_some(entries)
}

/// Where the next record begins if it is right behind this one.
fn expected_at(before: Packed) -> u64 {
    before.at.number().wrapping_add(u64::from(before.len))
}

/// A signed number whose small values of either sign are small.
fn zigzag(value: u64) -> u64 {
    (value << 1) ^ ((value as i64 >> 63) as u64)
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}
