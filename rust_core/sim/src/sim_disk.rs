//! A disk in memory that loses power when told to.
//!
//! Owns the count of operations, the moment of the cut, and the copies that a crash may leave. What
//! one file or the directory keeps is decided in `inode` and `directory`.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mq9_core::disk::{Disk, DiskFile};

use crate::chance::Rng;
use crate::contents::Contents;
use crate::directory::{Directory, NameChange, Names};
use crate::inode::{Change, Inode, SharedInode};

/// A simulated data directory; clones are handles to the same one.
///
/// A file's contents are durable once the file is synced, its name once the directory is. Everything
/// since may be lost, reordered or torn by [`SimDisk::crash`].
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    directory: Directory,
    ops: u64,
    cut_at: Option<u64>,
    is_cut: bool,
    ignore_sync: bool,
    is_locked: bool,
}

/// Whether an operation takes place or is the one that the power cut interrupts.
enum Power {
    On,
    Failing,
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// The number of operations so far: calls that change something or sync, whether or not they
    /// succeed, but not those refused by a power cut.
    pub fn ops(&self) -> u64 {
        locked(&self.state).ops
    }

    /// Cuts the power at the `n`-th operation, counted from 1 since the disk was made: it and
    /// everything after it fails, reads included. `cut_at(ops() + 1)` cuts the next operation; an
    /// `n` that has passed cuts at once. Power never comes back: go on with a crashed copy.
    pub fn cut_at(&self, n: u64) {
        let mut state = locked(&self.state);
        state.is_cut |= n <= state.ops;
        state.cut_at = Some(n);
    }

    /// Whether the power has been cut.
    pub fn is_cut(&self) -> bool {
        locked(&self.state).is_cut
    }

    /// Makes later syncs report success without making anything durable, as a lying disk does.
    pub fn ignore_sync(&self, ignore: bool) {
        locked(&self.state).ignore_sync = ignore;
    }

    /// The disk as it may be found after losing power now or at the cut: all that was synced, and an
    /// arbitrary part of the rest, chosen by `seed`. The copy is independent, unlocked and honest.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let mut rng = Rng::new(seed);
        let state = locked(&self.state);
        let names = state.directory.after_crash(&mut rng);
        SimDisk::settled(&names, |inode| inode.after_crash(&mut rng))
    }

    /// The disk after losing power, with nothing but what was synced.
    pub fn crash_strict(&self) -> SimDisk {
        let state = locked(&self.state);
        SimDisk::settled(state.directory.durable(), |inode| inode.durable().clone())
    }

    /// The disk after losing power, with everything that completed before the cut.
    pub fn crash_lucky(&self) -> SimDisk {
        self.snapshot()
    }

    /// A copy of what reads see now, all of it durable and unlocked: what a killed process leaves.
    pub fn snapshot(&self) -> SimDisk {
        let state = locked(&self.state);
        SimDisk::settled(state.directory.current(), |inode| inode.current().clone())
    }

    fn settled(names: &Names, mut contents: impl FnMut(&Inode) -> Contents) -> SimDisk {
        let names = names
            .iter()
            .map(|(name, inode)| (name.clone(), share(contents(&locked(inode)))))
            .collect();
        let state = State { directory: Directory::settled(names), ..State::default() };
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// The contents of a file as reads see them; works after a cut and is no operation.
    pub fn read_file(&self, name: &str) -> Option<Vec<u8>> {
        let state = locked(&self.state);
        state.directory.current().get(name).map(|inode| locked(inode).current().to_bytes())
    }

    /// Sets the contents of a file, creating it if needed. Durable at once, as are all names so far;
    /// open handles see it. Works after a cut and is no operation.
    pub fn write_file(&self, name: &str, bytes: &[u8]) {
        let mut state = locked(&self.state);
        let contents = Contents::from_bytes(bytes);
        match state.directory.current().get(name) {
            Some(inode) => *locked(inode) = Inode::settled(contents),
            None => {
                let inode = share(contents);
                let name = name.to_owned();
                state.directory.apply(NameChange::Create { name, inode });
            }
        }
        state.directory.sync();
    }

    /// The names of all files as reads see them, sorted; works after a cut.
    pub fn names(&self) -> Vec<String> {
        locked(&self.state).directory.current().keys().cloned().collect()
    }

    /// The sum of the lengths of all files as reads see them; works after a cut.
    pub fn total_bytes(&self) -> u64 {
        let state = locked(&self.state);
        state.directory.current().values().map(|inode| locked(inode).current().len()).sum()
    }

    fn change_names(
        &self,
        change: impl FnOnce(&Directory) -> io::Result<NameChange>,
    ) -> io::Result<()> {
        let mut state = locked(&self.state);
        match (state.begin()?, change(&state.directory)) {
            (Power::On, Ok(change)) => {
                state.directory.apply(change);
                Ok(())
            }
            (Power::On, Err(e)) => Err(e),
            (Power::Failing, change) => {
                if let Ok(change) = change {
                    state.directory.interrupt(change);
                }
                Err(power_cut())
            }
        }
    }

    fn handle(&self, inode: SharedInode) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { state: self.state.clone(), inode })
    }
}

