//! Walking over the records of a segment's bytes, past damage if there is any.

use super::Lsn;
use crate::wire::record::{self, Record, Seed};

/// One thing found in a segment.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A sound record.
    Record {
        /// Where it begins.
        at: Lsn,
        /// The record.
        record: Record<'a>,
    },
    /// Bytes that are no record, with sound records after them.
    Damage {
        /// Where they begin.
        at: Lsn,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bytes that are no record, with nothing sound after them: the write that was cut short.
    Torn {
        /// Where they begin.
        at: Lsn,
        /// The bytes, without trailing zeros.
        bytes: &'a [u8],
    },
}

/// Iterates over the contents of a segment, from an offset.
pub struct Scan<'a> {
    bytes: &'a [u8],
    /// Where `bytes` begin in the segment.
    base: usize,
    segment: u32,
    salt: u64,
    position: usize,
}

impl<'a> Scan<'a> {
    /// Scans the segment from `offset` on.
    pub fn new(bytes: &'a [u8], segment: u32, salt: u64, offset: u32) -> Scan<'a> {
        Scan { bytes, base: 0, segment, salt, position: (offset as usize).min(bytes.len()) }
    }

    /// Scans a part of the segment, which begins at `offset`.
    pub fn part(bytes: &'a [u8], segment: u32, salt: u64, offset: u32) -> Scan<'a> {
        Scan { bytes, base: offset as usize, segment, salt, position: 0 }
    }

    /// Where the next thing begins; after the last, where the sound records end.
    pub fn offset(&self) -> u32 {
        (self.base + self.position) as u32
    }

    fn lsn(&self, position: usize) -> Lsn {
        Lsn::new(self.segment, (self.base + position) as u32)
    }

    fn record_at(&self, position: usize) -> Option<(Lsn, Record<'a>)> {
        let at = self.lsn(position);
        let seed = Seed::new(self.salt, at.number());
        Some((at, record::decode(self.bytes.get(position..)?, seed)?))
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        let start = self.position;
        let rest = self.bytes.get(start..).filter(|rest| !rest.is_empty())?;
        if let Some((at, record)) = self.record_at(start) {
            self.position += record.len();
            return Some(Found::Record { at, record });
        }
        let at = self.lsn(start);
        let used = len_without_zeros(rest);
        if used == 0 {
            return None;
        }
        for position in start + 1..start + used {
            if self.record_at(position).is_some() {
                self.position = position;
                return Some(Found::Damage { at, bytes: &self.bytes[start..position] });
            }
        }
        // The records end where the torn bytes begin.
        self.bytes = &self.bytes[..start];
        Some(Found::Torn { at, bytes: &rest[..used] })
    }
}

/// The length without trailing zeros, of which reserved space has megabytes.
fn len_without_zeros(mut bytes: &[u8]) -> usize {
    const BLOCK: usize = 4096;
    while let Some((rest, block)) = bytes.split_last_chunk::<BLOCK>()
        && *block == [0; BLOCK]
    {
        bytes = rest;
    }
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}
