//! Recovery of records that refer to lost ones, one behaviour a test.

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::log::{Lsn, names};
use mq9_core::store::{DamageKind, Fetch, FetchOutcome, NewMailbox, Send, Start, Store, maintain};
use mq9_core::wire::op::{MAX_ID, Op};
use mq9_core::wire::record::{FLAG_MORE, FLAG_REST};
use mq9_core::wire::section;
use mq9_sim::SimDisk;

use crate::house::{LATE, START, at, open, options};
use crate::journal::{Journal, acked, created, delivered, message, pinned};
use crate::layout::changed;
use crate::view::view;

/// What a group is given, as `(msg_id, deliveries)`.
fn fetch(store: &mut Store, address: &str, group: &str) -> Vec<(u64, u32)> {
    let request = Fetch { start: Start::Latest, ..Fetch::group(address, group, usize::MAX) };
    let FetchOutcome::Messages(batch) = store.fetch(request, START).unwrap() else { panic!() };
    batch.iter().map(|(meta, _)| (meta.msg_id, meta.deliveries)).collect()
}

fn send(store: &mut Store, address: &str) -> u64 {
    store.send(address, &Send::new(b"new"), START).unwrap().unwrap()
}

#[test]
fn a_group_does_not_pass_over_messages_whose_delivery_is_lost() {
    let mut journal = Journal::new(1, 0);
    created(&mut journal, 1, "a");
    for msg_id in 0..4 {
        message(&mut journal, 1, "a", msg_id, b"x");
    }
    pinned(&mut journal, 1, "g", 0);
    let lost = delivered(&mut journal, 1, "g", 0..2);
    acked(&mut journal, 1, "g", 0..1);
    delivered(&mut journal, 1, "g", 2..3);
    journal.damage(&lost);
    let mut store = open(&journal.disk(), START);
    assert_eq!(fetch(&mut store, "a", "g"), [(0, 2), (1, 2), (2, 2), (3, 1)]);
}

#[test]
fn the_msg_id_of_a_lost_message_is_not_given_out_again() {
    let mut journal = Journal::new(1, 0);
    created(&mut journal, 1, "a");
    message(&mut journal, 1, "a", 0, b"kept");
    let lost = message(&mut journal, 1, "a", 1, b"lost");
    pinned(&mut journal, 1, "g", 0);
    delivered(&mut journal, 1, "g", 0..2);
    acked(&mut journal, 1, "g", 0..2);
    journal.damage(&lost);
    let mut store = open(&journal.disk(), START);
    assert_eq!(store.mailbox("a", START).unwrap().groups[0].outstanding, 0);
    assert_eq!(send(&mut store, "a"), 2);
    assert_eq!(fetch(&mut store, "a", "g"), [(2, 1)]);
}

#[test]
fn a_group_pinned_to_the_end_gets_the_next_message_though_the_last_is_lost() {
    let mut journal = Journal::new(1, 0);
    created(&mut journal, 1, "a");
    let lost = message(&mut journal, 1, "a", 0, b"lost");
    pinned(&mut journal, 1, "g", 1);
    journal.damage(&lost);
    let mut store = open(&journal.disk(), START);
    // The mailbox is known by its creation alone.
    assert_eq!(send(&mut store, "a"), 1);
    assert_eq!(fetch(&mut store, "a", "g"), [(1, 1)]);
}

#[test]
fn a_group_pinned_before_the_first_message_survives_the_loss_of_the_creation() {
    let mut journal = Journal::new(1, 0);
    let lost = created(&mut journal, 1, "a");
    pinned(&mut journal, 1, "g", 0);
    message(&mut journal, 1, "a", 0, b"x");
    journal.damage(&lost);
    let mut store = open(&journal.disk(), START);
    assert!(store.damage().iter().any(|d| d.kind == DamageKind::Orphan));
    assert_eq!(fetch(&mut store, "a", "g"), [(0, 1)]);
}

#[test]
fn a_removed_mailbox_does_not_come_back_because_its_creation_is_lost() {
    let mut journal = Journal::new(1, 0);
    let lost = created(&mut journal, 1, "a");
    pinned(&mut journal, 1, "g", 0);
    message(&mut journal, 1, "a", 0, b"x");
    journal.op(0, 1, &Op::MailboxRemoved { stamp: None, cause: 0 });
    journal.damage(&lost);
    let store = open(&journal.disk(), START);
    assert_eq!(store.info().mailboxes, 0);
}

