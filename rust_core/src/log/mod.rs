//! The commit log: one append-only sequence of records in segment files.
//!
//! Owns segments, the write buffer and what is durable; knows nothing of what records mean.
//! Appending fills a buffer, [`Log::flush`] writes it, the [`Syncer`] makes it durable.

mod lsn;
pub mod names;
mod read;
mod scan;
mod segment;
mod sync;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use lsn::Lsn;
pub use read::ReadError;
pub use scan::{Found, Scan};
pub use segment::{FIRST_RECORD, Header, Segment};
pub use sync::{SyncMode, SyncThread, Syncer};

use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::wire::record::{self, HEADER};

/// Space kept back for records that free space (acknowledgements, deletions) and those they need
/// (deliveries), so that a full disk can be emptied.
const RECLAIM_RESERVE: u32 = 256 * 1024;

/// Space with which a store still opens.
const LEAST_SPACE: u32 = 4096;

/// A buffer larger than this is written before more is appended.
const WRITE_AT: usize = 1024 * 1024;

/// Sizes of the log's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// A segment is closed when the next record would take it past this size.
    pub segment_bytes: u32,
    /// Space is reserved in steps of this size.
    pub allocate_bytes: u32,
    /// When acknowledgements may leave.
    pub sync: SyncMode,
}

/// What the space of a record is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Something new.
    Store,
    /// A delivery, without which nothing can be acknowledged: it may use half of the reserve, so that
    /// the acknowledgements find the other half.
    Deliver,
    /// Something that will free more than it takes.
    Reclaim,
}

/// Where an appended record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Where it begins.
    pub at: Lsn,
    /// Its length with the frame.
    pub len: u32,
}

/// The log, open for appending and reading.
pub struct Log {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    salt: u64,
    segments: BTreeMap<u32, Segment>,
    active: u32,
    /// The active segment's file has this much space reserved.
    allocated: u32,
    /// Records appended and not yet written; they begin at `buffer_at` in the active segment.
    buffer: Vec<u8>,
    buffer_at: u32,
    /// The last flush failed: nothing new is taken before one succeeds.
    stalled: bool,
    appended: u64,
    syncer: Arc<Syncer>,
}

impl Log {
    /// Goes on after `segments` (as found by recovery) in a new segment. `salt` must be random.
    pub fn start(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        salt: u64,
        segments: BTreeMap<u32, Segment>,
        first_free: u32,
        now_wall_ms: u64,
    ) -> Result<Log> {
        let syncer = Arc::new(Syncer::new(options.sync, Lsn::new(first_free, 0)));
        if segments.contains_key(&first_free) {
            return Err(numbers_ran_out());
        }
        let last = segments.last_key_value().map_or(0, |(&number, _)| number);
        let mut log = Log {
            disk,
            options,
            salt,
            segments,
            active: last,
            allocated: 0,
            buffer: Vec::new(),
            buffer_at: 0,
            stalled: false,
            appended: 0,
            syncer,
        };
        log.open_segment(first_free, now_wall_ms)?;
        Ok(log)
    }

    /// The shared state of group commit.
    pub fn syncer(&self) -> &Arc<Syncer> {
        &self.syncer
    }

    /// The end of the log: the position of the next record.
    pub fn end(&self) -> Lsn {
        Lsn::new(self.active, self.end_offset())
    }

    fn end_offset(&self) -> u32 {
        self.buffer_at + self.buffer.len() as u32
    }

    /// The number of the segment being written.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// All segments by number; the last is being written.
    pub fn segments(&self) -> &BTreeMap<u32, Segment> {
        &self.segments
    }

    /// The largest record of a message: a segment takes it and the records that go with it.
    pub fn max_record(&self) -> usize {
        (self.options.segment_bytes / 2) as usize
    }

