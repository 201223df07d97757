//! A disk on which a store can be opened and looked at without changing anything.
//!
//! What recovery would write stays in memory, so that it is recovery itself that is looked at. What it would set
//! aside is not kept at all: nobody would find it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile};
use crate::log::names;

/// Shows another disk and leaves it alone.
pub struct ReadOnlyDisk {
    shown: Arc<dyn Disk>,
    changes: Mutex<Changes>,
}

/// What would have been changed.
#[derive(Default)]
struct Changes {
    made: BTreeMap<String, Arc<MemoryFile>>,
    removed: BTreeSet<String>,
}

impl ReadOnlyDisk {
    /// Shows what `shown` holds.
    pub fn new(shown: Arc<dyn Disk>) -> ReadOnlyDisk {
        ReadOnlyDisk { shown, changes: Mutex::default() }
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_shown(&self, name: &str) -> io::Result<bool> {
        Ok(!self.changes().removed.contains(name) && self.shown.list()?.iter().any(|n| n == name))
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened to be read only")
}

impl Disk for ReadOnlyDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.shown.lock_to_read()
    }

    fn check_place(&self) -> io::Result<()> {
        self.shown.check_place()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.shown.list()?;
        let changes = self.changes();
        names.retain(|name| !changes.removed.contains(name) && !changes.made.contains_key(name));
        names.extend(changes.made.keys().cloned());
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if names::is_set_aside(name) {
            return Err(refused());
        }
        if self.changes().made.contains_key(name) || self.is_shown(name)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(MemoryFile::default());
        self.changes().made.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let changes = self.changes();
        if let Some(file) = changes.made.get(name) {
            return Ok(Arc::clone(file) as Arc<dyn DiskFile>);
        }
        if changes.removed.contains(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let shown = self.shown.open_to_read(name)?;
        Ok(Arc::new(ShownFile { shown, cut: Mutex::new(u64::MAX) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut changes = self.changes();
        let file = changes.made.remove(from).ok_or_else(refused)?;
        changes.made.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut changes = self.changes();
        if changes.made.remove(name).is_none() {
            changes.removed.insert(name.to_owned());
        }
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file of the disk that is shown; one that is cut only seems so.
struct ShownFile {
    shown: Arc<dyn DiskFile>,
    cut: Mutex<u64>,
}

impl ShownFile {
    fn cut(&self) -> MutexGuard<'_, u64> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for ShownFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.cut().saturating_sub(offset).min(buf.len() as u64) as usize;
        self.shown.read_at(&mut buf[..most], offset)
    }

    fn write_at(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        Err(refused())
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        Err(refused())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut cut = self.cut();
        *cut = len.min(*cut);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.shown.size()?.min(*self.cut()))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is nowhere else.
#[derive(Default)]
struct MemoryFile(Mutex<Contents>);

#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    /// Zeros follow up to here: reserved space takes no memory.
    len: u64,
}

impl MemoryFile {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let contents = self.contents();
        let got = contents.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let start = (offset as usize).min(contents.bytes.len());
        let known = &contents.bytes[start..(start + got).min(contents.bytes.len())];
        buf[..known.len()].copy_from_slice(known);
        buf[known.len()..got].fill(0);
        Ok(got)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut contents = self.contents();
        let (start, end) = (offset as usize, offset as usize + data.len());
        if contents.bytes.len() < end {
            contents.bytes.resize(end, 0);
        }
        contents.bytes[start..end].copy_from_slice(data);
        contents.len = contents.len.max(end as u64);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut contents = self.contents();
        contents.len = contents.len.max(len);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut contents = self.contents();
        contents.bytes.truncate(len as usize);
        contents.len = len;
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.contents().len)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
