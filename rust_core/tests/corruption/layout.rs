//! The places of records in an undamaged store, what must be left without some of them, and whether
//! that is what a damaged store shows.

use std::ops::Range;

use mq9_core::disk::Disk;
use mq9_core::log::{Found, Header, Lsn, Scan, names};
use mq9_core::store::Damage;
use mq9_sim::SimDisk;

use crate::house::{LATE, open};
use crate::model::{Event, Line, Model};
use crate::view::{Given, View, given, view};

/// A record and its bytes in the file.
pub struct Logged {
    pub at: Lsn,
    pub bytes: Range<usize>,
    pub line: Line,
}

pub struct Layout {
    pub disk: SimDisk,
    pub logged: Vec<Logged>,
    /// Where the newest checkpoint begins.
    pub start: Lsn,
}

/// What must be seen.
#[derive(PartialEq, Eq)]
pub struct Expected {
    pub view: View,
    pub given: Given,
}

impl Expected {
    fn new(model: &Model) -> Expected {
        Expected { view: model.view(), given: model.given() }
    }
}

impl Layout {
    pub fn of(disk: SimDisk) -> Layout {
        let mut logged = Vec::new();
        let mut start = Lsn::NONE;
        for name in disk.names() {
            let bytes = disk.read_file(&name).unwrap();
            if let Some(number) = names::segment_number(&name) {
                let header = Header::decode(&name, &bytes).unwrap().unwrap();
                for found in Scan::new(&bytes, number, header.salt, 80) {
                    let Found::Record { at, record } = found else { panic!("{found:?}") };
                    let begin = at.offset() as usize;
                    let line = Line {
                        at,
                        kind: record.kind,
                        flags: record.flags,
                        mailbox: record.mailbox,
                        body: record.body.to_vec(),
                    };
                    logged.push(Logged { at, bytes: begin..begin + record.len(), line });
                }
            } else if names::checkpoint_number(&name).is_some() {
                // Behind the magic, the section's frame and the version.
                let number = u64::from_le_bytes(bytes[25..33].try_into().unwrap());
                start = start.max(Lsn::from_number(number));
            }
        }
        Layout { disk, logged, start }
    }

    pub fn last_segment(&self) -> u32 {
        self.logged.last().unwrap().at.segment()
    }

    pub fn full(&self) -> Expected {
        self.without(0, |_| false, None)
    }

    /// What must be left without some records of a segment; recovery finds `mark` in their place.
    pub fn without(
        &self,
        segment: u32,
        gone: impl Fn(&Logged) -> bool,
        mut mark: Option<Event<'_>>,
    ) -> Expected {
        let gone = |logged: &Logged| logged.at.segment() == segment && gone(logged);
        let mut events = Vec::new();
        for logged in &self.logged {
            let replayed = logged.at >= self.start;
            if (replayed && gone(logged)) || logged.at.segment() > segment {
                events.extend(mark.take());
            }
            if !(replayed && gone(logged)) {
                events.push(Event::Record(&logged.line));
            }
        }
        events.extend(mark);
        let mut model = Model::replay(events);
        for logged in self.logged.iter().filter(|logged| logged.at < self.start && gone(logged)) {
            model.lose(&logged.line);
        }
        Expected::new(&model)
    }
}

/// A handle to a copy with one file changed.
pub fn changed(disk: &SimDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> SimDisk {
    let copy = disk.snapshot();
    let mut bytes = copy.read_file(name).unwrap();
    change(&mut bytes);
    copy.open(name).unwrap().set_len(0).unwrap();
    copy.write_file(name, &bytes);
    copy
}

/// What opening a store reports.
pub fn damage(disk: &SimDisk) -> Vec<Damage> {
    open(disk, LATE).damage().to_vec()
}

/// Opens a damaged store twice: both times it shows what is expected. Returns whether damage was
/// reported the first time.
pub fn check(disk: &SimDisk, expected: &Expected, context: &dyn Fn() -> String) -> bool {
    let mut store = open(disk, LATE);
    let seen = view(&mut store);
    assert!(seen == expected.view, "{}: {}", context(), differences(&seen, &expected.view));
    let reported = !store.damage().is_empty();
    for damage in store.damage() {
        assert!(!damage.to_string().is_empty());
        if let Some(kept) = &damage.set_aside {
            assert!(disk.names().contains(kept), "{}: {kept} is not there", context());
        }
    }
    store.flush().unwrap();
    drop(store);
    // Reserved space is read by every open: without most of it the tests are twice as fast.
    let newest = disk.names().into_iter().rfind(|name| name.starts_with("segment-")).unwrap();
    disk.open(&newest).unwrap().set_len(4096).unwrap();

    let mut store = open(disk, LATE);
    let seen = view(&mut store);
    assert!(seen == expected.view, "{}, again: {}", context(), differences(&seen, &expected.view));
    let groups = given(&mut store, &seen);
    assert_eq!(groups, expected.given, "{}", context());
    reported
}

fn differences(seen: &View, expected: &View) -> String {
    let mut out = String::new();
    for address in seen.keys().chain(expected.keys()) {
        let (seen, expected) = (seen.get(address), expected.get(address));
        if seen != expected {
            out += &format!("\n{address}:\n  seen     {seen:?}\n  expected {expected:?}");
        }
    }
    out
}
