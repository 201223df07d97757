//! Messages that a consumer gives up go to a stream of dead letters where it asks for that: each once, over restarts and
//! power cuts, with what became of them in their headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use mq9_core::front::{ConnId, PermissionsBuilder};
use mq9_core::jetstream::{Declared, DeclaredConsumer};
use mq9_core::log::SyncMode;
use mq9_core::protocol::WireOptions;
use mq9_core::store::Options;
use mq9_core::time::Now;
use mq9_sim::SimDisk;

use crate::driver::{Driver, START};
use crate::push::say;
use crate::streams::{Heard, acknowledged, ask, consumer, heard, messages, publish, pull, stream};

const OPTIONS: Options = Options {
    segment_bytes: 4096,
    allocate_bytes: 4096,
    sync: SyncMode::Always,
    ack_wait_ms: 30_000,
    max_groups: 16,
    group_ttl_ms: 0,
    quotas: mq9_core::store::Quotas::DEFAULT,
    checkpoint_bytes: 6_000,
};
const QUEUE: &str = ",\"subjects\":[\"mq.a\",\"mq.b\"],\"retention\":\"workqueue\"";
const GRAVE: &str = ",\"subjects\":[\"mq.dlq.>\"]";
const PREFIX: &str = ",\"metadata\":{\"mq9.dead_letter_prefix\":\"mq.dlq\"}";

fn on(disk: &SimDisk, now: Now) -> mq9_core::error::Result<Driver> {
    let wire = WireOptions { jetstream: true, ..WireOptions::default() };
    Driver::serving(Arc::new(disk.clone()), OPTIONS, wire, now)
}

/// A work queue, a stream for what dies in it, and a consumer that is given each message twice at most.
fn queue(driver: &mut Driver, id: ConnId) {
    stream(driver, id, "MQ", QUEUE);
    stream(driver, id, "DEAD", GRAVE);
    consumer(driver, id, "MQ", "c", &format!(",\"max_deliver\":2,\"ack_wait\":1000000000{PREFIX}"));
}

fn pulled(driver: &mut Driver, id: ConnId) -> Vec<Heard> {
    let mut given = pull(driver, id, "MQ.c", "{\"batch\":10,\"no_wait\":true}");
    given.retain(|heard| heard.status().is_empty());
    given
}

/// The messages of the stream of dead letters: subject, headers and payload.
fn dead(driver: &mut Driver, id: ConnId) -> Vec<Heard> {
    let look = ",\"ack_policy\":\"none\"";
    let body = format!("{{\"stream_name\":\"DEAD\",\"config\":{{\"name\":\"look\"{look}}}}}");
    ask(driver, id, "CONSUMER.CREATE.DEAD.look", &body);
    let mut found = pull(driver, id, "DEAD.look", "{\"batch\":100,\"no_wait\":true}");
    found.retain(|heard| heard.status().is_empty());
    ask(driver, id, "CONSUMER.DELETE.DEAD.look", "");
    found
}

