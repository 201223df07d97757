//! Readers that are slow, silent or on their way out.

use mq9_core::front::ConnId;

use crate::driver::Driver;
use crate::push::{given, payloads, publish, say};

/// A reader of the inbox, as the running broker greets it.
fn reader(driver: &mut Driver) -> ConnId {
    let reader = driver.client();
    let now_us = driver.moment().mono_us;
    driver.engine.front_mut().greet(reader, now_us);
    say(driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    let _ = driver.wire(reader);
    reader
}

fn reason(driver: &Driver, id: ConnId) -> Option<&str> {
    driver.engine.front().reason(id).map(|reason| &**reason)
}

#[test]
fn one_that_reads_nothing_for_long_stays_as_long_as_it_talks() {
    let mut driver = Driver::new();
    let (sender, slow) = (driver.client(), reader(&mut driver));
    let payload = "x".repeat(100_000);
    for _ in 0..20 {
        publish(&mut driver, sender, "INBOX.m.normal", &payload);
    }
    let now_us = driver.moment().mono_us;
    driver.engine.front_mut().blocked(slow, 0, now_us);
    for _ in 0..60 {
        driver.pass_ms(15_000);
        driver.feed(slow, b"PING\r\n");
        assert_eq!(reason(&driver, slow), None);
    }
    let mut seen = 0;
    while seen < 20 {
        let some = given(&mut driver, slow);
        seen += some.iter().filter(|line| line.contains("INBOX.m.normal")).count();
        assert!(!some.is_empty(), "{seen} have come");
        driver.settle();
    }
}

#[test]
fn one_that_is_dead_is_given_up_and_what_it_had_is_unread() {
    let mut driver = Driver::new();
    let (sender, dead) = (driver.client(), reader(&mut driver));
    publish(&mut driver, sender, "INBOX.m.normal", "a");
    let now_us = driver.moment().mono_us;
    driver.engine.front_mut().blocked(dead, 0, now_us);
    let mut passed_s = 0;
    while reason(&driver, dead).is_none() {
        driver.pass_ms(10_000);
        passed_s += 10;
        assert!(passed_s < 600, "it is still there");
    }
    assert_eq!(reason(&driver, dead), Some("Stale Connection"));
    driver.leave(dead);
    let next = reader(&mut driver);
    driver.settle();
    say(&mut driver, next, "SUB $mq9.AI.INBOX.m.* 3\r\n");
    let _ = driver.wire(dead);
    let query = driver.unread(sender, "m").unwrap();
    assert_eq!(query["unread"], 0, "it is with the next reader");
}

#[test]
fn the_write_deadline_counts_for_others() {
    let mut driver = Driver::new();
    let (sender, listener) = (driver.client(), driver.client());
    say(&mut driver, listener, "SUB x 2\r\n");
    say(&mut driver, sender, "PUB x 1\r\na\r\n");
    let now_us = driver.moment().mono_us;
    driver.engine.front_mut().blocked(listener, 0, now_us);
    driver.pass_ms(11_000);
    assert_eq!(reason(&driver, listener), Some("Slow Consumer (Write Deadline)"));
    // Nor may a reader be slow with what it is told besides.
    let busy = reader(&mut driver);
    say(&mut driver, busy, "SUB x 3\r\n");
    let payload = "x".repeat(1_000_000);
    for _ in 0..3 {
        say(&mut driver, sender, &format!("PUB x 1000000\r\n{payload}\r\n"));
    }
    let now_us = driver.moment().mono_us;
    driver.engine.front_mut().blocked(busy, 0, now_us);
    driver.pass_ms(11_000);
    assert_eq!(reason(&driver, busy), Some("Slow Consumer (Write Deadline)"));
}

#[test]
fn a_reader_that_drains_has_all_it_was_given_and_is_given_no_more() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    for payload in ["a", "b"] {
        publish(&mut driver, sender, "INBOX.m.normal", payload);
    }
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\nSUB $mq9.AI.MAILBOX.MSG.m 3\r\n");
    // As clients do: they end their subscriptions, wait for an answer, and read what came before it.
    driver.feed(reader, b"UNSUB 2\r\nUNSUB 3\r\nPING\r\n");
    publish(&mut driver, sender, "INBOX.m.normal", "c");
    let wire = driver.wire(reader);
    let (before, after) = wire.split_once("PONG\r\n").expect(&wire);
    assert_eq!(before.matches("HMSG").count(), 4, "{before}");
    assert_eq!((before.matches("PING").count(), after), (1, ""));
    driver.feed(reader, b"PONG\r\n");
    driver.settle();
    driver.leave(reader);
    let next = driver.client();
    say(&mut driver, next, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(payloads(&mut driver, next), ["c"]);
}

#[test]
fn what_was_written_beyond_a_maximum_that_came_late_is_unread() {
    let mut driver = Driver::new();
    let (sender, reader, next) = (driver.client(), driver.client(), driver.client());
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\nSUB $mq9.AI.MAILBOX.MSG.m 3\r\n");
    // Before it could answer: some of them stand behind the ping, and some do not.
    for payload in ["a", "b", "c", "d", "e"] {
        publish(&mut driver, sender, "INBOX.m.normal", payload);
    }
    say(&mut driver, reader, "UNSUB 2 2\r\nUNSUB 3 2\r\n");
    let wire = driver.wire(reader);
    assert_eq!((wire.matches("HMSG").count(), wire.matches("PING").count()), (10, 1), "{wire}");
    // The client has read two of them, passes over the others, and answers.
    say(&mut driver, reader, "PONG\r\n");
    assert_eq!(driver.wire(reader), "PING\r\n", "of two it has answered for the first");
    say(&mut driver, reader, "PONG\r\n");
    let _ = driver.wire(reader);
    say(&mut driver, next, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(payloads(&mut driver, next), ["c", "d", "e"]);
    driver.leave(reader);
    driver.settle();
    assert_eq!(payloads(&mut driver, next), [""; 0], "what was read does not come again");
}

#[test]
fn what_was_answered_before_the_maximum_came_is_read() {
    for (first, then) in [("PONG\r\nUNSUB 2 1\r\n", ""), ("PONG\r\n", "UNSUB 2 1\r\n")] {
        let mut driver = Driver::new();
        let (sender, reader) = (driver.client(), driver.client());
        for payload in ["a", "b", "c"] {
            publish(&mut driver, sender, "INBOX.m.normal", payload);
        }
        say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
        let _ = driver.wire(reader);
        for said in [first, then] {
            say(&mut driver, reader, said);
        }
        let next = driver.client();
        say(&mut driver, next, "SUB $mq9.AI.INBOX.m.* 2\r\n");
        assert_eq!(payloads(&mut driver, next), [""; 0], "{first:?}, {then:?}");
    }
    // An answer behind it stands for what is not beyond it.
    let mut driver = Driver::new();
    let (sender, reader, next) = (driver.client(), driver.client(), driver.client());
    for payload in ["a", "b", "c"] {
        publish(&mut driver, sender, "INBOX.m.normal", payload);
    }
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    say(&mut driver, reader, "UNSUB 2 1\r\nPONG\r\n");
    say(&mut driver, next, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(payloads(&mut driver, next), ["b", "c"]);
}

#[test]
fn others_of_the_connection_keep_what_they_have_when_a_maximum_comes_late() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    driver.create("n", mq9_core::mailbox::Policy::default());
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\nSUB $mq9.AI.INBOX.n.* 3\r\n");
    for payload in ["a", "b", "c"] {
        publish(&mut driver, sender, "INBOX.m.normal", payload);
        publish(&mut driver, sender, "INBOX.n.normal", payload);
    }
    say(&mut driver, reader, "UNSUB 2 1\r\n");
    assert_eq!(payloads(&mut driver, reader).len(), 6);
    driver.settle();
    let _ = payloads(&mut driver, reader);
    driver.settle();
    assert_eq!(driver.unread(sender, "m").unwrap()["unread"], 2);
    driver.leave(reader);
    assert_eq!(driver.unread(sender, "n").unwrap()["unread"], 0);
}
