//! Delivery: who gets a message, and in what words.

use crate::driver::Driver;

#[test]
fn everyone_who_listens_gets_a_message_in_the_words_of_its_subscription() {
    let mut server = Driver::new();
    let (alice, bob) = (server.client(), server.client());
    server.say(alice, "SUB a.b 1\r\nSUB a.* 2\r\nSUB > 3\r\nSUB a.c 4\r\nSUB *.b.> 5\r\n");
    assert_eq!(server.say(bob, "PUB a.b reply 2\r\nhi\r\n"), "");
    let heard = server.hear(alice);
    let mut lines: Vec<&str> = heard.split_inclusive("hi\r\n").collect();
    lines.sort_unstable();
    let expected = ["1", "2", "3"].map(|sid| format!("MSG a.b {sid} reply 2\r\nhi\r\n"));
    assert_eq!(lines, expected);
}

#[test]
fn one_member_of_a_queue_gets_a_message_whatever_it_subscribed_to() {
    let mut server = Driver::new();
    let publisher = server.client();
    let members: Vec<_> = (0..4).map(|_| server.client()).collect();
    for (number, &member) in members.iter().enumerate() {
        let subject = ["jobs.a", "jobs.*", "jobs.>", "jobs.a"][number];
        server.say(member, format!("SUB {subject} workers 7\r\n"));
    }
    let mut share = [0; 4];
    for _ in 0..400 {
        server.say(publisher, "PUB jobs.a 1\r\nx\r\n");
        let heard: Vec<_> = members.iter().map(|&member| server.hear(member)).collect();
        let got: Vec<_> = (0..4).filter(|&at| !heard[at].is_empty()).collect();
        assert_eq!(got.len(), 1, "{heard:?}");
        share[got[0]] += 1;
    }
    assert!(share.iter().all(|&count| count > 50), "{share:?}");
}

#[test]
fn a_queue_message_goes_to_another_member_if_the_first_cannot_have_it() {
    let mut server = Driver::new();
    let quiet = server.open(false);
    server.say(quiet, "CONNECT {\"echo\":false}\r\nSUB q w 1\r\n");
    let other = server.client();
    server.say(other, "SUB q w 1\r\n");
    for _ in 0..50 {
        assert_eq!(server.say(quiet, "PUB q 0\r\n\r\n"), "");
        assert_eq!(server.hear(other), "MSG q 1 0\r\n\r\n");
    }
}

#[test]
fn headers_are_left_out_for_clients_that_do_not_know_them() {
    let mut server = Driver::new();
    let (modern, publisher) = (server.client(), server.client());
    let old = server.open(false);
    server.say(old, "CONNECT {\"headers\":false,\"no_responders\":false}\r\nSUB a 1\r\n");
    server.say(modern, "SUB a 1\r\n");
    server.say(publisher, "HPUB a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n");
    assert_eq!(server.hear(modern), "HMSG a 1 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n");
    assert_eq!(server.hear(old), "MSG a 1 r 2\r\nhi\r\n");
}

#[test]
fn a_subscription_ends_after_its_last_message_and_its_name_is_free_again() {
    let mut server = Driver::new();
    let client = server.client();
    server.say(client, "SUB a 1\r\nPUB a 0\r\n\r\nUNSUB 1 2\r\n");
    assert_eq!(server.say(client, "PUB a 0\r\n\r\nPUB a 0\r\n\r\n"), "MSG a 1 0\r\n\r\n");
    assert_eq!(server.front.subscriptions(), 0);
    assert_eq!(server.say(client, "SUB b 1\r\nPUB b 0\r\n\r\n"), "MSG b 1 0\r\n\r\n");
    // Asked to end at a number it has reached, it ends at once.
    assert_eq!(server.say(client, "UNSUB 1 1\r\nPUB b 0\r\n\r\n"), "");
}

#[test]
fn a_requester_is_told_when_nobody_listens() {
    let mut server = Driver::new();
    let client = server.client();
    let nobody = "HMSG in.7 1 36 36\r\nNATS/1.0 503\r\nNats-Subject: void\r\n\r\n\r\n";
    assert_eq!(server.say(client, "SUB in.* 1\r\nPUB void in.7 0\r\n\r\n"), nobody);
    assert_eq!(server.say(client, "PUB void elsewhere 0\r\n\r\nPUB void 0\r\n\r\n"), "");
    assert_eq!(server.say(client, "SUB q w 2\r\nPUB void q 0\r\n\r\n"), "", "not to a queue");
    let other = server.client();
    server.say(other, "SUB void 1\r\n");
    assert_eq!(server.say(client, "PUB void in.7 0\r\n\r\n"), "");
}

