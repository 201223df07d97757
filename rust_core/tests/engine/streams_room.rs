//! No client of JetStream holds up others, fills the memory, or has more than it may.

use std::sync::Arc;

use mq9_core::front::{ConnId, PermissionsBuilder};
use mq9_core::mailbox::Policy;
use mq9_core::store::{Options, Quotas};
use mq9_sim::SimDisk;

use crate::driver::Driver;
use crate::push::say;
use crate::room::hold_many_replies;
use crate::streams::{ask, consumer, heard, messages, publish, pull, stream};

fn with_quotas(quotas: Quotas) -> Driver {
    Driver::streams_on(Arc::new(SimDisk::new()), Options { quotas, ..Options::default() })
}

/// A consumer of a stream with so many messages of this size that need no acknowledgement.
fn stored(driver: &mut Driver, id: ConnId, count: usize, size: usize) {
    stream(driver, id, "S", "");
    let payload = "x".repeat(size);
    for _ in 0..count {
        driver.feed_only(id, format!("PUB S {size}\r\n{payload}\r\n").as_bytes());
    }
    driver.settle();
    let config =
        "{\"stream_name\":\"S\",\"config\":{\"durable_name\":\"c\",\"ack_policy\":\"none\"}}";
    let answer = ask(driver, id, "CONSUMER.DURABLE.CREATE.S.c", config);
    assert!(answer.contains("\"created\":"), "{answer}");
}

fn waiting(driver: &Driver, id: ConnId) -> usize {
    driver.engine.front().unwritten(id).len()
}

#[test]
fn a_large_batch_is_given_some_at_a_time() {
    let mut driver = Driver::with_streams();
    let (greedy, other) = (driver.client(), driver.client());
    stored(&mut driver, greedy, 6_000, 4_000);
    let request = format!(
        "PUB $JS.API.CONSUMER.MSG.NEXT.S.c in{greedy}.pull 20\r\n{{\"batch\":1000000000}}\r\n"
    );
    driver.feed_only(greedy, request.as_bytes());
    driver.settle();
    assert!(waiting(&driver, greedy) < 4 << 20, "{} bytes", waiting(&driver, greedy));
    let mut given = 0;
    for _ in 0..500 {
        // It reads slowly, and nothing is made for it that it does not take.
        assert!(waiting(&driver, greedy) < 4 << 20, "{} bytes", waiting(&driver, greedy));
        given += heard(&mut driver, greedy).len();
        // Others are answered in between.
        assert!(ask(&mut driver, other, "INFO", "").contains("\"streams\":1"));
        driver.settle();
    }
    assert_eq!(given, 6_000);
}

#[test]
fn a_connection_that_does_not_read_keeps_nobody_from_messages() {
    let mut driver = Driver::with_streams();
    let (stuck, reader) = (driver.client(), driver.client());
    stored(&mut driver, stuck, 200, 50_000);
    say(
        &mut driver,
        stuck,
        &format!("PUB $JS.API.CONSUMER.MSG.NEXT.S.c in{stuck}.p 13\r\n{{\"batch\":200}}\r\n"),
    );
    driver.pass_ms(1);
    let before = waiting(&driver, stuck);
    assert!(before < 4 << 20, "{before} bytes wait for a client that reads nothing");
    let mut given = pull(&mut driver, reader, "S.c", "{\"batch\":50}").len();
    for _ in 0..20 {
        driver.pass_ms(1);
        given += heard(&mut driver, reader).len();
    }
    assert_eq!(given, 50, "it takes what it asked for");
    let mut late = 0;
    for _ in 0..50 {
        late += heard(&mut driver, stuck).len();
        driver.pass_ms(1);
    }
    assert_eq!(late, 150, "the rest, once it reads");
}

#[test]
fn requests_for_more_than_there_can_be_are_served() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", "");
    for batch in ["9223372036854775807", "9223372036854775807", "2"] {
        assert!(pull(&mut driver, id, "S.c", batch).is_empty());
    }
    publish(&mut driver, id, "S", "", "one");
    assert_eq!(heard(&mut driver, id).len(), 1);
}