/// What mq9 says of a dead letter in its headers.
fn history(letter: &Heard) -> BTreeMap<String, String> {
    let lines = letter.headers.lines().filter_map(|line| line.split_once(": "));
    let said = lines.filter_map(|(name, value)| Some((name.strip_prefix("mq9-dead-")?, value)));
    said.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_message_that_was_delivered_too_often_becomes_a_dead_letter() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    queue(&mut driver, id);
    say(&mut driver, id, "SUB $JS.EVENT.ADVISORY.CONSUMER.> 9\r\n");
    let headers = "NATS/1.0\r\nTrace: 7\r\n\r\n";
    let total = headers.len() + 4;
    say(&mut driver, id, &format!("HPUB mq.a {} {total}\r\n{headers}work\r\n", headers.len()));
    assert_eq!(pulled(&mut driver, id).len(), 1);
    driver.pass_ms(1_000);
    assert_eq!(pulled(&mut driver, id).len(), 1);
    assert_eq!(dead(&mut driver, id), []);
    driver.pass_ms(1_000);
    let told = heard(&mut driver, id);
    let letters = dead(&mut driver, id);
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!((letters[0].subject.as_str(), letters[0].payload.as_str()), ("mq.dlq.mq.a", "work"));
    assert!(letters[0].headers.contains("\r\nTrace: 7\r\n"), "{:?}", letters[0].headers);
    assert_eq!(letters[0].headers.matches("mq9-dead-subject").count(), 1);
    let said = history(&letters[0]);
    let expected = [
        ("reason", "max_deliver"),
        ("deliveries", "2"),
        ("subject", "mq.a"),
        ("stream", "MQ"),
        ("sequence", "1"),
        ("consumer", "c"),
        ("first-time", "2023-11-14T22:13:20.000000Z"),
        ("last-time", "2023-11-14T22:13:22.000000Z"),
    ];
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(said, expected);
    // It left its queue in the same step, and its consumer has done with it.
    assert_eq!(messages(&mut driver, id, "MQ"), "0");
    let info = ask(&mut driver, id, "CONSUMER.INFO.MQ.c", "");
    let floor = "\"ack_floor\":{\"consumer_seq\":2,\"stream_seq\":1}";
    assert!(info.contains("\"num_ack_pending\":0") && info.contains(floor), "{info}");
    assert!(info.contains("\"num_redelivered\":0"), "{info}");
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert!(told.subject.ends_with("MAX_DELIVERIES.MQ.c"), "{told:?}");
    assert!(told.payload.contains("\"dead_letter\":\"mq.dlq.mq.a\""), "{told:?}");
    driver.pass_ms(600_000);
    assert_eq!((pulled(&mut driver, id).len(), dead(&mut driver, id).len()), (0, 1));
}

#[test]
fn what_became_a_dead_letter_is_not_confirmed_as_done() {
    for retention in ["", ",\"retention\":\"workqueue\""] {
        let mut driver = Driver::with_streams();
        let id = driver.client();
        stream(&mut driver, id, "MQ", &format!(",\"subjects\":[\"mq.a\"]{retention}"));
        stream(&mut driver, id, "DEAD", GRAVE);
        let config = format!(",\"max_deliver\":1,\"ack_wait\":1000000000{PREFIX}");
        consumer(&mut driver, id, "MQ", "c", &config);
        publish(&mut driver, id, "mq.a", "", "work");
        let given = pulled(&mut driver, id).remove(0);
        driver.pass_ms(1_000);
        for said in ["+ACK", "+TERM", "-NAK", "+WPI"] {
            let told = acknowledged(&mut driver, id, &given.reply, said);
            assert_eq!(told, "503 Dead Letter", "{said}");
        }
        assert_eq!(dead(&mut driver, id).len(), 1);
    }
}

#[test]
fn a_long_reason_is_cut() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    queue(&mut driver, id);
    say(&mut driver, id, "SUB $JS.EVENT.ADVISORY.CONSUMER.> 9\r\n");
    publish(&mut driver, id, "mq.a", "", "work");
    let given = pulled(&mut driver, id).remove(0);
    // One byte, then characters of two: the cut is between two of them.
    let reason = format!("x{}", "é".repeat(100_000));
    publish(&mut driver, id, &given.reply, "", &format!("+TERM {reason}"));
    let told = heard(&mut driver, id);
    let [told] = told.as_slice() else { panic!("{} advisories", told.len()) };
    assert!(told.payload.len() < 2_000, "{}", told.payload.len());
    let letters = dead(&mut driver, id);
    let error = &history(&letters[0])["error"];
    assert_eq!(*error, format!("x{}", "é".repeat(511)));
    assert!(told.payload.contains(&format!("\"reason\":\"{error}\"")), "{}", told.payload);
}

