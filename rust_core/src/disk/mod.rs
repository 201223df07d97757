//! The seam between the store and its files: one flat directory of named files.
//!
//! Everything the store does to a disk goes through these two traits, so that a simulated disk can
//! stand in for the real one. They say nothing about what the files hold.

mod os;

use std::io;
use std::sync::Arc;

pub use os::OsDisk;

/// A data directory.
pub trait Disk: Send + Sync {
    /// Takes the exclusive lock of the directory; it is held until the returned guard is dropped.
    /// Fails with [`io::ErrorKind::WouldBlock`] when another process or guard holds it.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>>;

    /// The same for somebody who only reads: nobody may write meanwhile, others may read. Changes nothing.
    fn lock_to_read(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.lock()
    }

    /// Fails if the directory is not where it was when it was opened. Until then only new files would tell.
    fn check_place(&self) -> io::Result<()> {
        Ok(())
    }

    /// Names of the files in the directory, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a file that must not exist yet. Durable under its name only after [`Disk::sync_dir`].
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file of which nothing will be changed.
    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open(name)
    }

    /// Renames a file, replacing `to` if it exists. Durable only after [`Disk::sync_dir`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Durable only after [`Disk::sync_dir`]. Open handles stay readable.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals so far durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file. All methods take `&self`: a file is shared between the writer and the sync thread.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `data` at `offset`. On an error any part of it may have been written.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Reserves space up to `len` and makes the file at least that long, zero-filled. After success,
    /// writes below `len` do not run out of space on file systems that can promise that.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Cuts or extends the file to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// The file's length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Makes the file's contents and length durable.
    fn sync(&self) -> io::Result<()>;
}
