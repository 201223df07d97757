//! A disk that passes calls on to another and fails those it is told to fail.
//!
//! Owns what a failing call still does: nothing, or for a write perhaps a prefix. When calls fail is
//! decided in `faults`.

use std::io;
use std::sync::Arc;

use mq9_core::disk::{Disk, DiskFile};

use crate::faults::{Faults, Operation};

/// A data directory on `D` whose calls fail as its [`Faults`] say; clones share both.
pub struct FaultyDisk<D> {
    inner: Arc<D>,
    faults: Faults,
}

impl<D> Clone for FaultyDisk<D> {
    fn clone(&self) -> FaultyDisk<D> {
        FaultyDisk { inner: self.inner.clone(), faults: self.faults.clone() }
    }
}

impl<D: Disk + 'static> FaultyDisk<D> {
    /// Wraps `inner`; keep a clone of `faults` to control it.
    pub fn new(inner: D, faults: Faults) -> FaultyDisk<D> {
        FaultyDisk { inner: Arc::new(inner), faults }
    }

    /// The disk underneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The control of this disk.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    fn handle(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile { inner, disk: self.clone() })
    }

    fn check(&self, operation: Operation) -> io::Result<()> {
        match self.faults.call(operation) {
            Some(fault) => Err(fault.error.into()),
            None => Ok(()),
        }
    }

    /// Measured rather than tracked: files are replaced, removed and cut in too many ways to keep a
    /// sum that is always right.
    fn used(&self) -> io::Result<u64> {
        let mut used = 0;
        for name in self.inner.list()? {
            match self.inner.open(&name) {
                Ok(file) => used += file.size()?,
                // Removed or renamed by another thread since it was listed.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(used)
    }
}

impl<D: Disk + 'static> Disk for FaultyDisk<D> {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.inner.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.check(Operation::Create)?;
        Ok(self.handle(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.check(Operation::Open)?;
        Ok(self.handle(self.inner.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check(Operation::Rename)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check(Operation::Remove)?;
        self.inner.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.check(Operation::SyncDir)?;
        self.inner.sync_dir()
    }
}

struct FaultyFile<D> {
    inner: Arc<dyn DiskFile>,
    disk: FaultyDisk<D>,
}

impl<D: Disk + 'static> FaultyFile<D> {
    /// Does `work`, which makes the file `end` bytes long at least, if that fits the space limit;
    /// otherwise `overflow`, given the length up to which it does fit, and the error.
    fn grow(
        &self,
        operation: Operation,
        end: u64,
        work: impl FnOnce() -> io::Result<()>,
        overflow: impl FnOnce(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(mut space) = self.disk.faults.space() else {
            return work();
        };
        let len = self.inner.size()?;
        let fits = len.saturating_add(space.left(self.disk.used()?));
        if end <= len || end <= fits {
            return work();
        }
        overflow(fits)?;
        Err(space.exhausted(operation))
    }
}

impl<D: Disk + 'static> DiskFile for FaultyFile<D> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.check(Operation::Read)?;
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if let Some(fault) = self.disk.faults.call(Operation::Write) {
            if fault.partial {
                self.inner.write_at(&data[..data.len() / 2], offset)?;
            }
            return Err(fault.error.into());
        }
        self.grow(
            Operation::Write,
            offset.saturating_add(data.len() as u64),
            || self.inner.write_at(data, offset),
            |fits| {
                let prefix = fits.saturating_sub(offset).min(data.len() as u64) as usize;
                self.inner.write_at(&data[..prefix], offset)
            },
        )
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.disk.check(Operation::Allocate)?;
        self.grow(Operation::Allocate, len, || self.inner.allocate(len), |_| Ok(()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.check(Operation::SetLen)?;
        self.grow(Operation::SetLen, len, || self.inner.set_len(len), |_| Ok(()))
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.check(Operation::Sync)?;
        self.inner.sync()
    }
}
