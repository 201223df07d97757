//! Acknowledgements that come one behind the other are carried out together: as if each came alone, with less to record.

use std::sync::Arc;

use mq9_core::front::ConnId;
use mq9_core::store::Options;
use mq9_sim::SimDisk;

use crate::driver::Driver;
use crate::streams::{Heard, consumer, heard, messages, publish, pull, stream};

/// A stream with two consumers that were given its messages, and what they were given.
fn given(driver: &mut Driver, id: ConnId, retention: &str, count: usize) -> Vec<Heard> {
    let more = format!(",\"subjects\":[\"s.*\"],\"retention\":\"{retention}\"");
    stream(driver, id, "S", &more);
    for (name, filter) in [("a", "s.0"), ("b", "s.1")] {
        let more = format!(",\"filter_subject\":\"{filter}\",\"max_deliver\":3");
        consumer(driver, id, "S", name, &more);
    }
    for nth in 0..count {
        publish(driver, id, &format!("s.{}", nth % 3 % 2), "", "work");
    }
    let body = format!("{{\"batch\":{count},\"no_wait\":true}}");
    let mut all = pull(driver, id, "S.a", &body);
    all.extend(pull(driver, id, "S.b", &body));
    all.retain(|heard| heard.reply.starts_with("$JS.ACK.S."));
    assert_eq!(all.len(), count);
    all
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// One thing that a worker says, mostly that it has done with a message.
fn one(chance: &mut Chance, id: ConnId, given: &[Heard]) -> String {
    let ack = given[chance.below(given.len())].reply.clone();
    let put = |subject: &str, reply: &str, said: &str| {
        format!("PUB {subject} {reply} {}\r\n{said}\r\n", said.len())
    };
    let inbox = format!("in{id}.told");
    match chance.below(40) {
        0 => put(&ack, &inbox, "+ACK"),
        1 => put(&ack, "", "-NAK"),
        2 => put(&ack, "", "+WPI"),
        3 => put(&ack, "", "+TERM no"),
        4 => put(&ack, &format!("in{id}.pull"), "+NXT {\"no_wait\":true}"),
        5 => put("s.0", &inbox, "more"),
        6 => put("$JS.API.CONSUMER.INFO.S.a", &inbox, ""),
        7 => put("$JS.API.CONSUMER.MSG.NEXT.S.b", &format!("in{id}.pull"), "{\"no_wait\":true}"),
        8 => put("$JS.API.STREAM.PURGE.S", &inbox, "{\"filter\":\"s.1\",\"keep\":5}"),
        9 => put(&ack.replace("$JS.ACK.", "$JS.ACK._.hash."), "", "+ACK"),
        10 => put(&format!("{}.random", ack.replace("$JS.ACK.", "$JS.ACK._.hash.")), "", ""),
        11 => put(&format!("{ack}.1"), "", "+ACK"),
        12 => put("$JS.ACK.S.a.1.999.1.1.0", "", "+ACK"),
        13 => put("$JS.ACK.S.a.1.0.1.1.0", "", "+ACK"),
        14 => put("$JS.ACK.S.a.1.x.1.1.0", "", "+ACK"),
        15 => put("$JS.ACK.S.nobody.1.1.1.1.0", "", "+ACK"),
        16 => put(&ack, "", "what"),
        17 => put(&ack, "", "+OK"),
        18 => put(&ack, "", ""),
        _ => put(&ack, "", "+ACK"),
    }
}

/// What can be asked of the streams and consumers of a broker.
fn everything(driver: &mut Driver, id: ConnId) -> Vec<Heard> {
    let mut all = Vec::new();
    for question in ["STREAM.INFO.S", "CONSUMER.INFO.S.a", "CONSUMER.INFO.S.b"] {
        publish(driver, id, &format!("$JS.API.{question}"), &format!("in{id}.told"), "");
        all.extend(heard(driver, id));
    }
    all
}

#[test]
fn acknowledgements_that_come_together_do_what_each_does_alone() {
    for seed in 0..60 {
        let retention = ["limits", "workqueue", "interest"][seed as usize % 3];
        let mut chance = Chance(seed);
        let (mut together, mut alone) = (Driver::with_streams(), Driver::with_streams());
        let id = together.client();
        assert_eq!(alone.client(), id);
        let mut known = given(&mut together, id, retention, 60);
        assert_eq!(given(&mut alone, id, retention, 60), known);
        for _ in 0..20 {
            let said: Vec<String> =
                (0..1 + chance.below(30)).map(|_| one(&mut chance, id, &known)).collect();
            together.feed(id, said.concat().as_bytes());
            said.iter().for_each(|one| alone.feed(id, one.as_bytes()));
            for driver in [&mut together, &mut alone] {
                let ms = if chance.0.is_multiple_of(5) { 30_000 } else { 1 };
                driver.pass_ms(ms);
            }
            let told = heard(&mut together, id);
            assert_eq!(heard(&mut alone, id), told, "seed {seed}: {said:?}");
            known.extend(told.into_iter().filter(|told| told.reply.starts_with("$JS.ACK.")));
            let now = everything(&mut together, id);
            assert_eq!(everything(&mut alone, id), now, "seed {seed}: {said:?}");
        }
    }
}

#[test]
fn a_batch_of_acknowledgements_is_one_step_of_the_log() {
    let mut written = Vec::new();
    for is_together in [true, false] {
        let mut driver = Driver::with_streams();
        let id = driver.client();
        let given = given(&mut driver, id, "workqueue", 90);
        let all = given.iter().map(|one| format!("PUB {} 4\r\n+ACK\r\n", one.reply));
        let all: Vec<String> = all.collect();
        let before = driver.store().end().number();
        if is_together {
            driver.feed(id, all.concat().as_bytes());
        } else {
            all.iter().for_each(|one| driver.feed(id, one.as_bytes()));
        }
        driver.settle();
        written.push(driver.store().end().number() - before);
        assert_eq!(messages(&mut driver, id, "S"), "0");
    }
    assert!(
        written[0] * 5 < written[1],
        "bytes of acknowledgements, together and alone: {written:?}"
    );
}

#[test]
fn what_comes_behind_acknowledgements_finds_them_done() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    let full = ",\"retention\":\"workqueue\",\"max_msgs\":2,\"discard\":\"new\"";
    stream(&mut driver, id, "S", full);
    consumer(&mut driver, id, "S", "c", "");
    publish(&mut driver, id, "S", "", "one");
    publish(&mut driver, id, "S", "", "two");
    let given = pull(&mut driver, id, "S.c", "{\"batch\":2}");
    let said = format!("PUB {} 4\r\n+ACK\r\nPUB S in{id}.told 5\r\nthree\r\n", given[0].reply);
    driver.feed(id, said.as_bytes());
    driver.settle();
    let told = heard(&mut driver, id);
    assert_eq!(told[0].payload, "{\"stream\":\"S\",\"seq\":3}", "there is room for it");
}

#[test]
fn who_hears_of_the_last_acknowledgement_knows_that_all_before_it_are_durable() {
    let disk = SimDisk::new();
    let mut driver = Driver::streams_on(Arc::new(disk.clone()), Options::default());
    let id = driver.client();
    let given = given(&mut driver, id, "workqueue", 30);
    let mut said: String =
        given[1..].iter().map(|one| format!("PUB {} 4\r\n+ACK\r\n", one.reply)).collect();
    said += &format!("PUB {} in{id}.told 4\r\n+ACK\r\n", given[0].reply);
    driver.feed(id, said.as_bytes());
    driver.release();
    assert_eq!(heard(&mut driver, id), [], "nothing is durable yet");
    driver.settle();
    let told = heard(&mut driver, id);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].subject.clone(), told[0].status()), (format!("in{id}.told"), ""));
    let mut again = Driver::streams_on(Arc::new(disk.crash_strict()), Options::default());
    let id = again.client();
    assert_eq!(messages(&mut again, id, "S"), "0");
}
