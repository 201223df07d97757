//! Exports beside a store that is at work: what is durable is exported once, whatever else goes on.
#![allow(clippy::unwrap_used)]

/// A test of what only the inside shows.
#[path = "../src/hours.rs"]
mod hours;
mod world;

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::log::{SyncMode, names};
use mq9_core::mailbox::Policy;
use mq9_core::store::{NewMailbox, Options as StoreOptions, Retention, Send, Store};
use mq9_export::{Error, Export, Manifest, Options, OsTree, Position, Summary};
use mq9_sim::SimDisk;
use parquet::file::reader::{FileReader, SerializedFileReader};
use world::{SimTree, T, at, every_row, fetch, log_of_everything, open};

fn begin(log: &SimDisk, out: &SimDisk) -> Export {
    let tree = Arc::new(SimTree(out.clone()));
    Export::open(Arc::new(log.clone()), tree, Options::default()).unwrap()
}

fn export(log: &SimDisk, out: &SimDisk) -> Summary {
    begin(log, out).run(None, &mut |_| true).unwrap()
}

fn small(disk: &SimDisk, sync: SyncMode) -> Store {
    let options = StoreOptions { sync, segment_bytes: 8 << 10, ..StoreOptions::default() };
    let mut store = Store::open(Arc::new(disk.clone()), options, 7, at(0)).unwrap();
    store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, at(0)).unwrap();
    store
}

/// Rows of `messages`.
fn messages(out: &SimDisk) -> usize {
    every_row(out).iter().filter(|row| row.starts_with("messages/")).count()
}

#[test]
fn a_growing_log_is_exported_bit_by_bit() {
    let (log, out) = (SimDisk::new(), SimDisk::new());
    let mut store = small(&log, SyncMode::Always);
    let mut export = begin(&log, &out);
    for n in 0..50 {
        store.send("a", &Send::new(&[7; 400]), at(n)).unwrap();
        if n % 3 == 0 {
            store.sync().unwrap();
        }
        let durable = store.syncer().durable();
        export.run(Some(durable), &mut |_| true).unwrap();
        assert_eq!(messages(&out) as u64, n / 3 * 3 + 1, "only what is durable");
    }
    assert!(store.info().segments > 2);
    store.close().unwrap();
    drop(export);
    assert_eq!(messages(&out), 49);
    let rest = self::export(&log.snapshot(), &out.snapshot());
    assert_eq!((rest.messages, rest.gaps), (1, 0));
}

#[test]
fn half_a_record_at_the_end_is_left_for_later() {
    let log = log_of_everything();
    let last = log.names().into_iter().rfind(|n| names::segment_number(n).is_some()).unwrap();
    let whole = log.read_file(&last).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let expected = {
        let out = SimDisk::new();
        export(&log, &out);
        every_row(&out)
    };
    // The file as somebody sees it who reads while it is written.
    let out = SimDisk::new();
    for cut in (80..=used).step_by(97).chain([used]) {
        let mut seen = whole[..cut].to_vec();
        seen.resize(whole.len(), 0);
        let now = log.snapshot();
        now.write_file(&last, &seen);
        let summary = export(&now, &out);
        assert_eq!(summary.damaged_bytes, 0, "{cut}");
        assert!(every_row(&out).is_subset(&expected), "{cut}");
    }
    assert_eq!(every_row(&out), expected);
}

#[test]
fn copies_made_by_compaction_are_no_new_messages() {
    let (log, out) = (SimDisk::new(), SimDisk::new());
    let mut store = small(&log, SyncMode::None);
    for n in 0..100 {
        store.send("a", &Send::new(&[7; 100]), at(n)).unwrap();
    }
    store.sync().unwrap();
    assert_eq!(export(&log, &out).messages, 100);
    for id in (0..100).filter(|id| id % 4 != 0) {
        store.delete("a", id, at(200)).unwrap();
    }
    let store = std::cell::RefCell::new(store);
    let before = log.names();
    for _ in 0..10 {
        store.borrow_mut().rotate(at(300)).unwrap();
        store.borrow_mut().checkpoint().unwrap();
        while mq9_core::store::maintain(&store, || at(300)).unwrap() {}
    }
    let gone = before.iter().filter(|name| !log.names().contains(name));
    assert!(gone.count() > 1, "nothing was compacted");
    store.borrow_mut().send("a", &Send::new(b"new"), at(400)).unwrap();
    store.borrow_mut().sync().unwrap();
    let summary = export(&log, &out);
    assert_eq!((summary.messages, messages(&out)), (1, 101));
}

