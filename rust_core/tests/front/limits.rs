//! Clients that ask too much, or read too little.

use std::collections::{HashMap, HashSet};

use mq9_core::front::Limits;

use crate::driver::{CONNECT, Driver};

#[test]
fn a_client_that_does_not_read_is_cut_and_the_others_are_not() {
    let mut server = Driver::with(Limits { max_pending: 10_000, ..Limits::default() });
    let (publisher, deaf, reader) = (server.client(), server.client(), server.client());
    server.say(deaf, "SUB a 1\r\n");
    server.say(reader, "SUB a 1\r\n");
    server.stuck.push(deaf);
    let mut largest = 0;
    for _ in 0..100 {
        server.say(publisher, format!("PUB a 500\r\n{}\r\n", "x".repeat(500)));
        assert!(server.hear(reader).ends_with("x\r\n"));
        if let Some(stats) = server.front.stats(deaf) {
            largest = largest.max(stats.pending_bytes);
        }
    }
    assert_eq!(server.closed.get(&deaf), Some(&true));
    assert!((9_000..11_000).contains(&largest), "{largest}");
    assert_eq!(server.front.reason(deaf).unwrap(), "Slow Consumer (Pending Bytes)");
    assert!(server.stalled.contains(&publisher), "whoever writes too much is slowed down");
    assert_eq!(server.front.totals().slow_consumers, 1);
    assert_eq!(server.closed.len(), 1);
}

#[test]
fn replies_to_a_client_that_does_not_read_are_bounded_too() {
    let mut server = Driver::with(Limits { max_pending: 10_000, ..Limits::default() });
    let deaf = server.client();
    server.front.feed(deaf, &b"PING\r\n".repeat(50_000), &mut (), 0);
    assert!(server.front.stats(deaf).unwrap().pending_bytes <= 10_010);
    server.settle();
    assert_eq!(server.closed.get(&deaf), Some(&true));
}

#[test]
fn a_deaf_client_is_cut_at_the_write_deadline() {
    let mut server = Driver::with(Limits { write_deadline_ms: 500, ..Limits::default() });
    let deaf = server.client();
    server.stuck.push(deaf);
    server.say(deaf, "PING\r\n");
    server.front.write(deaf, b"x");
    server.settle();
    server.pass_ms(499);
    assert!(server.closed.is_empty());
    server.pass_ms(2);
    assert_eq!(server.closed.get(&deaf), Some(&true));
    assert_eq!(server.front.reason(deaf).unwrap(), "Slow Consumer (Write Deadline)");
}

#[test]
fn too_much_of_anything_ends_the_connection_with_the_right_words() {
    let long = "a".repeat(5000);
    let cases = [
        (format!("SUB {long} 1\r\n"), "-ERR 'maximum control line exceeded'\r\n"),
        (format!("PUB {long}"), "-ERR 'maximum control line exceeded'\r\n"),
        (format!("SUB{} a 1\r\n", " ".repeat(5000)), "-ERR 'maximum control line exceeded'\r\n"),
        (format!("PING{long}"), "-ERR 'maximum control line exceeded'\r\n"),
        ("PUB a 1048577\r\n".into(), "-ERR 'Maximum Payload Violation'\r\n"),
        ("PUB a 999999999\r\n".into(), "-ERR 'Maximum Payload Violation'\r\n"),
        ("PUB a 1000000000\r\n".into(), ""),
        ("PUB a -1\r\n".into(), ""),
        ("PUB a\r\n".into(), ""),
        ("PUB a b c d\r\n".into(), ""),
        ("SUB a b c d\r\n".into(), ""),
        ("UNSUB 1 2 3\r\n".into(), ""),
        ("HPUB a 12 2\r\n".into(), ""),
        ("SUBa 1\r\n".into(), "-ERR 'Unknown Protocol Operation'\r\n"),
        ("MSG a 1 0\r\n\r\n".into(), "-ERR 'Unknown Protocol Operation'\r\n"),
        ("PUB a 1\r\nxy".into(), "-ERR 'Unknown Protocol Operation'\r\n"),
        ("PUB a 1\r\nx\ry".into(), "-ERR 'Unknown Protocol Operation'\r\n"),
    ];
    for (input, expected) in cases {
        let mut server = Driver::new();
        let client = server.client();
        assert_eq!(server.say(client, &input), expected, "{input:.40}");
        assert_eq!(server.closed.get(&client), Some(&false), "{input:.40}");
        assert_eq!(server.say(client, "PING\r\n"), "", "nothing is read after the end");
    }
}

