//! Pull requests: when they end, and that what has ended is given nothing.

use mq9_core::time::Moment;

use crate::driver::Driver;
use crate::streams::{Heard, ask, consumer, heard, publish, pull, stream};

/// The statuses among what was heard, and how many messages.
fn statuses(heard: &[Heard]) -> (usize, Vec<&str>) {
    let said = heard.iter().map(Heard::status).filter(|status| !status.is_empty()).collect();
    (heard.iter().filter(|heard| !heard.reply.is_empty()).count(), said)
}

#[test]
fn an_expired_request_is_given_nothing() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", "");
    assert!(pull(&mut driver, id, "S.c", "{\"batch\":2,\"expires\":99900000}").is_empty());
    // A message comes when it has been over for 50 us, and nobody has looked since.
    let Moment { wall_us, mono_us } = driver.moment();
    let late = Moment { wall_us: wall_us + 99_950, mono_us: mono_us + 99_950 };
    driver.engine.feed(id, b"PUB S 1\r\nx\r\n", late);
    driver.engine.settle(late);
    driver.pass_ms(100);
    let told = heard(&mut driver, id);
    assert_eq!(statuses(&told), (0, vec!["408 Request Timeout"]));
    assert!(told[0].headers.contains("Nats-Pending-Messages: 2"), "{told:?}");
    let info = ask(&mut driver, id, "CONSUMER.INFO.S.c", "");
    assert!(info.contains("\"num_waiting\":0"), "{info}");
    assert!(info.contains("\"num_pending\":1"), "{info}");
}

#[test]
fn a_request_is_given_what_comes_just_before_its_end() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", "");
    assert!(pull(&mut driver, id, "S.c", "{\"expires\":99900000}").is_empty());
    let Moment { wall_us, mono_us } = driver.moment();
    let early = Moment { wall_us: wall_us + 99_850, mono_us: mono_us + 99_850 };
    driver.engine.feed(id, b"PUB S 1\r\nx\r\n", early);
    driver.engine.settle(early);
    driver.pass_ms(100);
    assert_eq!(statuses(&heard(&mut driver, id)), (1, vec![]));
}

#[test]
fn an_expired_request_does_not_take_the_turn_of_others() {
    let mut driver = Driver::with_streams();
    let (first, second) = (driver.client(), driver.client());
    stream(&mut driver, first, "S", "");
    consumer(&mut driver, first, "S", "c", "");
    pull(&mut driver, first, "S.c", "{\"expires\":100000000}");
    pull(&mut driver, second, "S.c", "{\"expires\":200000000}");
    driver.now.mono_ms += 100;
    publish(&mut driver, second, "S", "", "x");
    assert_eq!(statuses(&heard(&mut driver, first)), (0, vec!["408 Request Timeout"]));
    assert_eq!(statuses(&heard(&mut driver, second)), (1, vec![]));
}

#[test]
fn a_request_that_expired_does_not_count_as_pending() {
    let mut driver = Driver::with_streams();
    let (first, second) = (driver.client(), driver.client());
    stream(&mut driver, first, "S", "");
    consumer(&mut driver, first, "S", "c", ",\"max_ack_pending\":1");
    for _ in 0..3 {
        publish(&mut driver, first, "S", "", "x");
    }
    let given = pull(&mut driver, first, "S.c", "{\"batch\":9,\"expires\":100000000}");
    assert_eq!(statuses(&given), (1, vec![]));
    driver.now.mono_ms += 100;
    let asked = "{\"batch\":1,\"no_wait\":true,\"expires\":100000000}";
    assert!(pull(&mut driver, second, "S.c", asked).is_empty());
    publish(&mut driver, first, &given[0].reply, "", "+ACK");
    assert_eq!(statuses(&heard(&mut driver, second)), (1, vec![]));
}

#[test]
fn a_request_that_may_not_wait_ends_with_the_first_heartbeat_if_too_much_is_out() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", ",\"max_ack_pending\":2");
    for _ in 0..4 {
        publish(&mut driver, id, "S", "", "x");
    }
    let asked =
        "{\"batch\":4,\"no_wait\":true,\"expires\":2000000000,\"idle_heartbeat\":100000000}";
    let given = pull(&mut driver, id, "S.c", asked);
    assert_eq!(statuses(&given), (2, vec![]));
    driver.pass_ms(99);
    assert!(heard(&mut driver, id).is_empty());
    driver.pass_ms(1);
    assert_eq!(statuses(&heard(&mut driver, id)), (0, vec!["404 No Messages"]));
    // Its client has gone on: an acknowledgement gives it no more.
    publish(&mut driver, id, &given[0].reply, "", "+ACK");
    driver.pass_ms(3_000);
    assert!(heard(&mut driver, id).is_empty());
}

#[test]
fn without_a_heartbeat_it_goes_on_until_it_expires() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", ",\"max_ack_pending\":2");
    for _ in 0..4 {
        publish(&mut driver, id, "S", "", "x");
    }
    let given =
        pull(&mut driver, id, "S.c", "{\"batch\":4,\"no_wait\":true,\"expires\":1000000000}");
    assert_eq!(statuses(&given), (2, vec![]));
    publish(&mut driver, id, &given[0].reply, "", "+ACK");
    assert_eq!(statuses(&heard(&mut driver, id)), (1, vec![]));
    driver.pass_ms(1_000);
    let told = heard(&mut driver, id);
    assert_eq!(statuses(&told), (0, vec!["408 Request Timeout"]));
    assert!(told[0].headers.contains("Nats-Pending-Messages: 1"), "{told:?}");
}

#[test]
fn a_request_that_has_expired_already_is_told_so() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", "");
    for body in ["{\"expires\":-5}", "{\"expires\":-5,\"no_wait\":true}"] {
        assert_eq!(statuses(&pull(&mut driver, id, "S.c", body)), (0, vec!["408 Request Timeout"]));
    }
    publish(&mut driver, id, "S", "", "x");
    let told = pull(&mut driver, id, "S.c", "{\"expires\":-5}");
    assert_eq!(statuses(&told), (0, vec!["408 Request Timeout"]));
}

#[test]
fn whoever_waits_is_told_when_the_broker_stops() {
    let mut driver = Driver::with_streams();
    let (first, second) = (driver.client(), driver.client());
    stream(&mut driver, first, "S", "");
    consumer(&mut driver, first, "S", "c", "");
    consumer(&mut driver, first, "S", "d", "");
    pull(&mut driver, first, "S.c", "{\"batch\":3,\"expires\":9000000000}");
    pull(&mut driver, second, "S.d", "{\"batch\":7,\"max_bytes\":500}");
    let now = driver.moment();
    driver.engine.end_pulls(now);
    driver.settle();
    for (id, pending) in [(first, (3, 0)), (second, (7, 500))] {
        let told = heard(&mut driver, id);
        assert_eq!(statuses(&told), (0, vec!["409 Server Shutdown"]));
        let (messages, bytes) = pending;
        let said = format!("Nats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {bytes}");
        assert!(told[0].headers.contains(&said), "{told:?}");
    }
    // Nothing comes behind that.
    publish(&mut driver, first, "S", "", "x");
    assert!(heard(&mut driver, first).is_empty());
    assert!(heard(&mut driver, second).is_empty());
}
