//! A file ends too early.

use mq9_core::disk::Disk;
use mq9_core::log::{Lsn, names};

use crate::house::Left;
use crate::layout::{Expected, Layout, check};
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

fn cut_everywhere(left: Left) {
    let layout = Layout::of(left.disk());
    let full = layout.full();
    for name in layout.disk.names() {
        let size = layout.disk.read_file(&name).unwrap().len();
        for len in 0..size {
            let damaged = layout.disk.snapshot();
            damaged.open(&name).unwrap().set_len(len as u64).unwrap();
            let context = || format!("{left:?}: {name} cut to {len} bytes");
            let Some(segment) = names::segment_number(&name) else {
                check(&damaged, &full, &context);
                continue;
            };
            let expected = without(&layout, segment, len);
            let reported = check(&damaged, &expected, &context);
            // Where a record ends, an empty file and a file of nothing but a header look like a
            // crash at that moment.
            let boundary = layout
                .logged
                .iter()
                .any(|logged| logged.at.segment() == segment && logged.bytes.end == len);
            if !boundary && len > FIRST_RECORD {
                assert!(reported || expected == full, "{} is not reported", context());
            }
        }
    }
}

#[test]
fn a_killed_store_loses_only_what_was_cut_off() {
    cut_everywhere(Left::Killed);
}

#[test]
fn a_closed_store_loses_only_what_was_cut_off() {
    cut_everywhere(Left::Closed);
}

#[test]
fn a_store_with_two_checkpoints_loses_only_what_was_cut_off() {
    cut_everywhere(Left::Checkpointed);
}