#[test]
fn a_message_that_is_returned_for_the_last_time_is_dead_at_once() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    queue(&mut driver, id);
    for subject in ["mq.a", "mq.b"] {
        publish(&mut driver, id, subject, "", "work");
    }
    for given in pulled(&mut driver, id) {
        publish(&mut driver, id, &given.reply, "", "-NAK");
    }
    let again = pulled(&mut driver, id);
    assert_eq!(again.len(), 2);
    publish(&mut driver, id, &again[0].reply, "", "-NAK");
    publish(&mut driver, id, &again[1].reply, "", "-NAK {\"delay\": 5000000000}");
    assert_eq!(dead(&mut driver, id).len(), 1);
    driver.pass_ms(5_000);
    let letters = dead(&mut driver, id);
    let subjects: Vec<&str> = letters.iter().map(|letter| letter.subject.as_str()).collect();
    assert_eq!(subjects, ["mq.dlq.mq.a", "mq.dlq.mq.b"]);
}

#[test]
fn a_message_that_is_terminated_becomes_a_dead_letter_before_that_is_answered() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    queue(&mut driver, id);
    publish(&mut driver, id, "mq.b", "", "work");
    let given = pulled(&mut driver, id).remove(0);
    // What it says could end the line and begin another.
    let reply = format!("in{id}.ack");
    publish(&mut driver, id, &given.reply, &reply, "+TERM no such\r\nmodel: x");
    assert_eq!(heard(&mut driver, id).len(), 1);
    publish(&mut driver, id, &given.reply, "", "+TERM again");
    let letters = dead(&mut driver, id);
    assert_eq!(letters.len(), 1);
    let said = history(&letters[0]);
    assert_eq!((said["reason"].as_str(), said["deliveries"].as_str()), ("terminated", "1"));
    assert_eq!(said["error"], "no such  model: x");
    assert_eq!(messages(&mut driver, id, "MQ"), "0");
}

#[test]
fn other_streams_keep_their_messages_and_the_same_stream_can_hold_the_letters() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "MQ", ",\"subjects\":[\"mq.>\"]");
    for name in ["c", "d"] {
        let config = format!(",\"max_deliver\":1,\"filter_subject\":\"mq.a\"{PREFIX}");
        consumer(&mut driver, id, "MQ", name, &config);
    }
    publish(&mut driver, id, "mq.a", "", "work");
    for name in ["c", "d"] {
        let given = pull(&mut driver, id, &format!("MQ.{name}"), "").remove(0);
        publish(&mut driver, id, &given.reply, "", "-NAK");
    }
    let info = ask(&mut driver, id, "STREAM.INFO.MQ", "{\"subjects_filter\":\">\"}");
    assert!(info.contains("\"subjects\":{\"mq.a\":1,\"mq.dlq.mq.a\":2}"), "{info}");
}

#[test]
fn a_full_stream_that_refuses_messages_takes_its_own_dead_letters() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    let full =
        ",\"subjects\":[\"mq.>\"],\"retention\":\"workqueue\",\"max_msgs\":2,\"discard\":\"new\"";
    stream(&mut driver, id, "MQ", full);
    consumer(&mut driver, id, "MQ", "c", &format!(",\"filter_subject\":\"mq.a\"{PREFIX}"));
    publish(&mut driver, id, "mq.a", "", "one");
    publish(&mut driver, id, "mq.x", "", "two");
    let given = pulled(&mut driver, id).remove(0);
    publish(&mut driver, id, &given.reply, "", "+TERM");
    let info = ask(&mut driver, id, "STREAM.INFO.MQ", "{\"subjects_filter\":\">\"}");
    assert!(info.contains("\"subjects\":{\"mq.dlq.mq.a\":1,\"mq.x\":1}"), "{info}");
}