#[test]
fn a_control_line_of_exactly_the_limit_is_fine() {
    for (size, fine) in [(4096, true), (4097, false)] {
        for split in [0, 1] {
            let mut server = Driver::new();
            let client = server.client();
            let line = format!("SUB {} 1\r\nPING\r\n", "a".repeat(size - 2));
            let mut heard = String::new();
            if split == 1 {
                for byte in line.as_bytes() {
                    heard += &server.say(client, [*byte]);
                }
            } else {
                heard = server.say(client, &line);
            }
            assert_eq!(heard == "PONG\r\n", fine, "{size} {split} {heard}");
        }
    }
}

#[test]
fn subscriptions_beyond_the_limit_are_refused() {
    let mut server = Driver::with(Limits { max_subscriptions: 2, ..Limits::default() });
    let client = server.client();
    let heard = server.say(client, "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPING\r\n");
    assert_eq!(heard, "-ERR 'maximum subscriptions exceeded'\r\nPONG\r\n");
    assert_eq!(server.say(client, "UNSUB 1\r\nSUB c 3\r\nPING\r\n"), "PONG\r\n");
}

#[test]
fn a_subject_of_ten_thousand_tokens_is_only_a_long_subject() {
    let limits = Limits { max_control_line: 1 << 20, ..Limits::default() };
    let mut server = Driver::with(limits);
    let client = server.client();
    let stars = vec!["*"; 10_000].join(".");
    let names = vec!["a"; 10_000].join(".");
    server.say(client, format!("SUB {stars} 1\r\nSUB {stars}.> 2\r\nSUB {names} 3\r\n"));
    let heard = server.say(client, format!("PUB {names} 0\r\n\r\nPUB {names}.b 0\r\n\r\n"));
    assert_eq!(heard.matches("MSG ").count(), 3);
    server.say(client, "UNSUB 1\r\nUNSUB 2\r\nUNSUB 3\r\n");
    assert_eq!(server.front.subscriptions(), 0);
}

#[test]
fn nobody_gets_past_authentication_with_another_command() {
    let mut server = Driver::new();
    let stranger = server.open(true);
    assert_eq!(server.say(stranger, "PING\r\n"), "-ERR 'Authorization Violation'\r\n");
    assert!(server.closed.contains_key(&stranger));
    server.welcome = true;
    let quiet = server.open(true);
    assert_eq!(server.say(quiet, "PING\r\nSUB a 1\r\n"), "PONG\r\n+OK\r\n");
    server.welcome = false;
    let guest = server.open(true);
    assert_eq!(server.say(guest, "CON"), "");
    assert_eq!(server.say(guest, &CONNECT[3..]), "");
    assert_eq!(server.say(guest, "PING\r\n"), "PONG\r\n");
}

#[test]
fn a_place_is_used_again_when_its_connection_is_gone() {
    let mut server = Driver::new();
    let first = server.client();
    server.say(first, "SUB a 1\r\nPUB a 10\r\n12345");
    server.front.remove(first);
    assert_eq!((server.front.connections(), server.front.subscriptions()), (0, 0));
    let second = server.client();
    assert_eq!(first, second);
    assert_ne!(server.front.cid(second), Some(1));
    assert_eq!(server.say(second, "PUB a 0\r\n\r\nPING\r\n"), "PONG\r\n");
    server.front.remove(second);
    server.front.remove(second);
    assert_eq!(server.front.connections(), 0);
}

