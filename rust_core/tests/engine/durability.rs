//! A reply is a promise: it leaves when what it says is durable, and not before.

use std::sync::Arc;

use mq9_core::mailbox::Policy;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

use crate::driver::Driver;
use crate::push;

#[test]
fn a_reply_waits_for_the_sync_and_an_error_does_not() {
    let mut driver = Driver::new();
    driver.store().sync().unwrap();
    let client = driver.client();
    driver.request(client, "SEND.m", "", b"x");
    driver.request(client, "SEND.none", "", b"x");
    driver.release();
    let refused = r#"{"error":"mailbox none does not exist","msg_id":-1}"#;
    assert_eq!(driver.heard(client), [refused]);
    driver.store().flush().unwrap();
    driver.release();
    assert!(driver.heard(client).is_empty(), "written is not durable");
    driver.store().sync().unwrap();
    driver.release();
    assert_eq!(driver.heard(client), [r#"{"error":"","msg_id":0}"#]);
}

#[test]
fn a_group_is_shown_nothing_before_its_start_is_durable() {
    let mut driver = Driver::new();
    let client = driver.client();
    driver.ask(client, "SEND.m", "", "x");
    driver.request(client, "FETCH.m", "", br#"{"group_name":"g","deliver":"earliest"}"#);
    driver.release();
    assert!(driver.heard(client).is_empty());
    driver.store().sync().unwrap();
    driver.release();
    assert_eq!(driver.heard(client).len(), 1);
}

#[test]
fn messages_are_shown_when_they_are_durable_though_their_delivery_is_not() {
    let mut driver = Driver::new();
    let client = driver.client();
    let fetch = r#"{"group_name":"g","deliver":"earliest","config":{"max_wait_ms":0}}"#;
    driver.ask(client, "FETCH.m", "", fetch);
    driver.request(client, "SEND.m", "", b"x");
    driver.request(client, "FETCH.m", "", fetch.as_bytes());
    driver.release();
    assert!(driver.heard(client).is_empty(), "the message is not durable");
    driver.store().sync().unwrap();
    driver.release();
    assert_eq!(driver.heard(client).len(), 2);
    driver.request(client, "FETCH.m", "", fetch.as_bytes());
    driver.release();
    let again = driver.heard(client);
    assert!(again[0].contains(r#""deliveries":1"#), "{again:?}");
    driver.request(client, "ACK.m", "", br#"{"group_name":"g","msg_id":0}"#);
    driver.release();
    assert!(driver.heard(client).is_empty(), "an acknowledgement is a promise");
    driver.store().sync().unwrap();
    driver.release();
    assert_eq!(driver.heard(client), [r#"{"error":""}"#]);
}

#[test]
fn a_message_of_a_mailbox_is_pushed_when_it_is_durable() {
    for (subject, queue) in
        [("MAILBOX.MSG.m", ""), ("MAILBOX.MSG.m", "workers "), ("INBOX.m.*", "")]
    {
        let mut driver = Driver::new();
        let (sender, reader) = (driver.client(), driver.client());
        push::say(&mut driver, reader, &format!("SUB $mq9.AI.{subject} {queue}2\r\n"));
        // The second is in memory alone: its number has to be used up for good, and what came before it comes first.
        for (nth, headers) in ["", "NATS/1.0\r\nmq9-persist: false\r\n\r\n"].iter().enumerate() {
            let (head, size) = (headers.len(), headers.len() + 1);
            let text = match head {
                0 => format!("PUB $mq9.AI.INBOX.m.normal 1\r\n{nth}\r\n"),
                _ => format!("HPUB $mq9.AI.INBOX.m.normal {head} {size}\r\n{headers}{nth}\r\n"),
            };
            driver.feed(sender, text.as_bytes());
        }
        driver.release();
        assert_eq!(driver.wire(reader), "", "{subject} {queue}");
        driver.store().flush().unwrap();
        driver.release();
        assert_eq!(driver.wire(reader), "", "{subject} {queue}: written is not durable");
        driver.store().sync().unwrap();
        driver.release();
        assert_eq!(push::payloads(&mut driver, reader), ["0", "1"], "{subject} {queue}");
        // The same for one that begins when the message is stored and not yet durable.
        driver.feed(sender, b"PUB $mq9.AI.MAILBOX.MSG.m.urgent 1\r\n2\r\n");
        let late = driver.client();
        driver.feed(late, b"SUB $mq9.AI.MAILBOX.MSG.m.urgent 2\r\n");
        driver.release();
        assert_eq!((driver.wire(reader), driver.wire(late)), (String::new(), String::new()));
        driver.store().sync().unwrap();
        driver.release();
        assert_eq!(push::payloads(&mut driver, late), ["2"]);
        assert_eq!(push::payloads(&mut driver, reader), ["2"], "{subject} {queue}");
    }
}

#[test]
fn the_first_message_in_memory_is_pushed_when_its_number_is_used_up_for_good() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    push::say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    driver.feed(sender, b"PUB $mq9.AI.INBOX.m.notify 1\r\na\r\n");
    driver.release();
    assert_eq!(driver.wire(reader), "");
    driver.store().sync().unwrap();
    driver.release();
    assert_eq!(push::payloads(&mut driver, reader), ["a"]);
}

#[test]
fn after_a_failed_sync_everyone_who_waits_is_told() {
    let faults = Faults::new();
    let disk = Arc::new(FaultyDisk::new(SimDisk::new(), faults.clone()));
    let mut driver = Driver::on(disk).unwrap();
    driver.create("m", Policy::default());
    let client = driver.client();
    driver.ask(client, "SEND.m", "", "kept");
    driver.request(client, "SEND.m", "", b"lost");
    faults.fail(Operation::Sync, Fault::io());
    driver.store().sync().unwrap_err();
    driver.release();
    let heard = driver.heard(client);
    assert!(heard[0].starts_with(r#"{"error":""#) && heard[0].ends_with(r#""msg_id":-1}"#));
    assert!(!heard[0].contains(r#""error":"""#), "{heard:?}");
    assert!(!driver.engine.partition().is_waiting());
    driver.request(client, "SEND.m", "", b"later");
    driver.release();
    assert!(driver.heard(client)[0].contains("writes stopped"));
}

#[test]
fn after_a_failed_sync_a_poll_that_ended_meanwhile_is_answered_too() {
    let faults = Faults::new();
    let disk = Arc::new(FaultyDisk::new(SimDisk::new(), faults.clone()));
    let mut driver = Driver::on(disk).unwrap();
    driver.create("m", Policy::default());
    driver.create("quiet", Policy::default());
    driver.store().sync().unwrap();
    let client = driver.client();
    driver.request(client, "FETCH.quiet", "", br#"{"config":{"max_wait_ms":300}}"#);
    driver.now.mono_ms += 301;
    // Ends the poll, whose reply comes behind its own and promises less.
    driver.request(client, "SEND.m", "", b"lost");
    driver.release();
    faults.fail(Operation::Sync, Fault::io());
    driver.store().sync().unwrap_err();
    driver.release();
    let heard = driver.heard(client);
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(!driver.engine.partition().is_waiting());
}

/// A client's view of a session that may be cut anywhere: the payloads it was promised.
fn session(disk: &SimDisk, sync: bool) -> Vec<String> {
    let mut promised = Vec::new();
    let Ok(mut driver) = Driver::on(Arc::new(disk.clone())) else { return promised };
    let new = mq9_core::store::NewMailbox { address: "m", ..Default::default() };
    if driver.store().create_mailbox(&new, driver.now).is_err() {
        return promised;
    }
    let client = driver.client();
    for round in 0..6 {
        let payloads: Vec<String> = (0..3).map(|n| format!("r{round}n{n}")).collect();
        for payload in &payloads {
            driver.request(client, "SEND.m", "", payload.as_bytes());
        }
        let body = br#"{"group_name":"g","deliver":"earliest","config":{"max_wait_ms":0}}"#;
        driver.request(client, "FETCH.m", "", body);
        // What fails is told by the next round.
        let _ = if sync { driver.store().sync() } else { driver.store().flush() };
        driver.release();
        let kept = |reply: &&String| reply.starts_with(r#"{"error":"","msg_id""#);
        let heard = driver.heard(client);
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
            let mut driver = Driver::on(Arc::new(after)).unwrap();
            let client = driver.client();
            let all = driver.ask(client, "FETCH.m", "", r#"{"deliver":"earliest"}"#);
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
