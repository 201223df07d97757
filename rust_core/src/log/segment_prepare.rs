//! Making a segment: everything about it that takes the disk's time, and needs no lock on the log.
//!
//! The next segment is made while the one before it is still being written. A number that was given out is
//! never given out again, so that two segments being made at once cannot meet.

use std::sync::Arc;

use super::names;
use super::segment::{FIRST_RECORD, Header};
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};

/// A segment that is to be made.
pub struct NewSegment {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) header: Header,
    /// Space to reserve behind the header.
    pub(super) space: u32,
    /// Space to be content with on a full disk.
    pub(super) least: u32,
}

/// A segment that is durable under its name and holds no record.
pub struct EmptySegment {
    disk: Arc<dyn Disk>,
    pub(super) number: u32,
    pub(super) salt: u64,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) allocated: u32,
}

impl NewSegment {
    /// Makes the segment, or leaves nothing behind. It gets its name when its header is durable: a segment
    /// without one is damaged.
    pub fn make(self) -> Result<EmptySegment> {
        let Header { number, salt, .. } = self.header;
        let name = names::segment(number);
        let unfinished = name.clone() + names::UNFINISHED;
        let failed = |e| Error::io("create", name.clone(), e);
        let file = match self.disk.create(&unfinished) {
            // Left behind by an attempt that failed, under this number in an earlier life.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => self.disk.open(&unfinished),
            outcome => outcome,
        };
        let file = file.map_err(failed)?;
        let mut allocated = FIRST_RECORD + self.space;
        let reserved = file.allocate(u64::from(allocated)).or_else(|e| {
            if self.least == self.space {
                return Err(e);
            }
            allocated = FIRST_RECORD + self.least;
            file.allocate(u64::from(allocated))
        });
        let made = reserved
            .and_then(|()| file.write_at(&self.header.encode(), 0))
            .and_then(|()| file.sync())
            .and_then(|()| self.disk.rename(&unfinished, &name))
            .and_then(|()| self.disk.sync_dir());
        if let Err(e) = made {
            let _ = self.disk.remove(&unfinished);
            let _ = self.disk.remove(&name);
            return Err(failed(e));
        }
        Ok(EmptySegment { disk: self.disk, number, salt, file, allocated })
    }
}

impl EmptySegment {
    /// Removes a segment that is not needed. One that stays means nothing to recovery.
    pub fn discard(self) {
        let _ = self.disk.remove(&names::segment(self.number));
    }
}

/// A segment that is full and still has reserved space behind its records.
pub struct FullSegment {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) end: u32,
}

impl FullSegment {
    /// Gives the space back. If that fails the zeros stay, which recovery expects.
    pub fn trim(&self) {
        let _ = self.file.set_len(u64::from(self.end));
    }
}
