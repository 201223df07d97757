//! Checkpoints: the index as of a position of the log, so that opening need not read it all.
//!
//! A checkpoint is made while the store works on: mailboxes are captured a few at a time, each with
//! the position it was captured at. Replay begins where the checkpoint began, and a record older
//! than its mailbox's capture is passed over. The two newest checkpoints are kept; the log is
//! kept from where the older one begins, so that either can be lost.

mod blocks;
mod format;
mod load;
mod write;

pub(super) use format::Ends;
pub(super) use load::{Loaded, load, peek};
pub use write::Checkpointer;

use std::sync::Arc;

use super::Store;
use crate::disk::Disk;
use crate::error::Result;
use crate::log::{Lsn, names};

/// A checkpoint on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OnDisk {
    pub number: u32,
    /// Replay begins here.
    pub start: Lsn,
    pub size: u64,
}

/// The checkpoints of an open store.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    pub newest: Option<OnDisk>,
    pub previous: Option<OnDisk>,
    /// Numbers are not reused, whatever became of the file.
    pub last_number: u32,
    /// Bytes appended since the open when the newest was made.
    pub log_bytes: u64,
    /// Bytes of log behind the newest that were there at the open.
    pub replayed: u64,
}

/// A checkpoint that is not needed any more. Its file, which may be large, goes when this is dropped.
#[must_use]
pub struct Superseded {
    disk: Arc<dyn Disk>,
    number: u32,
}

impl Drop for Superseded {
    fn drop(&mut self) {
        // A file that stays costs space until the next open, nothing else.
        let _ = self.disk.remove(&names::checkpoint(self.number));
    }
}

impl Checkpoints {
    /// Size of the newest one.
    pub fn size(&self) -> u64 {
        self.newest.map_or(0, |c| c.size)
    }

    /// Segments before this one are not needed for replay.
    pub fn floor(&self) -> u32 {
        self.previous.map_or(0, |c| c.start.segment())
    }
}

impl Store {
    /// Makes a checkpoint in one go.
    pub fn checkpoint(&mut self) -> Result<()> {
        let mut checkpointer = self.begin_checkpoint()?;
        while self.capture(&mut checkpointer, usize::MAX)? {
            checkpointer.write(|| Ok(()))?;
        }
        checkpointer.finish()?;
        drop(self.install_checkpoint(checkpointer));
        Ok(())
    }

    /// True when enough log has been written since the last checkpoint.
    pub fn checkpoint_due(&self) -> bool {
        let since = self.log.appended() + self.checkpoints.replayed - self.checkpoints.log_bytes;
        since >= self.options.checkpoint_bytes.max(self.checkpoints.size())
    }

    /// Makes a finished checkpoint the newest. The one not needed any more is better dropped without the store.
    pub fn install_checkpoint(&mut self, done: Checkpointer) -> Option<Superseded> {
        let (on_disk, log_bytes) = (done.on_disk(), done.log_bytes());
        let superseded = self.checkpoints.previous.take();
        self.checkpoints.previous = self.checkpoints.newest.replace(on_disk);
        self.checkpoints.log_bytes = log_bytes;
        self.checkpoints.replayed = 0;
        let disk = Arc::clone(&self.disk);
        superseded.map(|old| Superseded { disk, number: old.number })
    }
}
