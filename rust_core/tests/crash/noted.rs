//! Messages with a note are sent once, wherever the power goes and however late somebody goes on: the note is in one unit
//! with its message.

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::front::Call;
use mq9_core::mailbox::{Policy, Tier};
use mq9_core::partition::send_noted;
use mq9_core::store::{NewMailbox, NewStream, Note, Query, Store};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

use crate::world::{FAR, OPTIONS, START, open};

const NOTES: &str = "$notes";
const CONFIG: &str = r#"{"name":"S","subjects":["s.>"]}"#;
const MAILBOX: &str = "$mq9.AI.MSG.SEND.m";
const STREAM: &str = "s.tick";
const HEADERS: &[u8] = b"NATS/1.0\r\nmq9-id: tick.1\r\nNats-Msg-Id: tick.1\r\n\r\n";
/// Ids are remembered for so long.
const WINDOW_MS: u64 = 1_000;

fn opened(disk: &SimDisk, now: Now) -> mq9_core::error::Result<Store> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    open(&disk, OPTIONS, now)
}

/// So much is in the log before, one after the other: among them is one where a message would end a segment.
const FILLERS: std::ops::Range<usize> = 0..12;

/// Where firings go, and the note of the last one before.
fn prepare(store: &mut Store, fillers: usize) -> mq9_core::error::Result<()> {
    let policy = Policy { dedup_window_ms: WINDOW_MS, ..Policy::default() };
    let mailbox = NewMailbox { address: "m", policy: policy.clone(), ..NewMailbox::default() };
    store.create_mailbox(&mailbox, START)?;
    store.create_stream(&NewStream { name: "S", config: CONFIG, policy }, START)?;
    let notes = NewMailbox { address: NOTES, ..NewMailbox::default() };
    store.create_mailbox(&notes, START)?;
    let note = mq9_core::store::Send { key: "tick", ..mq9_core::store::Send::new(b"0") };
    store.send(NOTES, &note, START)?;
    store.create_mailbox(&NewMailbox { address: "f", ..NewMailbox::default() }, START)?;
    for _ in 0..fillers {
        store.send("f", &mq9_core::store::Send::new(&[0; 300]), START)?;
    }
    store.sync().map(drop)
}

fn fire(store: &mut Store, subject: &str, due: &str, now: Now) -> Result<(), String> {
    let subject = subject.as_bytes();
    let call = Call { cid: 0, subject, reply: b"", headers: HEADERS, payload: due.as_bytes() };
    // Of some length: it does not fit wherever its message does.
    let text = format!("{due:<600}");
    let note = Note { address: NOTES, key: "tick", text: text.as_bytes() };
    send_noted(store, &call, &note, now).map_err(|refusal| refusal.text)
}

/// The same in two units, as it was once.
fn fire_and_note(store: &mut Store, due: &str, now: Now) -> Result<(), String> {
    let said = |error: mq9_core::error::Error| error.to_string();
    let message = mq9_core::store::Send::new(due.as_bytes());
    store.send_once("m", "tick.1", &message, now).map_err(said)?;
    store.sync().map_err(said)?;
    let note = mq9_core::store::Send { key: "tick", ..mq9_core::store::Send::new(due.as_bytes()) };
    store.send(NOTES, &note, now).map(drop).map_err(said)
}

fn noted(store: &mut Store, now: Now) -> Vec<String> {
    let query = Query { key: Some("tick"), limit: 10, ..Query::default() };
    let found = store.query(NOTES, &query, now).unwrap();
    let said = |payload| String::from_utf8_lossy(payload).trim().to_owned();
    found.iter().map(|(_, note)| said(note.payload)).collect()
}

fn stored(store: &mut Store, subject: &str, now: Now) -> u64 {
    match subject {
        STREAM => store.stream_info(store.find_stream("S").unwrap()).unwrap().messages,
        _ => store.mailbox("m", now).unwrap().messages,
    }
}

type Fire = fn(&mut Store, Now) -> Result<(), String>;

/// How often the message is there after a power cut at each operation, and somebody who goes on behind the window.
fn counts(subject: &str, fire: Fire) -> Vec<u64> {
    FILLERS.flat_map(|fillers| counts_behind(fillers, subject, fire)).collect()
}

