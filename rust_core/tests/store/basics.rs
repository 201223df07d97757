//! The store's commands on a real directory, one behaviour a test.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::disk::{Disk, OsDisk};
use mq9_core::error::Error;
use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::{Ack, AckKind, Fetch, FetchOutcome, NewMailbox, Options, Send, Start, Store};
use mq9_core::time::Now;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

struct House {
    dir: tempfile::TempDir,
}

impl House {
    fn new() -> House {
        House { dir: tempfile::tempdir().unwrap() }
    }

    fn open(&self, now: Now) -> Store {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(self.dir.path()).unwrap());
        Store::open(disk, Options::default(), 42, now).unwrap()
    }
}

fn create(store: &mut Store, address: &str) {
    store.create_mailbox(&NewMailbox { address, ..Default::default() }, START).unwrap();
}

fn send(store: &mut Store, address: &str, level: Level, payload: &str) -> Option<u64> {
    store.send(address, &Send { level, ..Send::new(payload.as_bytes()) }, START).unwrap()
}

fn fetch(store: &mut Store, group: &str, max: usize, now: Now) -> Vec<String> {
    let request = Fetch { start: Start::Earliest, ..Fetch::group("a", group, max) };
    match store.fetch(request, now).unwrap() {
        FetchOutcome::Messages(batch) => {
            batch.iter().map(|(_, m)| String::from_utf8(m.payload.to_vec()).unwrap()).collect()
        }
        FetchOutcome::Waiting(_) => panic!("did not ask to wait"),
    }
}

fn ack(store: &mut Store, group: &str, msg_id: u64) -> Result<(), Error> {
    let kind = AckKind::Done { only: false };
    store.ack(&Ack { address: "a", group, msg_ids: &[msg_id], kind }, START)
}

#[test]
fn messages_come_by_level_then_offset_and_survive_both_kinds_of_reopen() {
    let house = House::new();
    let mut store = house.open(START);
    create(&mut store, "a");
    assert_eq!(send(&mut store, "a", Level::NORMAL, "n0"), Some(0));
    assert_eq!(send(&mut store, "a", Level::CRITICAL, "c1"), Some(1));
    assert_eq!(send(&mut store, "a", Level::NORMAL, "n2"), Some(2));
    assert_eq!(fetch(&mut store, "g", 2, START), ["c1", "n0"]);
    store.flush().unwrap();
    drop(store);

    let mut store = house.open(START);
    assert_eq!(store.damage(), []);
    ack(&mut store, "g", 0).unwrap();
    store.close().unwrap();

    let mut store = house.open(START);
    assert_eq!(store.damage(), []);
    assert_eq!(fetch(&mut store, "g", 10, START), ["n2"]);
    assert!(matches!(ack(&mut store, "g", 7), Err(Error::NotGiven { .. })));
    ack(&mut store, "g", 0).unwrap();
}

#[test]
fn a_second_process_is_told_that_the_directory_is_in_use() {
    let house = House::new();
    let _store = house.open(START);
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(house.dir.path()).unwrap());
    assert!(matches!(Store::open(disk, Options::default(), 1, START), Err(Error::Locked)));
}

#[test]
fn a_delayed_message_appears_when_due_also_after_a_restart() {
    let house = House::new();
    let mut store = house.open(START);
    create(&mut store, "a");
    let delayed = Send { delay_ms: 500, ..Send::new(b"later") };
    assert_eq!(store.send("a", &delayed, START).unwrap(), None);
    assert_eq!(fetch(&mut store, "g", 10, at(499)), [""; 0]);
    store.close().unwrap();
    let mut store = house.open(at(499));
    assert_eq!(fetch(&mut store, "g", 10, at(499)), [""; 0]);
    assert_eq!(fetch(&mut store, "g", 10, at(500)), ["later"]);
}

#[test]
fn what_was_fetched_again_and_again_was_delivered_once_after_a_restart_too() {
    let house = House::new();
    let mut store = house.open(START);
    store.create_mailbox(&NewMailbox { address: "a", ..Default::default() }, START).unwrap();
    let deliveries = |store: &mut Store| -> Vec<(u64, u32)> {
        let request = Fetch { start: Start::Earliest, ..Fetch::group("a", "g", 10) };
        let FetchOutcome::Messages(batch) = store.fetch(request, at(1)).unwrap() else { panic!() };
        batch.iter().map(|(meta, _)| (meta.msg_id, meta.deliveries)).collect()
    };
    send(&mut store, "a", Level::NORMAL, "first");
    assert_eq!(deliveries(&mut store), [(0, 1)]);
    send(&mut store, "a", Level::URGENT, "second");
    for _ in 0..3 {
        assert_eq!(deliveries(&mut store), [(1, 1), (0, 1)]);
    }
    store.close().unwrap();
    let mut store = house.open(at(1));
    assert_eq!(deliveries(&mut store), [(1, 2), (0, 2)]);
}