#[test]
fn what_cannot_be_moved_now_is_moved_later_and_nobody_waits_for_it() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "MQ", QUEUE);
    let full = ",\"subjects\":[\"mq.dlq.>\"],\"max_msgs\":1,\"discard\":\"new\"";
    stream(&mut driver, id, "DEAD", full);
    consumer(&mut driver, id, "MQ", "c", &format!(",\"max_deliver\":1{PREFIX}"));
    for payload in ["one", "two", "three"] {
        publish(&mut driver, id, "mq.a", "", payload);
    }
    let given = pulled(&mut driver, id);
    for given in &given[..2] {
        publish(&mut driver, id, &given.reply, "", "-NAK");
    }
    assert_eq!(dead(&mut driver, id).len(), 1);
    driver.pass_ms(10_000);
    assert_eq!(dead(&mut driver, id).len(), 1);
    // The worker goes on, and has neither the one nor the other again.
    publish(&mut driver, id, &given[2].reply, "", "+ACK");
    publish(&mut driver, id, "mq.a", "", "four");
    assert_eq!(pulled(&mut driver, id)[0].payload, "four");
    assert_eq!(messages(&mut driver, id, "MQ"), "2");
    // Who gives up a message is told nothing while it is not kept.
    let fourth = "$JS.ACK.MQ.c.1.4.4.1.0";
    publish(&mut driver, id, fourth, &format!("in{id}.ack"), "+TERM");
    assert_eq!(heard(&mut driver, id), []);
    ask(&mut driver, id, "STREAM.PURGE.DEAD", "");
    driver.pass_ms(10_000);
    let letters = dead(&mut driver, id);
    assert_eq!(letters.iter().map(|letter| &*letter.payload).collect::<Vec<_>>(), ["two"]);
    assert_eq!(messages(&mut driver, id, "MQ"), "1");
}

#[test]
fn a_letter_that_no_stream_takes_stays_where_it_is_and_that_is_told() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    queue(&mut driver, id);
    say(&mut driver, id, "SUB $JS.EVENT.ADVISORY.CONSUMER.> 9\r\n");
    for payload in ["one", "two"] {
        publish(&mut driver, id, "mq.a", "", payload);
    }
    let given = pulled(&mut driver, id);
    ask(&mut driver, id, "STREAM.DELETE.DEAD", "");
    publish(&mut driver, id, &given[0].reply, "", "+TERM broken");
    let told = heard(&mut driver, id);
    let kept = "\"dead_letter_error\":\"no stream has the subject mq.dlq.mq.a\"";
    assert!(
        told[0].subject.contains("MSG_TERMINATED") && told[0].payload.contains(kept),
        "{told:?}"
    );
    stream(&mut driver, id, "DEAD", ",\"subjects\":[\"mq.dlq.>\"],\"max_msg_size\":50");
    driver.pass_ms(1_000);
    pulled(&mut driver, id);
    driver.pass_ms(1_000);
    let told = heard(&mut driver, id);
    let kept = "\"dead_letter_error\":\"stream DEAD does not take it\"";
    assert!(
        told[0].subject.contains("MAX_DELIVERIES") && told[0].payload.contains(kept),
        "{told:?}"
    );
    assert_eq!(messages(&mut driver, id, "MQ"), "2");
    assert_eq!(dead(&mut driver, id), []);
    driver.pass_ms(600_000);
    assert_eq!(pulled(&mut driver, id), []);
}

