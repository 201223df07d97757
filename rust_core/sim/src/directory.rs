//! The names of a simulated disk: those that exist now, those that are durable, and the changes
//! between. Knows files only by identity.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::chance::{Fate, Outcome, Rng};
use crate::inode::SharedInode;

/// Sorted, so that a seed gives the same crash every time.
pub(crate) type Names = BTreeMap<String, SharedInode>;

/// A change to the directory, with the file it was made to.
pub(crate) enum NameChange {
    Create { name: String, inode: SharedInode },
    Rename { from: String, to: String, inode: SharedInode },
    Remove { name: String, inode: SharedInode },
}

impl NameChange {
    /// Applies the change, unless it builds on one that a crash has dropped.
    fn apply(&self, names: &mut Names) {
        let is = |name: &str, inode: &SharedInode| {
            names.get(name).is_some_and(|found| Arc::ptr_eq(found, inode))
        };
        match self {
            NameChange::Create { name, inode } => {
                if !names.contains_key(name) {
                    names.insert(name.clone(), inode.clone());
                }
            }
            NameChange::Rename { from, to, inode } => {
                if is(from, inode) {
                    names.remove(from);
                    names.insert(to.clone(), inode.clone());
                }
            }
            NameChange::Remove { name, inode } => {
                if is(name, inode) {
                    names.remove(name);
                }
            }
        }
    }
}

/// The names of a disk, volatile and durable.
#[derive(Default)]
pub(crate) struct Directory {
    current: Names,
    durable: Names,
    unsynced: Vec<NameChange>,
}

impl Directory {
    /// A directory all of whose names are durable.
    pub(crate) fn settled(names: Names) -> Directory {
        Directory { current: names.clone(), durable: names, unsynced: Vec::new() }
    }

    pub(crate) fn current(&self) -> &Names {
        &self.current
    }

    pub(crate) fn durable(&self) -> &Names {
        &self.durable
    }

    pub(crate) fn find(&self, name: &str) -> io::Result<SharedInode> {
        self.current.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn create(&self, name: &str, inode: SharedInode) -> io::Result<NameChange> {
        if self.current.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(NameChange::Create { name: name.to_owned(), inode })
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<NameChange> {
        let inode = self.find(from)?;
        Ok(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), inode })
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<NameChange> {
        Ok(NameChange::Remove { name: name.to_owned(), inode: self.find(name)? })
    }

    pub(crate) fn apply(&mut self, change: NameChange) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    /// Notes a change that the power cut interrupts: reads never see it, a crash may find it.
    pub(crate) fn interrupt(&mut self, change: NameChange) {
        self.unsynced.push(change);
    }

    pub(crate) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// The names that a power cut may leave. A name changes as a whole: renaming is never torn.
    pub(crate) fn after_crash(&self, rng: &mut Rng) -> Names {
        let fate = Fate::draw(rng, self.unsynced.len());
        let mut names = self.durable.clone();
        for (index, change) in self.unsynced.iter().enumerate() {
            if fate.of(index, rng) == Outcome::Kept {
                change.apply(&mut names);
            }
        }
        names
    }
}
