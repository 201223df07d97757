//! A disk that notes which of its operations were syncs, so that a run can be cut at each of them.

use std::io;
use std::sync::{Arc, Mutex};

use mq9_core::disk::{Disk, DiskFile};
use mq9_sim::SimDisk;

/// A simulated disk and the numbers of its syncs.
#[derive(Clone, Default)]
pub struct NotingDisk {
    pub disk: SimDisk,
    syncs: Arc<Mutex<Vec<u64>>>,
}

struct NotingFile(Arc<dyn DiskFile>, NotingDisk);

impl NotingDisk {
    /// The operations so far that were syncs, counted as [`SimDisk::cut_at`] does.
    pub fn syncs(&self) -> Vec<u64> {
        self.syncs.lock().unwrap().clone()
    }

    fn note(&self) {
        self.syncs.lock().unwrap().push(self.disk.ops() + 1);
    }

    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(NotingFile(file, self.clone()))
    }
}

impl Disk for NotingDisk {
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
        self.note();
        self.disk.sync_dir()
    }
}

impl DiskFile for NotingFile {
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
        self.1.note();
        self.0.sync()
    }
}