#[test]
fn what_was_left_where_it_is_can_still_be_done_or_become_a_dead_letter_once() {
    for retention in ["workqueue", "interest", "limits"] {
        let mut driver = Driver::with_streams();
        let id = driver.client();
        let queue = format!(",\"subjects\":[\"mq.a\"],\"retention\":\"{retention}\"");
        stream(&mut driver, id, "MQ", &queue);
        stream(&mut driver, id, "DEAD", GRAVE);
        let config = format!(",\"max_deliver\":1,\"ack_wait\":1000000000{PREFIX}");
        consumer(&mut driver, id, "MQ", "c", &config);
        for payload in ["works", "fails", "ends"] {
            publish(&mut driver, id, "mq.a", "", payload);
        }
        let given = pulled(&mut driver, id);
        ask(&mut driver, id, "STREAM.DELETE.DEAD", "");
        publish(&mut driver, id, &given[2].reply, "", "+ACK");
        driver.pass_ms(1_000);
        let watcher = driver.client();
        say(&mut driver, watcher, "SUB $JS.EVENT.ADVISORY.CONSUMER.> 9\r\n");
        let is_kept_for_it = retention != "limits";
        let left = |left: &'static str| if is_kept_for_it { left } else { "3" };
        assert_eq!(messages(&mut driver, id, "MQ"), left("2"), "{retention}");
        // Still without a place.
        assert_eq!(acknowledged(&mut driver, id, &given[1].reply, "+TERM no"), "");
        assert_eq!(messages(&mut driver, id, "MQ"), left("2"));
        let told = heard(&mut driver, watcher);
        let why = "\"dead_letter_error\":\"no stream has the subject mq.dlq.mq.a\"";
        assert!(told[0].subject.ends_with("MSG_TERMINATED.MQ.c"), "{told:?}");
        assert_eq!(told[0].payload.contains(why), is_kept_for_it, "{told:?}");
        // There is a place again: it goes there, once. What was done before does not.
        stream(&mut driver, id, "DEAD", GRAVE);
        assert_eq!(acknowledged(&mut driver, id, &given[0].reply, "+ACK"), "");
        for given in [&given[1], &given[1], &given[0], &given[2]] {
            assert_eq!(acknowledged(&mut driver, id, &given.reply, "+TERM no"), "");
        }
        assert_eq!(messages(&mut driver, id, "MQ"), left("0"), "{retention}");
        let told = heard(&mut driver, watcher);
        let moved = |told: &&Heard| told.payload.contains("\"dead_letter\":\"mq.dlq.mq.a\"");
        let letters = dead(&mut driver, id);
        let payloads: Vec<&str> = letters.iter().map(|letter| &*letter.payload).collect();
        if is_kept_for_it {
            assert_eq!(payloads, ["fails"], "{retention}");
            let said = history(&letters[0]);
            assert_eq!((&*said["reason"], &*said["deliveries"]), ("terminated", "1"));
            assert_eq!(told.iter().filter(moved).count(), 1, "{told:?}");
        } else {
            assert!(payloads.is_empty(), "{payloads:?}");
        }
        let info = ask(&mut driver, id, "CONSUMER.INFO.MQ.c", "");
        assert!(info.contains("\"num_ack_pending\":0"), "{info}");
        driver.pass_ms(600_000);
        assert_eq!(pulled(&mut driver, id), []);
    }
}

#[test]
fn a_dead_letter_that_dies_is_not_moved_again() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "MQ", ",\"subjects\":[\"mq.>\"],\"retention\":\"workqueue\"");
    consumer(&mut driver, id, "MQ", "c", &format!(",\"max_deliver\":1{PREFIX}"));
    publish(&mut driver, id, "mq.a", "", "work");
    for _ in 0..3 {
        for given in pulled(&mut driver, id) {
            publish(&mut driver, id, &given.reply, "", "-NAK");
        }
    }
    let info = ask(&mut driver, id, "STREAM.INFO.MQ", "{\"subjects_filter\":\">\"}");
    assert!(info.contains("\"subjects\":{\"mq.dlq.mq.a\":1}"), "{info}");
}

#[test]
fn a_prefix_that_cannot_work_is_refused() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "MQ", QUEUE);
    let mut asked = |prefix: &str, ack: &str| {
        let metadata = format!("\"metadata\":{{\"mq9.dead_letter_prefix\":\"{prefix}\"}}");
        let config = format!("{{\"durable_name\":\"c\",\"ack_policy\":\"{ack}\",{metadata}}}");
        let body = format!("{{\"stream_name\":\"MQ\",\"config\":{config}}}");
        ask(&mut driver, id, "CONSUMER.CREATE.MQ.c", &body)
    };
    for prefix in ["", "mq..dlq", "mq.*", "mq.>", "a b", "$JS.API", "$mq9.AI", &"x".repeat(256)] {
        let answer = asked(prefix, "explicit");
        assert!(answer.contains("mq9.dead_letter_prefix must be"), "{prefix}: {answer}");
    }
    let answer = asked("mq.dlq", "explicit");
    assert!(answer.contains("no stream has the subject mq.dlq.mq.a"), "{answer}");
    stream(&mut driver, id, "DEAD", ",\"subjects\":[\"mq.dlq.mq.a\"]");
    let mut asked = |filter: &str| {
        let config = format!("\"ack_policy\":\"explicit\",\"filter_subject\":\"{filter}\"{PREFIX}");
        let config = format!("{{\"durable_name\":\"c\",{config}}}");
        let body = format!("{{\"stream_name\":\"MQ\",\"config\":{config}}}");
        ask(&mut driver, id, "CONSUMER.CREATE.MQ.c", &body)
    };
    assert!(asked("mq.b").contains("no stream has the subject mq.dlq.mq.b"));
    assert!(asked("mq.*").contains("no stream has the subject mq.dlq.mq.*"));
    assert!(asked("mq.a").contains("\"created\":"));
}

