//! Counts the bytes of each segment that the index still points to.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::log::{Lsn, Segment};

/// Live bytes by segment number. A map, because a checkpoint may name any segment.
#[derive(Debug, Default)]
pub struct LiveBytes(HashMap<u32, u64, foldhash::fast::RandomState>);

impl LiveBytes {
    /// Counts the record at `at` in, or several of its segment.
    pub fn add(&mut self, at: Lsn, len: impl Into<u64>) {
        if at != Lsn::NONE {
            *self.0.entry(at.segment()).or_default() += len.into();
        }
    }

    /// Counts the record at `at` out.
    pub fn sub(&mut self, at: Lsn, len: u32) {
        if let Some(bytes) = self.0.get_mut(&at.segment()) {
            *bytes = bytes.saturating_sub(u64::from(len));
            if *bytes == 0 {
                self.0.remove(&at.segment());
            }
        }
    }

    /// Live bytes of a segment.
    pub fn of(&self, segment: u32) -> u64 {
        self.0.get(&segment).copied().unwrap_or(0)
    }

    /// Panics unless these are what is counted. For tests.
    pub fn check_invariants(&self, there: &BTreeMap<u32, u64>) {
        let counted: BTreeMap<u32, u64> = self.0.iter().map(|(&n, &bytes)| (n, bytes)).collect();
        assert_eq!(&counted, there, "live bytes by segment");
    }

    /// Live bytes of all segments.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Counts live bytes, and those of one mailbox. Neighbours mostly lie in the same segment, so that
/// one is looked up only when it changes.
pub struct Tally<'a> {
    segments: &'a BTreeMap<u32, Segment>,
    live: &'a mut LiveBytes,
    /// Number and end of the segment looked up last, and bytes counted in it since.
    of: (u32, u32, u64),
    total: u64,
}

impl<'a> Tally<'a> {
    /// Begins with a mailbox.
    pub fn new(segments: &'a BTreeMap<u32, Segment>, live: &'a mut LiveBytes) -> Tally<'a> {
        Tally { segments, live, of: (0, 0, 0), total: 0 }
    }

    /// Counts a record in; false if it lies in no segment. One that does not is counted all the same:
    /// taking it out counts it out again.
    pub fn count(&mut self, at: Lsn, len: u32) -> bool {
        if at.segment() != self.of.0 {
            self.settle();
            let end = self.segments.get(&at.segment()).map_or(0, |segment| segment.end);
            self.of = (at.segment(), end, 0);
        }
        self.of.2 += u64::from(len);
        u64::from(at.offset()) + u64::from(len) <= u64::from(self.of.1)
    }

    fn settle(&mut self) {
        let (segment, _, bytes) = self.of;
        self.live.add(Lsn::new(segment, 0), bytes);
        self.total += bytes;
    }

    /// All bytes that were counted.
    pub fn finish(mut self) -> u64 {
        self.settle();
        self.total
    }
}