#[test]
fn a_message_dies_after_max_deliver_and_moves_to_the_dead_letter_mailbox() {
    let house = House::new();
    let mut store = house.open(START);
    let policy = Policy { max_deliver: 2, dead_letter: Some("dead".into()), ..Default::default() };
    store
        .create_mailbox(&NewMailbox { address: "a", policy, ..Default::default() }, START)
        .unwrap();
    send(&mut store, "a", Level::NORMAL, "poison");
    assert_eq!(fetch(&mut store, "g", 1, at(0)), ["poison"]);
    store.disconnect(0, at(1));
    assert_eq!(fetch(&mut store, "g", 1, at(1)), ["poison"]);
    store.tick(at(30_001));
    let batch = match store.fetch(Fetch::all("dead"), at(30_001)).unwrap() {
        FetchOutcome::Messages(batch) => batch,
        FetchOutcome::Waiting(_) => panic!(),
    };
    let (_, message) = batch.iter().next().unwrap();
    assert_eq!(message.payload, b"poison");
    let headers = String::from_utf8(message.headers.to_vec()).unwrap();
    assert!(headers.contains("mq9-dead-reason: max_deliver\r\n"), "{headers}");
    assert!(headers.contains("mq9-dead-deliveries: 2\r\n"), "{headers}");
    assert_eq!(fetch(&mut store, "g", 1, at(30_002)), [""; 0]);
}

#[test]
fn a_waiting_fetch_is_answered_by_the_next_send() {
    let house = House::new();
    let mut store = house.open(START);
    create(&mut store, "a");
    let request = Fetch { wait_ms: 1000, ..Fetch::group("a", "g", 10) };
    let FetchOutcome::Waiting(waiter) = store.fetch(request, START).unwrap() else { panic!() };
    assert!(store.completions(START).is_empty());
    send(&mut store, "a", Level::NORMAL, "hello");
    let done = store.completions(START);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].waiter, waiter);
    assert_eq!(done[0].outcome.as_ref().unwrap().len(), 1);
}

#[test]
fn the_end_of_the_log_is_acknowledged_also_when_a_new_segment_holds_nothing_yet() {
    let house = House::new();
    let mut store = house.open(START);
    create(&mut store, "a");
    store.rotate(START).unwrap();
    store.sync().unwrap();
    assert_eq!(store.acknowledged(), store.end());
}

#[test]
fn a_message_can_be_checked_before_it_is_sent() {
    let house = House::new();
    let mut store = house.open(START);
    let policy = Policy { max_msg_size: 200, ..Default::default() };
    let new = NewMailbox { address: "a", policy, ..Default::default() };
    store.create_mailbox(&new, START).unwrap();
    let (large, long) = (vec![0; 200], "k".repeat(1025));
    store.check_send("a", &Send::new(b"small"), START).unwrap();
    let checked = store.check_send("a", &Send::new(&large), START);
    assert!(matches!(checked, Err(Error::MessageTooLarge { limit: 200, .. })));
    let checked = store.check_send("a", &Send { key: &long, ..Send::new(b"") }, START);
    assert!(matches!(checked, Err(Error::InvalidField { field: "key", .. })));
    let checked = store.check_send("b", &Send::new(b""), START);
    assert!(matches!(checked, Err(Error::MailboxNotFound(_))));
}

/// Batches are cut into parts inside: the outcomes are those of one send after the other.
#[test]
fn messages_sent_at_once_go_where_each_is_sent_and_fail_each_for_itself() {
    let house = House::new();
    let mut store = house.open(START);
    let addresses: Vec<String> = (0..100).map(|n| format!("box.{n}")).collect();
    for (n, address) in addresses.iter().enumerate() {
        let ttl_ms = if n == 50 { 10 } else { 0 };
        let policy = Policy { max_msg_size: if n == 60 { 70 } else { 0 }, ..Policy::default() };
        let new = NewMailbox { address, ttl_ms, policy, ..Default::default() };
        store.create_mailbox(&new, START).unwrap();
    }
    store.remove_mailbox("box.40", START).unwrap();
    let payload = [7; 100];
    let twice = addresses.iter().chain(&addresses);
    let batch: Vec<_> = twice.map(|address| (address.as_str(), Send::new(&payload))).collect();
    let outcomes = store.send_many(&batch, at(20));
    assert_eq!(outcomes.len(), 200);
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match n % 100 {
            40 | 50 => assert!(matches!(outcome, Err(Error::MailboxNotFound(_))), "{n}"),
            60 => assert!(matches!(outcome, Err(Error::MessageTooLarge { .. })), "{n}"),
            _ => assert_eq!(outcome.unwrap(), Some(n as u64 / 100)),
        }
    }
    for address in ["box.0", "box.31", "box.32", "box.99"] {
        assert_eq!(store.mailbox(address, at(20)).unwrap().messages, 2, "{address}");
    }
}

/// So many that some of them have the same hash of 32 bits: 10 pairs are to be expected, and there is one in 29,999 of
/// 30,000 runs.
#[test]
fn a_message_is_for_the_mailbox_of_its_address_and_for_no_other_of_the_same_hash() {
    let house = House::new();
    let mut store = house.open(START);
    let addresses: Vec<String> = (0..300_000).map(|n| format!("agent.{n}")).collect();
    for address in &addresses {
        create(&mut store, address);
    }
    for some in addresses.chunks(100) {
        let messages: Vec<_> = some.iter().map(|a| (a.as_str(), Send::new(b"first"))).collect();
        for sent in store.send_many(&messages, START) {
            assert_eq!(sent.unwrap(), Some(0));
        }
    }
    for address in &addresses {
        assert_eq!(send(&mut store, address, Level::NORMAL, "second"), Some(1));
    }
}