    /// Bytes of log files, written or not.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|s| u64::from(s.end)).sum::<u64>() + self.buffer.len() as u64
    }

    /// Bytes appended since the log was opened.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// Makes sure that `bytes` of records (frames included) can be appended. Only after this has
    /// succeeded may a command change anything.
    pub fn reserve(&mut self, bytes: usize, space: Space, now_wall_ms: u64) -> Result<()> {
        self.syncer.check()?;
        let limit = (self.options.segment_bytes - FIRST_RECORD) as usize;
        if bytes > limit {
            return Err(Error::MessageTooLarge { size: bytes as u64, limit: limit as u64 });
        }
        if self.stalled || self.buffer.len() + bytes > WRITE_AT {
            self.flush()?;
        }
        if self.end_offset() + bytes as u32 > self.options.segment_bytes {
            match self.rotate(now_wall_ms) {
                // The reserve lies in this segment.
                Err(Error::DiskFull(_)) if space != Space::Store => {}
                outcome => outcome?,
            }
        }
        let needed = self.end_offset() + bytes as u32;
        let kept = match space {
            Space::Store => RECLAIM_RESERVE,
            Space::Deliver => RECLAIM_RESERVE / 2,
            Space::Reclaim => 0,
        };
        match self.allocate(needed + RECLAIM_RESERVE) {
            Err(Error::DiskFull(_)) if needed + kept <= self.allocated => Ok(()),
            outcome => outcome,
        }
    }

    /// Gives half of the reserve back to a full disk, for files that let more be removed.
    pub fn lend_reserve(&mut self) -> Result<()> {
        let kept = self.end_offset() + RECLAIM_RESERVE / 2;
        if kept < self.allocated {
            let cut = self.active_file()?.set_len(u64::from(kept));
            cut.map_err(|e| self.error("cut", self.active, e))?;
            self.allocated = kept;
        }
        Ok(())
    }

    fn allocate(&mut self, needed: u32) -> Result<()> {
        if needed <= self.allocated {
            return Ok(());
        }
        let step = self.options.allocate_bytes.max(1);
        let wanted = needed.div_ceil(step).saturating_mul(step);
        let file = self.active_file()?;
        let outcome = file.allocate(u64::from(wanted)).map(|()| wanted).or_else(|_| {
            // A whole step may be too much where what is needed still fits.
            file.allocate(u64::from(needed)).map(|()| needed)
        });
        self.allocated = outcome.map_err(|e| self.error("allocate", self.active, e))?;
        Ok(())
    }

    /// Appends a record whose body `encode` writes. Space must have been reserved.
    pub fn append(
        &mut self,
        kind: u8,
        flags: u8,
        mailbox: u64,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Placed {
        let at = self.end();
        let start = record::begin(&mut self.buffer, kind, flags, mailbox);
        encode(&mut self.buffer);
        let seed = record::Seed::new(self.salt, at.number());
        let len = record::finish(&mut self.buffer, start, seed);
        self.appended += u64::from(len);
        Placed { at, len }
    }

    /// Writes what has been appended. After an error everything stays buffered, nothing of it is
    /// acknowledged, and the next flush tries again at the same place.
    pub fn flush(&mut self) -> Result<()> {
        self.syncer.check()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let file = self.active_file()?;
        let written = file.write_at(&self.buffer, u64::from(self.buffer_at));
        self.stalled = written.is_err();
        written.map_err(|e| self.error("write", self.active, e))?;
        self.buffer_at += self.buffer.len() as u32;
        self.buffer.clear();
        if let Some(segment) = self.segments.get_mut(&self.active) {
            segment.end = self.buffer_at;
        }
        self.syncer.wrote(self.end(), self.active, &file);
        Ok(())
    }

    /// Writes and syncs everything appended so far.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.syncer.round().map(drop)
    }

    /// Closes the active segment and goes on in a new one, unless it is still empty.
    pub fn rotate(&mut self, now_wall_ms: u64) -> Result<()> {
        self.flush()?;
        if self.buffer_at == FIRST_RECORD {
            return Ok(());
        }
        let full = self.active;
        self.open_segment(full.checked_add(1).ok_or_else(numbers_ran_out)?, now_wall_ms)?;
        // Whoever waits for the end of the log now waits for a position in the new segment.
        let file = self.active_file()?;
        self.syncer.wrote(self.end(), self.active, &file);
        if let Some(segment) = self.segments.get(&full) {
            // Gives reserved space back. If that fails the zeros stay, which recovery expects.
            let _ = segment.file.set_len(u64::from(segment.end));
        }
        Ok(())
    }

    /// Gives all reserved space back, at the end. What stays is zeros, which recovery expects.
    pub fn trim(&mut self) {
        if let Some(segment) = self.segments.get(&self.active) {
            let _ = segment.file.set_len(u64::from(segment.end));
            self.allocated = segment.end;
        }
    }

    /// Forgets a segment that holds nothing live and removes its file.
    pub fn remove_segment(&mut self, number: u32) -> Result<()> {
        let name = names::segment(number);
        match self.disk.remove(&name) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("remove", name, e));
            }
            _ => {}
        }
        self.segments.remove(&number);
        Ok(())
    }

    fn open_segment(&mut self, number: u32, now_wall_ms: u64) -> Result<()> {
        let name = names::segment(number);
        let previous = self.segments.last_key_value().map_or(0, |(&last, _)| last);
        let header = Header { number, previous, salt: self.salt, created_ms: now_wall_ms }.encode();
        // It gets its name when its header is durable: a segment without one is damaged.
        let unfinished = name.clone() + names::UNFINISHED;
        let file = match self.disk.create(&unfinished) {
            // Left behind by an attempt that failed below.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => self.disk.open(&unfinished),
            outcome => outcome,
        };
        let file = file.map_err(|e| Error::io("create", name.clone(), e))?;
        let mut space = FIRST_RECORD + RECLAIM_RESERVE;
        let reserved = file.allocate(u64::from(space)).or_else(|e| {
            // A store on a full disk must open, if only to be emptied.
            space = FIRST_RECORD + LEAST_SPACE;
            if self.active_is_open() { Err(e) } else { file.allocate(u64::from(space)) }
        });
        let prepared = reserved
            .and_then(|()| file.write_at(&header, 0))
            .and_then(|()| file.sync())
            .and_then(|()| self.disk.rename(&unfinished, &name))
            .and_then(|()| self.disk.sync_dir());
        if let Err(e) = prepared {
            let _ = self.disk.remove(&unfinished);
            let _ = self.disk.remove(&name);
            return Err(Error::io("create", name, e));
        }
        let segment = Segment { file: Arc::clone(&file), salt: self.salt, end: FIRST_RECORD };
        self.segments.insert(number, segment);
        self.active = number;
        self.allocated = space;
        self.buffer_at = FIRST_RECORD;
        // The end has moved: whoever waits for it must not wait for the next record.
        self.syncer.wrote(self.end(), number, &file);
        Ok(())
    }

    /// False only while the log is being started.
    fn active_is_open(&self) -> bool {
        self.allocated > 0
    }

    fn active_file(&self) -> Result<Arc<dyn DiskFile>> {
        match self.segments.get(&self.active) {
            Some(segment) => Ok(Arc::clone(&segment.file)),
            None => Err(Error::WritesStopped("there is no segment to write to".to_owned())),
        }
    }

    fn error(&self, action: &'static str, segment: u32, e: std::io::Error) -> Error {
        Error::io(action, names::segment(segment), e)
    }

    /// Bytes a record with a body of `body` bytes takes.
    pub fn record_len(body: usize) -> usize {
        HEADER + body
    }
}

fn numbers_ran_out() -> Error {
    Error::WritesStopped("segment numbers have run out".to_owned())
}
