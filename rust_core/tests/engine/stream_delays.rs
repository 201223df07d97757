//! Messages that enter their stream later, and messages whose life is short: as their headers or their envelope say, over
//! restarts and power cuts, within the limits of the stream.

use std::sync::Arc;

use mq9_core::front::ConnId;
use mq9_core::log::SyncMode;
use mq9_core::protocol::WireOptions;
use mq9_core::store::{Options, Quotas};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

use crate::driver::{Driver, START};
use crate::streams::{ask, consumer, heard, messages, publish, pull, stream};

const OPTIONS: Options = Options {
    segment_bytes: 4096,
    allocate_bytes: 4096,
    sync: SyncMode::Always,
    ack_wait_ms: 30_000,
    max_groups: 16,
    group_ttl_ms: 0,
    quotas: Quotas::DEFAULT,
    checkpoint_bytes: 2_000,
};

fn on(disk: &SimDisk, now: Now) -> mq9_core::error::Result<Driver> {
    let wire = WireOptions { jetstream: true, ..WireOptions::default() };
    Driver::serving(Arc::new(disk.clone()), OPTIONS, wire, now)
}

fn hpub(id: ConnId, subject: &str, headers: &str, payload: &str) -> Vec<u8> {
    let block = format!("NATS/1.0\r\n{headers}\r\n");
    let (head, total) = (block.len(), block.len() + payload.len());
    format!("HPUB {subject} in{id}.ack {head} {total}\r\n{block}{payload}\r\n").into_bytes()
}

/// The PubAck of a message with these headers.
pub fn sent(
    driver: &mut Driver,
    id: ConnId,
    subject: &str,
    headers: &str,
    payload: &str,
) -> String {
    driver.feed(id, &hpub(id, subject, headers, payload));
    driver.settle();
    heard(driver, id).into_iter().map(|heard| heard.payload).collect()
}

/// Payloads that a consumer is given now, all of them acknowledged.
fn taken(driver: &mut Driver, id: ConnId) -> Vec<String> {
    let mut given = pull(driver, id, "S.c", "{\"batch\":100,\"no_wait\":true}");
    given.retain(|heard| heard.status().is_empty());
    for heard in &given {
        publish(driver, id, &heard.reply, "", "");
    }
    given.into_iter().map(|heard| heard.payload).collect()
}

#[test]
fn a_delayed_message_enters_its_stream_when_it_is_due() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", ",\"retention\":\"workqueue\"");
    consumer(&mut driver, id, "S", "c", "");
    let later = "{\"stream\":\"S\",\"seq\":0,\"delayed\":true}";
    assert_eq!(sent(&mut driver, id, "S", "mq9-delay: 2\r\n", "two"), later);
    assert_eq!(sent(&mut driver, id, "S", "MQ9-Delay-Ms: 1500\r\n", "one and a half"), later);
    let at = "Nats-Schedule: @at 2023-11-14T22:13:21Z\r\n";
    assert_eq!(sent(&mut driver, id, "S", at, "one"), later);
    assert_eq!(
        sent(&mut driver, id, "S", "mq9-delay: 0\r\n", "now"),
        "{\"stream\":\"S\",\"seq\":1}"
    );
    let past = "Nats-Schedule: @at 2023-11-14T22:13:19Z\r\nNats-Schedule-Target: S\r\n";
    assert_eq!(sent(&mut driver, id, "S", past, "past"), "{\"stream\":\"S\",\"seq\":2}");
    assert_eq!(taken(&mut driver, id), ["now", "past"]);
    let info = ask(&mut driver, id, "STREAM.INFO.S", "");
    assert!(info.contains("\"num_delayed\":3") && info.contains("\"bytes\":0"), "{info}");
    driver.pass_ms(999);
    assert_eq!(taken(&mut driver, id), [""; 0]);
    for due in ["one", "one and a half", "two"] {
        driver.pass_ms(if due == "one" { 1 } else { 500 });
        assert_eq!(taken(&mut driver, id), [due]);
    }
}