/// A store of which everything but the newest is dead, with what it keeps for a reader.
fn dead_log(kept: Option<Retention>) -> SimDisk {
    let log = SimDisk::new();
    let mut store = small(&log, SyncMode::None);
    store.keep(kept);
    for n in 0..300 {
        store.send("a", &Send::new(&[7; 100]), at(n)).unwrap();
        store.delete("a", n, at(n)).unwrap();
    }
    let store = std::cell::RefCell::new(store);
    for _ in 0..4 {
        store.borrow_mut().rotate(at(400)).unwrap();
        store.borrow_mut().checkpoint().unwrap();
        while mq9_core::store::maintain(&store, || at(400)).unwrap() {}
    }
    drop(store);
    log.snapshot()
}

#[test]
fn unexported_segments_are_kept_up_to_a_limit_and_what_is_missing_is_told() {
    let all = dead_log(Some(Retention { from_segment: 1, most_bytes: 1 << 30 }));
    let summary = export(&all, &SimDisk::new());
    assert_eq!((summary.messages, summary.gaps), (300, 0));

    let some = dead_log(Some(Retention { from_segment: 1, most_bytes: 20 << 10 }));
    let summary = export(&some, &SimDisk::new());
    assert!((50..250).contains(&summary.messages), "{summary:?}");
    assert_eq!(summary.gaps, 1);

    let none = dead_log(None);
    let summary = export(&none, &SimDisk::new());
    assert_eq!((summary.messages, summary.gaps), (0, 1));
}

#[test]
fn another_store_is_refused() {
    let (one, other, out) = (SimDisk::new(), SimDisk::new(), SimDisk::new());
    drop(open(&one, at(0)));
    let options = StoreOptions::default();
    drop(Store::open(Arc::new(other.clone()), options, 99, at(0)).unwrap());
    export(&one, &out);
    let tree = Arc::new(SimTree(out.clone()));
    let mut export = Export::open(Arc::new(other), tree, Options::default()).unwrap();
    let refused = export.run(None, &mut |_| true);
    assert!(matches!(refused, Err(Error::OtherStore { segment: 1 })), "{refused:?}");
}

#[test]
fn damage_costs_what_it_lies_in_and_is_told() {
    let log = log_of_everything();
    let (sound, out) = (SimDisk::new(), SimDisk::new());
    export(&log, &sound);
    let first = log.names().into_iter().find(|n| names::segment_number(n).is_some()).unwrap();
    let mut bytes = log.read_file(&first).unwrap();
    bytes[2_000] ^= 1;
    let damaged = log.snapshot();
    damaged.write_file(&first, &bytes);
    let summary = export(&damaged, &out);
    assert!(summary.damaged_bytes > 0);
    let (expected, found) = (every_row(&sound), every_row(&out));
    assert!(found.is_subset(&expected));
    assert!(expected.len() - found.len() <= 4, "{}", expected.len() - found.len());
}

#[test]
fn what_a_newer_version_wrote_is_refused() {
    use mq9_core::log::{Header, Lsn};
    use mq9_core::wire::record::{self, Seed};
    let header = Header { number: 1, previous: 0, salt: 5, created_ms: 0 };
    let mut bytes = header.encode();
    let start = record::begin(&mut bytes, 99, 0, 1);
    record::finish(&mut bytes, start, Seed::new(5, Lsn::new(1, 80).number()));
    let log = SimDisk::new();
    log.write_file(&names::segment(1), &bytes);
    let refused = begin(&log, &SimDisk::new()).run(None, &mut |_| true);
    assert!(refused.unwrap_err().to_string().contains("kind 99"));
}

