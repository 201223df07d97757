//! The commit log: one append-only sequence of records in segment files.
//!
//! Owns segments, the write buffer and what is durable; knows nothing of what records mean.
//! Appending fills a buffer, [`Log::flush`] writes it, the [`Syncer`] makes it durable.

mod lsn;
pub mod names;
mod outbox;
mod pace;
mod read;
mod refusals;
mod scan;
mod segment;
mod segment_prepare;
mod sync;
mod units;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use lsn::Lsn;
pub use outbox::{Outbox, Outgoing};
pub use read::ReadError;
pub use refusals::Refusals;
pub use scan::{Found, Scan};
pub use segment::{FIRST_RECORD, Header, Segment};
pub use segment_prepare::{EmptySegment, FullSegment, NewSegment};
pub use sync::{Call, SyncMode, SyncThread, Syncer};
pub use units::Units;

use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::wire::record::{self, HEADER};

/// Space kept back for records that free space (acknowledgements, deletions) and those they need
/// (deliveries), so that a full disk can be emptied.
const RECLAIM_RESERVE: u32 = 256 * 1024;

/// Space with which a store still opens.
const LEAST_SPACE: u32 = 4096;

/// Room in a leader's batch for what happens by itself at once, such as a thousand expiries.
const OWN_ACCORD: usize = 512 * 1024;

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

/// What the space of a record is wanted for, the least demanding first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// Something that will free more than it takes.
    Reclaim,
    /// A delivery, without which nothing can be acknowledged: it may use half of the reserve, so that
    /// the acknowledgements find the other half.
    Deliver,
    /// Something new.
    Store,
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
    /// The segment to go on in, made ahead of need.
    next: Option<EmptySegment>,
    /// The highest number given to a segment.
    last_number: u32,
    /// Somebody was asked to make the next segment.
    asked: bool,
    /// Segments whose reserved space has not been given back.
    full: Vec<FullSegment>,
    /// The active segment's file has this much space reserved.
    allocated: u32,
    /// Records appended and not yet written; they begin at `buffer_at` in the active segment.
    buffer: Vec<u8>,
    buffer_at: u32,
    /// Records that were written last; they end at `buffer_at`.
    written: Vec<u8>,
    /// The last flush failed: nothing new is taken before one succeeds.
    stalled: bool,
    refusals: Refusals,
    /// The directory is not where it was: what is written would not be found again.
    is_misplaced: bool,
    appended: u64,
    /// What goes to other nodes; none on a single one.
    outbox: Option<Outbox>,
    /// Commands are carried out by another node.
    is_follower: bool,
    syncer: Arc<Syncer>,
}

impl Log {
    /// Goes on after `segments` (as found by recovery) in a new segment, numbered after `last_number`. `salt` must
    /// be random.
    pub fn start(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        salt: u64,
        segments: BTreeMap<u32, Segment>,
        last_number: u32,
        now_wall_ms: u64,
    ) -> Result<Log> {
        let syncer =
            Arc::new(Syncer::new(options.sync, Lsn::new(last_number.saturating_add(1), 0)));
        let last = segments.last_key_value().map_or(0, |(&number, _)| number);
        let mut log = Log {
            disk,
            options,
            salt,
            segments,
            active: last,
            next: None,
            last_number,
            asked: false,
            full: Vec::new(),
            allocated: 0,
            buffer: Vec::new(),
            buffer_at: 0,
            written: Vec::new(),
            stalled: false,
            refusals: Refusals::default(),
            is_misplaced: false,
            appended: 0,
            outbox: None,
            is_follower: false,
            syncer,
        };
        let mut first = log.new_segment(now_wall_ms)?;
        // A store on a full disk must open, if only to be emptied.
        (first.space, first.least) = (RECLAIM_RESERVE, LEAST_SPACE);
        log.go_on_in(first.make()?);
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

    /// Bytes appended and not written.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes appended since the log was opened.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// Makes sure that `bytes` of records (frames included) can be appended. Only after this has
    /// succeeded may a command change anything.
    pub fn reserve(&mut self, bytes: usize, space: Space, now_wall_ms: u64) -> Result<()> {
        self.check_cluster(bytes)?;
        let outcome = self.try_reserve(bytes, space, now_wall_ms);
        self.refusals.note(&outcome, bytes, space);
        outcome
    }

    /// The same for work of its own accord, of which nobody is told that it was refused.
    pub fn try_reserve(&mut self, bytes: usize, space: Space, now_wall_ms: u64) -> Result<()> {
        self.syncer.check()?;
        if self.is_misplaced {
            return Err(self.misplaced());
        }
        let limit = (self.options.segment_bytes - FIRST_RECORD) as usize;
        if bytes > limit {
            return Err(Error::MessageTooLarge { size: bytes as u64, limit: limit as u64 });
        }
        if self.stalled || self.buffer.len() + bytes > WRITE_AT {
            self.write_buffer()?;
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
            Err(Error::DiskFull(_)) => self.allocate(needed + kept),
            outcome => outcome,
        }
    }

    /// In a cluster, new records are taken by the leader, and not more than the stream takes away.
    fn check_cluster(&self, bytes: usize) -> Result<()> {
        if self.is_follower {
            return Err(Error::NotLeading);
        }
        match &self.outbox {
            Some(outbox) if outbox.is_full(self.buffer.len() + bytes) => Err(Error::StreamBehind),
            _ => Ok(()),
        }
    }

    /// Whether so much waits for the stream that nothing should be done of this node's own accord: the record of it
    /// might not be taken any more.
    pub fn stands_still(&self) -> bool {
        let more = self.buffer.len() + OWN_ACCORD;
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_full(more))
    }