#[test]
fn whoever_waits_is_given_a_message_when_it_is_due_and_its_headers_say_when_that_was() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", "");
    sent(&mut driver, id, "S", "mq9-delay: 2\r\nTrace: 7\r\n", "work");
    assert_eq!(pull(&mut driver, id, "S.c", "{\"expires\":60000000000}"), []);
    driver.pass_ms(2_000);
    let given = heard(&mut driver, id);
    assert_eq!(given.len(), 1);
    let headers = &given[0].headers;
    assert!(headers.contains("mq9-due-time: 2023-11-14T22:13:22.000000Z\r\n"), "{headers}");
    assert!(headers.contains("Trace: 7\r\n"), "{headers}");
}

#[test]
fn the_envelope_says_when_and_how_long_where_a_stream_reads_it() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", ",\"metadata\":{\"mq9.envelope\":\"hanzo.mq.v1\"}");
    consumer(&mut driver, id, "S", "c", "");
    let task = |more: &str| {
        format!(
            "{{\"schema\":\"hanzo.mq.v1\",\"id\":\"1\",\"type\":\"t\",\"source\":\"s\",\
             \"timestamp\":\"2023-11-14T22:13:20Z\",\"data\":{{}}{more}}}"
        )
    };
    let later = task(",\"delay_until\":\"2023-11-14T22:13:23Z\"");
    assert!(sent(&mut driver, id, "S", "", &later).contains("\"delayed\":true"));
    let brief = task(",\"ttl_seconds\":2");
    assert!(sent(&mut driver, id, "S", "", &brief).contains("\"seq\":1"));
    // What a header says counts before it.
    assert!(
        sent(&mut driver, id, "S", "mq9-delay: 0\r\nmq9-ttl: 60\r\n", &later).contains("\"seq\":2")
    );
    assert_eq!(messages(&mut driver, id, "S"), "2");
    driver.pass_ms(2_000);
    assert_eq!(taken(&mut driver, id), [later.as_str()]);
    driver.pass_ms(1_000);
    assert_eq!(taken(&mut driver, id), [later.as_str()]);
    // A life counts from the publish, so nobody is given what is over before it is due.
    let never = task(",\"delay_until\":\"2023-11-14T22:13:28Z\",\"ttl_seconds\":4");
    assert!(sent(&mut driver, id, "S", "", &never).contains("\"delayed\":true"));
    driver.pass_ms(60_000);
    assert_eq!(taken(&mut driver, id), [""; 0]);
    assert!(!ask(&mut driver, id, "STREAM.INFO.S", "").contains("num_delayed"));
}

#[test]
fn a_life_ends_for_whoever_has_the_message_too() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", ",\"retention\":\"workqueue\"");
    consumer(&mut driver, id, "S", "c", "");
    sent(&mut driver, id, "S", "mq9-ttl-ms: 1500\r\n", "brief");
    assert_eq!(pull(&mut driver, id, "S.c", "").len(), 1);
    driver.pass_ms(1_500);
    let info = ask(&mut driver, id, "CONSUMER.INFO.S.c", "");
    assert!(info.contains("\"num_ack_pending\":0"), "{info}");
    assert_eq!(messages(&mut driver, id, "S"), "0");
}

#[test]
fn what_cannot_be_understood_is_refused() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    for (headers, why) in [
        ("mq9-delay: soon\r\n", "mq9-delay is \\\"soon\\\": it must be a whole number of seconds"),
        ("mq9-ttl-ms: -1\r\n", "a whole number of milliseconds"),
        ("Nats-Schedule: @every 5m\r\n", "it must be @at and a time"),
        ("Nats-Schedule: @at noon\r\n", "it must be @at and a time"),
        (
            "Nats-Schedule: @at 2030-01-01T00:00:00Z\r\nNats-Schedule-Target: other\r\n",
            "Nats-Schedule-Target must be the subject itself",
        ),
    ] {
        let answer = sent(&mut driver, id, "S", headers, "x");
        assert!(answer.contains(why) && answer.contains("\"err_code\":10003"), "{answer}");
    }
    assert_eq!(messages(&mut driver, id, "S"), "0");
}

