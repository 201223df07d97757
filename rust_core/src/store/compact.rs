//! Taking disk space back: live messages of mostly dead segments are copied to the end of the log,
//! and segments without live messages are removed.
//!
//! A segment is removed only when everything that made it dead is durable, and when neither kept
//! checkpoint needs it for replay.

use std::cell::Cell;
use std::sync::Arc;

use super::Store;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::log::{FIRST_RECORD, Found, Log, Lsn, Scan, Segment, Space, names};
use crate::time::Now;
use crate::wire::op::{Message, kind};
use crate::wire::record::FLAG_MOVED;

/// Segments with less than 2/3 of their bytes live are rewritten: together with two checkpoints the
/// files then stay within twice the live bytes.
const LIVE: (u64, u64) = (2, 3);

/// Segments smaller than this part of a full one are merged when there are `MANY` of them.
const SMALL: u32 = 8;
const MANY: usize = 8;

/// Copies are written when they are this many bytes.
const COPIED: usize = 16 << 10;

/// A segment being rewritten.
pub struct Compactor {
    number: u32,
    salt: u64,
    end: u32,
    file: Arc<dyn DiskFile>,
    bytes: Vec<u8>,
    position: u32,
}

/// A message of the segment being rewritten, which may be live.
pub struct Candidate<'a> {
    at: Lsn,
    kind: u8,
    mailbox: u64,
    message: Message<'a>,
}

impl Compactor {
    /// Reads the segment; needs no lock.
    pub fn load(&mut self) -> Result<()> {
        self.bytes.resize(self.end as usize, 0);
        let got = self.file.read_at(&mut self.bytes, 0);
        let got = got.map_err(|e| Error::io("read", names::segment(self.number), e))?;
        self.bytes.truncate(got);
        Ok(())
    }

    /// The next message; needs no lock. `None` when the segment has been gone through.
    pub fn next_message(&mut self) -> Option<Candidate<'_>> {
        let mut scan = Scan::new(&self.bytes, self.number, self.salt, self.position);
        loop {
            let found = scan.next();
            self.position = scan.offset();
            if let Found::Record { at, record } = found?
                && matches!(record.kind, kind::MESSAGE | kind::DELAYED)
                && let Some(message) = Message::decode(record.body)
            {
                return Some(Candidate { at, kind: record.kind, mailbox: record.mailbox, message });
            }
        }
    }
}

/// Dead segments whose files go.
pub struct Removal {
    disk: Arc<dyn Disk>,
    numbers: Vec<u32>,
    removed: Cell<usize>,
}

impl Removal {
    /// Removes the files, which takes the disk's time and needs no lock; returns how many.
    pub fn remove(&self) -> Result<usize> {
        for &number in &self.numbers {
            let name = names::segment(number);
            match self.disk.remove(&name) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", name, e));
                }
                _ => self.removed.set(self.removed.get() + 1),
            }
        }
        Ok(self.numbers.len())
    }
}

impl Store {
    /// The segment most worth rewriting, if any is.
    pub fn pick_compaction(&self) -> Option<Compactor> {
        let (num, den) = LIVE;
        let active = self.log.active();
        let small = u64::from(self.options.segment_bytes / SMALL);
        let candidates = || {
            let sealed = self.log.segments().range(..active.min(self.checkpoints.floor()));
            sealed.filter(|(number, _)| !self.stuck.contains(*number)).filter_map(
                |(&n, segment)| {
                    let live = self.state.live.of(n);
                    (live > 0).then_some((n, live, u64::from(segment.end), segment))
                },
            )
        };
        let merge = candidates().filter(|(_, _, end, _)| *end < small).count() >= MANY;
        let worth = candidates()
            .filter(|(_, live, end, _)| live * den < end * num || (merge && *end < small));
        let (number, _, _, segment) = worth.min_by_key(|(_, live, end, _)| live * 1000 / end)?;
        Some(Compactor {
            number,
            salt: segment.salt,
            end: segment.end,
            file: Arc::clone(&segment.file),
            bytes: Vec::new(),
            position: FIRST_RECORD,
        })
    }

    /// Leaves a segment that could not be rewritten as it is.
    pub fn give_up_compaction(&mut self, compactor: &Compactor) {
        self.stuck.insert(compactor.number);
    }

