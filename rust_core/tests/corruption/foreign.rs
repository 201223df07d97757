//! Bytes that are sound and not understood are refused; bytes made to look like records are not taken
//! for any.

use std::sync::Arc;

use mq9_core::error::Error;
use mq9_core::log::{Header, names};
use mq9_core::store::{NewMailbox, Send, Store};
use mq9_core::wire::mailbox_ops::Updated;
use mq9_core::wire::op::{Op, kind};
use mq9_core::wire::record::FLAG_MORE;
use mq9_core::wire::section;
use mq9_core::wire::stamp::Stamp;
use mq9_sim::SimDisk;

use crate::house::{LATE, Left, START, open, options, trimmed};
use crate::journal::{Journal, SALT, created, message};
use crate::layout::{Layout, changed, check};
use crate::view::view;

fn assert_refused(disk: &SimDisk, file: &str, offset: u64, what: &str) {
    let before: Vec<_> = disk.names().iter().map(|name| disk.read_file(name)).collect();
    let opened = Store::open(Arc::new(disk.clone()), options(), 1, LATE);
    let Some(Error::NewerFormat { file: f, offset: o, what: w }) = opened.err() else {
        panic!("{what} was not refused")
    };
    assert_eq!((f.as_str(), o, w.as_str()), (file, offset, what));
    let after: Vec<_> = disk.names().iter().map(|name| disk.read_file(name)).collect();
    assert_eq!(before, after, "a refused store is left as it is");
}

#[test]
fn a_record_of_an_unknown_kind_is_refused() {
    for unknown in [0, kind::CONSUMER_RETURNED + 1, kind::TIED + 1, 255] {
        let mut journal = Journal::new(1, 0);
        created(&mut journal, 1, "a");
        let at = journal.raw(unknown, 0, 1, b"who knows").start as u64;
        message(&mut journal, 1, "a", 0, b"after it");
        let what = format!("a record of kind {unknown}");
        assert_refused(&journal.disk(), &names::segment(1), at, &what);
    }
}

#[test]
fn an_unknown_kind_is_refused_in_a_unit_that_was_never_finished() {
    let mut journal = Journal::new(1, 0);
    let at = journal.raw(200, FLAG_MORE, 1, b"the beginning of something").start as u64;
    assert_refused(&journal.disk(), &names::segment(1), at, "a record of kind 200");
}

#[test]
fn an_unknown_flag_is_refused() {
    let mut journal = Journal::new(1, 0);
    let at = journal.op(0x80, 1, &Op::MailboxRemoved { stamp: None, cause: 0 }).start as u64;
    assert_refused(&journal.disk(), &names::segment(1), at, "a record with flags 0x80");
}

#[test]
fn an_unknown_policy_is_refused_in_the_log() {
    let mut journal = Journal::new(1, 0);
    let policy: &[u8] = &[77, 1, 0, 0, 0, 0, 0, 0, 0];
    let (created_ms, expires_ms) = (1, 0);
    let op = Op::MailboxCreated { created_ms, expires_ms, address: "a", desc: "", policy };
    let at = journal.op(0, 1, &op).start as u64;
    assert_refused(&journal.disk(), &names::segment(1), at, "a mailbox policy of tag 77");
}

#[test]
fn an_unknown_policy_is_refused_in_a_change() {
    let mut journal = Journal::new(1, 0);
    created(&mut journal, 1, "a");
    let stamp = Stamp { time_ms: 1, address: "a" };
    let policy: &[u8] = &[77, 1, 0, 0, 0, 0, 0, 0, 0];
    let op = Op::Updated(Updated { stamp, expires_ms: 0, desc: "", policy });
    let at = journal.op(0, 1, &op).start as u64;
    assert_refused(&journal.disk(), &names::segment(1), at, "a mailbox policy of tag 77");
}

#[test]
fn an_unknown_segment_version_is_refused() {
    let disk = Left::Killed.disk();
    let newer = changed(&disk, &names::segment(1), |bytes| {
        for copy in bytes.chunks_exact_mut(40).take(2) {
            copy[8] = 2;
            let crc = crc32c::crc32c(&copy[..36]);
            copy[36..].copy_from_slice(&crc.to_le_bytes());
        }
    });
    assert_refused(&newer, &names::segment(1), 0, "a segment of version 2");
}