#[test]
fn a_prefix_needs_the_right_to_publish_there() {
    let mut driver = Driver::with_streams();
    let (id, other) = (driver.client(), driver.client());
    queue(&mut driver, id);
    let mut asked = |allow: &[&str], deny: &[&str], consumer: &str, prefix: &str| {
        let list = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let rules = PermissionsBuilder {
            publish_allow: Some(list(allow)),
            publish_deny: list(deny),
            ..PermissionsBuilder::default()
        };
        driver.permit(other, rules);
        let config = "\"ack_policy\":\"explicit\",\"filter_subject\":\"mq.a\"";
        let config = format!("{{\"durable_name\":\"{consumer}\",{config}{prefix}}}");
        let body = format!("{{\"stream_name\":\"MQ\",\"config\":{config}}}");
        ask(&mut driver, other, &format!("CONSUMER.CREATE.MQ.{consumer}"), &body)
    };
    let refused = "no permission to publish to mq.dlq.mq.a";
    assert!(asked(&["$JS.API.>"], &[], "c", PREFIX).contains(refused));
    assert!(asked(&["$JS.API.>", "mq.dlq.x.>"], &[], "c", PREFIX).contains(refused));
    assert!(asked(&[">"], &["mq.dlq.mq.*"], "c", PREFIX).contains(refused));
    // Who leaves it out needs no right.
    assert!(asked(&["$JS.API.>"], &[], "c", "").contains("\"created\":"));
    assert!(asked(&["$JS.API.>"], &[], "c", PREFIX).contains(refused), "by changing it");
    assert!(asked(&["$JS.API.>", "mq.dlq.>"], &[], "c", PREFIX).contains("\"created\":"));
}

#[test]
fn a_declared_consumer_gets_a_stream_for_its_dead_letters() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "MQ", QUEUE);
    let mut declare = |name: &str, prefix: &str| {
        let config = format!(
            "{{\"durable_name\":\"{name}\",\"ack_policy\":\"explicit\",\"filter_subject\":\"mq.{name}\",\
             \"metadata\":{{\"mq9.dead_letter_prefix\":\"{prefix}\"}}}}"
        );
        let consumer = DeclaredConsumer { stream: "MQ".into(), name: name.into(), config };
        let now = driver.moment();
        let outcome = driver.engine.declare_consumer(&consumer, now).unwrap();
        driver.settle();
        outcome.map_err(|error| error.description.into_owned())
    };
    assert_eq!(declare("a", "mq.dlq"), Ok(Declared::Created));
    assert_eq!(declare("a", "mq.dlq"), Ok(Declared::Unchanged));
    assert_eq!(declare("b", "mq.dlq"), Ok(Declared::Created));
    let refused = declare("b", "mq").unwrap_err();
    assert!(refused.contains("no stream has the subject mq.mq.b"), "{refused}");
    let names = ask(&mut driver, id, "STREAM.NAMES", "");
    assert!(names.contains("[\"MQ\",\"mq_dlq\"]"), "{names}");
    let info = ask(&mut driver, id, "STREAM.INFO.mq_dlq", "");
    assert!(info.contains("\"subjects\":[\"mq.dlq.>\"]"), "{info}");
}

