//! The simulated disk behaves as the real one as long as the power stays on.

#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::Arc;

use mq9_core::disk::{Disk, DiskFile, OsDisk};
use mq9_sim::{Faults, FaultyDisk, SimDisk};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Open(usize),
    Rename(usize, usize),
    Remove(usize),
    SyncDir,
    Write { handle: usize, offset: u64, len: usize, byte: u8 },
    Read { handle: usize, offset: u64, len: usize },
    Allocate { handle: usize, len: u64 },
    SetLen { handle: usize, len: u64 },
    Sync { handle: usize },
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const LONGEST: u64 = 60_000;

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let handle = any::<usize>;
    let at = || 0..LONGEST;
    prop_oneof![
        2 => name().prop_map(Step::Create),
        2 => name().prop_map(Step::Open),
        1 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => name().prop_map(Step::Remove),
        1 => Just(Step::SyncDir),
        6 => (handle(), at(), 0..40_000usize, 1..=255u8)
            .prop_map(|(handle, offset, len, byte)| Step::Write { handle, offset, len, byte }),
        3 => (handle(), at(), 0..50_000usize)
            .prop_map(|(handle, offset, len)| Step::Read { handle, offset, len }),
        2 => (handle(), at()).prop_map(|(handle, len)| Step::Allocate { handle, len }),
        3 => (handle(), at()).prop_map(|(handle, len)| Step::SetLen { handle, len }),
        1 => handle().prop_map(|handle| Step::Sync { handle }),
    ]
}

#[derive(Debug, PartialEq)]
struct Visible {
    named: Vec<(String, Vec<u8>)>,
    handles: Vec<Vec<u8>>,
}

/// A disk and the handles opened so far, including those of removed files.
struct Subject<'a> {
    disk: &'a dyn Disk,
    handles: Vec<Arc<dyn DiskFile>>,
}

impl Subject<'_> {
    fn take(&mut self, step: &Step) -> Result<Vec<u8>, io::ErrorKind> {
        self.try_take(step).map_err(|e| e.kind())
    }

    fn try_take(&mut self, step: &Step) -> io::Result<Vec<u8>> {
        let file = |handle: usize| {
            let some = (!self.handles.is_empty()).then(|| handle % self.handles.len());
            some.map(|index| &self.handles[index]).ok_or(io::Error::other("no handle"))
        };
        match *step {
            Step::Create(name) => self.handles.push(self.disk.create(NAMES[name])?),
            Step::Open(name) => self.handles.push(self.disk.open(NAMES[name])?),
            Step::Rename(from, to) => self.disk.rename(NAMES[from], NAMES[to])?,
            Step::Remove(name) => self.disk.remove(NAMES[name])?,
            Step::SyncDir => self.disk.sync_dir()?,
            Step::Write { handle, offset, len, byte } => {
                file(handle)?.write_at(&vec![byte; len], offset)?;
            }
            Step::Read { handle, offset, len } => {
                let mut buf = vec![0xee; len];
                let read = file(handle)?.read_at(&mut buf, offset)?;
                buf.truncate(read);
                return Ok(buf);
            }
            Step::Allocate { handle, len } => file(handle)?.allocate(len)?,
            Step::SetLen { handle, len } => file(handle)?.set_len(len)?,
            Step::Sync { handle } => file(handle)?.sync()?,
        }
        Ok(Vec::new())
    }

    fn visible(&self) -> Visible {
        let mut names = self.disk.list().unwrap();
        names.sort();
        let named = names
            .into_iter()
            .map(|name| {
                let bytes = contents(self.disk.open(&name).unwrap().as_ref());
                (name, bytes)
            })
            .collect();
        let handles = self.handles.iter().map(|file| contents(file.as_ref())).collect();
        Visible { named, handles }
    }
}

fn contents(file: &dyn DiskFile) -> Vec<u8> {
    let len = file.size().unwrap() as usize;
    let mut bytes = vec![0xee; len + 1];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), len);
    bytes.truncate(len);
    bytes
}

proptest! {
    #[test]
    fn the_same_steps_show_the_same_contents(steps in prop::collection::vec(step(), 1..60)) {
        let root = tempfile::tempdir().unwrap();
        let os = OsDisk::new(root.path()).unwrap();
        let sim = SimDisk::new();
        let faulty = FaultyDisk::new(SimDisk::new(), Faults::new());
        faulty.faults().capacity(u64::MAX);
        let mut real = Subject { disk: &os, handles: Vec::new() };
        let mut others = [&sim as &dyn Disk, &faulty]
            .map(|disk| Subject { disk, handles: Vec::new() });
        for step in &steps {
            let expected = real.take(step);
            for other in &mut others {
                prop_assert_eq!(&other.take(step), &expected, "{:?}", step);
            }
        }
        let visible = real.visible();
        for other in &others {
            prop_assert_eq!(&other.visible(), &visible);
        }

        let snapshot = sim.snapshot();
        for (name, bytes) in visible.named {
            prop_assert_eq!(snapshot.read_file(&name), Some(bytes));
        }
    }
}

#[test]
fn both_locks_exclude_a_second_holder() {
    let root = tempfile::tempdir().unwrap();
    let os = OsDisk::new(root.path()).unwrap();
    let sim = SimDisk::new();
    for disk in [&os as &dyn Disk, &sim] {
        let guard = disk.lock().unwrap();
        assert_eq!(disk.lock().err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(guard);
        disk.lock().unwrap();
        assert!(disk.list().unwrap().is_empty(), "the lock is no file of the store");
    }
}
