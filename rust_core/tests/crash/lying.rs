//! A disk that says it synced and did not, for controls: on it the tests must find losses.

use std::io;
use std::sync::Arc;

use mq9_core::disk::{Disk, DiskFile};
use mq9_sim::SimDisk;

/// Which syncs do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    Files,
    Directory,
}

/// A disk without one kind of sync.
pub struct LyingDisk(pub SimDisk, pub Lie);

struct LyingFile(Arc<dyn DiskFile>, Lie);

impl LyingDisk {
    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(LyingFile(file, self.1))
    }
}

impl Disk for LyingDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.0.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.0.create(name).map(|file| self.file(file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open(name).map(|file| self.file(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        if self.1 == Lie::Directory { Ok(()) } else { self.0.sync_dir() }
    }
}

impl DiskFile for LyingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn sync(&self) -> io::Result<()> {
        if self.1 == Lie::Files { Ok(()) } else { self.0.sync() }
    }
}