/// What a request is answered with once everything is durable; nothing if the power goes.
fn request(driver: &mut Driver, id: ConnId, subject: &str, body: &str) -> Option<Vec<Heard>> {
    driver.feed(id, format!("PUB {subject} in{id}.x {}\r\n{body}\r\n", body.len()).as_bytes());
    driver.release();
    driver.store().sync().ok()?;
    driver.release();
    Some(heard(driver, id))
}

/// Two messages die, one for each reason, and a third is acknowledged. Notes what was answered.
fn session(driver: &mut Driver, promised: &mut Vec<String>) -> Option<()> {
    let id = driver.client();
    let config = format!(
        "{{\"durable_name\":\"c\",\"ack_policy\":\"explicit\",\"max_deliver\":2,\"ack_wait\":1000000000{PREFIX}}}"
    );
    for (subject, body) in [
        ("STREAM.CREATE.MQ", format!("{{\"name\":\"MQ\"{QUEUE}}}")),
        ("STREAM.CREATE.DEAD", format!("{{\"name\":\"DEAD\"{GRAVE}}}")),
        ("CONSUMER.CREATE.MQ.c", format!("{{\"stream_name\":\"MQ\",\"config\":{config}}}")),
    ] {
        let answer = request(driver, id, &format!("$JS.API.{subject}"), &body)?.remove(0);
        assert!(answer.payload.contains("\"created\""), "{answer:?}");
    }
    promised.push("ready".to_owned());
    for payload in ["ends", "fails", "works"] {
        let answer = request(driver, id, "mq.a", payload)?.remove(0);
        assert!(answer.payload.contains("\"seq\""), "{answer:?}");
        promised.push(payload.to_owned());
    }
    for _ in 0..2 {
        let next = "$JS.API.CONSUMER.MSG.NEXT.MQ.c";
        let given = request(driver, id, next, "{\"batch\":10,\"no_wait\":true}")?;
        for given in given.iter().filter(|given| given.status().is_empty()) {
            assert_eq!(request(driver, id, &given.reply, answer_to(given))?.len(), 1);
            promised.push(format!("{} {}", given.payload, answer_to(given)));
        }
    }
    Some(())
}

fn answer_to(given: &Heard) -> &'static str {
    match given.payload.as_str() {
        "ends" => "+TERM",
        "works" => "+ACK",
        _ => "-NAK",
    }
}

#[test]
fn a_power_cut_at_any_operation_neither_loses_nor_doubles_a_dead_letter() {
    let whole = SimDisk::new();
    let mut all = Vec::new();
    session(&mut on(&whole, START).unwrap(), &mut all).unwrap();
    assert_eq!(all.len(), 8, "{all:?}");
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
            look(&crashed, &promised, &format!("cut at {n}, {which}, {promised:?}"));
        }
    }
}

/// Whoever works on does as before the cut.
fn look(crashed: &SimDisk, promised: &[String], at: &str) {
    let was = |what: &str| promised.iter().any(|promised| promised == what);
    let later = Now { wall_ms: START.wall_ms + 5_000, mono_ms: 70 };
    let mut driver = on(crashed, later).unwrap();
    let id = driver.client();
    if ask(&mut driver, id, "CONSUMER.INFO.MQ.c", "").contains("error") {
        assert!(!was("ready"), "{at}");
        return;
    }
    for _ in 0..3 {
        driver.pass_ms(1_000);
        for given in pulled(&mut driver, id) {
            let said = answer_to(&given);
            let done = said != "-NAK" && was(&format!("{} {said}", given.payload));
            assert!(!done, "{at}: {} was done with", given.payload);
            publish(&mut driver, id, &given.reply, "", said);
        }
    }
    let letters = dead(&mut driver, id);
    for payload in ["ends", "fails"] {
        let count = letters.iter().filter(|letter| letter.payload == payload).count();
        let least = usize::from(was(payload));
        assert!((least..=1).contains(&count), "{at}: {payload} is there {count} times");
    }
    assert!(!letters.iter().any(|letter| letter.payload == "works"), "{at}");
    assert_eq!(messages(&mut driver, id, "MQ"), "0", "{at}");
}
