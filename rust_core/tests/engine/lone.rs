//! Whoever has one client to serve syncs what its reply waits for, and promises no more than the sync thread does.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use mq9_core::front::ConnId;
use mq9_core::mailbox::Policy;
use mq9_core::store::NewMailbox;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

use crate::driver::Driver;

const FETCH: &[u8] = br#"{"group_name":"g","deliver":"earliest","config":{"max_wait_ms":0}}"#;

/// Settles as a caller with one client does; a sync takes so long.
fn settle_alone(driver: &mut Driver, took: Duration) {
    let time = Cell::new(Duration::ZERO);
    let clock = || time.replace(time.get() + took);
    driver.engine.settle_or_sync(driver.moment(), &clock);
    driver.engine.check_invariants();
}

fn durable(driver: &Driver) -> bool {
    let store = driver.store();
    store.acknowledged() == store.end()
}

/// What a client hears at once of a message that it sends.
fn send(driver: &mut Driver, client: ConnId, took: Duration) -> Vec<String> {
    driver.request(client, "SEND.m", "", b"x");
    settle_alone(driver, took);
    driver.heard(client)
}

#[test]
fn a_lone_reply_leaves_at_once_and_is_true() {
    let mut driver = Driver::new();
    driver.store().sync().unwrap();
    let client = driver.client();
    assert_eq!(send(&mut driver, client, Duration::ZERO), [r#"{"error":"","msg_id":0}"#]);
    assert!(durable(&driver));
}

#[test]
fn beside_others_the_sync_thread_does_it() {
    let mut driver = Driver::new();
    driver.store().sync().unwrap();
    let (client, other) = (driver.client(), driver.client());
    assert!(send(&mut driver, client, Duration::ZERO).is_empty(), "the other has just come");
    driver.pass_ms(5);
    assert_eq!(driver.heard(client).len(), 1);
    assert_eq!(send(&mut driver, client, Duration::ZERO).len(), 1);
    // Whoever talks would wait for the disk, so do those who are no clients.
    driver.feed(other, b"PING\r\n");
    assert!(send(&mut driver, client, Duration::ZERO).is_empty());
    driver.pass_ms(5);
    driver.heard(client);
    driver.engine.heard_other(driver.moment());
    assert!(send(&mut driver, client, Duration::ZERO).is_empty());
    driver.pass_ms(5);
    driver.heard(client);
    assert_eq!(send(&mut driver, client, Duration::ZERO).len(), 1);
}

#[test]
fn several_replies_are_left_to_the_sync_thread() {
    let mut driver = Driver::new();
    driver.store().sync().unwrap();
    let client = driver.client();
    driver.request(client, "SEND.m", "", b"x");
    assert!(send(&mut driver, client, Duration::ZERO).is_empty(), "nobody has synced");
    assert!(!durable(&driver));
    driver.settle();
    assert_eq!(driver.heard(client).len(), 2);
}

#[test]
fn after_a_long_sync_the_sync_thread_does_it_until_syncs_are_short_again() {
    let mut driver = Driver::new();
    driver.store().sync().unwrap();
    let client = driver.client();
    assert_eq!(send(&mut driver, client, Duration::from_millis(2)).len(), 1);
    assert!(send(&mut driver, client, Duration::ZERO).is_empty(), "the last one took long");
    let syncer = driver.store().syncer();
    for _ in 0..8 {
        assert!(!syncer.is_quick());
        assert!(syncer.sync_here(&|| Duration::ZERO));
    }
    driver.settle();
    assert_eq!(driver.heard(client).len(), 1);
    assert_eq!(send(&mut driver, client, Duration::ZERO).len(), 1);
}

#[test]
fn a_failed_sync_of_the_caller_stops_writes_for_good() {
    let faults = Faults::new();
    let disk = Arc::new(FaultyDisk::new(SimDisk::new(), faults.clone()));
    let mut driver = Driver::on(disk).unwrap();
    driver.create("m", Policy::default());
    driver.store().sync().unwrap();
    let client = driver.client();
    faults.fail(Operation::Sync, Fault::io().times(1));
    let heard = send(&mut driver, client, Duration::ZERO);
    assert!(heard.len() == 1 && heard[0].contains("writes stopped"), "{heard:?}");
    assert_eq!(faults.failures(Operation::Sync), 1);
    // The disk would sync again, which proves nothing.
    let heard = send(&mut driver, client, Duration::ZERO);
    assert!(heard[0].contains("writes stopped"), "{heard:?}");
    assert!(!driver.engine.partition().is_waiting());
}

#[test]
fn what_nobody_waits_for_is_synced_a_little_later() {
    let mut driver = Driver::new();
    let client = driver.client();
    driver.ask(client, "SEND.m", "", "x");
    driver.request(client, "FETCH.m", "", FETCH);
    driver.settle();
    assert_eq!(driver.heard(client).len(), 1, "the group began");
    let nak = br#"{"group_name":"g","msg_id":0,"kind":"nak"}"#;
    driver.request(client, "ACK.m", "", nak);
    driver.settle();
    driver.heard(client);
    // Shown at once: that it was delivered may be forgotten.
    driver.request(client, "FETCH.m", "", FETCH);
    settle_alone(&mut driver, Duration::ZERO);
    assert_eq!(driver.heard(client).len(), 1);
    assert!(!durable(&driver), "nobody waits for it");
    let due_ms = driver.engine.due_in_ms(driver.moment()).unwrap();
    assert!((1..=2).contains(&due_ms), "{due_ms}");
    // Its reply waits for both.
    let ack = br#"{"group_name":"g","msg_id":0}"#;
    driver.request(client, "ACK.m", "", ack);
    settle_alone(&mut driver, Duration::ZERO);
    assert_eq!(driver.heard(client), [r#"{"error":""}"#]);
    assert!(durable(&driver));
    assert!(driver.engine.due_in_ms(driver.moment()).is_none_or(|due_ms| due_ms > 2));
}

/// A client's view of a session that may be cut anywhere: what it was promised to be stored, and to be done with.
fn session(disk: &SimDisk) -> (Vec<String>, Vec<u64>) {
    let (mut stored, mut done) = (Vec::new(), Vec::new());
    let Ok(mut driver) = Driver::on(Arc::new(disk.clone())) else { return (stored, done) };
    let new = NewMailbox { address: "m", ..Default::default() };
    if driver.store().create_mailbox(&new, driver.now).is_err() {
        return (stored, done);
    }
    let client = driver.client();
    for round in 0..8 {
        let payload = format!("message-{round}.");
        let ack = format!(r#"{{"group_name":"g","msg_id":{round}}}"#);
        let requests: [(&str, &[u8]); 3] =
            [("SEND.m", payload.as_bytes()), ("FETCH.m", FETCH), ("ACK.m", ack.as_bytes())];
        for (command, body) in requests {
            driver.request(client, command, "", body);
            settle_alone(&mut driver, Duration::ZERO);
            let heard = driver.heard(client);
            let ok = heard.first().is_some_and(|reply| reply.starts_with(r#"{"error":"""#));
            match command {
                "SEND.m" if ok => stored.push(payload.clone()),
                "ACK.m" if ok => done.push(round),
                _ => {}
            }
            if disk.is_cut() {
                return (stored, done);
            }
        }
    }
    (stored, done)
}

#[test]
fn what_was_promised_alone_is_there_after_a_power_cut_at_every_operation() {
    let whole = SimDisk::new();
    let (stored, done) = session(&whole);
    assert_eq!((stored.len(), done.len()), (8, 8));
    let mut promises = 0;
    for cut in 0..whole.ops() {
        let disk = SimDisk::new();
        disk.cut_at(cut);
        let (stored, done) = session(&disk);
        promises += stored.len() + done.len();
        for after in [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()] {
            let mut driver = Driver::on(Arc::new(after)).unwrap();
            let client = driver.client();
            let all = driver.ask(client, "FETCH.m", "", r#"{"deliver":"earliest"}"#);
            for payload in &stored {
                assert!(all.contains(payload), "cut at {cut}: {payload} is lost: {all}");
            }
            let fetch = std::str::from_utf8(FETCH).unwrap();
            let given = driver.ask(client, "FETCH.m", "", fetch);
            for id in &done {
                let payload = format!("message-{id}.");
                assert!(!given.contains(&payload), "cut at {cut}: {payload} comes again: {given}");
            }
        }
    }
    assert!(promises > 100, "only {promises} promises");
}

#[test]
fn a_node_that_may_not_reply_rests_until_the_stream_answers() {
    let mut driver = Driver::new();
    driver.store().sync().unwrap();
    let (reader, sender) = (driver.client(), driver.client());
    driver.feed(reader, b"SUB $mq9.AI.MAILBOX.MSG.m.* 2\r\n");
    driver.settle();
    driver.heard(reader);
    let syncer = driver.store().syncer();
    syncer.begin_lease(0);
    // News for a reader, a reader that is gone, and an answer that must wait.
    driver.request(sender, "SEND.m", "", b"x");
    driver.feed(reader, b"UNSUB 2\r\nSUB $mq9.AI.MAILBOX.MSG.m.* 3\r\n");
    driver.settle();
    assert!(driver.heard(sender).is_empty(), "another node may lead");
    assert!(!driver.engine.wants_to_settle(driver.moment()), "it would turn without an end");
    assert_ne!(driver.engine.due_in_ms(driver.moment()), Some(0));
    syncer.begin_lease(u64::MAX);
    driver.settle();
    assert_eq!(driver.heard(sender).len(), 1);
    assert_eq!(driver.heard(reader).len(), 1);
}

#[test]
fn how_long_syncs_took_and_replies_waited_is_counted() {
    let mut driver = Driver::new();
    driver.store().sync().unwrap();
    let client = driver.client();
    let counted = |driver: &Driver| {
        let commits = driver.engine.commit_latencies();
        (commits.counts().iter().sum::<u64>(), commits.sum_us())
    };
    let (before, us) = counted(&driver);
    send(&mut driver, client, Duration::from_micros(700));
    // The caller has waited for the disk itself: that counts, too.
    let (count, sum) = counted(&driver);
    assert_eq!(count - before, 1);
    assert!(sum - us >= 700, "{} us", sum - us);
    assert_eq!(driver.store().syncer().latencies().counts().iter().sum::<u64>(), 1);
    assert_eq!(driver.store().syncer().latencies().sum_us(), 700);
    // Two replies wait for the sync of somebody else.
    let (before, us) = counted(&driver);
    driver.request(client, "SEND.m", "", b"x");
    driver.request(client, "SEND.m", "", b"y");
    settle_alone(&mut driver, Duration::ZERO);
    assert_eq!(counted(&driver), (before, us), "they have not left");
    driver.pass_ms(5);
    let (count, sum) = counted(&driver);
    assert_eq!(count - before, 2);
    assert!(sum - us >= 2 * 5_000, "{} us", sum - us);
}
