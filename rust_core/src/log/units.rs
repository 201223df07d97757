//! Decides which records count: of a unit all or none, and a rest only behind what it belongs to.
//!
//! For readers of the log who change nothing and report nothing. Takes the records of one segment in order.

use super::Lsn;
use crate::wire::op::kind;
use crate::wire::record::{FLAG_MORE, FLAG_REST, Record};

/// Sorts records into those that count, and those that do not or not yet.
pub struct Units<'a> {
    held: Vec<(Lsn, Record<'a>)>,
    /// Where the last record ended that counts or may still count.
    end: Lsn,
}

impl<'a> Units<'a> {
    /// Begins at `from`, behind a record that counts or at the beginning of a segment.
    pub fn new(from: Lsn) -> Units<'a> {
        Units { held: Vec::new(), end: from }
    }

    /// Takes the next record and calls `counts` with each that is now known to count, in order.
    pub fn take(&mut self, at: Lsn, record: Record<'a>, mut counts: impl FnMut(Lsn, Record<'a>)) {
        if record.flags & FLAG_REST != 0 && at != self.end {
            return;
        }
        if record.flags & FLAG_REST == 0 || record.kind == kind::OPENED {
            self.held.clear();
        }
        self.end = Lsn::new(at.segment(), at.offset() + record.len() as u32);
        self.held.push((at, record));
        if record.flags & FLAG_MORE == 0 {
            self.held.drain(..).for_each(|(at, record)| counts(at, record));
        }
    }

    /// Bytes that are no record follow: a unit that is not whole will not be.
    pub fn damaged(&mut self) {
        self.held.clear();
    }

    /// Where what counts for sure ends: no unit is cut there.
    pub fn end(&self) -> Lsn {
        self.held.first().map_or(self.end, |(at, _)| *at)
    }
}
