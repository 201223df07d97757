//! Push when the disk refuses, when time passes, and when a mailbox has very many readers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mq9_core::front::ConnId;
use mq9_core::mailbox::Policy;
use mq9_core::store::{Changes, NewMailbox, Options, Send};
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

use crate::driver::{Driver, START};
use crate::push::{payloads, publish, say};

fn small() -> Options {
    let checkpoint_bytes = 1 << 30;
    Options { segment_bytes: 4096, allocate_bytes: 4096, checkpoint_bytes, ..Options::default() }
}

fn driver_on(disk: &SimDisk, faults: &Faults, options: Options) -> Driver {
    let disk = FaultyDisk::new(disk.clone(), faults.clone());
    let mut driver = Driver::with(Arc::new(disk), options, START).unwrap();
    driver.create("m", Policy::default());
    driver.create("filler", Policy::default());
    driver
}

/// Lets the time pass that the engine says it can wait, and no longer: nobody else wakes it.
fn wait_until_due(driver: &mut Driver) {
    for _ in 0..4 {
        if let Some(ms) = driver.engine.due_in_ms(driver.moment()) {
            driver.pass_ms(ms);
        }
    }
}

/// Leaves that much less of the segment.
fn fill_up(driver: &mut Driver, sender: ConnId, fill: usize) {
    for _ in 0..2 {
        publish(driver, sender, "INBOX.filler.normal", &"x".repeat(fill * 8));
    }
}

const OF_SEGMENTS: [Operation; 3] = [Operation::Create, Operation::Allocate, Operation::SetLen];

/// A new segment cannot be made.
fn refuse_segments(faults: &Faults) {
    for operation in OF_SEGMENTS {
        faults.fail(operation, Fault::io());
    }
}

fn refused(faults: &Faults) -> u64 {
    OF_SEGMENTS.iter().map(|operation| faults.failures(*operation)).sum()
}

#[test]
fn a_reader_goes_on_after_a_read_failed_though_nothing_else_happens() {
    for subject in ["INBOX", "MAILBOX.MSG"] {
        let (disk, faults) = (SimDisk::new(), Faults::new());
        let mut driver = driver_on(&disk, &faults, Options::default());
        let (sender, reader) = (driver.client(), driver.client());
        publish(&mut driver, sender, "INBOX.m.normal", "a");
        // What is written last is in memory.
        publish(&mut driver, sender, "INBOX.filler.normal", "b");
        faults.fail(Operation::Read, Fault::io());
        say(&mut driver, reader, &format!("SUB $mq9.AI.{subject}.m.* 2\r\n"));
        assert!(faults.failures(Operation::Read) > 0, "the fault has not happened");
        assert_eq!(payloads(&mut driver, reader), [""; 0]);
        faults.clear();
        wait_until_due(&mut driver);
        assert_eq!(payloads(&mut driver, reader), ["a"], "{subject}");
    }
}

#[test]
fn what_cannot_be_recorded_for_one_reader_is_not_lost_for_another() {
    let mut failed = 0;
    for fill in 50..250 {
        let (disk, faults) = (SimDisk::new(), Faults::new());
        let mut driver = driver_on(&disk, &faults, small());
        let (sender, a, b) = (driver.client(), driver.client(), driver.client());
        for reader in [a, b] {
            say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
        }
        fill_up(&mut driver, sender, fill);
        for nth in 0..20 {
            let text = format!("PUB $mq9.AI.INBOX.m.normal 2\r\n{nth:02}\r\n");
            driver.feed(sender, text.as_bytes());
        }
        driver.release();
        driver.store().sync().unwrap();
        refuse_segments(&faults);
        driver.release();
        failed += refused(&faults);
        faults.clear();
        wait_until_due(&mut driver);
        let mut all = payloads(&mut driver, a);
        all.extend(payloads(&mut driver, b));
        all.sort();
        let expected: Vec<_> = (0..20).map(|nth| format!("{nth:02}")).collect();
        assert_eq!(all, expected, "with {fill} times 16 bytes before them");
    }
    assert!(failed > 0, "the fault has not happened");
}

