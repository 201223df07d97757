//! The seam between the export and its files: a folder with folders in it. A trait, so that a simulated disk can stand in.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mq9_core::disk::{Disk, DiskFile, OsDisk};

/// The folder of files that are not finished. Readers of datasets leave names with `_` alone.
pub const UNFINISHED: &str = "_unfinished";

/// An export folder. Paths are relative, with `/` between the parts.
pub trait Tree: Send + Sync {
    /// Takes the exclusive lock of the folder; it is held until the returned guard is dropped.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>>;

    /// Every file below a folder, in any order; none if there is no such folder.
    fn files(&self, folder: &str) -> io::Result<Vec<String>>;

    /// The names of the folders in a folder, in any order; none if there is no such folder.
    fn folders(&self, folder: &str) -> io::Result<Vec<String>>;

    /// The contents of a small file; `None` if it is not there.
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>>;

    /// An empty file, instead of what was there. Its folder must exist.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, replacing `to`. Durable after [`Tree::sync_folder`] of the folder of `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes a folder if nothing is in it.
    fn remove_folder(&self, folder: &str) -> io::Result<()>;

    /// Makes a folder, with those above it, durably: also where they are there, perhaps not durable yet.
    fn make_folder(&self, folder: &str) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &str) -> io::Result<()>;
}

/// A folder of the operating system.
pub struct OsTree {
    root: PathBuf,
    disk: OsDisk,
}

impl OsTree {
    /// Uses `root`, creating it and its parents if they are missing.
    pub fn new(root: impl AsRef<Path>) -> io::Result<OsTree> {
        let root = root.as_ref().to_path_buf();
        Ok(OsTree { disk: OsDisk::shared(&root)?, root })
    }
}

impl Tree for OsTree {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock()
    }

    fn files(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut files = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match std::fs::read_dir(self.root.join(&folder)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = format!("{folder}/{name}");
                let list = if entry.file_type()?.is_dir() { &mut folders } else { &mut files };
                list.push(path);
            }
        }
        Ok(files)
    }

    fn folders(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.root.join(folder)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.extend(entry.file_name().into_string());
            }
        }
        Ok(folders)
    }

    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.root.join(path)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => bytes.map(Some),
        }
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        match self.disk.remove(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.disk.create(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        match std::fs::remove_dir(self.root.join(folder)) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    fn make_folder(&self, folder: &str) -> io::Result<()> {
        let mut path = String::new();
        for part in folder.split('/') {
            let above = self.root.join(&path);
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(part);
            self.disk.make_folder(&path)?;
            File::open(above)?.sync_all()?;
        }
        Ok(())
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        File::open(self.root.join(folder))?.sync_all()
    }
}
