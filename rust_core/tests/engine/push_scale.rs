//! Push where there is very much of something: it costs what is given, whoever else is there. What is done is counted.

use mq9_core::front::ConnId;
use mq9_core::mailbox::Policy;
use mq9_core::partition::Work;
use mq9_core::store::Send;

use crate::driver::Driver;
use crate::push::payloads;

/// Lets everything happen, without the checks that look at all there is.
fn settle(driver: &mut Driver) {
    loop {
        driver.engine.settle(driver.moment());
        driver.store().sync().unwrap();
        driver.engine.settle(driver.moment());
        if !driver.engine.wants_to_settle(driver.moment()) {
            return;
        }
    }
}

fn say(driver: &mut Driver, id: ConnId, text: &str) {
    driver.feed(id, text.as_bytes());
    settle(driver);
}

/// What is done for this.
fn work(driver: &mut Driver, run: impl FnOnce(&mut Driver)) -> Work {
    let before = driver.engine.partition().pushes().work();
    run(driver);
    let after = driver.engine.partition().pushes().work();
    Work {
        turns: after.turns - before.turns,
        reads: after.reads - before.reads,
        members: after.members - before.members,
    }
}

fn send(driver: &mut Driver, sender: ConnId, address: &str, payload: &str) {
    let size = payload.len();
    say(driver, sender, &format!("PUB $mq9.AI.MAILBOX.MSG.{address} {size}\r\n{payload}\r\n"));
}

#[test]
fn ten_thousand_readers_of_a_mailbox_cost_a_few_readings_of_it() {
    let mut driver = Driver::new();
    let sender = driver.client();
    let readers: Vec<ConnId> = (0..10_000).map(|_| driver.client()).collect();
    send(&mut driver, sender, "m", "first");
    let done = work(&mut driver, |driver| {
        for &reader in &readers {
            driver.feed(reader, b"SUB $mq9.AI.MAILBOX.MSG.m 2\r\n");
        }
        settle(driver);
    });
    assert!(done.reads <= 2 * 10 && done.turns <= 3 * 10_000, "{done:?}");
    for payload in ["a", "b", "c"] {
        let done = work(&mut driver, |driver| send(driver, sender, "m", payload));
        assert!(done.reads <= 10 && done.turns <= 2 * 10_000, "{done:?}");
    }
    for &reader in &readers {
        assert_eq!(payloads(&mut driver, reader), ["first", "a", "b", "c"]);
    }
    for &reader in &readers[1..] {
        driver.leave(reader);
    }
    let done = work(&mut driver, |driver| send(driver, sender, "m", "alone"));
    assert!(done.reads <= 2 && done.turns <= 2, "{done:?}");
    assert_eq!(payloads(&mut driver, readers[0]), ["alone"]);
}

#[test]
fn those_who_stand_at_the_same_place_share_readings_where_ids_have_gaps() {
    let mut driver = Driver::new();
    let sender = driver.client();
    // Ids are those of the mailbox: each priority has gaps, and the first messages are gone.
    for nth in 0..60 {
        send(&mut driver, sender, ["m.urgent", "m"][nth % 2], &nth.to_string());
    }
    let now = driver.now;
    for msg_id in 0..5 {
        driver.store().delete("m", msg_id, now).unwrap();
    }
    let readers: Vec<ConnId> = (0..1_000).map(|_| driver.client()).collect();
    let (all, early) = (readers.len() as u64, &readers[..500]);
    let subscribe = |driver: &mut Driver, readers: &[ConnId]| {
        for &reader in readers {
            driver.feed(reader, b"SUB $mq9.AI.MAILBOX.MSG.m 2\r\n");
        }
        settle(driver);
    };
    let done = work(&mut driver, |driver| subscribe(driver, early));
    assert!(done.reads <= 2 * 10 && done.turns <= 3 * all, "{done:?}");
    // Those who come when more of the head is gone are soon at the same place as the others.
    for msg_id in 5..9 {
        driver.store().delete("m", msg_id, now).unwrap();
    }
    let done = work(&mut driver, |driver| subscribe(driver, &readers[500..]));
    assert!(done.reads <= 2 * 10 && done.turns <= 3 * all, "{done:?}");
    let counts: Vec<usize> = readers.iter().map(|&it| payloads(&mut driver, it).len()).collect();
    assert_eq!((counts[0], counts[999]), (55, 51));
    for nth in 0..20 {
        let address = ["m.urgent", "m", "m", "m.critical"][nth % 4];
        let done = work(&mut driver, |driver| send(driver, sender, address, &nth.to_string()));
        assert!(done.reads <= 10 && done.turns <= 2 * all, "{nth}: {done:?}");
        // What is deleted once it was given leaves a gap as well.
        let newest = 60 + nth as u64;
        driver.store().delete("m", newest, now).unwrap();
    }
    for &reader in &readers {
        assert_eq!(payloads(&mut driver, reader).len(), 20);
    }
}