#[test]
fn agents_register_and_report_under_their_own_address() {
    let (log, out) = (SimDisk::new(), SimDisk::new());
    let mut store = open(&log, at(0));
    for address in ["$agents", "$reports", "$other"] {
        let new = NewMailbox { address, ..NewMailbox::default() };
        store.create_mailbox(&new, at(0)).unwrap();
        store.send(address, &Send { key: "worker.1", ..Send::new(b"{}") }, at(1)).unwrap();
        fetch(&mut store, address, "g", 1, at(2));
    }
    store
        .create_mailbox(
            &NewMailbox { address: "plain", policy: Policy::default(), ..NewMailbox::default() },
            at(3),
        )
        .unwrap();
    store.sync().unwrap();
    let summary = export(&log, &out);
    assert_eq!((summary.messages, summary.events), (0, 3));
    let rows = every_row(&out);
    let told = |kind: &str, mailbox: &str| {
        let text = format!("{{kind: \"{kind}\", mailbox: \"{mailbox}\", msg_id: null");
        rows.iter().any(|row| row.contains(&text))
    };
    assert!(told("register", "worker.1") && told("report", "worker.1") && told("create", "plain"));
    assert!(log.list().is_ok());
}

/// Every file with its bytes.
fn files(out: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = out.names().into_iter().filter(|name| name.ends_with(".parquet"));
    names.map(|name| (name.clone(), out.read_file(&name).unwrap())).collect()
}

#[test]
fn files_written_at_once_are_the_same() {
    let log = log_of_everything();
    let written = |at_once| {
        let out = SimDisk::new();
        let tree = Arc::new(SimTree(out.clone()));
        let options = Options { at_once, piece_bytes: 6144, ..Options::default() };
        let mut export = Export::open(Arc::new(log.clone()), tree, options).unwrap();
        export.run(None, &mut |_| true).unwrap();
        (files(&out), export.manifest().clone())
    };
    let one_by_one = written(false);
    assert!(one_by_one.0.len() > 6);
    assert_eq!(written(true), one_by_one);
}

#[test]
fn files_say_what_their_data_sums_up_to() {
    let out = SimDisk::new();
    export(&log_of_everything(), &out);
    for (name, bytes) in files(&out) {
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes.clone())).unwrap();
        let metadata = reader.metadata();
        let said = metadata.file_metadata().key_value_metadata().unwrap();
        let said = said.iter().find(|said| said.key == "mq9.crc32c").unwrap();
        let (len, crc) = said.value.as_ref().unwrap().split_once(':').unwrap();
        let (len, crc) = (len.parse::<usize>().unwrap(), u32::from_str_radix(crc, 16).unwrap());
        assert_eq!(mq9_export::crc32c(&bytes[..len]), crc, "{name}");
        let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
        let end = columns.map(|column| column.byte_range()).map(|(at, len)| at + len).max();
        assert_eq!(len as u64, end.unwrap(), "{name}: all pages");
    }
}

