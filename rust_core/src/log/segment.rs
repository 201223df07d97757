//! A segment file: two copies of a header, then records.
//!
//! ```text
//! offset  size  field
//!      0     8  magic "MQ9SEGM\0"
//!      8     4  format version
//!     12     4  segment number
//!     16     4  number of the segment before it, 0 for the first
//!     20     8  salt of its records
//!     28     8  creation, wall ms
//!     36     4  CRC32C of bytes 0..36
//!     40    40  the same again
//!     80     -  records
//! ```
//!
//! The header is there twice because all records depend on the salt: one damaged bit must not cost
//! a segment.

use std::sync::Arc;

use super::Lsn;
use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::wire::bytes::{Put, Reader};
use crate::wire::record::Seed;

const MAGIC: &[u8; 8] = b"MQ9SEGM\0";
const VERSION: u32 = 1;
const COPY: usize = 40;

/// Where the first record of a segment begins.
pub const FIRST_RECORD: u32 = 2 * COPY as u32;

/// What a segment's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The segment's number.
    pub number: u32,
    /// The number of the one before it.
    pub previous: u32,
    /// Salt of its records.
    pub salt: u64,
    /// When it was created.
    pub created_ms: u64,
}

impl Header {
    /// The bytes at the start of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(2 * COPY);
        copy.extend_from_slice(MAGIC);
        copy.put_u32(VERSION);
        copy.put_u32(self.number);
        copy.put_u32(self.previous);
        copy.put_u64(self.salt);
        copy.put_u64(self.created_ms);
        copy.put_u32(crc32c::crc32c(&copy));
        copy.extend_from_within(..);
        copy
    }

    /// Reads the header of `file`; `Ok(None)` if both copies are damaged or missing.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<Option<Header>> {
        for copy in bytes.chunks_exact(COPY).take(2) {
            match Header::decode_copy(copy) {
                Some((VERSION, header)) => return Ok(Some(header)),
                Some((version, _)) => {
                    return Err(Error::NewerFormat {
                        file: file.to_owned(),
                        offset: 0,
                        what: format!("a segment of version {version}"),
                    });
                }
                None => {}
            }
        }
        Ok(None)
    }

    fn decode_copy(copy: &[u8]) -> Option<(u32, Header)> {
        let mut from = Reader::new(copy);
        let magic = from.take(MAGIC.len())?;
        let version = from.u32()?;
        let (number, previous) = (from.u32()?, from.u32()?);
        let (salt, created_ms) = (from.u64()?, from.u64()?);
        let sound = magic == MAGIC && from.u32()? == crc32c::crc32c(&copy[..COPY - 4]);
        sound.then_some((version, Header { number, previous, salt, created_ms }))
    }
}

/// A segment in use.
#[derive(Clone)]
pub struct Segment {
    /// The open file.
    pub file: Arc<dyn DiskFile>,
    /// Salt of its records.
    pub salt: u64,
    /// Where its records end.
    pub end: u32,
}

impl Segment {
    /// The checksum seed at `at`, which lies in this segment.
    pub fn seed(&self, at: Lsn) -> Seed {
        Seed::new(self.salt, at.number())
    }
}
