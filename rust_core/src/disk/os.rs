//! The real disk: a directory of the operating system. What it makes is for its owner alone.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile};

const LOCK: &str = "LOCK";
const PRIVATE: u32 = 0o700;
const NOT_EXECUTED: u32 = 0o666;

/// A data directory of the operating system.
#[derive(Debug)]
pub struct OsDisk {
    root: PathBuf,
    /// Open for as long as the disk is used, so that no other directory gets its inode.
    folder: File,
    /// Device and inode.
    identity: (u64, u64),
    /// The rights of folders; files have the same, but are not executed.
    rights: u32,
}

impl OsDisk {
    /// Uses `root`, creating it and its parents if they are missing. New files are private, whatever the rights of `root`.
    pub fn new(root: impl AsRef<Path>) -> io::Result<OsDisk> {
        let root = root.as_ref().to_path_buf();
        if !root.is_dir() {
            if let Some(parent) = root.parent() {
                std::fs::create_dir_all(parent)?;
            }
            match DirBuilder::new().mode(PRIVATE).create(&root) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
            if let Some(parent) = root.canonicalize()?.parent() {
                File::open(parent)?.sync_all()?;
            }
        }
        OsDisk::existing(root)
    }

    /// Uses `root`, which must be there and a directory.
    pub fn existing(root: impl AsRef<Path>) -> io::Result<OsDisk> {
        let root = root.as_ref().to_path_buf();
        let directory = rustix::fs::OFlags::DIRECTORY.bits() as i32;
        let folder = OpenOptions::new().read(true).custom_flags(directory).open(&root)?;
        let identity = identity(&folder.metadata()?);
        Ok(OsDisk { root, folder, identity, rights: PRIVATE })
    }

    /// As `new`, but new files can be read and written by whom `root` is open to.
    pub fn shared(root: impl AsRef<Path>) -> io::Result<OsDisk> {
        let disk = OsDisk::new(root)?;
        let rights = std::fs::metadata(&disk.root)?.permissions().mode() & 0o777;
        Ok(OsDisk { rights, ..disk })
    }

    /// Makes a folder below the root; one that exists stays as it is.
    pub fn make_folder(&self, name: &str) -> io::Result<()> {
        match DirBuilder::new().mode(self.rights).create(self.path(name)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    }

    fn file_rights(&self) -> u32 {
        self.rights & NOT_EXECUTED
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Disk for OsDisk {
    fn check_place(&self) -> io::Result<()> {
        if identity(&std::fs::metadata(&self.root)?) == self.identity {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "another directory is in its place"))
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(self.file_rights())
            .open(self.path(LOCK))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(file))
    }

    fn lock_to_read(&self) -> io::Result<Box<dyn Send + Sync>> {
        match File::open(self.path(LOCK)) {
            Ok(file) => {
                rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared)?;
                Ok(Box::new(file))
            }
            // Whoever writes makes the file first: nobody does, and nobody ever did.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Box::new(())),
            Err(e) => Err(e),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            if let Ok(name) = entry?.file_name().into_string()
                && name != LOCK
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.check_place()?;
        let file = OpenOptions::new()
            .create_new(true)
            .read(true)
            .write(true)
            .mode(self.file_rights())
            .open(self.path(name))?;
        Ok(Arc::new(OsFile { file }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(name))?;
        Ok(Arc::new(OsFile { file }))
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OsFile { file: File::open(self.path(name))? }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_place()?;
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        // Another directory may hold files of the same name.
        self.check_place()?;
        std::fs::remove_file(self.path(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.folder.sync_all()
    }
}

struct OsFile {
    file: File,
}

impl DiskFile for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.file.read_at(&mut buf[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let start = self.size()?;
        if len <= start {
            return Ok(());
        }
        reserve(&self.file, start, len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(target_os = "linux")]
fn reserve(file: &File, start: u64, end: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    match fallocate(file, FallocateFlags::empty(), start, end - start) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, start, end),
        Err(e) => {
            // A failed fallocate may have extended the file in part; the reservation is all or nothing.
            let _ = file.set_len(start);
            Err(e.into())
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(file: &File, start: u64, end: u64) -> io::Result<()> {
    write_zeros(file, start, end)
}

/// Reserves space on file systems that cannot do so by themselves, as `posix_fallocate` does.
fn write_zeros(file: &File, start: u64, end: u64) -> io::Result<()> {
    let zeros = [0u8; 64 * 1024];
    let mut at = start;
    while at < end {
        let n = zeros.len().min((end - at) as usize);
        if let Err(e) = file.write_all_at(&zeros[..n], at) {
            let _ = file.set_len(start);
            return Err(e);
        }
        at += n as u64;
    }
    Ok(())
}