#[test]
fn the_servers_own_subjects_are_answered_by_it_and_seen_by_nobody() {
    let mut server = Driver::new();
    server.front.serve(3, b"$mq9.AI.MAILBOX.CREATE");
    server.front.serve(4, b"$SYS.REQ.>");
    let (spy, client) = (server.client(), server.client());
    server.say(spy, "SUB > 1\r\nSUB *.AI.> 2\r\nSUB $mq9.> 3\r\n");
    server.say(client, "SUB in 1\r\n");
    assert_eq!(server.say(client, "PUB $mq9.AI.MAILBOX.CREATE in 2\r\n{}\r\n"), "");
    assert_eq!(server.requests, [(3, "$mq9.AI.MAILBOX.CREATE".into(), "{}".into())]);
    assert_eq!(server.hear(spy), "");
    // What is nobody's command is for the desk to say, or told to who asks for no answer.
    assert_eq!(server.say(client, "PUB $mq9.AI.OTHER in 0\r\n\r\n"), "");
    let told = "-ERR 'Permissions Violation for Publish to \"$mq9.AI.OTHER\"'\r\n";
    assert_eq!(server.say(client, "PUB $mq9.AI.OTHER 0\r\n\r\n"), told);
    assert_eq!(server.front.totals().refused, 1);
    assert_eq!(server.hear(spy), "");
    server.say(client, "PUB $SYS.REQ.USER.INFO in 0\r\n\r\n");
    assert_eq!(server.requests.len(), 2);
    server.hear(spy);
    let cid = server.front.cid(client).unwrap();
    assert_eq!(server.front.answer(cid, b"in", b"", b"", b"hello", &mut ()), 1);
    assert_eq!(server.hear(client), "MSG in 1 5\r\nhello\r\n");
    assert_eq!(server.hear(spy), "");
    let refused = "-ERR 'Permissions Violation for Subscription to \"$mq9.AI.MSG.SEND.*\"'\r\n";
    assert_eq!(server.say(spy, "SUB $mq9.AI.MSG.SEND.* 4\r\n"), refused);
}

#[test]
fn wildcards_in_a_published_subject_are_ordinary_tokens() {
    let mut server = Driver::new();
    let client = server.client();
    server.say(client, "SUB a.* 1\r\nSUB a.b 2\r\nSUB a.> 3\r\n");
    let heard = server.say(client, "PUB a.* 0\r\n\r\n");
    assert!(heard.contains("MSG a.* 1 0") && heard.contains("MSG a.* 3 0"), "{heard}");
    assert!(!heard.contains(" 2 0"), "{heard}");
    assert_eq!(server.say(client, "PUB a..b 0\r\n\r\nPUB a. 0\r\n\r\nPUB .a 0\r\n\r\n"), "");
}

#[test]
fn a_route_that_was_remembered_is_forgotten_when_subscriptions_change() {
    let mut server = Driver::new();
    let (publisher, reader) = (server.client(), server.client());
    for round in 0..3 {
        assert_eq!(server.say(publisher, "PUB a 0\r\n\r\n"), "");
        assert_eq!(server.hear(reader), "", "round {round}");
        server.say(reader, "SUB a 1\r\n");
        server.say(publisher, "PUB a 0\r\n\r\n");
        assert_eq!(server.hear(reader), "MSG a 1 0\r\n\r\n");
        server.say(reader, "SUB * w 2\r\n");
        server.say(publisher, "PUB a 0\r\n\r\n");
        assert_eq!(server.hear(reader).matches("MSG a ").count(), 2);
        server.say(reader, "UNSUB 1\r\nUNSUB 2\r\n");
    }
}

#[test]
fn whoever_says_connect_again_starts_anew() {
    let mut server = Driver::new();
    let client = server.open(false);
    let heard = server.say(client, "SUB a 1\r\nCONNECT {}\r\nPUB a 0\r\n\r\n");
    assert_eq!(heard, "+OK\r\nMSG a 1 0\r\n\r\n");
    assert_eq!(server.say(client, "CONNECT {}\r\nPUB a 0\r\n\r\nPING\r\n"), "PONG\r\n");
    assert_eq!(server.front.subscriptions(), 0);
}