#[test]
fn a_unit_whose_rest_is_cut_off_at_a_segments_end_does_not_count_and_is_reported() {
    let mut first = Journal::new(1, 0);
    created(&mut first, 1, "a");
    message(&mut first, 1, "a", 0, b"x");
    let ranges: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    first.op(FLAG_MORE, 1, &Op::Removed { stamp: None, cause: 0, ranges });
    let whole = first.bytes.len();
    first.op(FLAG_REST, 1, &Op::DelayEnded { delay_id: 0 });
    let mut second = Journal::new(2, 1);
    message(&mut second, 1, "a", 1, b"y");
    let disk = first.disk();
    second.save(&disk);
    let seen = view(&mut open(&disk.snapshot(), LATE));
    assert_eq!(seen["a"].messages.keys().copied().collect::<Vec<_>>(), [1]);

    disk.open(&names::segment(1)).unwrap().set_len(whole as u64).unwrap();
    let mut store = open(&disk, LATE);
    assert_eq!(store.damage().len(), 1);
    assert_eq!(view(&mut store)["a"].messages.keys().copied().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_segment_that_is_missing_is_reported_wherever_it_was() {
    let disk = SimDisk::new();
    for opening in 0..3 {
        let mut store = open(&disk, at(opening));
        store.rotate(at(opening)).unwrap();
        let address = &format!("a{opening}");
        store.create_mailbox(&NewMailbox { address, ..NewMailbox::default() }, START).unwrap();
        store.flush().unwrap();
    }
    for number in 1..=5 {
        let damaged = disk.snapshot();
        damaged.remove(&names::segment(number)).unwrap();
        let store = open(&damaged, START);
        let missing: Vec<_> = store.damage().iter().map(|d| (d.file.clone(), &d.kind)).collect();
        assert_eq!(missing, [(names::segment(number), &DamageKind::Segment)]);
    }
}

/// A segment whose end is cut off holds another, smaller message. Forgetting the lost one must not
/// make it look dead.
#[test]
fn a_sound_message_beside_a_lost_one_is_not_reclaimed() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, START).unwrap();
    store.send("a", &Send::new(b"small"), START).unwrap();
    store.send("a", &Send::new(&[7; 4000]), START).unwrap();
    store.close().unwrap();
    disk.open(&names::segment(1)).unwrap().set_len(2000).unwrap();

    let mut store = open(&disk, START);
    let [damage] = store.damage() else { panic!("{:?}", store.damage()) };
    assert_eq!(damage.kind, DamageKind::CutShort);
    assert!(damage.to_string().ends_with("; 1 message is lost: 1 of a (msg_id 1)"), "{damage}");
    assert!(store.info().live_bytes > 0);
    for _ in 0..3 {
        store.rotate(START).unwrap();
        store.checkpoint().unwrap();
    }
    let shared = std::cell::RefCell::new(store);
    while maintain(&shared, || START).unwrap() {}
    let seen = view(&mut shared.into_inner());
    assert_eq!(seen["a"].messages.keys().copied().collect::<Vec<_>>(), [0]);
}

#[test]
fn ids_at_the_end_of_their_range_are_no_sane_records() {
    for id in [MAX_ID, u64::MAX] {
        let mut journal = Journal::new(1, 0);
        created(&mut journal, 1, "a");
        created(&mut journal, id, "b");
        message(&mut journal, 1, "a", id, b"x");
        message(&mut journal, id, "c", 0, b"x");
        journal.op(0, 1, &Op::IdsReserved { below: id });
        journal.op(0, 0, &Op::Opened { epoch: u32::MAX, wall_ms: u64::MAX });
        delivered(&mut journal, 1, "g", id - 1..id);
        let mut store = open(&journal.disk(), START);
        assert_eq!(store.damage().len(), 5);
        assert_eq!(store.info().mailboxes, 1);
        assert_eq!(send(&mut store, "a"), 0);
    }
}

#[test]
fn the_last_segment_number_is_not_written_over() {
    let mut journal = Journal::new(u32::MAX, 0);
    created(&mut journal, 1, "a");
    let disk = journal.disk();
    assert!(Store::open(Arc::new(disk.clone()), options(), 1, START).is_err());
    let name = names::segment(u32::MAX);
    assert!(disk.read_file(&name).unwrap().starts_with(&journal.bytes));
}

/// A checkpoint whose delayed message lies in the last segment there can be.
#[test]
fn a_checkpoint_that_names_a_distant_segment_takes_no_memory_for_it() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, START).unwrap();
    let delayed = Send { delay_ms: 1000, ..Send::new(b"later") };
    store.send("a", &delayed, START).unwrap();
    store.send("a", &delayed, START).unwrap();
    store.close().unwrap();
    let near = Lsn::new(1, 0).number().to_le_bytes();
    let distant = changed(&disk, &names::checkpoint(1), |bytes| {
        let after = |at: usize| {
            at + section::HEADER + section::body_len(bytes[at..].first_chunk().unwrap()) as usize
        };
        // Behind the head and the ends of segments.
        let begin = after(after(8));
        let end = bytes.len() - section::HEADER - 8;
        let mut body = bytes[begin + section::HEADER..end].to_vec();
        let at = body.windows(8).rposition(|w| w[4..] == near[4..] && w[..4] != [0; 4]).unwrap();
        body[at + 4..at + 8].copy_from_slice(&u32::MAX.to_le_bytes());
        let last = bytes.split_off(end);
        bytes.truncate(begin);
        section::append(bytes, 2, |out| out.extend_from_slice(&body));
        bytes.extend_from_slice(&last);
    });
    let mut store = open(&distant, START);
    assert_eq!(store.damage().len(), 1);
    assert_eq!(store.mailbox("a", START).unwrap().delayed, 1);
}
