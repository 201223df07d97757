//! MAILBOX.QUERY: what one reply tells is read by it, and nothing else.

use std::sync::Arc;

use mq9_core::front::PermissionsBuilder;
use mq9_core::mailbox::Policy;
use mq9_core::store::Options;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};
use serde_json::Value;

use crate::driver::{Driver, START};
use crate::push::{payloads, publish, say};

fn payloads_of(reply: &Value) -> Vec<&str> {
    let messages = reply["messages"].as_array().unwrap().iter();
    messages.map(|message| message["payload"].as_str().unwrap()).collect()
}

#[test]
fn one_reply_gives_what_fits_and_only_that_is_read() {
    let mut driver = Driver::new();
    let (sender, owner) = (driver.client(), driver.client());
    for nth in 0..500 {
        publish(&mut driver, sender, "INBOX.m.normal", &nth.to_string());
    }
    let large = "\u{1}".repeat(100_000);
    for _ in 0..5 {
        publish(&mut driver, sender, "INBOX.m.notify", &large);
    }
    publish(&mut driver, sender, "INBOX.m.urgent", "first");
    let reply = driver.unread(owner, "m").unwrap();
    assert_eq!((&reply["mail_id"], &reply["unread"]), (&"m".into(), &506.into()));
    let first = payloads_of(&reply);
    assert_eq!((first[..3].to_vec(), &reply["more"]), (vec!["first", "0", "1"], &true.into()));
    // Each of the large ones takes six times as much in JSON.
    assert_eq!(first.len(), 502);
    let mut came = first.len();
    loop {
        let reply = driver.unread(owner, "m").unwrap();
        assert_eq!(reply["unread"], 506 - came);
        if payloads_of(&reply).is_empty() {
            assert_eq!(reply["more"], Value::Null);
            break;
        }
        came += payloads_of(&reply).len();
    }
    assert_eq!(came, 506);
    say(&mut driver, owner, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(payloads(&mut driver, owner), [""; 0]);
}

#[test]
fn nothing_is_read_where_nobody_hears_the_reply() {
    let mut driver = Driver::new();
    let (sender, owner, gone) = (driver.client(), driver.client(), driver.client());
    publish(&mut driver, sender, "INBOX.m.normal", "a");
    driver.ask_unread(owner, "m", "");
    // Another listens there: it would not be told either.
    driver.ask_unread(owner, "m", &format!("in{sender}.x"));
    driver.leave(gone);
    driver.ask_unread(gone, "m", &format!("in{gone}.x"));
    driver.settle();
    assert_eq!(driver.wire(sender), "");
    assert_eq!(payloads_of(&driver.unread(owner, "m").unwrap()), ["a"]);
    assert_eq!(payloads_of(&driver.unread(owner, "m").unwrap()), [""; 0]);
}

#[test]
fn the_reply_waits_until_it_is_durable_that_they_are_read() {
    let disk = SimDisk::new();
    let mut driver = Driver::on(Arc::new(disk.clone())).unwrap();
    driver.create("m", Policy::default());
    let (sender, owner) = (driver.client(), driver.client());
    publish(&mut driver, sender, "INBOX.m.normal", "a");
    driver.ask_unread(owner, "m", &format!("in{owner}.x"));
    driver.release();
    assert_eq!(driver.wire(owner), "", "it may still be forgotten");
    let lost = Driver::with(Arc::new(disk.crash_strict()), Options::default(), START);
    assert_eq!(payloads_of(&ask(&mut lost.unwrap())), ["a"]);
    driver.settle();
    assert!(driver.wire(owner).contains(r#""payload":"a""#));
    let kept = Driver::with(Arc::new(disk.crash_strict()), Options::default(), START);
    assert_eq!(payloads_of(&ask(&mut kept.unwrap())), [""; 0]);
}

fn ask(driver: &mut Driver) -> Value {
    let owner = driver.client();
    driver.unread(owner, "m").unwrap()
}

#[test]
fn an_error_reads_nothing() {
    let mut failed = 0;
    for fill in 0..250 {
        let (disk, faults) = (SimDisk::new(), Faults::new());
        let faulty = FaultyDisk::new(disk, faults.clone());
        let options = Options {
            segment_bytes: 4096,
            allocate_bytes: 4096,
            checkpoint_bytes: 1 << 30,
            ..Options::default()
        };
        let mut driver = Driver::with(Arc::new(faulty), options, START).unwrap();
        driver.create("m", Policy::default());
        driver.create("filler", Policy::default());
        let (sender, owner) = (driver.client(), driver.client());
        publish(&mut driver, sender, "INBOX.m.normal", "a");
        publish(&mut driver, sender, "INBOX.m.normal", "b");
        for _ in 0..2 {
            publish(&mut driver, sender, "INBOX.filler.normal", &"x".repeat(fill * 8));
        }
        for operation in [Operation::Create, Operation::Allocate, Operation::SetLen] {
            faults.fail(operation, Fault::io());
        }
        let reply = driver.unread(owner, "m").unwrap();
        faults.clear();
        let mut came = payloads_of(&reply);
        let again = driver.unread(owner, "m").unwrap();
        if reply["error"] != "" {
            failed += 1;
            assert_eq!((came.len(), &reply["mail_id"]), (0, &"".into()), "with {fill}");
            came = payloads_of(&again);
        } else {
            assert_eq!(payloads_of(&again), [""; 0]);
        }
        assert_eq!(came, ["a", "b"], "with {fill}");
    }
    assert!(failed > 0, "the fault has not happened");
}

#[test]
fn whoever_is_denied_fetch_is_given_nothing_for_a_token_either() {
    let mut driver = Driver::new();
    let (sender, owner) = (driver.client(), driver.client());
    publish(&mut driver, sender, "INBOX.m.normal", "a");
    let publish_deny = vec!["$mq9.AI.MSG.FETCH.m".to_owned()];
    driver.permit(owner, PermissionsBuilder { publish_deny, ..Default::default() });
    let reply = driver.unread(owner, "m").unwrap();
    assert_eq!(reply["error"], "permission denied: you may not fetch from m");
    assert_eq!(payloads_of(&driver.unread(sender, "m").unwrap()), ["a"]);
}

#[test]
fn the_owner_of_a_mailbox_that_was_there_before_is_given_nothing() {
    let mut driver = Driver::new();
    let owner = driver.client();
    driver.now.wall_ms += 1;
    let now = driver.now;
    driver.store().remove_mailbox("m", now).unwrap();
    let (cid, reply) = (driver.engine.front().cid(owner).unwrap(), format!("in{owner}.x"));
    driver.create("m", Policy::default());
    publish(&mut driver, owner, "INBOX.m.normal", "a");
    let asked = mq9_core::partition::Unread {
        cid,
        reply: reply.as_bytes(),
        address: "m",
        created_ms: START.wall_ms,
        always_base64: false,
    };
    driver.engine.give_unread(&asked, driver.moment());
    driver.settle();
    assert!(driver.heard(owner)[0].contains("mailbox m does not exist"));
    assert_eq!(payloads_of(&driver.unread(owner, "m").unwrap()), ["a"]);
}

#[test]
fn what_was_read_of_a_work_queue_leaves_it() {
    let disk = SimDisk::new();
    let mut driver = Driver::on(Arc::new(disk.clone())).unwrap();
    driver.create("w", Policy { work_queue: true, ..Policy::default() });
    let (sender, reader) = (driver.client(), driver.client());
    for payload in ["a", "b"] {
        publish(&mut driver, sender, "INBOX.w.normal", payload);
    }
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.w.* 2\r\nUNSUB 2 1\r\n");
    let left = |driver: &Driver| driver.store().mailbox("w", driver.now).unwrap().messages;
    assert_eq!(left(&driver), 2, "it has not answered");
    assert_eq!(payloads(&mut driver, reader), ["a"]);
    driver.settle();
    assert_eq!(left(&driver), 1);
    assert_eq!(payloads_of(&driver.unread(sender, "w").unwrap()), ["b"]);
    assert_eq!(left(&driver), 0);
    driver.store().sync().unwrap();
    drop(driver);
    let driver = Driver::with(Arc::new(disk.crash_strict()), Options::default(), START).unwrap();
    assert_eq!(left(&driver), 0, "after a crash");
}
