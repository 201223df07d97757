//! Effects of time on connections.

use mq9_core::front::Limits;

use crate::driver::Driver;

#[test]
fn a_client_that_never_answers_pings_is_given_up() {
    let mut server = Driver::with(Limits { ping_interval_ms: 10_000, ..Limits::default() });
    let client = server.client();
    server.pass_ms(3_000);
    assert_eq!(server.hear(client), "PING\r\n");
    server.pass_ms(10_000);
    assert_eq!(server.hear(client), "PING\r\n");
    server.pass_ms(10_000);
    assert_eq!(server.hear(client), "-ERR 'Stale Connection'\r\n");
    assert_eq!(server.closed.get(&client), Some(&false));
    assert_eq!(server.front.reason(client).unwrap(), "Stale Connection");
}

#[test]
fn an_answer_is_a_sign_of_life_and_measures_the_round_trip() {
    let mut server = Driver::with(Limits { ping_interval_ms: 10_000, ..Limits::default() });
    let client = server.client();
    server.pass_ms(3_000);
    server.now_us += 250;
    server.say(client, "PONG\r\n");
    assert_eq!(server.front.stats(client).unwrap().rtt_us, 250);
    for _ in 0..20 {
        server.pass_ms(10_000);
        server.say(client, "PONG\r\n");
    }
    assert!(server.closed.is_empty());
}

#[test]
fn a_client_that_is_heard_of_is_not_asked() {
    let mut server = Driver::with(Limits { ping_interval_ms: 10_000, ..Limits::default() });
    let client = server.client();
    server.pass_ms(3_000);
    assert_eq!(server.say(client, "PONG\r\n"), "PING\r\n");
    for _ in 0..100 {
        server.pass_ms(1_000);
        assert_eq!(server.say(client, "PUB a 0\r\n\r\n"), "");
    }
}

#[test]
fn authentication_has_its_time() {
    let mut server = Driver::new();
    let slow = server.open(true);
    let quick = server.open(true);
    for id in [slow, quick] {
        server.front.expect_authentication(id, 2_000, 0);
    }
    assert_eq!(server.say(quick, "CONNECT {}\r\nPING\r\n"), "PONG\r\n");
    let mut heard = String::new();
    for byte in b"CONNECT {\"user\"" {
        heard += &server.say(slow, [*byte]);
        server.pass_ms(150);
    }
    assert_eq!(heard, "-ERR 'Authentication Timeout'\r\n");
    assert_eq!(server.closed.keys().collect::<Vec<_>>(), [&slow]);
}

#[test]
fn a_polite_end_does_not_take_for_ever() {
    let mut server = Driver::with(Limits { write_deadline_ms: 1_000, ..Limits::default() });
    let client = server.client();
    server.pass_ms(100);
    server.say(client, "NONSENSE\r\n");
    assert_eq!(server.closed.get(&client), Some(&false));
    server.pass_ms(1_100);
    assert_eq!(server.closed.get(&client), Some(&true));
}

#[test]
fn a_server_without_clients_has_nothing_to_wait_for() {
    let mut server = Driver::new();
    assert_eq!(server.front.tick(0), None);
    let client = server.client();
    assert!(server.front.tick(0).is_some());
    server.front.remove(client);
    assert_eq!(server.front.tick(0), None);
}

#[test]
fn the_next_deadline_is_the_earliest_that_still_counts() {
    let mut server = Driver::new();
    let client = server.open(true);
    assert_eq!(server.front.next_deadline_ms(), None, "nobody is asked before INFO");
    server.front.greet(client, 0);
    server.front.greet(client, 0);
    let first = server.front.next_deadline_ms().unwrap();
    assert!((2_000..=2_400).contains(&first), "{first}");
    server.front.expect_authentication(client, 500, 0);
    assert_eq!(server.front.next_deadline_ms(), Some(500));
    server.front.expect_authentication(client, 700, 0);
    assert_eq!(server.front.next_deadline_ms(), Some(700));
    server.front.remove(client);
    assert_eq!(server.front.next_deadline_ms(), None);
}

#[test]
fn the_time_for_a_polite_end_begins_when_it_does() {
    let mut server = Driver::with(Limits { write_deadline_ms: 1_000, ..Limits::default() });
    let client = server.client();
    // Nothing was due meanwhile, so nobody has looked at the clock.
    server.now_us += 60_000_000;
    server.say(client, "NONSENSE\r\n");
    server.pass_ms(900);
    assert_eq!(server.closed.get(&client), Some(&false));
    server.pass_ms(200);
    assert_eq!(server.closed.get(&client), Some(&true));
}

#[test]
fn a_silent_client_is_asked_unless_its_handshake_has_a_deadline() {
    let mut server = Driver::with(Limits { ping_interval_ms: 10_000, ..Limits::default() });
    let (free, watched) = (server.open(true), server.open(true));
    for id in [free, watched] {
        server.front.greet(id, 0);
    }
    server.front.expect_authentication(watched, 60_000, 0);
    server.pass_ms(3_000);
    assert_eq!((server.hear(free).as_str(), server.hear(watched).as_str()), ("PING\r\n", ""));
    server.pass_ms(10_000);
    server.pass_ms(10_000);
    assert_eq!(server.closed.keys().collect::<Vec<_>>(), [&free]);
}
