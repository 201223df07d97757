//! Ways in which the store once lost, held back or multiplied something. A test each.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mq9_core::disk::Disk;
use mq9_core::error::Error;
use mq9_core::log::{FIRST_RECORD, Found, Header, Scan, SyncMode, SyncThread, names};
use mq9_core::mailbox::Policy;
use mq9_core::store::{
    Ack, AckKind, Fetch, FetchOutcome, Fetched, NewMailbox, Options, Send, Start, Store, maintain,
};
use mq9_core::time::Now;
use mq9_core::wire::op::kind;
use mq9_core::wire::section;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn small() -> Options {
    Options { segment_bytes: 16 << 10, allocate_bytes: 4 << 10, ..Options::default() }
}

fn open(disk: &SimDisk, now: Now) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open(disk, small(), 7, now).unwrap()
}

fn create(store: &mut Store, address: &str, ttl_ms: u64, policy: Policy, now: Now) {
    let new = NewMailbox { address, ttl_ms, policy, ..NewMailbox::default() };
    store.create_mailbox(&new, now).unwrap();
}

fn send(store: &mut Store, address: &str, payload: &str, now: Now) {
    store.send(address, &Send::new(payload.as_bytes()), now).unwrap();
}

fn messages(outcome: FetchOutcome) -> Fetched {
    match outcome {
        FetchOutcome::Messages(batch) => batch,
        FetchOutcome::Waiting(_) => panic!("did not ask to wait"),
    }
}

fn payloads(store: &mut Store, request: Fetch, now: Now) -> Vec<String> {
    let batch = messages(store.fetch(request, now).unwrap());
    batch.iter().map(|(_, m)| String::from_utf8(m.payload.to_vec()).unwrap()).collect()
}

#[test]
fn an_address_taken_again_while_a_checkpoint_is_made_keeps_its_new_messages() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    create(&mut store, "x", 0, Policy::default(), START);
    send(&mut store, "x", "old", START);
    for number in 0..3 {
        create(&mut store, &format!("other.{number}"), 0, Policy::default(), START);
    }
    let mut checkpointer = store.begin_checkpoint().unwrap();
    assert!(store.capture(&mut checkpointer, 1).unwrap());
    store.remove_mailbox("x", START).unwrap();
    create(&mut store, "takes.the.slot", 0, Policy::default(), START);
    create(&mut store, "x", 0, Policy::default(), START);
    send(&mut store, "x", "new", START);
    while store.capture(&mut checkpointer, 1).unwrap() {}
    checkpointer.finish().unwrap();
    drop(store.install_checkpoint(checkpointer));
    send(&mut store, "x", "newer", START);
    store.sync().unwrap();

    let mut store = open(&disk.snapshot(), START);
    assert_eq!(store.damage(), []);
    assert_eq!(payloads(&mut store, Fetch::all("x"), START), ["new", "newer"]);
}

#[test]
fn interval_sync_goes_on_after_a_quiet_time() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(mq9_core::disk::OsDisk::new(dir.path()).unwrap());
    let options = Options { sync: SyncMode::Interval { ms: 1 }, ..Options::default() };
    let mut store = Store::open(disk, options, 7, START).unwrap();
    create(&mut store, "a", 0, Policy::default(), START);
    let syncer = store.syncer();
    let (told, rounds) = std::sync::mpsc::channel();
    syncer.listen(move || told.send(()).unwrap_or(()));
    let thread = SyncThread::start(Arc::clone(&syncer), || Duration::ZERO).unwrap();
    for _ in 0..5 {
        send(&mut store, "a", "hello", START);
        store.flush().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while syncer.durable() < store.end() {
            let left = deadline.saturating_duration_since(Instant::now());
            rounds.recv_timeout(left).expect("what was written is never synced");
        }
        // The thread finds nothing to do for several periods, whatever it has still to tell.
        while rounds.recv_timeout(Duration::from_millis(20)).is_ok() {}
    }
    drop(thread);
}

#[test]
fn a_list_of_all_ids_of_a_batch_confirms_each_once_and_quickly() {
    let mut store = open(&SimDisk::new(), START);
    create(&mut store, "a", 0, Policy::default(), START);
    let count = 20_000;
    for _ in 0..count {
        store.send("a", &Send::new(b"x"), START).unwrap();
    }
    let request = Fetch { start: Start::Earliest, ..Fetch::group("a", "g", usize::MAX) };
    assert_eq!(messages(store.fetch(request, START).unwrap()).len(), count);
    let msg_ids: Vec<u64> = (0..count as u64).rev().chain(0..count as u64).collect();
    let kind = AckKind::Done { only: false };
    store.ack(&Ack { address: "a", group: "g", msg_ids: &msg_ids, kind }, START).unwrap();
    assert_eq!(store.mailbox("a", START).unwrap().groups[0].outstanding, 0);
}