    /// From now on another node's records are written, and none of commands.
    pub fn follow(&mut self) {
        (self.outbox, self.is_follower) = (None, true);
    }

    /// From now on what is written goes to other nodes too.
    pub fn lead(&mut self, outbox: Outbox) {
        debug_assert!(self.buffer.is_empty(), "records that other nodes would not get");
        (self.outbox, self.is_follower) = (Some(outbox), false);
    }

    /// What waits to go to other nodes, if any do.
    pub fn outbox(&mut self) -> Option<&mut Outbox> {
        self.outbox.as_mut()
    }

    /// Whether new records are taken at the moment.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Looks whether there is room again for what was refused: who was told to go elsewhere does not ask again.
    pub fn retry_refused(&mut self, now_wall_ms: u64) {
        if let Some((bytes, space)) = self.refusals.wanted() {
            let outcome = self.try_reserve(bytes, space, now_wall_ms);
            self.refusals.retried(&outcome);
        }
    }

    /// Takes note of whether the directory is where it was. While it is not, nothing new is taken.
    pub fn note_place(&mut self, is_misplaced: bool) {
        self.is_misplaced = is_misplaced;
        if is_misplaced {
            let error = self.misplaced();
            self.refusals.announce(&error);
        }
    }

    fn misplaced(&self) -> Error {
        let cause = "it was moved away, removed or replaced while the store is open";
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, cause);
        Error::Io { action: "find", file: "the data directory".to_owned(), source }
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
        self.flush_and(Call::Now)
    }

    /// The same, and the sync thread hears of it now or later.
    pub fn flush_and(&mut self, call: Call) -> Result<()> {
        let was_stalled = self.stalled;
        let outcome = self.write_buffer_and(call);
        // A flush that had nothing to catch up with proves nothing.
        if outcome.is_err() || was_stalled {
            self.refusals.note(&outcome, 0, Space::Reclaim);
        }
        outcome
    }

    fn write_buffer(&mut self) -> Result<()> {
        self.write_buffer_and(Call::Now)
    }

    fn write_buffer_and(&mut self, call: Call) -> Result<()> {
        self.syncer.check()?;
        if self.buffer.is_empty() {
            // What was written before may have been left for later.
            if call == Call::Now {
                self.syncer.call_thread();
            }
            return Ok(());
        }
        let file = self.active_file()?;
        let written = file.write_at(&self.buffer, u64::from(self.buffer_at));
        self.stalled = written.is_err();
        written.map_err(|e| self.error("write", self.active, e))?;
        self.buffer_at += self.buffer.len() as u32;
        if let Some(outbox) = &mut self.outbox {
            outbox.wrote(&self.buffer);
        }
        std::mem::swap(&mut self.buffer, &mut self.written);
        self.buffer.clear();
        if let Some(segment) = self.segments.get_mut(&self.active) {
            segment.end = self.buffer_at;
        }
        self.syncer.wrote(self.end(), self.active, &file, call);
        Ok(())
    }

    /// Writes and syncs everything appended so far.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.syncer.round().map(drop)
    }

    /// Closes the active segment and goes on in a new one, unless it is still empty. Takes no time of the disk
    /// if the new one was made ahead.
    pub fn rotate(&mut self, now_wall_ms: u64) -> Result<()> {
        self.write_buffer()?;
        if self.buffer_at == FIRST_RECORD {
            return Ok(());
        }
        let full = self.segments.get(&self.active);
        let full = full.map(|s| FullSegment { file: Arc::clone(&s.file), end: s.end });
        match self.next.take() {
            Some(next) => {
                self.go_on_in(next);
                self.full.extend(full);
            }
            None => {
                let next = self.new_segment(now_wall_ms)?.make()?;
                self.go_on_in(next);
                full.iter().for_each(FullSegment::trim);
            }
        }
        Ok(())
    }

    /// True once for every segment, when it is time to make the next one.
    pub fn asks_for_next(&mut self) -> bool {
        self.is_next_due() && !std::mem::replace(&mut self.asked, true)
    }

    /// True when half of the active segment is full and the next one is not made.
    pub fn is_next_due(&self) -> bool {
        self.next.is_none() && self.end_offset() > self.options.segment_bytes / 2
    }

    /// What it takes to make the next segment; `None` if it is made, or the active one is still empty.
    pub fn plan_next(&mut self, now_wall_ms: u64) -> Result<Option<NewSegment>> {
        if self.next.is_some() || self.end_offset() == FIRST_RECORD {
            return Ok(None);
        }
        self.new_segment(now_wall_ms).map(Some)
    }

    /// Keeps a segment that was made ahead. Gives it back if the log has gone on without it.
    pub fn keep_next(&mut self, made: EmptySegment) -> Option<EmptySegment> {
        if self.next.is_some() || made.number < self.active {
            return Some(made);
        }
        self.next = Some(made);
        None
    }

    /// The segments whose reserved space is to be given back, once.
    pub fn take_full(&mut self) -> Vec<FullSegment> {
        std::mem::take(&mut self.full)
    }

    /// Gives everything back that was kept for records to come, at the end.
    pub fn trim(&mut self) {
        if let Some(unused) = self.next.take() {
            unused.discard();
        }
        if let Some(segment) = self.segments.get(&self.active) {
            self.full.push(FullSegment { file: Arc::clone(&segment.file), end: segment.end });
            self.allocated = segment.end;
        }
        self.take_full().iter().for_each(FullSegment::trim);
    }

    /// Forgets a segment whose file is gone. What is returned is better dropped without any lock: the file
    /// goes with its last handle.
    pub fn forget_segment(&mut self, number: u32) -> Option<Segment> {
        self.segments.remove(&number)
    }

    fn new_segment(&mut self, now_wall_ms: u64) -> Result<NewSegment> {
        let number = self
            .last_number
            .checked_add(1)
            .ok_or_else(|| Error::WritesStopped("segment numbers have run out".to_owned()))?;
        self.last_number = number;
        let previous = self.segments.last_key_value().map_or(0, |(&last, _)| last);
        let header = Header { number, previous, salt: self.salt, created_ms: now_wall_ms };
        let disk = Arc::clone(&self.disk);
        let space = RECLAIM_RESERVE.max(self.options.allocate_bytes);
        Ok(NewSegment { disk, header, space, least: RECLAIM_RESERVE })
    }

    fn go_on_in(&mut self, next: EmptySegment) {
        let EmptySegment { number, salt, file, allocated, .. } = next;
        let segment = Segment { file: Arc::clone(&file), salt, end: FIRST_RECORD };
        let before = self.end();
        self.segments.insert(number, segment);
        self.active = number;
        self.asked = false;
        self.allocated = allocated;
        self.buffer_at = FIRST_RECORD;
        self.written.clear();
        // The end has moved: whoever waits for it must not wait for the next record.
        self.syncer.wrote(self.end(), number, &file, Call::Now);
        self.syncer.moved(before, self.end());
    }

    fn active_file(&self) -> Result<Arc<dyn DiskFile>> {
        match self.segments.get(&self.active) {
            Some(segment) => Ok(Arc::clone(&segment.file)),
            None => Err(Error::WritesStopped("there is no segment to write to".to_owned())),
        }
    }

    /// Panics unless segments, buffer and what is written agree with each other. For tests.
    pub fn check_invariants(&self) {
        let active = self.segments.last_key_value().map(|(&number, s)| (number, s.end));
        assert_eq!(active, Some((self.active, self.buffer_at)), "the end of the active segment");
        assert!(self.end_offset() <= self.allocated, "records without space");
        assert!(self.end_offset() <= self.options.segment_bytes, "a segment that is too large");
        assert!(self.last_number >= self.active, "numbers of segments");
        let in_order = self.next.as_ref().is_none_or(|next| next.number > self.active);
        assert!(in_order, "the next segment comes before the active one");
        self.syncer.check_invariants(Lsn::new(self.active, self.buffer_at));
    }

    /// Panics unless a record of a message lies in a segment. For tests.
    pub fn check_place(&self, at: Lsn, len: u32) {
        let end = match self.segments.get(&at.segment()) {
            _ if at.segment() == self.active => self.end_offset(),
            segment => segment.map_or(0, |segment| segment.end),
        };
        let behind = u64::from(at.offset()) + u64::from(len) <= u64::from(end);
        assert!(at.offset() >= FIRST_RECORD && behind, "a message at {at:?}, where no record is");
    }

    fn error(&self, action: &'static str, segment: u32, e: std::io::Error) -> Error {
        Error::io(action, names::segment(segment), e)
    }

    /// Bytes a record with a body of `body` bytes takes.
    pub fn record_len(body: usize) -> usize {
        HEADER + body
    }
}
