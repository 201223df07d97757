//! A simulated disk that asks before each sync whether to do it: so that a run can be cut at every one of them, and
//! so that controls can go without, in which the tests must find losses.

use std::io;
use std::sync::Arc;

use mq9_core::disk::{Disk, DiskFile};
use mq9_sim::SimDisk;

/// What is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    File,
    Directory,
}

/// A disk of which `wanted` decides whether a sync takes place; one that does not is said to have.
pub fn hooked(
    disk: SimDisk,
    wanted: impl Fn(Synced) -> bool + Send + Sync + 'static,
) -> Arc<dyn Disk> {
    Arc::new(HookedDisk { disk, wanted: Arc::new(wanted) })
}

#[derive(Clone)]
struct HookedDisk {
    disk: SimDisk,
    wanted: Arc<dyn Fn(Synced) -> bool + Send + Sync>,
}

struct HookedFile(Arc<dyn DiskFile>, HookedDisk);

impl HookedDisk {
    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(HookedFile(file, self.clone()))
    }

    fn sync(&self, what: Synced, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if (self.wanted)(what) { sync() } else { Ok(()) }
    }
}

impl Disk for HookedDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(name).map(|file| self.file(file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(name).map(|file| self.file(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.sync(Synced::Directory, || self.disk.sync_dir())
    }
}

impl DiskFile for HookedFile {
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
        self.1.sync(Synced::File, || self.0.sync())
    }
}
