//! A file ends too early.

use mq9_core::disk::Disk;
use mq9_core::log::{Lsn, names};

use crate::house::Left;
use crate::layout::{Expected, Layout, check, damage};
use crate::model::Event;

/// One copy of a segment's header, and both.
const COPY: usize = 40;
const FIRST_RECORD: usize = 80;

fn without(layout: &Layout, segment: u32, len: usize) -> Expected {
    let mut records = layout.logged.iter().filter(|logged| logged.at.segment() == segment);
    let inside = records.any(|logged| logged.bytes.start < len && len < logged.bytes.end);
    let replayed = inside && Lsn::new(segment, len as u32) > layout.start;
    let missing = len < COPY && segment < layout.last_segment();
    let mark = (replayed || missing).then_some(Event::Damage);
    layout.without(segment, |logged| logged.bytes.end > len, mark)
}

/// Cuts every file to every length: it is opened, no more is lost than was cut off, and that is reported,
/// unless `looks_whole` says that a crash may have left just this.
fn cut_everywhere(left: Left, looks_whole: impl Fn(&Layout, u32, usize) -> bool) {
    let layout = Layout::of(left.disk());
    let full = layout.full();
    assert_eq!(damage(&layout.disk.snapshot()), [], "{left:?}: undamaged");
    for name in layout.disk.names() {
        let size = layout.disk.read_file(&name).unwrap().len();
        for len in 0..size {
            let damaged = layout.disk.snapshot();
            damaged.open(&name).unwrap().set_len(len as u64).unwrap();
            let context = || format!("{left:?}: {name} cut to {len} of {size} bytes");
            let (expected, excused) = match names::segment_number(&name) {
                Some(number) => (&without(&layout, number, len), looks_whole(&layout, number, len)),
                None => (&full, false),
            };
            let reported = check(&damaged, expected, &context);
            assert!(reported || excused, "{} is not reported", context());
        }
    }
}

fn always_noticed(_: &Layout, _: u32, _: usize) -> bool {
    false
}

#[test]
fn of_a_closed_store_every_cut_is_noticed() {
    cut_everywhere(Left::Closed, always_noticed);
}

#[test]
fn of_a_closed_store_of_several_segments_and_checkpoints_every_cut_is_noticed() {
    cut_everywhere(Left::ClosedLater, always_noticed);
}

/// No checkpoint names what followed: between two records, and in reserved space, a cut looks like a crash
/// at that moment.
fn at_an_end_no_checkpoint_knows(layout: &Layout, segment: u32, len: usize) -> bool {
    let ends = layout.logged.iter().filter(|l| l.at.segment() == segment).map(|l| l.bytes.end);
    let end = ends.filter(|end| *end <= len).max().unwrap_or(FIRST_RECORD);
    let file = layout.disk.read_file(&names::segment(segment)).unwrap();
    // The checksum that a record begins with may begin with a zero.
    let unused = file.get(end..len).is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0));
    Lsn::new(segment, len as u32) >= layout.start && unused
}

#[test]
fn of_a_killed_store_a_cut_is_noticed_unless_it_looks_like_a_crash() {
    cut_everywhere(Left::Killed, at_an_end_no_checkpoint_knows);
}

#[test]
fn of_a_killed_store_with_checkpoints_a_cut_is_noticed_unless_it_looks_like_a_crash() {
    cut_everywhere(Left::Checkpointed, at_an_end_no_checkpoint_knows);
}

/// Without the excuse the same test fails: it can.
#[test]
#[should_panic(expected = "is not reported")]
fn control_a_cut_that_looks_like_a_crash_is_not_reported() {
    cut_everywhere(Left::Killed, always_noticed);
}