/// Splits a checkpoint into its sections: where each begins, its kind and its body.
fn sections(bytes: &[u8]) -> Vec<(usize, u8, Vec<u8>)> {
    let mut sections = Vec::new();
    let mut at = 8;
    while let Some(header) = bytes[at..].first_chunk::<{ section::HEADER }>() {
        let end = at + section::HEADER + section::body_len(header) as usize;
        let (kind, body) = section::decode(&bytes[at..end]).unwrap();
        sections.push((at, kind, body.to_vec()));
        at = end;
    }
    sections
}

/// The newest checkpoint of a closed store with one section changed, and where that section lies.
fn with_section(index: usize, change: impl Fn(&mut u8, &mut Vec<u8>)) -> (SimDisk, u64) {
    let disk = Left::Closed.disk();
    let mut changed_at = 0;
    let disk = changed(&disk, &names::checkpoint(1), |bytes| {
        let parts = sections(bytes);
        bytes.truncate(8);
        for (n, (_, mut kind, mut body)) in parts.into_iter().enumerate() {
            if n == index {
                changed_at = bytes.len() as u64;
                change(&mut kind, &mut body);
            }
            section::append(bytes, kind, |out| out.extend_from_slice(&body));
        }
    });
    (disk, changed_at)
}

#[test]
fn an_unknown_checkpoint_version_is_refused() {
    let (disk, at) = with_section(0, |_, body| body[0] = 4);
    assert_refused(&disk, &names::checkpoint(1), at, "a checkpoint of version 4");
}

#[test]
fn an_unknown_section_is_refused() {
    let (disk, at) = with_section(2, |kind, _| *kind = 9);
    assert_refused(&disk, &names::checkpoint(1), at, "a section of kind 9");
}

#[test]
fn an_unknown_policy_is_refused_in_a_checkpoint() {
    // The second mailbox: position, number, "work.queue", three numbers, the policy's length.
    let (disk, at) = with_section(3, |_, body| body[8 + 8 + 11 + 24 + 2] = 77);
    assert_refused(&disk, &names::checkpoint(1), at, "a mailbox policy of tag 77");
}

#[test]
fn a_checkpoint_that_lacks_a_whole_mailbox_is_not_used() {
    let layout = Layout::of(Left::Closed.disk());
    let lacking = changed(&layout.disk, &names::checkpoint(1), |bytes| {
        let parts = sections(bytes);
        bytes.drain(parts[2].0..parts[3].0);
    });
    assert!(check(&lacking, &layout.full(), &|| "a section is missing".to_owned()));
}

/// The payload is a copy of a record of the same segment, and of one made for its very place by
/// someone who does not know the salt. With the header of the message damaged, recovery looks for
/// records from its first byte on.
#[test]
fn a_payload_is_never_taken_for_a_record() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, START).unwrap();
    store.send("a", &Send::new(b"genuine"), START).unwrap();
    store.flush().unwrap();
    let genuine = Layout::of(trimmed(&disk)).logged.pop().unwrap();
    let bytes = disk.read_file(&names::segment(1)).unwrap();

    let mut payload = bytes[genuine.bytes.clone()].to_vec();
    // Begins at the place it will have, 20 + 42 + 1 bytes into its record, but has another salt.
    let mut forged = Journal::new(1, 0);
    let place = genuine.bytes.end + 63 + payload.len();
    forged.bytes.resize(place, 0);
    let range = message(&mut forged, 1, "a", 7, b"forged");
    payload.extend_from_slice(&forged.bytes[range]);
    store.send("a", &Send::new(&payload), START).unwrap();
    store.send("a", &Send::new(b"after"), START).unwrap();
    store.flush().unwrap();
    drop(store);

    let damaged = changed(&disk, &names::segment(1), |bytes| bytes[genuine.bytes.end + 9] ^= 1);
    let mut store = open(&damaged, START);
    let seen = view(&mut store);
    assert_eq!(seen["a"].messages.keys().copied().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(store.damage().len(), 1);

    // The same bytes with the segment's salt would have been one: the test would notice.
    let header = Header { number: 1, previous: 0, salt: SALT, created_ms: 0 };
    let salted = changed(&damaged, &names::segment(1), |bytes| {
        bytes[..80].copy_from_slice(&header.encode());
    });
    let seen = view(&mut open(&salted, START));
    assert_eq!(seen["a"].messages.keys().copied().collect::<Vec<_>>(), [7]);
}
