//! Positions in the log.

/// Where a record begins: segment number in the high half, byte offset in the low. Later records
/// compare greater. Segments count from 1, so `Lsn::NONE` (0) is before every record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

impl Lsn {
    /// Before every record; also marks messages that have no record (memory tier).
    pub const NONE: Lsn = Lsn(0);

    /// The position `offset` in segment `segment`.
    pub fn new(segment: u32, offset: u32) -> Lsn {
        Lsn(u64::from(segment) << 32 | u64::from(offset))
    }

    /// The position with this number, as written to disk by [`Lsn::number`].
    pub fn from_number(number: u64) -> Lsn {
        Lsn(number)
    }

    /// The position as one number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The number of the segment.
    pub fn segment(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The byte offset in the segment.
    pub fn offset(self) -> u32 {
        self.0 as u32
    }
}

impl std::fmt::Debug for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.segment(), self.offset())
    }
}
