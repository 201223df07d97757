//! A data directory with arbitrary files: the store opens or says why not, everything in it can be read,
//! and once it has been closed it opens again.
//!
//! No invariants are checked: forged records may say what no store would write, and are only not to do harm.
//!
//! Input: pieces, each a byte that says what it is and then its fields. Raw pieces are files as they
//! are; the others get sound frames, to reach what lies behind the checksums.
//!
//! | first byte, modulo 4 | fields                                                     |
//! | -------------------- | ---------------------------------------------------------- |
//! | 0 raw file           | name u8, length u16, bytes                                 |
//! | 1 record             | kind u8, flags u8, mailbox u8, length u16, body            |
//! | 2 next segment       | number u8                                                  |
//! | 3 section            | kind u8, length u16, body; the rest of the first byte says |
//! |                      | in which checkpoint                                        |

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use mq9_core::error::Error;
use mq9_core::log::{Header, Lsn, SyncMode, names};
use mq9_core::store::{Fetch, Options, Query, Send, Store};
use mq9_core::time::Now;
use mq9_core::wire::bytes::Reader;
use mq9_core::wire::record::{self, Seed};
use mq9_core::wire::section;
use mq9_sim::SimDisk;

const NOW: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 1_000_000 };
const LATE: Now = Now { wall_ms: 1_800_000_000_000, mono_ms: 100_000_000_000 };
const SALT: u64 = 42;

fuzz_target!(|data: &[u8]| {
    let disk = files(data);
    let mut store = match open(&disk, NOW) {
        Ok(store) => store,
        Err(Error::NewerFormat { .. } | Error::WritesStopped(_)) => return,
        Err(e) => panic!("{e}"),
    };
    use_everything(&mut store, NOW);
    use_everything(&mut store, LATE);
    let closed = store.close();
    match closed.and_then(|()| open(&disk, LATE)) {
        // Numbers of segments or checkpoints may have run out.
        Ok(_) | Err(Error::WritesStopped(_)) => {}
        Err(e) => panic!("{e}"),
    }
});

fn open(disk: &SimDisk, now: Now) -> Result<Store, Error> {
    let options = Options { sync: SyncMode::None, ..Options::default() };
    Store::open(Arc::new(disk.clone()), options, 7, now)
}

fn use_everything(store: &mut Store, now: Now) {
    while store.tick(now) {}
    for mailbox in store.mailboxes(0, usize::MAX).0 {
        let address = mailbox.address.as_str();
        // It may have expired since the store was opened.
        let _ = store.fetch(Fetch::all(address), now);
        let all =
            Query { limit: usize::MAX, max_bytes: u64::MAX, newest: true, ..Query::default() };
        let _ = store.query(address, &all, now);
        let _ = store.send(address, &Send::new(b"new"), now);
        for group in &mailbox.groups {
            let _ = store.fetch(Fetch::group(address, &group.name, 100), now);
        }
    }
    for damage in store.damage() {
        let _ = damage.to_string();
    }
}

fn files(data: &[u8]) -> SimDisk {
    let disk = SimDisk::new();
    let mut segments: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut checkpoints: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut number = 1;
    let mut input = Reader::new(data);
    while let Some(piece) = input.u8() {
        let done = match piece % 4 {
            0 => raw_file(&mut input, &disk),
            1 => {
                let segment = segments.entry(number).or_insert_with(|| header(number, number - 1));
                append_record(&mut input, number, segment)
            }
            2 => input.u8().map(|next| {
                let previous = number;
                number = segment_number(next);
                segments.entry(number).or_insert_with(|| header(number, previous));
            }),
            _ => {
                let checkpoint = checkpoints.entry(u32::from(piece / 4) % 4);
                append_section(&mut input, checkpoint.or_insert_with(|| b"MQ9CKPT\0".to_vec()))
            }
        };
        if done.is_none() {
            break;
        }
    }
    segments.iter().for_each(|(number, bytes)| disk.write_file(&names::segment(*number), bytes));
    for (number, bytes) in checkpoints {
        disk.write_file(&names::checkpoint(number), &bytes);
    }
    disk
}

fn header(number: u32, previous: u32) -> Vec<u8> {
    Header { number, previous, salt: SALT, created_ms: 0 }.encode()
}

/// Small numbers, and those at the end.
fn segment_number(byte: u8) -> u32 {
    if byte > 250 { u32::MAX - u32::from(255 - byte) } else { u32::from(byte) + 1 }
}

fn raw_file(input: &mut Reader<'_>, disk: &SimDisk) -> Option<()> {
    let name = input.u8()?;
    let bytes = input.medium()?;
    let name = match name % 8 {
        number @ 0..4 => names::segment(u32::from(number)),
        number @ 4..7 => names::checkpoint(u32::from(number) - 4),
        _ => format!("{}{}", names::checkpoint(9), names::UNFINISHED),
    };
    disk.write_file(&name, bytes);
    Some(())
}

fn append_record(input: &mut Reader<'_>, number: u32, segment: &mut Vec<u8>) -> Option<()> {
    let (kind, flags, mailbox) = (input.u8()?, input.u8()?, input.u8()?);
    let mailbox = if mailbox > 250 { u64::MAX - u64::from(255 - mailbox) } else { mailbox.into() };
    let body = input.medium()?;
    let at = Lsn::new(number, segment.len() as u32);
    let start = record::begin(segment, kind, flags, mailbox);
    segment.extend_from_slice(body);
    record::finish(segment, start, Seed::new(SALT, at.number()));
    Some(())
}

fn append_section(input: &mut Reader<'_>, checkpoint: &mut Vec<u8>) -> Option<()> {
    let kind = input.u8()?;
    let body = input.medium()?;
    section::append(checkpoint, kind, |out| out.extend_from_slice(body));
    Some(())
}
