//! Reading records back by position, one at a time or many in as few reads as possible.

use super::{Log, Lsn, names};
use crate::error::{Error, Result};
use crate::wire::record::{self, Record, Seed};

/// Records further apart than this are read separately.
const GAP: u32 = 4 * 1024;
/// No single read is larger than this, unless one record is.
const READ: u32 = 256 * 1024;

/// Why a record could not be had.
#[derive(Debug)]
pub enum ReadError {
    /// The bytes at its place are not that record.
    Damaged,
    /// The disk did not answer.
    Failed(Error),
}

impl Log {
    /// Appends the bytes of the records at `places` to `out`, in order, and returns where each begins
    /// in it. Records that lie close together are read at once.
    pub fn read_many(&self, places: &[(Lsn, u32)], out: &mut Vec<u8>) -> Result<Vec<usize>> {
        let begin = |at| self.in_memory(at).map(|(begin, _)| begin);
        let mut starts = Vec::with_capacity(places.len());
        let mut rest = places;
        while let Some(&(first, first_len)) = rest.first() {
            let mut end = u64::from(first.offset()) + u64::from(first_len);
            let mut count = 1;
            for &(at, len) in &rest[1..] {
                let start = u64::from(at.offset());
                let near = at.segment() == first.segment()
                    && start >= end
                    && start - end <= u64::from(GAP)
                    && start + u64::from(len) - u64::from(first.offset()) <= u64::from(READ);
                if !near || begin(at) != begin(first) {
                    break;
                }
                end = start + u64::from(len);
                count += 1;
            }
            let base = out.len();
            self.read_bytes(first, (end - u64::from(first.offset())) as usize, out)?;
            for (at, _) in &rest[..count] {
                starts.push(base + (at.offset() - first.offset()) as usize);
            }
            rest = &rest[count..];
        }
        Ok(starts)
    }

    /// The records in memory among which a place is, if it is, and where they begin: those that will be written next, and
    /// those that were written last. Somebody mostly reads these at once.
    fn in_memory(&self, at: Lsn) -> Option<(u32, &[u8])> {
        let written_at = self.buffer_at - self.written.len() as u32;
        let kept = [(self.buffer_at, &self.buffer[..]), (written_at, &self.written[..])];
        let is_active = at.segment() == self.active;
        kept.into_iter().find(|(begin, _)| is_active && at.offset() >= *begin)
    }

    /// Appends `len` bytes from `at` to `out`, zeros where the file ends early.
    fn read_bytes(&self, at: Lsn, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let base = out.len();
        if let Some((begin, records)) = self.in_memory(at) {
            let start = (at.offset() - begin) as usize;
            out.extend_from_slice(records.get(start..start + len).unwrap_or_default());
        } else if let Some(segment) = self.segments.get(&at.segment()) {
            out.resize(base + len, 0);
            let offset = u64::from(at.offset());
            let got = segment.file.read_at(&mut out[base..], offset);
            got.map_err(|e| Error::io("read", names::segment(at.segment()), e))?;
        }
        out.resize(base + len, 0);
        Ok(())
    }

    /// The verified record in `bytes`, which were read from `at`.
    pub fn verify<'a>(&self, at: Lsn, bytes: &'a [u8]) -> Option<Record<'a>> {
        let salt = self.segments.get(&at.segment())?.salt;
        record::decode(bytes, Seed::new(salt, at.number()))
    }

    /// Reads one record of `len` bytes into `out`, which is cleared first.
    pub fn read<'a>(
        &self,
        at: Lsn,
        len: u32,
        out: &'a mut Vec<u8>,
    ) -> std::result::Result<Record<'a>, ReadError> {
        out.clear();
        self.read_bytes(at, len as usize, out).map_err(ReadError::Failed)?;
        self.verify(at, out).ok_or(ReadError::Damaged)
    }
}