#[test]
fn subjects_that_would_take_long_to_compare_are_refused() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    let many = |count: usize| {
        let all: Vec<String> = (0..count).map(|nth| format!("\"x.*.{nth}\"")).collect();
        all.join(",")
    };
    for (count, why) in [(50_000, "longer than 60000 bytes"), (5_000, "too many subjects")] {
        let body = format!("{{\"name\":\"S\",\"subjects\":[{}]}}", many(count));
        let answer = ask(&mut driver, id, "STREAM.CREATE.S", &body);
        assert!(answer.contains(why), "{answer}");
    }
    stream(&mut driver, id, "T", ",\"subjects\":[\"x.*.a\"],\"retention\":\"workqueue\"");
    for (count, why) in [(50_000, "longer than 60000 bytes"), (5_000, "too many subjects")] {
        let config = format!("\"ack_policy\":\"explicit\",\"filter_subjects\":[{}]", many(count));
        let body = format!("{{\"stream_name\":\"T\",\"config\":{{{config}}}}}");
        let answer = ask(&mut driver, id, "CONSUMER.CREATE.T.c", &body);
        assert!(answer.contains(why), "{answer}");
    }
    // Those without wildcards are no trouble.
    let all: Vec<String> = (0..5_000).map(|nth| format!("\"s.{nth}\"")).collect();
    stream(&mut driver, id, "U", &format!(",\"subjects\":[{}]", all.join(",")));
}

#[test]
fn requests_whose_inbox_is_gone_neither_count_nor_are_given_messages() {
    let mut driver = Driver::with_streams();
    let (gone, there) = (driver.client(), driver.client());
    stream(&mut driver, gone, "S", "");
    consumer(&mut driver, gone, "S", "c", ",\"max_waiting\":2");
    for _ in 0..2 {
        assert!(pull(&mut driver, gone, "S.c", "").is_empty());
    }
    assert_eq!(pull(&mut driver, there, "S.c", "")[0].status(), "409 Exceeded MaxWaiting");
    say(&mut driver, gone, "UNSUB 1\r\n");
    let info = ask(&mut driver, there, "CONSUMER.INFO.S.c", "");
    assert!(info.contains("\"num_waiting\":0"), "{info}");
    for _ in 0..2 {
        say(&mut driver, gone, "SUB q 2\r\n");
        publish(&mut driver, gone, "$JS.API.CONSUMER.MSG.NEXT.S.c", "q", "");
        say(&mut driver, gone, "UNSUB 2\r\n");
    }
    assert!(pull(&mut driver, there, "S.c", "").is_empty(), "there is room again");
    say(&mut driver, gone, "SUB q 2\r\n");
    publish(&mut driver, gone, "$JS.API.CONSUMER.MSG.NEXT.S.c", "q", "");
    say(&mut driver, gone, "UNSUB 2\r\n");
    publish(&mut driver, gone, "S", "", "one");
    publish(&mut driver, gone, "S", "", "two");
    assert_eq!(heard(&mut driver, there).len(), 1);
    assert_eq!(pull(&mut driver, there, "S.c", "")[0].payload, "two");
}

#[test]
fn streams_and_requests_count_to_quotas() {
    let mut driver = with_quotas(Quotas {
        max_mailboxes: 3,
        max_mailboxes_per_user: 2,
        max_bytes_per_user: 3_000,
        max_waits_per_connection: 3,
        max_waits_per_user: 4,
        ..Quotas::DEFAULT
    });
    let (id, second) = (driver.client(), driver.client());
    for id in [id, second] {
        driver.engine.set_user(id, Some("ann".into()));
    }
    stream(&mut driver, id, "A", "");
    stream(&mut driver, id, "B", "");
    let refused = ask(&mut driver, id, "STREAM.CREATE.C", "{\"name\":\"C\"}");
    assert!(refused.contains("10027") && refused.contains("max_mailboxes_per_user"), "{refused}");
    driver.engine.set_user(id, Some("bob".into()));
    stream(&mut driver, id, "C", "");
    driver.engine.set_user(id, None);
    let refused = ask(&mut driver, id, "STREAM.CREATE.D", "{\"name\":\"D\"}");
    assert!(refused.contains("10027") && refused.contains("max_mailboxes "), "{refused}");
    let payload = "x".repeat(2_000);
    let mut told = Vec::new();
    for subject in ["A", "B", "C"] {
        publish(&mut driver, id, subject, &format!("in{id}.ack"), &payload);
        told.push(heard(&mut driver, id).remove(0).payload);
    }
    assert!(told[0].contains("\"seq\":1"), "{told:?}");
    assert!(told[1].contains("10047") && told[1].contains("max_bytes_per_user"), "{told:?}");
    assert!(told[2].contains("\"seq\":1"), "{told:?}");
    driver.engine.set_user(id, Some("ann".into()));
    consumer(&mut driver, id, "B", "c", "");
    for _ in 0..3 {
        assert!(pull(&mut driver, id, "B.c", "").is_empty());
    }
    assert_eq!(pull(&mut driver, id, "B.c", "")[0].status(), "409 Exceeded MaxWaiting");
    assert!(pull(&mut driver, second, "B.c", "").is_empty());
    assert_eq!(pull(&mut driver, second, "B.c", "")[0].status(), "409 Exceeded MaxWaiting");
    driver.leave(id);
    assert!(pull(&mut driver, second, "B.c", "").is_empty(), "what has ended counts no more");
    driver.settle();
}

