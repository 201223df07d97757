//! The power goes at every file operation of an export: what counts is whole, and a second run makes the rows
//! complete, each there once.
#![allow(clippy::unwrap_used)]

mod world;

use std::sync::Arc;

use mq9_export::{Export, Manifest, Options};
use mq9_sim::SimDisk;
use world::{SimTree, T, counted, every_row, log_of_everything};

const OPTIONS: Options =
    Options { payloads: true, since_ms: None, piece_bytes: 6144, at_once: false };

fn export(log: &SimDisk, out: &SimDisk) -> Result<(), mq9_export::Error> {
    let tree = Arc::new(SimTree(out.clone()));
    let mut export = Export::open(Arc::new(log.clone()), tree, OPTIONS)?;
    export.run(None, &mut |_| true).map(drop)
}

#[test]
fn a_cut_at_any_operation_leaves_whole_files_and_loses_and_doubles_no_row() {
    let log = log_of_everything();
    let whole = SimDisk::new();
    export(&log, &whole).unwrap();
    let expected = every_row(&whole);
    assert!(expected.len() > 100, "{}", expected.len());
    let pieces = Manifest::load(&SimTree(whole.clone())).unwrap().unwrap().messages.files;
    assert!(pieces > 3, "{pieces}");
    for n in 1..=whole.ops() {
        let out = SimDisk::new();
        out.cut_at(n);
        assert!(export(&log, &out).is_err(), "{n}");
        // What the power leaves of it, in turns.
        let found = match n % 3 {
            0 => out.crash_strict(),
            1 => out.crash_lucky(),
            _ => out.crash(n),
        };
        // Whatever has a name is whole, and what counts is a part of it all.
        every_row(&found);
        assert!(counted(&found).is_subset(&expected), "{n}");
        export(&log, &found).unwrap_or_else(|e| panic!("{n}: {e}"));
        assert_eq!(every_row(&found), expected, "{n}");
        let names = found.names();
        assert!(!names.iter().any(|name| name.starts_with("_unfinished")), "{names:?}");
    }
}

#[test]
fn a_cut_while_old_hours_go_leaves_no_hole_that_the_manifest_does_not_tell_of() {
    let log = log_of_everything();
    let whole = SimDisk::new();
    export(&log, &whole).unwrap();
    let forget = |out: &SimDisk| {
        let tree = Arc::new(SimTree(out.clone()));
        Export::open(Arc::new(log.clone()), tree, OPTIONS)?.forget(T + 3_600_000)
    };
    let done = whole.snapshot();
    let before = done.ops();
    assert!(forget(&done).unwrap() > 4);
    let left: Vec<String> = done.names();
    let mut holes = 0;
    for n in 1..=done.ops() - before {
        let out = whole.snapshot();
        out.cut_at(n);
        assert!(forget(&out).is_err(), "{n}");
        let found = match n % 3 {
            0 => out.crash_strict(),
            1 => out.crash_lucky(),
            _ => out.crash(n),
        };
        let manifest = Manifest::load(&SimTree(found.clone())).unwrap().unwrap();
        let there = found.names();
        for gone in whole.names().iter().filter(|name| !there.contains(name)) {
            let digits = gone.rsplit_once("part-").unwrap().1;
            let place = (digits[..10].parse().unwrap(), digits[11..21].parse().unwrap());
            let told = manifest.forgotten.map(|position| (position.segment, position.offset));
            assert!(told >= Some(place), "{n}: {gone}");
            holes += 1;
        }
        forget(&found).unwrap();
        assert_eq!(found.names(), left, "{n}");
    }
    assert!(holes > 4, "{holes}");
}

#[test]
fn a_second_run_changes_nothing() {
    let log = log_of_everything();
    let out = SimDisk::new();
    export(&log, &out).unwrap();
    let files = |disk: &SimDisk| -> Vec<_> {
        disk.names().into_iter().map(|name| (disk.read_file(&name).unwrap(), name)).collect()
    };
    let before = files(&out);
    let again = out.snapshot();
    export(&log, &again).unwrap();
    assert_eq!(files(&again), before);
}

/// On a disk that only says that it has synced the test above would fail: it can.
#[test]
fn control_without_syncs_losses_are_found() {
    let log = log_of_everything();
    let whole = SimDisk::new();
    export(&log, &whole).unwrap();
    let expected = every_row(&whole);
    let is_sound = |n: &u64| {
        let out = SimDisk::new();
        out.ignore_sync(true);
        out.cut_at(*n);
        let _ = export(&log, &out);
        let found = out.crash(*n);
        let again = std::panic::catch_unwind(|| {
            every_row(&found);
            export(&log, &found).unwrap();
            every_row(&found)
        });
        again.is_ok_and(|rows| rows == expected)
    };
    let wrong = (1..=whole.ops()).step_by(5).filter(|n| !is_sound(n)).count();
    assert!(wrong > 5, "{wrong}");
}