#[test]
fn old_hours_are_forgotten_and_do_not_come_back() {
    let log = log_of_everything();
    let out = SimDisk::new();
    let mut export = begin(&log, &out);
    export.run(None, &mut |_| true).unwrap();
    let (before, manifest) = (files(&out), export.manifest().clone());
    assert_eq!(export.forget(T).unwrap(), 0, "this hour is not over");
    let hour = |name: &str| name.rsplit_once('/').unwrap().0.split_once('/').unwrap().1.to_owned();
    let newest = before.iter().map(|(name, _)| hour(name)).max().unwrap();
    let newer: Vec<_> = before.iter().filter(|(name, _)| hour(name) == newest).cloned().collect();
    assert!(newer.len() < before.len(), "there is one hour only");
    assert_eq!(*export.manifest(), manifest);
    let removed = export.forget(T + 3_600_000).unwrap();
    assert_eq!(removed as usize, before.len() - newer.len());
    assert_eq!(files(&out), newer);
    let again = export.run(None, &mut |_| true).unwrap();
    assert_eq!((again.messages, again.events), (0, 0));
    let highest = before.iter().filter(|file| !newer.contains(file)).map(|(name, _)| place(name));
    let told = Manifest { forgotten: highest.max(), ..manifest };
    assert!(told.forgotten.is_some());
    assert_eq!(*export.manifest(), told);
    drop(export);
    assert_eq!(*begin(&log, &out).manifest(), told, "also for those who come later");
    assert_eq!(files(&out), newer);
}

#[test]
fn the_manifest_says_from_which_hour_on_the_news_are() {
    const HOUR: u64 = 3_600_000;
    let (log, out) = (SimDisk::new(), SimDisk::new());
    let mut store = small(&log, SyncMode::Always);
    let mut export = begin(&log, &out);
    // Hours that pass, some twice, and a clock that is set back by some hours.
    let hours = (0..60).chain([60, 60, 57, 57, 61, 62]).chain(63..90);
    for (n, hour) in hours.enumerate() {
        store.send("a", &Send::new(b"x"), at(hour * HOUR + n as u64)).unwrap();
        store.sync().unwrap();
        export.run(None, &mut |_| true).unwrap();
        let since = &export.manifest().since;
        assert!(since.len() <= 48, "{}", since.len());
        for (name, _) in files(&out) {
            let hour = name.split_once('/').unwrap().1.rsplit_once('/').unwrap().0;
            let early = since.iter().filter(|since| since.position <= place(&name));
            for since in early {
                assert!(hour >= since.hour.as_str(), "{name} {since:?}");
            }
        }
        // Who has read all but the last piece looks at its hour only.
        let (newest, _) = files(&out).into_iter().max_by_key(|(name, _)| place(name)).unwrap();
        let known = since.iter().rfind(|since| since.position <= place(&newest)).unwrap();
        assert!(newest.contains(&known.hour), "{newest} {known:?}");
    }
    assert_eq!(export.manifest().since.len(), 48);
}

/// The position in the name of a file.
fn place(name: &str) -> Position {
    let digits = name.rsplit_once("part-").unwrap().1;
    Position { segment: digits[..10].parse().unwrap(), offset: digits[11..21].parse().unwrap() }
}

#[test]
fn folders_of_forgotten_hours_go_and_are_made_anew_for_late_rows() {
    let root = tempfile::tempdir().unwrap();
    let (log, out) = (SimDisk::new(), root.path());
    let mut store = small(&log, SyncMode::Always);
    let tree = Arc::new(OsTree::new(out).unwrap());
    let mut export = Export::open(Arc::new(log.clone()), tree, Options::default()).unwrap();
    let send = |store: &mut Store, export: &mut Export, ms| {
        store.send("a", &Send::new(b"x"), at(ms)).unwrap();
        store.sync().unwrap();
        export.run(None, &mut |_| true).unwrap();
    };
    const DAY: u64 = 24 * 3_600_000;
    send(&mut store, &mut export, 0);
    send(&mut store, &mut export, 2 * DAY);
    let days = |dataset: &str| {
        let entries = std::fs::read_dir(out.join(dataset)).unwrap();
        let mut days: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        days.sort();
        days
    };
    assert_eq!(days("messages"), ["date=2023-11-14", "date=2023-11-16"]);
    assert!(export.forget(T + DAY).unwrap() >= 2);
    assert_eq!(days("messages"), ["date=2023-11-16"]);
    assert_eq!(days("events"), ["date=2023-11-16"]);
    // Of a clock that was set back, or a message that was delayed.
    send(&mut store, &mut export, 1_000);
    assert_eq!(days("messages"), ["date=2023-11-14", "date=2023-11-16"]);
}
