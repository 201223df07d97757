//! Shared by tests: a log with everything in it, an export folder on a simulated disk, and its rows read back.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use mq9_core::disk::{Disk, DiskFile};
use mq9_core::log::SyncMode;
use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::{
    Ack, AckKind, Fetch, FetchOutcome, GroupFetch, MemberId, NewMailbox, Options, Send, Store,
};
use mq9_core::time::Now;
use mq9_export::{Manifest, Tree};
use mq9_sim::SimDisk;
use parquet::file::reader::{FileReader, SerializedFileReader};

pub const T: u64 = 1_700_000_000_000;

pub fn at(ms: u64) -> Now {
    Now { wall_ms: T + ms, mono_ms: 1_000 + ms }
}

/// An export folder on a simulated disk, which is flat: folders are parts of names.
pub struct SimTree(pub SimDisk);

impl Tree for SimTree {
    fn lock(&self) -> io::Result<Box<dyn std::marker::Send + Sync>> {
        self.0.lock()
    }

    fn files(&self, folder: &str) -> io::Result<Vec<String>> {
        let names = self.0.list()?.into_iter();
        Ok(names.filter(|name| name.starts_with(&format!("{folder}/"))).collect())
    }

    fn folders(&self, folder: &str) -> io::Result<Vec<String>> {
        let inside = |name: String| {
            let (folder, _) = name.strip_prefix(&format!("{folder}/"))?.split_once('/')?;
            Some(folder.to_owned())
        };
        let found: BTreeSet<String> = self.0.list()?.into_iter().filter_map(inside).collect();
        Ok(found.into_iter().collect())
    }

    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match self.0.open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            outcome => outcome?,
        };
        Ok(self.0.read_file(path))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        if self.0.names().iter().any(|name| name == path) {
            self.0.remove(path)?;
        }
        self.0.create(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(path)
    }

    fn remove_folder(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn make_folder(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _: &str) -> io::Result<()> {
        self.0.sync_dir()
    }
}

/// The rows of a Parquet file, as text.
pub fn rows(bytes: Vec<u8>) -> Vec<String> {
    let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().to_string()).collect()
}

fn rows_of(disk: &SimDisk, take: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for name in disk.names().into_iter().filter(|name| name.ends_with(".parquet") && take(name)) {
        if name.starts_with("_unfinished") {
            continue;
        }
        let folder = name.rsplit_once('/').unwrap().0;
        for row in rows(disk.read_file(&name).unwrap()) {
            assert!(all.insert(format!("{folder} {row}")), "twice: {name} {row}");
        }
    }
    all
}

/// Every row of every file, each of which must be whole.
pub fn every_row(disk: &SimDisk) -> BTreeSet<String> {
    rows_of(disk, |_| true)
}

/// The rows of files that count.
pub fn counted(disk: &SimDisk) -> BTreeSet<String> {
    let manifest = Manifest::load(&SimTree(disk.clone())).unwrap();
    let Some(position) = manifest.map(|m| (m.position.segment, m.position.offset)) else {
        return BTreeSet::new();
    };
    rows_of(disk, |name| {
        let digits = name.rsplit_once("part-").unwrap().1;
        (digits[..10].parse().unwrap(), digits[11..21].parse().unwrap()) < position
    })
}

pub fn open(disk: &SimDisk, now: Now) -> Store {
    let options = Options { sync: SyncMode::None, segment_bytes: 16 << 10, ..Options::default() };
    Store::open(Arc::new(disk.clone()), options, 7, now).unwrap()
}

pub fn fetch(store: &mut Store, address: &str, group: &str, max: usize, now: Now) -> Vec<u64> {
    let member = MemberId::Named("w".to_owned());
    let group = Some(GroupFetch { name: group.to_owned(), member, force: false });
    let request = Fetch { group, max_msgs: max, ..Fetch::all(address) };
    let FetchOutcome::Messages(batch) = store.fetch(request, now).unwrap() else { panic!() };
    batch.iter().map(|(meta, _)| meta.msg_id).collect()
}

/// A log of several segments, over two hours, with every kind of record and a compaction.
pub fn log_of_everything() -> SimDisk {
    let disk = SimDisk::new();
    let mut store = open(&disk, at(0));
    let dead_letter = Some("dead".into());
    let policy = Policy { max_deliver: 1, dead_letter, ..Policy::default() };
    for (address, policy) in [("a", policy), ("b", Policy { max_msgs: 6, ..Policy::default() })] {
        store
            .create_mailbox(&NewMailbox { address, policy, ..NewMailbox::default() }, at(0))
            .unwrap();
    }
    for n in 0..30 {
        let payload = vec![b'a' + (n % 26) as u8; 300];
        let key = if n % 10 == 0 { "k" } else { "" };
        let level = Level::new(1 + (n % 10) as u8).unwrap();
        let (ttl_ms, delay_ms) =
            (if n % 7 == 0 { 5_000 } else { 0 }, if n % 9 == 0 { 2_000 } else { 0 });
        let (tags, headers) = ("x, y", &b"A: b\r\nC: d\r\n"[..]);
        let send =
            Send { level, key, tags, headers, payload: &payload, ttl_ms, delay_ms, memory: false };
        let now = at(n * 150_000);
        store.send("a", &send, now).unwrap();
        store.send("b", &Send::new(&payload), now).unwrap();
        let got = fetch(&mut store, "a", "g", 3, now);
        for (index, msg_id) in got.into_iter().enumerate() {
            let kind = match index {
                0 => AckKind::Done { only: true },
                1 => AckKind::Return { delay_ms: 0 },
                _ => AckKind::Terminate,
            };
            store.ack(&Ack { address: "a", group: "g", msg_ids: &[msg_id], kind }, now).unwrap();
        }
        if n % 10 == 9 {
            let last = store.mailbox("b", now).unwrap().next_id - 1;
            store.delete("b", last, now).unwrap();
        }
    }
    store.remove_mailbox("b", at(5_000_000)).unwrap();
    store.sync().unwrap();
    drop(store);
    disk.snapshot()
}
