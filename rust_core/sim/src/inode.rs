//! One simulated file apart from its name: what reads see, what is durable, and the changes between.

use std::sync::{Arc, Mutex};

use crate::chance::{Fate, Outcome, Rng};
use crate::contents::{Contents, pieces};

/// The unit that a disk writes as a whole.
const SECTOR: usize = 512;

/// A file shared by its names, its handles and the unsynced changes of the directory. The inner lock
/// is only taken while that of the disk is held.
pub(crate) type SharedInode = Arc<Mutex<Inode>>;

/// A change to a file's contents.
pub(crate) enum Change {
    Write { offset: u64, data: Box<[u8]> },
    Allocate(u64),
    SetLen(u64),
}

impl Change {
    fn apply(&self, contents: &mut Contents) {
        match self {
            Change::Write { offset, data } => contents.write(*offset, data),
            Change::Allocate(len) => contents.grow(*len),
            Change::SetLen(len) => contents.set_len(*len),
        }
    }

    /// Applies the part of this change that was under way when the power went.
    fn tear(&self, contents: &mut Contents, rng: &mut Rng) {
        let Change::Write { offset, data } = self else {
            // A length is one field of an inode: it changes as a whole or not at all.
            if rng.coin() {
                self.apply(contents);
            }
            return;
        };
        match rng.below(5) {
            0 | 1 => {
                for (at, range) in pieces(*offset, data.len(), SECTOR) {
                    if rng.coin() {
                        contents.write(at, &data[range]);
                    }
                }
            }
            2 | 3 => {
                let end = rng.below(data.len() as u64 + 1) as usize;
                contents.write(*offset, &data[..end]);
            }
            // Nothing but, perhaps, the length.
            _ => {}
        }
        // File systems that delay data may make the new length durable before the bytes.
        if !data.is_empty() && rng.coin() {
            contents.grow(offset + data.len() as u64);
        }
    }
}

/// A file's contents, volatile and durable.
pub(crate) struct Inode {
    current: Contents,
    durable: Contents,
    unsynced: Vec<Change>,
}

impl Inode {
    /// A file all of whose contents are durable.
    pub(crate) fn settled(contents: Contents) -> Inode {
        Inode { current: contents.clone(), durable: contents, unsynced: Vec::new() }
    }

    pub(crate) fn current(&self) -> &Contents {
        &self.current
    }

    pub(crate) fn durable(&self) -> &Contents {
        &self.durable
    }

    pub(crate) fn apply(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    /// Notes a change that the power cut interrupts: reads never see it, a crash may find it.
    pub(crate) fn interrupt(&mut self, change: Change) {
        self.unsynced.push(change);
    }

    /// Replays the changes instead of copying the contents, so that syncing often stays cheap.
    pub(crate) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// The contents that a power cut may leave.
    pub(crate) fn after_crash(&self, rng: &mut Rng) -> Contents {
        let fate = Fate::draw(rng, self.unsynced.len());
        let mut contents = self.durable.clone();
        for (index, change) in self.unsynced.iter().enumerate() {
            match fate.of(index, rng) {
                Outcome::Kept => change.apply(&mut contents),
                Outcome::Torn => change.tear(&mut contents, rng),
                Outcome::Dropped => {}
            }
        }
        contents
    }
}