#[test]
fn what_one_record_has_no_room_for_comes_once_though_the_next_could_not_be_made() {
    let mut in_between = 0;
    for fill in (50..250).step_by(10) {
        let (disk, faults) = (SimDisk::new(), Faults::new());
        let mut driver = driver_on(&disk, &faults, small());
        let (sender, reader) = (driver.client(), driver.client());
        say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\nUNSUB 2\r\n");
        for nth in 0..400 {
            let text = format!("PUB $mq9.AI.INBOX.m.normal 3\r\n{nth:03}\r\n");
            driver.feed(sender, text.as_bytes());
        }
        driver.settle();
        let now = driver.now;
        for msg_id in (1..400).step_by(2) {
            driver.store().delete("m", msg_id, now).unwrap();
        }
        fill_up(&mut driver, sender, fill);
        driver.store().sync().unwrap();
        refuse_segments(&faults);
        driver.feed(reader, b"SUB $mq9.AI.INBOX.m.* 2\r\n");
        driver.release();
        let mut all = payloads(&mut driver, reader);
        in_between += usize::from(!all.is_empty() && all.len() < 200 && refused(&faults) > 0);
        faults.clear();
        wait_until_due(&mut driver);
        all.extend(payloads(&mut driver, reader));
        let expected: Vec<_> = (0..400).step_by(2).map(|nth| format!("{nth:03}")).collect();
        assert_eq!(all, expected, "with {fill} times 16 bytes before them");
    }
    assert!(in_between > 0, "never one record without the next");
}

#[test]
fn a_reader_of_a_few_goes_on_when_they_could_not_be_recorded() {
    let mut failed = 0;
    for fill in 50..250 {
        let (disk, faults) = (SimDisk::new(), Faults::new());
        let mut driver = driver_on(&disk, &faults, small());
        let (sender, reader) = (driver.client(), driver.client());
        say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\nUNSUB 2 3\r\n");
        fill_up(&mut driver, sender, fill);
        for nth in 0..20 {
            let text = format!("PUB $mq9.AI.INBOX.m.normal 2\r\n{nth:02}\r\n");
            driver.feed(sender, text.as_bytes());
        }
        driver.release();
        driver.store().sync().unwrap();
        refuse_segments(&faults);
        driver.release();
        failed += refused(&faults);
        faults.clear();
        wait_until_due(&mut driver);
        let few = payloads(&mut driver, reader);
        assert_eq!(few, ["00", "01", "02"], "with {fill} times 16 bytes before them");
    }
    assert!(failed > 0, "the fault has not happened");
}

