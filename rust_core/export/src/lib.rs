//! Export: what went through a store, as Parquet files.
//!
//! Reads the segments of a data directory and writes two datasets, `messages` and `events`. Owns the files of the
//! export folder and how far the log is in them. Changes nothing in the data directory and needs no lock of it.
//!
//! The log is exported piece by piece, each from one position to another within a segment. The files of a piece are
//! finished under other names and renamed; then one rename of the manifest makes the piece count. Whoever is killed
//! on the way begins the same piece again, under the same names.

mod columns;
mod error;
mod events;
mod export;
mod hours;
mod manifest;
mod messages;
mod piece;
mod retention;
mod schema;
mod source;
mod tree;

pub use error::{Error, Result};
pub use export::{Export, Options, Progress, Summary};
pub use manifest::{Manifest, Position, Since};
pub use tree::{OsTree, Tree};

/// What the data of files is checked by: see `mq9.crc32c` in their metadata.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}