#[test]
fn dead_letters_never_come_back_to_where_they_died() {
    let mut store = open(&SimDisk::new(), START);
    let to = |address: &str| Policy {
        max_deliver: 1,
        dead_letter: Some(address.into()),
        ..Policy::default()
    };
    let circle = |store: &mut Store, address, target| {
        let new = NewMailbox { address, policy: to(target), ..NewMailbox::default() };
        matches!(
            store.create_mailbox(&new, START),
            Err(Error::InvalidField { field: "dead_letter", .. })
        )
    };
    assert!(circle(&mut store, "a", "a"));
    create(&mut store, "a", 0, to("b"), START);
    create(&mut store, "b", 0, to("c"), START);
    assert!(circle(&mut store, "c", "a"));
}

#[test]
fn a_message_with_as_many_headers_as_allowed_still_becomes_a_dead_letter() {
    let options = Options::default();
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let mut store = Store::open(disk, options, 7, START).unwrap();
    let policy = Policy { max_deliver: 1, dead_letter: Some("dead".into()), ..Policy::default() };
    create(&mut store, "a", 0, policy, START);
    let headers = format!("X: {}\r\n", "y".repeat(64 * 1024 - 5));
    let message = Send { headers: headers.as_bytes(), ..Send::new(b"poison") };
    store.send("a", &message, START).unwrap();
    let request = Fetch { start: Start::Earliest, ..Fetch::group("a", "g", 1) };
    assert_eq!(payloads(&mut store, request.clone(), START), ["poison"]);
    store.disconnect(0, START);
    assert_eq!(payloads(&mut store, request, START), [""; 0]);
    assert_eq!(payloads(&mut store, Fetch::all("dead"), START), ["poison"]);
}

#[test]
fn whoever_waits_on_a_mailbox_that_expired_is_told_when_the_address_is_taken_again() {
    let mut store = open(&SimDisk::new(), START);
    // More deadlines than one tick handles, all before the mailbox's own.
    create(&mut store, "many", 0, Policy::default(), START);
    for _ in 0..5000 {
        let message = Send { ttl_ms: 10, ..Send::new(b"x") };
        store.send("many", &message, START).unwrap();
    }
    create(&mut store, "a", 11, Policy::default(), START);
    let request = Fetch { wait_ms: 60_000, ..Fetch::group("a", "g", 1) };
    let FetchOutcome::Waiting(waiter) = store.fetch(request, START).unwrap() else { panic!() };
    create(&mut store, "a", 0, Policy::default(), at(20));
    send(&mut store, "a", "for the new one", at(20));
    let done = store.completions(at(20));
    assert_eq!(done.iter().map(|done| done.waiter).collect::<Vec<_>>(), [waiter]);
    assert!(matches!(done[0].outcome, Err(Error::MailboxNotFound(_))));
}

#[test]
fn a_wait_is_answered_by_what_another_member_had_to_leave() {
    let mut store = open(&SimDisk::new(), START);
    create(&mut store, "a", 0, Policy::default(), START);
    send(&mut store, "a", "one", START);
    send(&mut store, "a", "two", START);
    let fetch = |conn, max_msgs, wait_ms| Fetch {
        start: Start::Earliest,
        conn,
        wait_ms,
        ..Fetch::group("a", "g", max_msgs)
    };
    assert_eq!(payloads(&mut store, fetch(1, 2, 0), START), ["one", "two"]);
    let waiting = store.fetch(fetch(2, 2, 60_000), START).unwrap();
    assert!(matches!(waiting, FetchOutcome::Waiting(_)));
    assert_eq!(payloads(&mut store, fetch(1, 1, 0), START), ["one"]);
    let done = store.completions(START);
    assert_eq!(done[0].outcome.as_ref().unwrap().len(), 1);
}

#[test]
fn a_full_disk_can_be_read_emptied_and_opened() {
    let faults = Faults::new();
    let disk = SimDisk::new();
    let faulty: Arc<dyn Disk> = Arc::new(FaultyDisk::new(disk.clone(), faults.clone()));
    let mut store = Store::open(Arc::clone(&faulty), small(), 7, START).unwrap();
    create(&mut store, "a", 0, Policy { work_queue: true, ..Policy::default() }, START);
    for _ in 0..500 {
        send(&mut store, "a", &"x".repeat(200), START);
    }
    let request = Fetch { start: Start::Earliest, ..Fetch::group("a", "g", 1) };
    assert_eq!(messages(store.fetch(request.clone(), START).unwrap()).len(), 1);
    store.sync().unwrap();
    faults.fail(Operation::Allocate, Fault::no_space());
    faults.fail(Operation::Create, Fault::no_space());
    while store.send("a", &Send::new(b"y"), START).is_ok() {}
    for _ in 0..400 {
        let batch = messages(store.fetch(request.clone(), START).unwrap());
        let msg_ids = [batch.iter().next().unwrap().0.msg_id];
        let kind = AckKind::Done { only: false };
        store.ack(&Ack { address: "a", group: "g", msg_ids: &msg_ids, kind }, START).unwrap();
    }
    faults.clear();
    let store = RefCell::new(store);
    while maintain(&store, || START).unwrap() {}
    let mut store = store.into_inner();
    send(&mut store, "a", "room again", START);
}

