//! The frame around every record of the log: length, checksum, kind, mailbox.
//!
//! ```text
//! offset  size  field
//!      0     4  CRC32C of bytes 4.. of the record, seeded with the segment's salt and the position
//!      4     4  length of the whole record
//!      8     2  mark, derived from salt and position: makes a lost frame findable again
//!     10     1  kind
//!     11     1  flags
//!     12     8  mailbox number, 0 where no mailbox is meant
//!     20     -  body
//! ```
//!
//! Salt and position go into mark and checksum, so that neither stale bytes nor a payload made to
//! look like a record are ever taken for one.

use super::bytes::Reader;

/// Bytes before the body.
pub const HEADER: usize = 20;

/// Flag: the next record belongs to the same atomic unit.
pub const FLAG_MORE: u8 = 1;
/// Flag: counts only if the record right before it does.
pub const FLAG_REST: u8 = 4;
/// Flag: a message copied here from an older segment.
pub const FLAG_MOVED: u8 = 2;
/// All flags of this version.
pub const FLAGS: u8 = FLAG_MORE | FLAG_MOVED | FLAG_REST;

/// What a record's checksum starts from: unpredictable, and different at every position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The seed at `position` (an Lsn's number) in a segment with `salt`.
    pub fn new(salt: u64, position: u64) -> Seed {
        let mut x = salt ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Seed(x ^ (x >> 29))
    }

    fn crc(self) -> u32 {
        self.0 as u32
    }

    fn mark(self) -> u16 {
        // Zero is what unwritten space holds.
        ((self.0 >> 48) as u16).max(1)
    }
}

/// A verified record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The kind's number.
    pub kind: u8,
    /// `FLAG_` bits.
    pub flags: u8,
    /// Mailbox number.
    pub mailbox: u64,
    /// What the kind says.
    pub body: &'a [u8],
}

impl Record<'_> {
    /// Length with the frame.
    pub fn len(&self) -> usize {
        HEADER + self.body.len()
    }

    /// True without a body.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }
}

/// Opens a frame at the end of `out`; the body is appended by the caller.
pub fn begin(out: &mut Vec<u8>, kind: u8, flags: u8, mailbox: u64) -> usize {
    let start = out.len();
    let mut header = [0u8; HEADER];
    header[10] = kind;
    header[11] = flags;
    header[12..20].copy_from_slice(&mailbox.to_le_bytes());
    out.extend_from_slice(&header);
    start
}

/// Closes the frame opened at `start`: writes length, mark and checksum. Returns the length.
pub fn finish(out: &mut [u8], start: usize, seed: Seed) -> u32 {
    let record = &mut out[start..];
    let len = record.len() as u32;
    record[4..8].copy_from_slice(&len.to_le_bytes());
    record[8..10].copy_from_slice(&seed.mark().to_le_bytes());
    let crc = crc32c::crc32c_append(seed.crc(), &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    len
}

/// The record at the start of `bytes`, or `None` if there is no whole, undamaged one.
pub fn decode(bytes: &[u8], seed: Seed) -> Option<Record<'_>> {
    let mut header = Reader::new(bytes);
    let crc = header.u32()?;
    let len = header.u32()? as usize;
    if header.u16()? != seed.mark() || len < HEADER || len > bytes.len() {
        return None;
    }
    if crc32c::crc32c_append(seed.crc(), &bytes[4..len]) != crc {
        return None;
    }
    let (kind, flags, mailbox) = (header.u8()?, header.u8()?, header.u64()?);
    Some(Record { kind, flags, mailbox, body: &bytes[HEADER..len] })
}