#[test]
fn a_send_costs_the_same_beside_100_000_mailboxes_with_a_reader_each() {
    let mut driver = Driver::new();
    let sender = driver.client();
    let one = driver.client();
    say(&mut driver, one, "SUB $mq9.AI.MAILBOX.MSG.m 2\r\n");
    send(&mut driver, sender, "m", "first");
    let alone = work(&mut driver, |driver| send(driver, sender, "m", "a"));
    for nth in 0..100_000 {
        driver.create(&format!("m{nth}"), Policy::default());
    }
    let readers: Vec<ConnId> = (0..100).map(|_| driver.client()).collect();
    for (at, &reader) in readers.iter().enumerate() {
        let subscribe =
            |nth| format!("SUB $mq9.AI.MAILBOX.MSG.m{} {}\r\n", at * 1000 + nth, nth + 2);
        let all: String = (0..1000).map(subscribe).collect();
        driver.feed(reader, all.as_bytes());
    }
    settle(&mut driver);
    assert_eq!(driver.engine.partition().pushes().readers(), 100_001);
    let beside = work(&mut driver, |driver| send(driver, sender, "m", "b"));
    assert_eq!(beside, alone);
    assert!(alone.turns <= 2 && alone.reads <= 2, "{alone:?}");
    send(&mut driver, sender, "m77123", "c");
    let other = work(&mut driver, |driver| send(driver, sender, "m77123", "d"));
    assert_eq!(other, alone);
    assert_eq!(payloads(&mut driver, one), ["first", "a", "b"]);
    assert_eq!(payloads(&mut driver, readers[77]), ["c", "d"]);
}

#[test]
fn readers_of_other_priorities_are_not_looked_at() {
    for subject in ["INBOX", "MAILBOX.MSG"] {
        let mut driver = Driver::new();
        let (sender, normal) = (driver.client(), driver.client());
        let urgent: Vec<ConnId> = (0..5_000).map(|_| driver.client()).collect();
        for &reader in &urgent {
            driver.feed(reader, format!("SUB $mq9.AI.{subject}.m.urgent g 2\r\n").as_bytes());
        }
        say(&mut driver, normal, &format!("SUB $mq9.AI.{subject}.m.normal g 2\r\n"));
        let done = work(&mut driver, |driver| {
            for nth in 0..100 {
                send(driver, sender, "m", &nth.to_string());
            }
        });
        assert!(done.members <= 1000, "{subject}: {done:?}");
        assert_eq!(payloads(&mut driver, normal).len(), 100);
        // Levels beside each other take turns fairly.
        for nth in 0..50 {
            send(&mut driver, sender, "m.urgent", &nth.to_string());
        }
        let most = urgent.iter().map(|&reader| payloads(&mut driver, reader).len()).max();
        assert_eq!(most, Some(1), "{subject}");
    }
}

#[test]
fn what_a_member_leaves_behind_is_taken_over_in_steps_and_in_order() {
    let mut driver = Driver::new();
    let (sender, a, b) = (driver.client(), driver.client(), driver.client());
    for reader in [a, b] {
        say(&mut driver, reader, "SUB $mq9.AI.MAILBOX.MSG.m.* g 2\r\n");
    }
    // One by one, so that no two neighbours are with the same member.
    let count = 80_000;
    let mut of_a = Vec::new();
    for nth in 0..count {
        let now = driver.now;
        driver.store().send("m", &Send::new(format!("{nth}").as_bytes()), now).unwrap();
        settle(&mut driver);
        if nth % 1000 == 999 {
            of_a.extend(payloads(&mut driver, a));
            let _ = driver.wire(b);
        }
    }
    assert_eq!(of_a.len(), count / 2);
    driver.leave(a);
    driver.engine.settle(driver.moment());
    assert_eq!(driver.wire(b), "", "all of it was taken over at once");
    assert!(driver.engine.wants_to_settle(driver.moment()));
    // Others are served between the steps.
    driver.feed(sender, format!("PUB $mq9.AI.INBOX.m.urgent in{sender}.x 3\r\nnew\r\n").as_bytes());
    driver.store().sync().unwrap();
    driver.engine.settle(driver.moment());
    driver.store().sync().unwrap();
    driver.engine.settle(driver.moment());
    assert_eq!(driver.heard(sender).len(), 1);
    let mut of_b = Vec::new();
    loop {
        settle(&mut driver);
        let some = payloads(&mut driver, b);
        if some.is_empty() {
            break;
        }
        of_b.extend(some);
    }
    assert_eq!(of_b[0], "new");
    assert_eq!(of_b[1..], of_a);
}

#[test]
fn a_long_history_is_read_in_pieces_that_fit_the_window() {
    let mut driver = Driver::new();
    let reader = driver.client();
    let count = 300_000;
    let payload = [b'x'; 200];
    let now = driver.now;
    for _ in 0..count {
        driver.store().send("m", &Send::new(&payload), now).unwrap();
    }
    driver.feed(reader, b"SUB $mq9.AI.MAILBOX.MSG.m 2\r\n");
    settle(&mut driver);
    let done = work(&mut driver, |driver| {
        let mut seen = 0;
        while seen < count {
            let waiting = driver.engine.front().unwritten(reader).len();
            assert!(waiting < 400 << 10, "{waiting} bytes wait for a client that reads slowly");
            let some = payloads(driver, reader).len();
            assert!(some > 0, "after {seen}");
            seen += some;
            settle(driver);
        }
    });
    // 64 KiB in one reading.
    assert!(done.reads < count as u64 / 150, "{done:?}");
}