    /// Ends a rewriting that went through the whole segment.
    pub fn finish_compaction(&mut self, compactor: &Compactor) {
        if self.state.live.of(compactor.number) > 0 {
            // An unreadable message is still counted here: its bytes are not to go.
            self.stuck.insert(compactor.number);
        }
    }

    /// Copies a message to the end of the log if the index still points to where it was found; true if so.
    pub fn compact(&mut self, candidate: &Candidate<'_>, now: Now) -> Result<bool> {
        let Candidate { at, kind, mailbox: number, ref message } = *candidate;
        let Some(index) = self.state.find(message.address) else { return Ok(false) };
        let Some(slot) = self.state.slot_of(index, number) else { return Ok(false) };
        let place = if kind == kind::DELAYED {
            slot.mailbox.extras().and_then(|s| s.delayed.get(message.msg_id)).map(|d| d.at)
        } else {
            slot.mailbox.get(message.msg_id).map(|(_, entry)| entry.at)
        };
        if place != Some(at) {
            return Ok(false);
        }
        self.log.try_reserve(Log::record_len(message.encoded_len()), Space::Store, now.wall_ms)?;
        let placed = self.log.append(kind, FLAG_MOVED, number, |out| message.encode(out));
        if kind == kind::DELAYED {
            self.state.put_delayed(index, message, placed.into());
        } else {
            self.state.put_message(index, message, placed.into());
        }
        // Others must not have to write what was copied before them.
        if self.log.buffered() >= COPIED {
            self.log.flush()?
        }
        Ok(true)
    }

    /// Removes segments that nothing needs; returns how many. A segment found dead is removed by a
    /// later call, once what made it dead is durable.
    pub fn reclaim(&mut self) -> Result<usize> {
        let removal = self.begin_removal();
        let removed = removal.remove();
        self.finish_removal(&removal);
        removed
    }

    /// The segments that can go now. Notes those that can go once what made them dead is durable.
    pub fn begin_removal(&mut self) -> Removal {
        let settled = self.log.syncer().settled();
        let ready = self.dying.iter().filter(|(_, dead_at)| settled >= *dead_at);
        let numbers = ready.map(|(number, _)| *number).collect();
        let end = self.log.end();
        for number in self.removable() {
            if !self.dying.iter().any(|(dying, _)| *dying == number) {
                self.dying.push((number, end));
            }
        }
        Removal { disk: Arc::clone(&self.disk), numbers, removed: Cell::new(0) }
    }

    /// Segments without live messages that no checkpoint needs, nor a reader of the log.
    fn removable(&self) -> Vec<u32> {
        if !self.state.removed_are_counted_out() {
            return Vec::new();
        }
        let limit = self.log.active().min(self.checkpoints.floor());
        let segments = self.log.segments().range(..limit);
        let dead = segments.filter(|(number, _)| self.state.live.of(**number) == 0);
        let dead = dead.map(|(&number, segment)| (number, u64::from(segment.end))).collect();
        match &self.kept {
            Some(kept) => kept.spare(dead),
            None => dead.into_iter().map(|(number, _)| number).collect(),
        }
    }

    /// Forgets the segments that were removed. What is returned is better dropped without the store: files go
    /// with their last handle.
    pub fn finish_removal(&mut self, removal: &Removal) -> Vec<Segment> {
        let gone = removal.numbers.get(..removal.removed.get()).unwrap_or_default();
        self.dying.retain(|(dying, _)| !gone.contains(dying));
        gone.iter().filter_map(|&number| self.log.forget_segment(number)).collect()
    }

    /// Segments waiting to be removed.
    pub fn dying_segments(&self) -> usize {
        self.dying.len()
    }

    /// True when a checkpoint would let dead or rewritable segments go.
    pub fn reclaim_blocked(&self) -> bool {
        let (num, den) = LIVE;
        let active = self.log.active();
        let blocked = self.log.segments().range(self.checkpoints.floor()..active);
        let (mut live, mut total) = (0, 0);
        for (&number, segment) in blocked {
            live += self.state.live.of(number);
            total += u64::from(segment.end);
        }
        // A checkpoint must not cost more than what it frees.
        let worth = u64::from(self.options.segment_bytes / 2).max(self.checkpoints.size());
        total >= worth && live * den < total * num
    }
}