impl State {
    fn begin(&mut self) -> io::Result<Power> {
        self.check_power()?;
        if self.cut_at.is_some_and(|n| n <= self.ops + 1) {
            self.is_cut = true;
            return Ok(Power::Failing);
        }
        self.ops += 1;
        Ok(Power::On)
    }

    fn check_power(&self) -> io::Result<()> {
        if self.is_cut { Err(power_cut()) } else { Ok(()) }
    }
}

impl Disk for SimDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = locked(&self.state);
        state.check_power()?;
        if state.is_locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.is_locked = true;
        Ok(Box::new(LockGuard(self.state.clone())))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        locked(&self.state).check_power()?;
        Ok(self.names())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inode = share(Contents::default());
        self.change_names(|directory| directory.create(name, inode.clone()))?;
        Ok(self.handle(inode))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = locked(&self.state);
        state.check_power()?;
        Ok(self.handle(state.directory.find(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change_names(|directory| directory.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change_names(|directory| directory.remove(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = locked(&self.state);
        match state.begin()? {
            Power::Failing => return Err(power_cut()),
            Power::On if state.ignore_sync => {}
            Power::On => state.directory.sync(),
        }
        Ok(())
    }
}

struct LockGuard(Arc<Mutex<State>>);

impl Drop for LockGuard {
    fn drop(&mut self) {
        locked(&self.0).is_locked = false;
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    inode: SharedInode,
}

impl SimFile {
    fn change(&self, end: Option<u64>, change: Change) -> io::Result<()> {
        let mut state = locked(&self.state);
        let power = state.begin()?;
        // The limit of the system calls, whose offsets are signed.
        let is_valid = end.is_some_and(|end| i64::try_from(end).is_ok());
        let mut inode = locked(&self.inode);
        match power {
            Power::On if !is_valid => Err(io::ErrorKind::InvalidInput.into()),
            Power::On => {
                inode.apply(change);
                Ok(())
            }
            Power::Failing => {
                if is_valid {
                    inode.interrupt(change);
                }
                Err(power_cut())
            }
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = locked(&self.state);
        state.check_power()?;
        Ok(locked(&self.inode).current().read(buf, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64);
        self.change(end, Change::Write { offset, data: data.into() })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(Some(len), Change::Allocate(len))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Some(len), Change::SetLen(len))
    }

    fn size(&self) -> io::Result<u64> {
        let state = locked(&self.state);
        state.check_power()?;
        Ok(locked(&self.inode).current().len())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = locked(&self.state);
        match state.begin()? {
            Power::Failing => return Err(power_cut()),
            Power::On if state.ignore_sync => {}
            Power::On => locked(&self.inode).sync(),
        }
        Ok(())
    }
}

fn share(contents: Contents) -> SharedInode {
    Arc::new(Mutex::new(Inode::settled(contents)))
}

fn power_cut() -> io::Error {
    io::Error::other("power cut")
}

/// A panic in a test thread must not hide behind a poisoned lock; every change is made whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