#[test]
fn a_late_caller_is_not_a_clock_that_stepped_back() {
    let mut store = open(&SimDisk::new(), START);
    create(&mut store, "a", 0, Policy::default(), START);
    let message = Send { ttl_ms: 100, ..Send::new(b"x") };
    store.send("a", &message, START).unwrap();
    store.tick(at(90));
    store.tick(at(10));
    assert_eq!(payloads(&mut store, Fetch::all("a"), at(99)), ["x"]);
    assert_eq!(payloads(&mut store, Fetch::all("a"), at(100)), [""; 0]);
}

#[test]
fn a_clock_that_steps_back_makes_nothing_expire_early() {
    let mut store = open(&SimDisk::new(), START);
    create(&mut store, "a", 0, Policy::default(), START);
    store.tick(at(3_600_000));
    let back = Now { wall_ms: START.wall_ms, mono_ms: START.mono_ms + 3_600_001 };
    store.tick(back);
    let message = Send { ttl_ms: 1000, ..Send::new(b"x") };
    store.send("a", &message, back).unwrap();
    let later = |ms| Now { wall_ms: back.wall_ms + ms, mono_ms: back.mono_ms + ms };
    assert_eq!(payloads(&mut store, Fetch::all("a"), later(999)), ["x"]);
    assert_eq!(payloads(&mut store, Fetch::all("a"), later(1000)), [""; 0]);
}

#[test]
fn leases_that_end_together_bury_their_messages_a_part_at_a_time_and_all_of_them() {
    const COUNT: usize = 1000;
    let mut store = open(&SimDisk::new(), START);
    let policy = Policy { max_deliver: 1, dead_letter: Some("dead".into()), ..Policy::default() };
    create(&mut store, "a", 0, policy, START);
    create(&mut store, "dead", 0, Policy::default(), START);
    for _ in 0..COUNT {
        send(&mut store, "a", "x", START);
    }
    let request =
        Fetch { start: Start::Earliest, ack_wait_ms: 100, ..Fetch::group("a", "g", COUNT) };
    assert_eq!(payloads(&mut store, request, START).len(), COUNT);
    let mut buried = vec![];
    while buried.last() != Some(&COUNT) {
        store.tick(at(200));
        buried.push(store.mailbox("dead", at(200)).unwrap().messages as usize);
        assert!(buried.len() < COUNT, "{buried:?}");
    }
    assert!(buried.len() > 1, "all in one step");
}

/// Where the first record of a kind lies.
fn position_of(disk: &SimDisk, kind: u8) -> u64 {
    let found = disk.names().into_iter().find_map(|name| {
        let bytes = disk.read_file(&name).unwrap();
        let number = names::segment_number(&name)?;
        let salt = Header::decode(&name, &bytes).unwrap()?.salt;
        Scan::new(&bytes, number, salt, FIRST_RECORD).find_map(|found| match found {
            Found::Record { at, record } if record.kind == kind => Some(at.number()),
            _ => None,
        })
    });
    found.unwrap()
}

#[test]
fn a_delayed_message_whose_place_holds_another_is_reported_and_sends_nothing_twice() {
    let disk = SimDisk::new();
    let mut store = open(&disk, START);
    create(&mut store, "m", 0, Policy::default(), START);
    send(&mut store, "m", "now..", START);
    let later = Send { delay_ms: 1000, ..Send::new(b"later") };
    store.send("m", &later, START).unwrap();
    store.close().unwrap();
    // A checkpoint that is sound by its checksums, and wrong.
    let name = disk.names().into_iter().find(|name| names::checkpoint_number(name).is_some());
    let name = name.unwrap();
    let bytes = disk.read_file(&name).unwrap();
    let (delayed, message) = (position_of(&disk, kind::DELAYED), position_of(&disk, kind::MESSAGE));
    let (magic, mut rest) = bytes.split_at(8);
    let mut wrong = magic.to_vec();
    while let Some(header) = rest.first_chunk::<{ section::HEADER }>() {
        let (one, more) = rest.split_at(section::HEADER + section::body_len(header) as usize);
        let (kind, body) = section::decode(one).unwrap();
        let mut body = body.to_vec();
        while let Some(at) = body.windows(8).position(|eight| eight == delayed.to_le_bytes()) {
            body[at..at + 8].copy_from_slice(&message.to_le_bytes());
        }
        section::append(&mut wrong, kind, |out| out.extend_from_slice(&body));
        rest = more;
    }
    assert_ne!(wrong, bytes);
    disk.write_file(&name, &wrong);
    let mut store = open(&disk, at(10));
    assert_eq!((store.mailbox("m", at(10)).unwrap().delayed, store.damage().len()), (1, 0));
    store.tick(at(2000));
    store.check_invariants();
    assert_eq!((store.mailbox("m", at(2000)).unwrap().delayed, store.damage().len()), (0, 1));
    assert_eq!(payloads(&mut store, Fetch::all("m"), at(2000)), ["now.."]);
}
