//! A reply is a promise: it leaves when what it says is durable, and not before.

use std::sync::Arc;

use mq9_core::mailbox::Policy;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

use crate::desk::Office;

#[test]
fn a_reply_waits_for_the_sync_and_an_error_does_not() {
    let mut office = Office::new();
    office.store.sync().unwrap();
    let client = office.client();
    office.request(client, "SEND.m", "", b"x");
    office.request(client, "SEND.none", "", b"x");
    office.release();
    let refused = r#"{"error":"mailbox none does not exist","msg_id":-1}"#;
    assert_eq!(office.heard(client), [refused]);
    office.store.flush().unwrap();
    office.release();
    assert!(office.heard(client).is_empty(), "written is not durable");
    office.store.sync().unwrap();
    office.release();
    assert_eq!(office.heard(client), [r#"{"error":"","msg_id":0}"#]);
}

#[test]
fn a_group_is_shown_nothing_before_its_start_is_durable() {
    let mut office = Office::new();
    let client = office.client();
    office.ask(client, "SEND.m", "", "x");
    office.request(client, "FETCH.m", "", br#"{"group_name":"g","deliver":"earliest"}"#);
    office.release();
    assert!(office.heard(client).is_empty());
    office.store.sync().unwrap();
    office.release();
    assert_eq!(office.heard(client).len(), 1);
}

#[test]
fn messages_are_shown_when_they_are_durable_though_their_delivery_is_not() {
    let mut office = Office::new();
    let client = office.client();
    let fetch = r#"{"group_name":"g","deliver":"earliest","config":{"max_wait_ms":0}}"#;
    office.ask(client, "FETCH.m", "", fetch);
    office.request(client, "SEND.m", "", b"x");
    office.request(client, "FETCH.m", "", fetch.as_bytes());
    office.release();
    assert!(office.heard(client).is_empty(), "the message is not durable");
    office.store.sync().unwrap();
    office.release();
    assert_eq!(office.heard(client).len(), 2);
    office.request(client, "FETCH.m", "", fetch.as_bytes());
    office.release();
    let again = office.heard(client);
    assert!(again[0].contains(r#""deliveries":1"#), "{again:?}");
    office.request(client, "ACK.m", "", br#"{"group_name":"g","msg_id":0}"#);
    office.release();
    assert!(office.heard(client).is_empty(), "an acknowledgement is a promise");
    office.store.sync().unwrap();
    office.release();
    assert_eq!(office.heard(client), [r#"{"error":""}"#]);
}

#[test]
fn after_a_failed_sync_everyone_who_waits_is_told() {
    let faults = Faults::new();
    let disk = Arc::new(FaultyDisk::new(SimDisk::new(), faults.clone()));
    let mut office = Office::on(disk).unwrap();
    office.create("m", Policy::default());
    let client = office.client();
    office.ask(client, "SEND.m", "", "kept");
    office.request(client, "SEND.m", "", b"lost");
    faults.fail(Operation::Sync, Fault::io());
    let error = office.store.sync().unwrap_err();
    office.post.fail(office.store.acknowledged(), &error);
    office.release();
    let heard = office.heard(client);
    assert!(heard[0].starts_with(r#"{"error":""#) && heard[0].ends_with(r#""msg_id":-1}"#));
    assert!(!heard[0].contains(r#""error":"""#), "{heard:?}");
    assert!(!office.post.is_holding());
    office.request(client, "SEND.m", "", b"later");
    office.release();
    assert!(office.heard(client)[0].contains("writes stopped"));
}

#[test]
fn after_a_failed_sync_a_poll_that_ended_meanwhile_is_answered_too() {
    let faults = Faults::new();
    let disk = Arc::new(FaultyDisk::new(SimDisk::new(), faults.clone()));
    let mut office = Office::on(disk).unwrap();
    office.create("m", Policy::default());
    office.create("quiet", Policy::default());
    office.store.sync().unwrap();
    let client = office.client();
    office.request(client, "FETCH.quiet", "", br#"{"config":{"max_wait_ms":300}}"#);
    office.now.mono_ms += 301;
    // Ends the poll, whose reply comes behind its own and promises less.
    office.request(client, "SEND.m", "", b"lost");
    office.post.collect(&mut office.store, office.now);
    faults.fail(Operation::Sync, Fault::io());
    let error = office.store.sync().unwrap_err();
    office.post.fail(office.store.acknowledged(), &error);
    office.release();
    let heard = office.heard(client);
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(!office.post.is_holding());
}

/// A client's view of a session that may be cut anywhere: the payloads it was promised.
fn session(disk: &SimDisk, sync: bool) -> Vec<String> {
    let mut promised = Vec::new();
    let Ok(mut office) = Office::on(Arc::new(disk.clone())) else { return promised };
    let new = mq9_core::store::NewMailbox { address: "m", ..Default::default() };
    if office.store.create_mailbox(&new, office.now).is_err() {
        return promised;
    }
    let client = office.client();
    for round in 0..6 {
        let payloads: Vec<String> = (0..3).map(|n| format!("r{round}n{n}")).collect();
        for payload in &payloads {
            office.request(client, "SEND.m", "", payload.as_bytes());
        }
        let body = br#"{"group_name":"g","deliver":"earliest","config":{"max_wait_ms":0}}"#;
        office.request(client, "FETCH.m", "", body);
        let outcome = if sync { office.store.sync() } else { office.store.flush() };
        if let Err(error) = outcome {
            office.post.fail(office.store.acknowledged(), &error);
        }
        office.release();
        let kept = |reply: &&String| reply.starts_with(r#"{"error":"","msg_id""#);
        let heard = office.heard(client);
        promised.extend(payloads.iter().zip(heard.iter().filter(kept)).map(|(p, _)| p.clone()));
        if disk.is_cut() {
            break;
        }
    }
    promised
}

#[test]
fn what_was_promised_is_there_after_a_power_cut_at_every_operation() {
    let whole = SimDisk::new();
    assert_eq!(session(&whole, true).len(), 18);
    let operations = whole.ops();
    let mut promises = 0;
    for cut in 0..operations {
        let disk = SimDisk::new();
        disk.cut_at(cut);
        let promised = session(&disk, true);
        promises += promised.len();
        for after in [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()] {
            let mut office = Office::on(Arc::new(after)).unwrap();
            let client = office.client();
            let all = office.ask(client, "FETCH.m", "", r#"{"deliver":"earliest"}"#);
            for payload in &promised {
                assert!(all.contains(payload), "cut at {cut}: {payload} is lost: {all}");
            }
        }
    }
    assert!(promises > 0);
}

#[test]
fn without_the_sync_nothing_is_promised() {
    assert!(session(&SimDisk::new(), false).is_empty());
}