#[test]
fn requests_of_all_clients_together_are_bounded_and_who_asks_little_is_let_by() {
    const MANY: usize = 45;
    const SIZE: usize = 1_000_000;
    let mut server = Driver::new();
    server.front.serve(0, b"$mq9.AI.X.>");
    let clients: Vec<_> = (0..MANY).map(|_| server.client()).collect();
    for number in 0..3 {
        for (client, &id) in clients.iter().enumerate() {
            let subject = format!("$mq9.AI.X.{client}.{number}");
            let padding = "x".repeat(SIZE);
            server.say(id, format!("PUB {subject} {SIZE}\r\n{padding}\r\n"));
            server.front.check_invariants();
        }
    }
    let asked = |server: &Driver| server.requests.len();
    // Those who asked once are not more than half; then all have.
    assert!(asked(&server) * SIZE < (64 << 20) + SIZE, "{}", asked(&server));
    let who: HashSet<_> =
        server.requests.iter().map(|(_, subject, _)| client_of(subject)).collect();
    assert_eq!(who.len(), MANY);
    // Others are served meanwhile: who asks for the first time, and who asks for nothing.
    let newcomer = server.client();
    server.say(newcomer, "PUB $mq9.AI.X.new.0 2\r\nhi\r\n");
    assert!(server.requests.last().unwrap().1.ends_with("new.0"));
    assert_eq!(server.say(newcomer, "SUB a 1\r\nPUB a 2\r\nhi\r\n"), "MSG a 1 2\r\nhi\r\n");

    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut taken = 0;
    while !server.requests.is_empty() {
        assert!(server.requests.len() * SIZE < (64 << 20) + SIZE);
        let (_, subject, payload) = server.requests.remove(0);
        let (client, number) = (client_of(&subject), subject.rsplit('.').next().unwrap());
        let before = seen.entry(client.clone()).or_default();
        assert_eq!(number.parse(), Ok(*before), "order of {client}");
        *before += 1;
        taken += 1;
        let id = client.parse::<usize>().map_or(newcomer, |client| clients[client]);
        let cid = server.front.cid(id).unwrap();
        server.front.requests_taken(cid, 1, subject.len() + payload.len());
        server.front.retry_held(&mut (), 0);
        server.settle();
        server.front.check_invariants();
    }
    assert_eq!(taken, MANY * 3 + 1);
    assert!(!server.front.is_holding() && !server.front.may_have_room());
}

#[test]
fn commands_that_will_be_served_soon_wait_and_everything_else_goes_on() {
    let mut server = Driver::new();
    server.front.await_services(true);
    let (early, other) = (server.client(), server.client());
    let create = "PUB $mq9.AI.MAILBOX.CREATE in 2\r\n{}\r\n";
    assert_eq!(server.say(early, format!("{create}PING\r\n")), "");
    assert!(server.front.is_holding());
    // Unknown, or somebody else's: nothing that will be served.
    let refused = server.say(other, "PUB $mq9.AI.OTHER 0\r\n\r\nPING\r\n");
    assert!(refused.starts_with("-ERR ") && refused.ends_with("PONG\r\n"), "{refused}");
    let sent = server.say(other, "PUB $mq9.AI.MSG.SEND.x 0\r\n\r\nPING\r\n");
    assert!(sent.ends_with("PONG\r\n"), "{sent}");
    server.front.retry_held(&mut (), 0);
    server.front.serve(3, b"$mq9.AI.MSG.QUERY.>");
    server.front.check_invariants();
    assert!(server.requests.is_empty() && server.front.is_holding());

    server.front.serve(4, b"$mq9.AI.MAILBOX.CREATE");
    server.front.await_services(false);
    assert!(server.front.may_have_room());
    server.front.retry_held(&mut (), 0);
    server.settle();
    assert_eq!(server.hear(early), "PONG\r\n");
    assert_eq!(server.requests, [(4, "$mq9.AI.MAILBOX.CREATE".into(), "{}".into())]);
    server.front.check_invariants();
}

fn client_of(subject: &str) -> String {
    subject.split('.').nth(3).unwrap().to_owned()
}
