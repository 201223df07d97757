//! The frame around every part of a checkpoint: checksum, length, kind.
//!
//! ```text
//! offset  size  field
//!      0     4  CRC32C of bytes 4.. of the section
//!      4     8  length of the body
//!     12     1  kind
//!     13     -  body
//! ```

use super::bytes::{Put, Reader};

/// Bytes before the body.
pub const HEADER: usize = 13;

/// Appends a section whose body `encode` writes.
pub fn append(out: &mut Vec<u8>, kind: u8, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u32(0);
    out.put_u64(0);
    out.put_u8(kind);
    encode(out);
    let body = (out.len() - start - HEADER) as u64;
    out[start + 4..start + 12].copy_from_slice(&body.to_le_bytes());
    let crc = crc32c::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The length of the body of the section that `header` begins.
pub fn body_len(header: &[u8; HEADER]) -> u64 {
    let [_, _, _, _, len @ .., _] = header;
    u64::from_le_bytes(*len)
}

/// The kind and body of a whole section, or `None` if it is damaged.
pub fn decode(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let mut from = Reader::new(bytes);
    let crc = from.u32()?;
    if crc32c::crc32c(from.rest()) != crc {
        return None;
    }
    let (len, kind) = (from.u64()?, from.u8()?);
    (from.rest().len() as u64 == len).then_some((kind, from.rest()))
}
