//! A whole file is gone, empty, foreign, or longer than it was.

use mq9_core::disk::Disk;
use mq9_core::log::names;

use crate::house::Left;
use crate::layout::{Layout, changed, check};
use crate::model::Event;

#[test]
fn zeroed_and_deleted_files_cost_what_was_in_them() {
    for left in Left::ALL {
        let layout = Layout::of(left.disk());
        let full = layout.full();
        for name in layout.disk.names() {
            let segment = names::segment_number(&name);
            let last = segment == Some(layout.last_segment());
            let expected = segment.map_or(layout.full(), |segment| {
                layout.without(segment, |_| true, (!last).then_some(Event::Damage))
            });
            let zeroed = changed(&layout.disk, &name, |bytes| bytes.fill(0));
            assert!(check(&zeroed, &expected, &|| format!("{left:?}: {name} is all zeros")));

            let deleted = layout.disk.snapshot();
            deleted.remove(&name).unwrap();
            let reported = check(&deleted, &expected, &|| format!("{left:?}: {name} is missing"));
            // The last segment of a log is missed by nobody but a checkpoint.
            assert!(reported || expected == full || (last && left.is_killed()), "{name}");
        }
    }
}

#[test]
fn garbage_behind_the_end_of_a_file_changes_nothing() {
    let garbage: Vec<u8> =
        (0..5_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for left in Left::ALL {
        let layout = Layout::of(left.disk());
        let full = layout.full();
        for name in layout.disk.names() {
            let longer = changed(&layout.disk, &name, |bytes| bytes.extend_from_slice(&garbage));
            check(&longer, &full, &|| format!("{left:?}: {name} with garbage"));
        }
    }
}

/// Old bytes of the same segment at another place, as a file system may leave them.
#[test]
fn records_at_another_place_are_no_records() {
    let layout = Layout::of(Left::Killed.disk());
    let (full, name) = (layout.full(), names::segment(1));
    let used = layout.logged.last().unwrap().bytes.end;
    let doubled = changed(&layout.disk, &name, |bytes| {
        bytes.truncate(used);
        bytes.extend_from_within(80..);
    });
    assert!(check(&doubled, &full, &|| "the log behind itself".to_owned()));
}

#[test]
fn a_segment_under_the_name_of_another_is_set_aside() {
    let layout = Layout::of(Left::Killed.disk());
    let name = names::segment(1);
    let copied = layout.disk.snapshot();
    copied.write_file(&names::segment(2), &layout.disk.read_file(&name).unwrap());
    assert!(check(&copied, &layout.full(), &|| "a copied segment".to_owned()));
    assert!(copied.names().contains(&names::set_aside(&names::segment(2), 0)));
}