#[test]
fn a_mailbox_in_the_place_of_one_that_has_just_gone_is_another() {
    let mut driver = Driver::new();
    let (sender, a, b) = (driver.client(), driver.client(), driver.client());
    say(&mut driver, a, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    // Before anybody could be told.
    let now = driver.now;
    driver.store().remove_mailbox("m", now).unwrap();
    driver.create("n", Policy::default());
    driver.feed(b, b"SUB $mq9.AI.INBOX.n.* 3\r\n");
    driver.settle();
    let told = driver.wire(a);
    assert!(told.contains("NATS/1.0 404 mailbox m does not exist"), "{told}");
    publish(&mut driver, sender, "INBOX.n.normal", "x");
    assert_eq!(payloads(&mut driver, b), ["x"]);
    assert_eq!(payloads(&mut driver, a), [""; 0]);
}

#[test]
fn no_message_of_an_inbox_waits_until_it_is_written_that_it_was_given() {
    let (disk, faults) = (SimDisk::new(), Faults::new());
    let mut driver = driver_on(&disk, &faults, small());
    let (sender, reader) = (driver.client(), driver.client());
    let subscribe = "SUB $mq9.AI.INBOX.m.* 2\r\n";
    say(&mut driver, reader, subscribe);
    driver.feed(sender, b"PUB $mq9.AI.INBOX.m.normal 1\r\na\r\n");
    driver.release();
    driver.store().sync().unwrap();
    let written = faults.calls(Operation::Write);
    driver.release();
    assert!(driver.engine.front().unwritten(reader).ends_with(b"\r\na\r\nPING\r\n"));
    assert_eq!(faults.calls(Operation::Write), written);
    // The connection breaks with the power: the message is unread.
    let after = |disk: SimDisk| {
        let mut driver = Driver::with(Arc::new(disk), small(), START).unwrap();
        let reader = driver.client();
        say(&mut driver, reader, subscribe);
        payloads(&mut driver, reader)
    };
    assert_eq!(after(disk.crash_strict()), ["a"]);
    // Nobody says anything: it is written soon all the same.
    wait_until_due(&mut driver);
    assert!(faults.calls(Operation::Write) > written);
    assert_eq!(after(disk.crash_strict()), ["a"]);
    // It is written at once that the client has read it: if the process is killed, that stays.
    assert_eq!(payloads(&mut driver, reader), ["a"]);
    driver.release();
    assert_eq!(after(disk.snapshot()), [""; 0]);
    driver.settle();
    assert_eq!(after(disk.crash_strict()), [""; 0]);
}

#[test]
fn what_a_client_has_read_is_recorded_when_the_disk_is_back() {
    let mut failed = 0;
    for fill in 150..256 {
        let (disk, faults) = (SimDisk::new(), Faults::new());
        let mut driver = driver_on(&disk, &faults, small());
        let (sender, reader) = (driver.client(), driver.client());
        say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
        publish(&mut driver, sender, "INBOX.m.normal", "a");
        fill_up(&mut driver, sender, fill);
        refuse_segments(&faults);
        // It answers, which cannot be written down at once.
        assert_eq!(payloads(&mut driver, reader), ["a"]);
        driver.release();
        failed += refused(&faults);
        faults.clear();
        wait_until_due(&mut driver);
        drop(driver);
        let mut driver = Driver::with(Arc::new(disk.snapshot()), small(), START).unwrap();
        let reader = driver.client();
        say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
        assert_eq!(payloads(&mut driver, reader), [""; 0], "with {fill} times 16 bytes before it");
    }
    assert!(failed > 0, "the fault has not happened");
}

#[test]
fn expired_messages_are_not_unread() {
    let mut driver = Driver::new();
    let now = driver.now;
    for nth in 0..5000 {
        let ttl_ms = if nth % 1000 == 7 { 0 } else { 1000 };
        let send = Send { ttl_ms, ..Send::new(b"x") };
        driver.store().send("m", &send, now).unwrap();
    }
    driver.now.wall_ms += 1500;
    driver.now.mono_ms += 1500;
    let owner = driver.client();
    let reply = driver.unread(owner, "m").unwrap();
    assert_eq!((&reply["unread"], reply["messages"].as_array().unwrap().len()), (&5.into(), 5));
}

/// How long it takes to give `messages` to an inbox or queue group that this many share.
fn shared_by(readers: usize, subject: &str, messages: usize) -> Duration {
    let mut driver = Driver::new();
    let sender = driver.client();
    let readers: Vec<ConnId> = (0..readers).map(|_| driver.client()).collect();
    for &reader in &readers {
        driver.feed(reader, format!("SUB $mq9.AI.{subject}.m.* workers 2\r\n").as_bytes());
    }
    let settle = |driver: &mut Driver| {
        driver.engine.settle(driver.moment());
        driver.store().sync().unwrap();
        driver.engine.settle(driver.moment());
    };
    settle(&mut driver);
    let start = Instant::now();
    for nth in 0..messages {
        driver.feed(sender, format!("PUB $mq9.AI.INBOX.m.normal 4\r\n{nth:04}\r\n").as_bytes());
        settle(&mut driver);
    }
    let took = start.elapsed();
    let mut counts = BTreeMap::new();
    for &reader in &readers {
        *counts.entry(payloads(&mut driver, reader).len()).or_insert(0) += 1;
    }
    let given: usize = counts.iter().map(|(given, readers)| given * readers).sum();
    assert_eq!(given, messages, "{counts:?}");
    assert!(counts.keys().max() <= Some(&messages.div_ceil(readers.len())), "{counts:?}");
    took
}

#[test]
fn a_message_costs_the_same_however_many_share_the_mailbox() {
    for subject in ["INBOX", "MAILBOX.MSG"] {
        let ratio = |_| {
            let few = shared_by(10, subject, 400);
            let many = shared_by(10_000, subject, 400);
            many.as_secs_f64() / few.as_secs_f64()
        };
        // Something else may take the processor: the best of some tries counts.
        let found = (0..10).map(ratio).find(|ratio| *ratio < 6.0);
        assert!(found.is_some(), "{subject}: 1000 times the readers take 6 times the time");
    }
}

#[test]
fn a_mailbox_that_many_read_ends_for_all_of_them() {
    let mut driver = Driver::new();
    let new = NewMailbox { address: "short", ttl_ms: 1000, ..NewMailbox::default() };
    let now = driver.now;
    driver.store().create_mailbox(&new, now).unwrap();
    let readers: Vec<ConnId> = (0..50).map(|_| driver.client()).collect();
    for (nth, &reader) in readers.iter().enumerate() {
        let queue = ["", "workers "][nth % 2];
        say(&mut driver, reader, &format!("SUB $mq9.AI.MAILBOX.MSG.short.* {queue}2\r\n"));
    }
    for &reader in &readers[10..20] {
        driver.leave(reader);
    }
    driver.pass_ms(1100);
    for (nth, &reader) in readers.iter().enumerate().filter(|(nth, _)| !(10..20).contains(nth)) {
        let status = driver.wire(reader);
        assert!(status.contains("NATS/1.0 404 mailbox short does not exist"), "{nth}: {status}");
    }
}

#[test]
fn a_mailbox_of_type_latest_pushes_the_newest() {
    let mut driver = Driver::new();
    driver.create("l", Policy { latest: true, ..Policy::default() });
    let (sender, reader) = (driver.client(), driver.client());
    for payload in ["a", "b", "c"] {
        publish(&mut driver, sender, "INBOX.l.normal", payload);
    }
    say(&mut driver, reader, "SUB $mq9.AI.MAILBOX.MSG.l 2\r\n");
    assert_eq!(payloads(&mut driver, reader), ["c"]);
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.l.* 3\r\n");
    assert_eq!(payloads(&mut driver, reader), ["c"]);
    publish(&mut driver, sender, "INBOX.l.normal", "d");
    assert_eq!(payloads(&mut driver, reader), ["d", "d"]);
    // What was replaced before anybody could be given it is not pushed.
    driver.feed(
        sender,
        b"PUB $mq9.AI.INBOX.l.normal 1\r\ne\r\nPUB $mq9.AI.INBOX.l.normal 1\r\nf\r\n",
    );
    driver.settle();
    assert_eq!(payloads(&mut driver, reader), ["f", "f"]);
}

#[test]
fn what_was_not_read_of_an_inbox_is_no_dead_letter_however_often_connections_broke() {
    let disk = SimDisk::new();
    let mut driver = Driver::on(Arc::new(disk.clone())).unwrap();
    driver.create(
        "m",
        Policy { max_deliver: 1, dead_letter: Some("dead".into()), ..Policy::default() },
    );
    let sender = driver.client();
    publish(&mut driver, sender, "INBOX.m.normal", "a");
    let lose = |driver: &mut Driver| {
        let reader = driver.client();
        say(driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
        assert!(driver.wire(reader).ends_with("a\r\nPING\r\n"));
        driver.leave(reader);
        driver.settle();
    };
    let update = |driver: &mut Driver, max_deliver, dead_letter: Option<&str>| {
        let dead_letter = dead_letter.map(Into::into);
        let change = |policy: &mut Policy| {
            (policy.max_deliver, policy.dead_letter) = (max_deliver, dead_letter);
        };
        let now = driver.now;
        driver.store().update_mailbox("m", Changes::default(), change, now).unwrap();
        driver.pass_ms(5000);
    };
    for _ in 0..2 {
        lose(&mut driver);
    }
    update(&mut driver, 2, Some("dead"));
    update(&mut driver, 1, Some("other"));
    driver.store().sync().unwrap();
    drop(driver);
    let mut driver =
        Driver::with(Arc::new(disk.crash_strict()), Options::default(), START).unwrap();
    lose(&mut driver);
    update(&mut driver, 3, Some("dead"));
    driver.store().sync().unwrap();
    for address in ["dead", "other"] {
        assert!(
            driver.store().mailbox(address, driver.now).is_err(),
            "{address} has a dead letter"
        );
    }
    let reader = driver.client();
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(payloads(&mut driver, reader), ["a"]);
}