#[test]
fn requests_of_consumers_and_fetches_that_wait_count_together() {
    for (setting, quotas) in [
        ("max_waiting_fetches ", Quotas { max_waits: 2, ..Quotas::DEFAULT }),
        ("max_waiting_fetches_per_user ", Quotas { max_waits_per_user: 2, ..Quotas::DEFAULT }),
        (
            "max_waiting_fetches_per_connection ",
            Quotas { max_waits_per_connection: 2, ..Quotas::DEFAULT },
        ),
    ] {
        let mut driver = with_quotas(quotas);
        let id = driver.client();
        driver.engine.set_user(id, Some("ann".into()));
        stream(&mut driver, id, "S", "");
        consumer(&mut driver, id, "S", "c", "");
        driver.create("m", Policy::default());
        for _ in 0..2 {
            assert!(pull(&mut driver, id, "S.c", "").is_empty());
        }
        let told = driver.ask(id, "FETCH.m", "", "{\"config\":{\"max_wait_ms\":60000}}");
        assert!(told.contains(setting), "{setting}: {told}");
    }
}

#[test]
fn a_request_ends_with_the_permission_to_ask() {
    let mut driver = Driver::with_streams();
    let (id, other) = (driver.client(), driver.client());
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", "");
    assert!(pull(&mut driver, id, "S.c", "").is_empty());
    let publish_deny = vec!["$JS.API.CONSUMER.>".to_owned()];
    driver.permit(id, PermissionsBuilder { publish_deny, ..Default::default() });
    driver.settle();
    let wire = driver.wire(id);
    assert!(wire.contains("409 Permission Ended"), "{wire}");
    assert!(
        wire.contains("-ERR 'Permissions Violation for Publish to \"$JS.API.CONSUMER"),
        "{wire}"
    );
    publish(&mut driver, other, "S", "", "secret");
    assert!(heard(&mut driver, id).is_empty());
    assert_eq!(pull(&mut driver, other, "S.c", "")[0].payload, "secret");
}

#[test]
fn a_stream_can_store_what_the_broker_tells() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(
        &mut driver,
        id,
        "E",
        ",\"subjects\":[\"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>\"]",
    );
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", ",\"max_deliver\":1,\"ack_wait\":1000000000");
    publish(&mut driver, id, "S", "", "work");
    assert_eq!(pull(&mut driver, id, "S.c", "").len(), 1);
    driver.pass_ms(2_000);
    assert_eq!(messages(&mut driver, id, "E"), "1");
}

#[test]
fn a_pull_ends_in_time_though_replies_were_held_meanwhile() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stored(&mut driver, id, 0, 0);
    assert!(pull(&mut driver, id, "S.c", "{\"batch\":1,\"expires\":1000000000}").is_empty());
    assert_eq!(driver.engine.due_in_ms(driver.moment()), Some(1000));
    hold_many_replies(&mut driver);
    driver.release();
    driver.store().sync().unwrap();
    driver.release();
    let mut due_ms = driver.engine.due_in_ms(driver.moment());
    assert!(due_ms.is_some_and(|ms| ms <= 1000), "the pull is forgotten: {due_ms:?}");
    while due_ms == Some(0) {
        driver.settle();
        due_ms = driver.engine.due_in_ms(driver.moment());
    }
    assert_eq!(due_ms, Some(1000));
    driver.pass_ms(1000);
    assert!(heard(&mut driver, id)[0].status().contains("408"), "it ends");
}