#[test]
fn what_only_the_broker_says_is_refused() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    for name in ["mq9-dead-subject", "MQ9-Dead-Stream ", "mq9-due-time"] {
        let answer = sent(&mut driver, id, "S", &format!("{name}: x\r\n"), "x");
        assert!(answer.contains("only the broker writes"), "{answer}");
    }
    assert_eq!(messages(&mut driver, id, "S"), "0");
}

#[test]
fn a_purge_with_conditions_lets_be_what_waits_for_its_time() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    sent(&mut driver, id, "S", "", "here");
    sent(&mut driver, id, "S", "mq9-delay: 2\r\n", "later");
    // Behind the last message there is nothing to purge but that one.
    let purged = ask(&mut driver, id, "STREAM.PURGE.S", "{\"seq\":2}");
    assert!(purged.contains("\"purged\":1"), "{purged}");
    let purged = ask(&mut driver, id, "STREAM.PURGE.S", "{\"seq\":100}");
    assert!(purged.contains("\"purged\":0"), "{purged}");
    assert!(ask(&mut driver, id, "STREAM.INFO.S", "").contains("\"num_delayed\":1"));
    driver.pass_ms(2_000);
    assert_eq!(messages(&mut driver, id, "S"), "1");
    sent(&mut driver, id, "S", "mq9-delay: 2\r\n", "never");
    ask(&mut driver, id, "STREAM.PURGE.S", "");
    driver.pass_ms(2_000);
    assert_eq!(messages(&mut driver, id, "S"), "0");
}

#[test]
fn the_same_id_is_one_message_be_it_delayed_or_not() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", "");
    let headers = "Nats-Msg-Id: 1\r\nmq9-delay: 1\r\n";
    assert!(!sent(&mut driver, id, "S", headers, "once").contains("duplicate"));
    for headers in [headers, "Nats-Msg-Id: 1\r\n"] {
        let answer = sent(&mut driver, id, "S", headers, "twice");
        assert_eq!(answer, "{\"stream\":\"S\",\"seq\":0,\"duplicate\":true,\"delayed\":true}");
    }
    driver.pass_ms(1_000);
    assert!(sent(&mut driver, id, "S", headers, "twice").contains("\"duplicate\":true"));
    assert_eq!(taken(&mut driver, id), ["once"]);
}

#[test]
fn what_waits_has_the_limits_of_its_stream_for_itself() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", ",\"max_msgs\":2,\"max_bytes\":1000");
    consumer(&mut driver, id, "S", "c", "");
    let big = "x".repeat(300);
    for _ in 0..2 {
        assert!(sent(&mut driver, id, "S", "mq9-delay: 5\r\n", &big).contains("\"delayed\":true"));
    }
    let full = sent(&mut driver, id, "S", "mq9-delay: 5\r\n", "x");
    assert!(full.contains("maximum messages exceeded"), "{full}");
    // Others neither go for it nor are refused.
    for (at, payload) in ["one", "two", &big].into_iter().enumerate() {
        let answer = sent(&mut driver, id, "S", "", payload);
        assert_eq!(answer, format!("{{\"stream\":\"S\",\"seq\":{}}}", at + 1));
    }
    assert_eq!(messages(&mut driver, id, "S"), "2");
    driver.pass_ms(5_000);
    assert_eq!(messages(&mut driver, id, "S"), "2");
    assert_eq!(taken(&mut driver, id), [big.as_str(), &big]);
    let huge = "x".repeat(2_000);
    let full = sent(&mut driver, id, "S", "mq9-delay: 5\r\n", &huge);
    assert!(full.contains("maximum bytes exceeded"), "{full}");
    sent(&mut driver, id, "S", "mq9-delay: 5\r\n", "purged");
    ask(&mut driver, id, "STREAM.PURGE.S", "");
    driver.pass_ms(5_000);
    assert_eq!(messages(&mut driver, id, "S"), "0");
}