fn counts_behind(fillers: usize, subject: &str, fire: Fire) -> Vec<u64> {
    let mut counts = Vec::new();
    let mut seen = (false, false);
    for cut in 1.. {
        let disk = SimDisk::new();
        let mut store = opened(&disk, START).unwrap();
        prepare(&mut store, fillers).unwrap();
        disk.cut_at(disk.ops() + cut);
        let fired = fire(&mut store, START);
        let fired = fired.is_ok() && store.sync().is_ok() && store.close().is_ok();
        if !disk.is_cut() {
            assert!(fired);
            break;
        }
        for crashed in [disk.crash_strict(), disk.crash_lucky(), disk.crash(cut)] {
            let mut store = opened(&crashed, FAR).unwrap();
            store.check_invariants();
            let notes = noted(&mut store, FAR);
            assert_eq!(notes.len(), 1, "cut at {cut}: {notes:?}");
            if notes == ["1"] {
                seen.0 = true;
            } else {
                seen.1 = true;
                fire(&mut store, FAR).unwrap();
            }
            assert_eq!(noted(&mut store, FAR), ["1"]);
            store.check_invariants();
            counts.push(stored(&mut store, subject, FAR));
            store.close().unwrap();
            let mut store = opened(&crashed, FAR).unwrap();
            assert_eq!(noted(&mut store, FAR), ["1"], "after another restart");
            assert_eq!(stored(&mut store, subject, FAR), *counts.last().unwrap());
        }
    }
    assert_eq!(seen, (true, true), "the cuts came too early or too late");
    counts
}

#[test]
fn a_power_cut_sends_nothing_twice_and_forgets_nothing() {
    let to_mailbox = counts(MAILBOX, |store, now| fire(store, MAILBOX, "1", now));
    let to_stream = counts(STREAM, |store, now| fire(store, STREAM, "1", now));
    assert!(to_mailbox.iter().chain(&to_stream).all(|count| *count == 1), "{to_mailbox:?}");
}

#[test]
fn control_a_note_in_a_unit_of_its_own_comes_too_late() {
    let counts = counts(MAILBOX, |store, now| fire_and_note(store, "1", now));
    assert!(counts.contains(&2), "{counts:?}");
}

#[test]
fn what_is_refused_is_not_noted() {
    let mut store = opened(&SimDisk::new(), START).unwrap();
    prepare(&mut store, 0).unwrap();
    for (subject, why) in [
        ("$mq9.AI.MSG.SEND.none", "mailbox none does not exist"),
        ("$mq9.AI.MAILBOX.MSG.m", "the subject is none that messages go to"),
        ("other", "no stream has the subject other"),
    ] {
        assert_eq!(fire(&mut store, subject, "1", START).unwrap_err(), why);
        assert_eq!(noted(&mut store, START), ["0"]);
        store.check_invariants();
    }
}

#[test]
fn what_was_sent_before_with_its_id_is_only_noted() {
    for subject in [MAILBOX, STREAM] {
        let mut store = opened(&SimDisk::new(), START).unwrap();
        prepare(&mut store, 0).unwrap();
        for due in ["1", "2"] {
            fire(&mut store, subject, due, START).unwrap();
            assert_eq!(noted(&mut store, START), [due]);
            assert_eq!(stored(&mut store, subject, START), 1);
            store.check_invariants();
        }
    }
}

#[test]
fn a_note_lasts_where_the_message_does_not() {
    let disk = SimDisk::new();
    let mut store = opened(&disk, START).unwrap();
    prepare(&mut store, 0).unwrap();
    let policy = Policy { tier: Tier::Memory, ..Policy::default() };
    let mailbox = NewMailbox { address: "x", policy, ..NewMailbox::default() };
    store.create_mailbox(&mailbox, START).unwrap();
    fire(&mut store, "$mq9.AI.MSG.SEND.x", "1", START).unwrap();
    assert_eq!(store.mailbox("x", START).unwrap().messages, 1);
    store.check_invariants();
    store.sync().unwrap();
    drop(store);
    let mut store = opened(&disk, FAR).unwrap();
    assert_eq!(noted(&mut store, FAR), ["1"]);
}
