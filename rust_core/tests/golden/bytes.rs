//! The golden files read with nothing but the tables of `docs/formats.md`: every offset below is one of
//! the document's.

use std::collections::BTreeSet;

use mq9_core::wire::op::kind;

use crate::{TODAY, files};

/// What was written before records told their time.
const UNTIMED: &str = "v1.1";

fn file(name: &str) -> Vec<u8> {
    file_of(TODAY, name)
}

fn file_of(version: &str, name: &str) -> Vec<u8> {
    files(version).into_iter().find(|file| file.0 == name).unwrap().1
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

const T: u64 = 1_700_000_000_000;

#[test]
fn a_segment_header_is_as_documented() {
    for (number, previous, created_ms) in [(1, 0, T), (2, 1, T + 203)] {
        let bytes = file(&format!("segment-{number:010}.log"));
        for copy in [&bytes[..40], &bytes[40..80]] {
            assert_eq!(&copy[..8], b"MQ9SEGM\0");
            assert_eq!(u32_at(copy, 8), 1);
            assert_eq!(u32_at(copy, 12), number);
            assert_eq!(u32_at(copy, 16), previous);
            assert_eq!(u64_at(copy, 20), 0x0123_4567_89ab_cdef);
            assert_eq!(u64_at(copy, 28), created_ms);
            assert_eq!(u32_at(copy, 36), crc32c::crc32c(&copy[..36]));
        }
    }
}

/// Bytes 4.. of a record, checked against its checksum and mark.
fn checked(segment: u64, at: usize, bytes: &[u8]) -> &[u8] {
    let position = segment << 32 | at as u64;
    let x = 0x0123_4567_89ab_cdef ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = x ^ (x >> 29);
    let len = u32_at(bytes, at + 4) as usize;
    let record = &bytes[at..at + len];
    assert_eq!(u16_at(record, 8), ((seed >> 48) as u16).max(1));
    assert_eq!(u32_at(record, 0), crc32c::crc32c_append(seed as u32, &record[4..]));
    record
}

/// All records of the first segment: kind, flags, mailbox, body.
fn records(version: &str) -> Vec<(u8, u8, u64, Vec<u8>)> {
    let bytes = file_of(version, "segment-0000000001.log");
    let mut records = Vec::new();
    let mut at = 80;
    while at < bytes.len() {
        let record = checked(1, at, &bytes);
        records.push((record[10], record[11], u64_at(record, 12), record[20..].to_vec()));
        at += record.len();
    }
    records
}

fn bodies(kind: u8) -> Vec<Vec<u8>> {
    bodies_of(TODAY, kind)
}

fn bodies_of(version: &str, kind: u8) -> Vec<Vec<u8>> {
    records(version).into_iter().filter(|record| record.0 == kind).map(|record| record.3).collect()
}

#[test]
fn the_golden_segments_have_every_kind_of_record() {
    let kinds = |version| records(version).iter().map(|record| record.0).collect::<BTreeSet<u8>>();
    assert_eq!(kinds(UNTIMED), (kind::OPENED..=kind::RETURNED).collect());
    let retired = [3, 7, 10, 11, 12];
    let written = (kind::OPENED..=kind::GROUP_REMOVED).filter(|kind| !retired.contains(kind));
    assert_eq!(kinds(TODAY), written.collect());
}

#[test]
fn units_are_flagged_as_documented() {
    let records = records(TODAY);
    let first = records.iter().position(|record| record.1 != 0).unwrap();
    let flags: Vec<_> = records[first..first + 2].iter().map(|r| (r.0, r.1)).collect();
    assert_eq!(flags, [(kind::MESSAGE, 1), (kind::DELAY_ENDED, 4)]);
    let rest: Vec<_> =
        records[first + 2..].iter().filter(|r| r.1 != 0).map(|r| (r.0, r.1)).collect();
    assert_eq!(rest, [(kind::MESSAGE, 1), (kind::DEAD_LETTERED, 4)]);
}

#[test]
fn records_about_mailboxes_are_as_documented() {
    let opened = &bodies(kind::OPENED)[0];
    assert_eq!((u32_at(opened, 0), u64_at(opened, 4), opened.len()), (1, T, 12));

    let created = &bodies(kind::MAILBOX_CREATED)[0];
    assert_eq!((u64_at(created, 0), u64_at(created, 8)), (T, 0));
    assert_eq!((created[16], &created[17..23]), (6, &b"orders"[..]));
    assert_eq!((u16_at(created, 23), &created[25..31]), (6, &b"golden"[..]));
    assert_eq!((u16_at(created, 31), created.len()), (0, 33));

    let created = &bodies(kind::MAILBOX_CREATED)[1];
    assert_eq!((u64_at(created, 0), u64_at(created, 8)), (T + 1, T + 86_400_001));
    let policy = &created[16 + 1 + 10 + 2 + 2..];
    let numbers = [1, 1, 1, 1, 1, 1, 2_000, 3_000, 4_000_000, 5_000, 6, 7, 8_000];
    for (index, value) in numbers.into_iter().enumerate() {
        assert_eq!((policy[index * 9], u64_at(policy, index * 9 + 1)), (index as u8 + 1, value));
    }
    assert_eq!(&policy[13 * 9..], b"\x80\x04dead\x81\x03ada");

    assert_eq!(bodies_of(UNTIMED, kind::MAILBOX_REMOVED), [b""]);
    let removed = &bodies(kind::MAILBOX_REMOVED_AT)[0];
    assert_eq!((u64_at(removed, 0), &removed[8..]), (T + 202, &b"\x04gone\x01"[..]));
    assert_eq!(bodies(kind::IDS_RESERVED), [65_536u64.to_le_bytes()]);
}

#[test]
fn records_about_messages_are_as_documented() {
    let message = &bodies(kind::MESSAGE)[0];
    let times = [u64_at(message, 8), u64_at(message, 16), u64_at(message, 24)];
    assert_eq!((u64_at(message, 0), times), (0, [T + 3, T + 3, T + 3_600_003]));
    assert_eq!((message[32], message[33]), (5, 6));
    assert_eq!((u16_at(message, 34), u16_at(message, 36), u32_at(message, 38)), (1, 5, 6));
    assert_eq!(&message[42..], b"orderskt1,t2A: b\r\nzero");

    let delayed = &bodies(kind::DELAYED)[1];
    let times = [u64_at(delayed, 8), u64_at(delayed, 16), u64_at(delayed, 24)];
    assert_eq!((u64_at(delayed, 0), times), (1, [T + 7, T + 600_007, T + 3_600_007]));
    assert_eq!(bodies(kind::DELAY_ENDED), [0u64.to_le_bytes()]);
    let removed = &bodies_of(UNTIMED, kind::REMOVED)[0];
    assert_eq!((u32_at(removed, 0), u64_at(removed, 4), u32_at(removed, 12)), (1, 4, 1));
    for (index, ms, stamp, msg_id) in
        [(0, 13, &b"\x06orders\x01"[..], 4), (1, 202, &b"\x04gone\x05"[..], 0)]
    {
        let removed = &bodies(kind::REMOVED_AT)[index];
        let ids = &removed[8 + stamp.len()..];
        assert_eq!((u64_at(removed, 0), &removed[8..8 + stamp.len()]), (T + ms, stamp));
        assert_eq!(
            (u32_at(ids, 0), u64_at(ids, 4), u32_at(ids, 12), ids.len()),
            (1, msg_id, 1, 16)
        );
    }
}

#[test]
fn records_about_groups_are_as_documented() {
    let reset = &bodies(kind::GROUP_RESET)[1];
    assert_eq!((reset[0], &reset[1..10]), (9, &b"latecomer"[..]));
    assert!((0..10).all(|level| u64_at(reset, 10 + level * 8) == 0));
    assert_eq!((u64_at(reset, 90), reset.len()), (6, 98));

    // To a named member: level 1 first, then two runs of level 5.
    let untimed = bodies_of(UNTIMED, kind::DELIVERED);
    for (timed, untimed) in bodies(kind::DELIVERED_AT).iter().zip(&untimed) {
        assert_eq!((&timed[8..15], &timed[15..]), (&b"\x06orders"[..], &untimed[..]));
    }
    assert_eq!(u64_at(&bodies(kind::DELIVERED_AT)[0], 0), T + 8);
    let delivered = &untimed[0];
    assert_eq!(&delivered[..5], b"\x01g\x00\x01w");
    let run = |at: usize| {
        let key = (delivered[at], u32_at(delivered, at + 1));
        (key, u64_at(delivered, at + 5), u32_at(delivered, at + 13))
    };
    assert_eq!(u32_at(delivered, 5), 3);
    assert_eq!([run(9), run(26), run(43)], [((1, 1), 1, 1), ((5, 1), 0, 1), ((5, 1), 2, 1)]);
    assert_eq!(delivered.len(), 60);
    // To a connection of the first opening.
    let delivered = &untimed[1];
    assert_eq!((delivered[2], u32_at(delivered, 3), u64_at(delivered, 7)), (1, 1, 9));

    let ended = [(kind::ACKED, kind::ACKED_AT, 1, 9), (kind::RETURNED, kind::RETURNED_AT, 2, 10)];
    for (kind, timed, msg_id, ms) in ended {
        let body = &bodies_of(UNTIMED, kind)[0];
        let timed = &bodies(timed)[0];
        assert_eq!((u64_at(timed, 0), &timed[8..15]), (T + ms, &b"\x06orders"[..]));
        assert_eq!(timed[15..], body[..]);
        assert_eq!((&body[..2], u32_at(body, 2)), (&b"\x01g"[..], 1));
        assert_eq!((u64_at(body, 6), u32_at(body, 14), body.len()), (msg_id, 1, 18));
    }
}

#[test]
fn the_removal_of_a_group_is_as_documented() {
    let removed = &bodies(kind::GROUP_REMOVED)[0];
    assert_eq!((u64_at(removed, 0), &removed[8..]), (T + 202, &b"\x04gone\x01g\x01"[..]));
}

#[test]
fn a_dead_letter_is_as_documented() {
    let dead = &bodies(kind::DEAD_LETTERED)[0];
    assert_eq!((u64_at(dead, 0), &dead[8..25]), (T + 202, &b"\x04gone\x01g\x09gone.dead"[..]));
    assert_eq!((u64_at(dead, 25), dead[33], u32_at(dead, 34)), (1, 5, 1));
    assert_eq!((dead[38], dead.len()), (7, 39));
}

/// The sections of the checkpoint: kind and body.
fn sections() -> Vec<(u8, Vec<u8>)> {
    let bytes = file("checkpoint-0000000001.mq9");
    assert_eq!(&bytes[..8], b"MQ9CKPT\0");
    let mut sections = Vec::new();
    let mut at = 8;
    while at < bytes.len() {
        let end = at + 13 + u64_at(&bytes, at + 4) as usize;
        assert_eq!(u32_at(&bytes, at), crc32c::crc32c(&bytes[at + 4..end]));
        sections.push((bytes[at + 12], bytes[at + 13..end].to_vec()));
        at = end;
    }
    sections
}

const POSITION: u64 = 2 << 32 | 80;

#[test]
fn a_checkpoint_is_as_documented() {
    let sections = sections();
    assert_eq!(sections.iter().map(|s| s.0).collect::<Vec<_>>(), [1, 5, 2, 2, 3]);
    let head = &sections[0].1;
    assert_eq!((u32_at(head, 0), u64_at(head, 4)), (2, POSITION));
    assert_eq!((u32_at(head, 12), u64_at(head, 16), head.len()), (1, 5, 24));
    let ends = &sections[1].1;
    let first = file("segment-0000000001.log").len() as u32;
    assert_eq!((u32_at(ends, 0), u32_at(ends, 4), u32_at(ends, 8)), (2, 1, first));
    assert_eq!((u32_at(ends, 12), u32_at(ends, 16), ends.len()), (2, 80, 20));
    assert_eq!(sections[4].1, 3u64.to_le_bytes());
}

#[test]
fn a_mailbox_in_a_checkpoint_is_as_documented() {
    let body = &sections()[2].1;
    assert_eq!((u64_at(body, 0), u64_at(body, 8)), (POSITION, 1));
    assert_eq!((body[16], &body[17..23]), (6, &b"orders"[..]));
    assert_eq!((u64_at(body, 23), u64_at(body, 31), u64_at(body, 39)), (T, 0, 7));
    assert_eq!(u16_at(body, 47), 0);
    assert_eq!((u16_at(body, 49), &body[51..57]), (6, &b"golden"[..]));
    assert_eq!((u64_at(body, 57), u64_at(body, 65)), (0, 2));
    // Keys, by msg_id.
    assert_eq!((u32_at(body, 73), u64_at(body, 77), &body[85..88]), (2, 0, &b"\x01\x00k"[..]));
    assert_eq!((u64_at(body, 88), &body[96..99]), (1, &b"\x01\x00j"[..]));
    // Expiries.
    assert_eq!((u32_at(body, 99), u64_at(body, 103), u64_at(body, 111)), (1, 0, T + 3_600_003));
    // Delayed messages.
    assert_eq!((u32_at(body, 119), u64_at(body, 123)), (1, 1));
    assert_eq!((u64_at(body, 131), u64_at(body, 139)), (T + 600_007, T + 3_600_007));
    assert_eq!((u64_at(body, 147) >> 32, u32_at(body, 155)), (1, 20 + 42 + 6 + 5));
    // Groups.
    assert_eq!((u32_at(body, 159), &body[163..165]), (2, &b"\x01g"[..]));
    let len = u64_at(body, 165) as usize;
    check_group(&body[173..173 + len]);
    let next = 173 + len;
    assert_eq!(&body[next..next + 10], b"\x09latecomer");
    let lanes = next + 18 + u64_at(body, next + 10) as usize;
    check_lanes(&body[lanes..]);
}

fn check_group(group: &[u8]) {
    assert!((0..10).all(|level| u64_at(group, level * 8) == 0));
    assert_eq!((u64_at(group, 80), u64_at(group, 80 + 4 * 8)), (2, 4));
    // Two members: the named one holds what it got first, the connection what it got later.
    assert_eq!((u32_at(group, 160), &group[164..170]), (2, &b"\x00\x01\x00\x00\x00w"[..]));
    assert_eq!((group[170], u32_at(group, 171), u64_at(group, 175)), (1, 1, 9));
    assert_eq!(u32_at(group, 183), 3);
    let delivery = |n: usize| {
        let at = 187 + n * 17;
        (u64_at(group, at), group[at + 8], u32_at(group, at + 9), u32_at(group, at + 13))
    };
    assert_eq!([delivery(0), delivery(1), delivery(2)], [(0, 5, 1, 0), (2, 5, 2, 1), (3, 5, 1, 1)]);
    assert_eq!(group.len(), 187 + 3 * 17);
}

fn check_lanes(lanes: &[u8]) {
    assert_eq!((lanes[0], lanes[1]), (2, 1));
    let lane = &lanes[10..10 + u64_at(lanes, 2) as usize];
    assert_eq!((u64_at(lane, 0), u64_at(lane, 8), u64_at(lane, 16)), (1, 1, T + 4));
    assert_eq!((u32_at(lane, 24), u32_at(lane, 28) as usize), (1, lane.len() - 32));
    // The message with the key: flag 1.
    let [(id, len, at, time_flags)] = entries(&lane[32..])[..] else { panic!("one entry") };
    assert_eq!((id, len, at >> 32, time_flags), (0, 20 + 42 + 6 + 1 + 3, 1, 1));
    let next = 10 + lane.len();
    assert_eq!(lanes[next], 5);
    let lane = &lanes[next + 9..];
    assert_eq!(u64_at(lanes, next + 1), lane.len() as u64);
    assert_eq!((u64_at(lane, 0), u64_at(lane, 8), u64_at(lane, 16)), (5, 0, T + 3));
    assert_eq!((u32_at(lane, 24), u32_at(lane, 28) as usize), (5, lane.len() - 32));
    // The first has a key and expires: flags 1 and 2. The last was created 197 ms after it.
    let all = entries(&lane[32..]);
    assert_eq!((all.len(), all[0].0, all[0].3), (5, 0, 3));
    assert_eq!((all[4].0, all[4].3), (6, 197 << 8));
    let records = file("segment-0000000001.log");
    for (_, len, at, _) in all {
        assert_eq!(u64::from(u32_at(&records, at as u32 as usize + 4)), len, "length at its place");
    }
}

/// Id minus base id, length, place, and time with flags of each packed entry.
fn entries(packed: &[u8]) -> Vec<(u64, u64, u64, u64)> {
    let mut numbers = Vec::new();
    let (mut number, mut shift) = (0_u64, 0);
    for byte in packed {
        number |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte >> 7 == 0 {
            numbers.push(std::mem::take(&mut number));
            shift = 0;
        }
    }
    let signed = |n: u64| if n & 1 == 0 { n / 2 } else { !(n / 2) };
    let (mut next_id, mut len, mut at, mut time_flags) = (0, 0_u64, 0_u64, 0_u64);
    let entry = |fields: &[u64]| {
        let id = next_id + fields[0];
        at = at.wrapping_add(len).wrapping_add(signed(fields[2]));
        len = len.wrapping_add(signed(fields[1]));
        time_flags = time_flags.wrapping_add(signed(fields[3]));
        next_id = id + 1;
        (id, len, at, time_flags)
    };
    numbers.chunks(4).map(entry).collect()
}
