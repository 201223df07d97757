//! One bit of one file is wrong.

use std::collections::{BTreeMap, BTreeSet};

use mq9_core::disk::Disk;
use mq9_core::log::names;
use mq9_core::wire::op::{Message, kind};
use mq9_sim::SimDisk;

use crate::house::Left;
use crate::layout::{Expected, Layout, Logged, check};
use crate::model::Event;

/// What a flip inside a record may leave.
fn without(layout: &Layout, index: usize) -> Expected {
    let at = layout.logged[index].at;
    layout.without(at.segment(), |logged| logged.at == at, Some(Event::Damage))
}

fn flip(disk: &SimDisk, name: &str, bit: usize) -> SimDisk {
    let copy = disk.snapshot();
    let file = copy.open(name).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, bit as u64 / 8).unwrap();
    file.write_at(&[byte[0] ^ 1 << (bit % 8)], bit as u64 / 8).unwrap();
    copy
}

fn flip_every_bit(left: Left) {
    let layout = Layout::of(left.disk());
    let full = layout.full();
    assert!(!check(&layout.disk.snapshot(), &full, &|| "undamaged".to_owned()));
    let expected: Vec<Expected> =
        (0..layout.logged.len()).map(|index| without(&layout, index)).collect();

    for name in layout.disk.names() {
        let size = layout.disk.read_file(&name).unwrap().len();
        let segment = names::segment_number(&name);
        for bit in 0..size * 8 {
            let damaged = flip(&layout.disk, &name, bit);
            let context = || format!("{left:?}: bit {bit} of {name} (byte {})", bit / 8);
            let hit = layout.logged.iter().position(|logged| {
                Some(logged.at.segment()) == segment && logged.bytes.contains(&(bit / 8))
            });
            let wanted = hit.map_or(&full, |index| &expected[index]);
            let reported = check(&damaged, wanted, &context);
            assert!(reported || wanted == &full, "{} is not reported", context());
            if let Some(index) = hit.filter(|&index| layout.logged[index].at >= layout.start) {
                assert_set_aside(&damaged, &name, &layout.logged[index], &context);
            }
        }
    }
}

fn assert_set_aside(disk: &SimDisk, name: &str, hit: &Logged, context: &dyn Fn() -> String) {
    let kept = disk.read_file(&names::set_aside(name, u64::from(hit.at.offset())));
    let kept = kept.unwrap_or_else(|| panic!("{}: nothing set aside", context()));
    let bytes = disk.read_file(name).unwrap();
    // A torn tail is cut off where it is copied from.
    if let Some(damaged) = bytes.get(hit.bytes.clone()) {
        assert_eq!(kept, damaged, "{}", context());
    } else {
        assert!(kept.len() <= hit.bytes.len() && !kept.is_empty(), "{}", context());
    }
}

#[test]
fn a_flipped_bit_costs_a_killed_store_no_more_than_its_record() {
    flip_every_bit(Left::Killed);
}

#[test]
fn a_flipped_bit_costs_a_closed_store_no_more_than_its_record() {
    flip_every_bit(Left::Closed);
}

#[test]
fn a_flipped_bit_costs_a_store_with_two_checkpoints_no_more_than_its_record() {
    flip_every_bit(Left::Checkpointed);
}

/// What the model allows is itself bounded.
#[test]
fn without_one_record_at_most_one_message_is_lost_and_none_is_passed_over() {
    for left in Left::ALL {
        let layout = Layout::of(left.disk());
        let full = layout.full();
        for (index, hit) in layout.logged.iter().enumerate() {
            let left = without(&layout, index);
            let lost: Vec<_> = payloads(&full).difference(&payloads(&left)).cloned().collect();
            assert!(lost.len() <= 1, "{:?} at {:?} costs {lost:?}", hit.line, hit.at);
            let others = full
                .view
                .keys()
                .filter(|address| full.view.get(*address) != left.view.get(*address));
            // A dead letter concerns two mailboxes.
            assert!(others.count() <= 2, "{:?} at {:?}", hit.line, hit.at);
            let groups = given_payloads(&left);
            for (group, wanted) in given_payloads(&full) {
                let Some(left) = groups.get(&group) else {
                    assert_eq!(hit.line.kind, kind::GROUP_RESET, "group {group:?} is gone");
                    continue;
                };
                let missing: Vec<_> = wanted.difference(left).collect();
                assert!(missing.iter().all(|p| lost.iter().any(|(_, l)| l == *p)), "{missing:?}");
            }
        }
    }
}

fn payloads(of: &Expected) -> BTreeSet<(String, Vec<u8>)> {
    let messages = of.view.iter().flat_map(|(address, mailbox)| {
        mailbox.messages.values().map(move |(_, _, body)| {
            (address.clone(), Message::decode(body).unwrap().payload.to_vec())
        })
    });
    messages.collect()
}

fn given_payloads(of: &Expected) -> BTreeMap<(String, String), BTreeSet<Vec<u8>>> {
    let payload = |address: &str, msg_id: &u64| {
        let (_, _, body) = &of.view[address].messages[msg_id];
        Message::decode(body).unwrap().payload.to_vec()
    };
    let groups = of.given.iter().map(|(group, given)| {
        (group.clone(), given.keys().map(|msg_id| payload(&group.0, msg_id)).collect())
    });
    groups.collect()
}

/// Segments end in reserved space, which is larger than all records together.
#[test]
fn a_flipped_bit_in_reserved_space_costs_nothing() {
    let layout = Layout::of(Left::Killed.disk());
    let (full, name) = (layout.full(), names::segment(1));
    let used = layout.logged.last().unwrap().bytes.end;
    layout.disk.open(&name).unwrap().set_len(300_000).unwrap();
    for bit in (used * 8..300_000 * 8).step_by(9_973) {
        let context = || format!("bit {bit} of {name}");
        assert!(check(&flip(&layout.disk, &name, bit), &full, &context), "{}", context());
    }
}
