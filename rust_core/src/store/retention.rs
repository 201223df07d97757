//! Keeping dead segments for somebody who reads the log and has not come so far.
//!
//! The store does not know the reader. It keeps what it is asked to keep up to a number of bytes: a reader that
//! stands still must not fill the disk.

use super::Store;

/// Segments that are kept although nothing in them is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The first segment that has not been read to its end.
    pub from_segment: u32,
    /// Most bytes of dead segments; the oldest go when there are more.
    pub most_bytes: u64,
}

impl Retention {
    /// Of dead segments with their sizes, oldest first, those that are not kept.
    pub(super) fn spare(&self, dead: Vec<(u32, u64)>) -> Vec<u32> {
        let unread = dead.iter().filter(|(number, _)| *number >= self.from_segment);
        let mut bytes: u64 = unread.map(|(_, bytes)| bytes).sum();
        let spare = dead.into_iter().filter(|&(number, size)| {
            if number < self.from_segment {
                return true;
            }
            let too_much = bytes > self.most_bytes;
            bytes -= if too_much { size } else { 0 };
            too_much
        });
        spare.map(|(number, _)| number).collect()
    }
}

impl Store {
    /// Keeps segments for a reader of the log from now on; `None` keeps none.
    pub fn keep(&mut self, kept: Option<Retention>) {
        self.kept = kept;
    }
}