#[test]
fn a_full_stream_that_refuses_messages_lets_due_ones_wait() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", ",\"retention\":\"workqueue\",\"max_msgs\":1,\"discard\":\"new\"");
    consumer(&mut driver, id, "S", "c", "");
    sent(&mut driver, id, "S", "mq9-delay: 1\r\n", "later");
    sent(&mut driver, id, "S", "", "first");
    driver.pass_ms(10_000);
    assert_eq!(messages(&mut driver, id, "S"), "1");
    assert_eq!(taken(&mut driver, id), ["first"]);
    driver.pass_ms(1_000);
    assert_eq!(taken(&mut driver, id), ["later"]);
}

#[test]
fn a_power_cut_at_any_operation_neither_loses_nor_doubles_a_delayed_message() {
    /// What was promised, and the end of it if the power went.
    fn session(driver: &mut Driver, promised: &mut Vec<&'static str>) -> Option<()> {
        let id = driver.client();
        let say = |driver: &mut Driver, text: &[u8]| {
            driver.feed(id, text);
            driver.release();
            driver.store().sync().ok()?;
            driver.release();
            Some(heard(driver, id).len())
        };
        let body = "{\"name\":\"S\"}";
        let make = format!("PUB $JS.API.STREAM.CREATE.S in{id}.x {}\r\n{body}\r\n", body.len());
        assert_eq!(say(driver, make.as_bytes())?, 1);
        promised.push("stream");
        for (name, headers) in [
            ("a", "Nats-Msg-Id: a\r\nmq9-delay: 1\r\n"),
            ("b", "Nats-Msg-Id: b\r\nmq9-delay: 3600\r\n"),
            ("c", "Nats-Msg-Id: c\r\n"),
        ] {
            assert_eq!(say(driver, &hpub(id, "S", headers, name))?, 1);
            promised.push(name);
        }
        driver.now.wall_ms += 1_000;
        driver.now.mono_ms += 1_000;
        say(driver, b"PING\r\n")?;
        driver.store().checkpoint().ok()?;
        Some(())
    }
    let whole = SimDisk::new();
    let mut all = Vec::new();
    session(&mut on(&whole, START).unwrap(), &mut all).unwrap();
    assert_eq!(all, ["stream", "a", "b", "c"]);
    for n in 1..=whole.ops() {
        let disk = SimDisk::new();
        disk.cut_at(n);
        let mut promised = Vec::new();
        if let Ok(mut driver) = on(&disk, START) {
            session(&mut driver, &mut promised);
        }
        let crashed = [disk.crash_strict(), disk.crash_lucky()];
        let crashed = crashed.into_iter().chain((0..3).map(|seed| disk.crash(seed)));
        for (which, crashed) in crashed.enumerate() {
            let at = format!("cut at {n}, {which}, {promised:?}");
            let later = Now { wall_ms: START.wall_ms + 2_000, mono_ms: 70 };
            let mut driver = on(&crashed, later).unwrap();
            let id = driver.client();
            if !ask(&mut driver, id, "STREAM.NAMES", "").contains('S') {
                assert!(promised.is_empty(), "{at}");
                continue;
            }
            // Whoever had no answer publishes again, with the same id.
            for (name, headers) in [
                ("a", "Nats-Msg-Id: a\r\nmq9-delay: 1\r\n"),
                ("b", "Nats-Msg-Id: b\r\nmq9-delay: 3600\r\n"),
                ("c", "Nats-Msg-Id: c\r\n"),
            ] {
                let answer = sent(&mut driver, id, "S", headers, name);
                let known = answer.contains("duplicate");
                assert!(known || !promised.contains(&name), "{at}: {name} is forgotten");
            }
            driver.pass_ms(1_000);
            assert_eq!(messages(&mut driver, id, "S"), "2", "{at}");
            driver.pass_ms(3_600_000);
            consumer(&mut driver, id, "S", "c", "");
            let mut found = taken(&mut driver, id);
            found.sort_unstable();
            assert_eq!(found, ["a", "b", "c"], "{at}");
        }
    }
}
