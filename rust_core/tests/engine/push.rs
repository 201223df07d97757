//! Subscriptions that are fed from mailboxes: what they are given, in which order, and how often.

use mq9_core::front::{ConnId, PermissionsBuilder};
use mq9_core::mailbox::Policy;
use mq9_core::store::{NewMailbox, Options};
use mq9_sim::SimDisk;
use std::sync::Arc;

use crate::driver::{Driver, START};

/// What a client was given: `sid`, subject, payload of each message; statuses and errors as they are.
pub fn given(driver: &mut Driver, id: ConnId) -> Vec<String> {
    let (given, asked) = parse(&driver.wire(id));
    driver.feed(id, "PONG\r\n".repeat(asked).as_bytes());
    given
}

/// The same of what is on the wire, and how often the client is asked for an answer.
pub fn parse(text: &str) -> (Vec<String>, usize) {
    let mut rest = text;
    let mut given = Vec::new();
    let mut answers = 0;
    while let Some((line, more)) = rest.split_once("\r\n") {
        let words: Vec<&str> = line.split(' ').collect();
        rest = match words[0] {
            "HMSG" | "MSG" => {
                let total: usize = words[words.len() - 1].parse().unwrap();
                let head: usize = match words[0] {
                    "HMSG" => words[words.len() - 2].parse().unwrap(),
                    _ => 0,
                };
                let status = more[..head].lines().next().unwrap_or_default();
                let status = status.strip_prefix("NATS/1.0").unwrap_or_default();
                let subject = words[1].strip_prefix("$mq9.AI.").unwrap_or(words[1]);
                given.push(format!("{} {subject} {}{status}", words[2], &more[head..total]));
                &more[total + 2..]
            }
            "PING" => {
                answers += 1;
                more
            }
            _ => {
                given.push(line.to_owned());
                more
            }
        };
    }
    (given, answers)
}

/// The same without subjects.
pub fn payloads(driver: &mut Driver, id: ConnId) -> Vec<String> {
    let all = given(driver, id).into_iter();
    all.map(|line| line.split(' ').nth(2).unwrap_or_default().to_owned()).collect()
}

pub fn say(driver: &mut Driver, id: ConnId, text: &str) {
    driver.feed(id, text.as_bytes());
    driver.settle();
}

pub fn publish(driver: &mut Driver, id: ConnId, subject: &str, payload: &str) {
    say(driver, id, &format!("PUB $mq9.AI.{subject} {}\r\n{payload}\r\n", payload.len()));
}

#[test]
fn a_subscription_is_given_what_there_is_by_priority_and_then_what_comes() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    for (subject, payload) in [
        ("MAILBOX.MSG.m", "a"),
        ("MAILBOX.MSG.m.critical", "b"),
        ("INBOX.m.notify", "c"),
        ("INBOX.m.urgent", "d"),
        ("MAILBOX.MSG.m.urgent", "e"),
    ] {
        publish(&mut driver, sender, subject, payload);
    }
    assert_eq!(driver.wire(sender), "");
    say(&mut driver, reader, "SUB $mq9.AI.MAILBOX.MSG.m.* 7\r\n");
    assert_eq!(
        given(&mut driver, reader),
        [
            "7 MAILBOX.MSG.m.critical b",
            "7 MAILBOX.MSG.m.urgent d",
            "7 MAILBOX.MSG.m.urgent e",
            "7 MAILBOX.MSG.m a",
            "7 MAILBOX.MSG.m c",
        ]
    );
    publish(&mut driver, sender, "MAILBOX.MSG.m", "live");
    publish(&mut driver, sender, "MAILBOX.MSG.m.critical", "first");
    assert_eq!(payloads(&mut driver, reader), ["live", "first"]);
    // Each subscription begins anew, also of the same connection; one priority of it is one priority.
    say(
        &mut driver,
        reader,
        "SUB $mq9.AI.MAILBOX.MSG.m 8\r\nSUB $mq9.AI.MAILBOX.MSG.m.critical 9\r\n",
    );
    let all = given(&mut driver, reader);
    let of = |sid: &str| all.iter().filter(|line| line.starts_with(sid)).count();
    assert_eq!((of("8 "), of("9 "), all.len()), (7, 2, 9));
}

#[test]
fn pushed_messages_carry_what_mq9_knows_of_them() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    let headers = "NATS/1.0\r\nX-A: 1\r\nmq9-key: k\r\n\r\n";
    let total = headers.len() + 2;
    let head = headers.len();
    say(
        &mut driver,
        sender,
        &format!("HPUB $mq9.AI.INBOX.m.urgent in{sender}.x {head} {total}\r\n{headers}hi\r\n"),
    );
    assert_eq!(driver.heard(sender), [r#"{"error":"","msg_id":0}"#]);
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    let wire = driver.wire(reader);
    assert!(wire.starts_with("HMSG $mq9.AI.INBOX.m.urgent 2 "), "{wire}");
    for part in [
        "mq9-msg-id: 0\r\n",
        "mq9-priority: urgent\r\n",
        "mq9-create-time: 1700000000\r\n",
        "mq9-key: k\r\n",
        "X-A: 1\r\n",
        "\r\n\r\nhi\r\n",
    ] {
        assert!(wire.contains(part), "{part:?} in {wire}");
    }
}

#[test]
fn an_inbox_gives_each_message_once() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    publish(&mut driver, sender, "INBOX.m.normal", "a");
    publish(&mut driver, sender, "INBOX.m.urgent", "b");
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(payloads(&mut driver, reader), ["b", "a"]);
    publish(&mut driver, sender, "INBOX.m.normal", "c");
    assert_eq!(payloads(&mut driver, reader), ["c"]);
    say(&mut driver, reader, "UNSUB 2\r\n");
    publish(&mut driver, sender, "INBOX.m.normal", "d");
    assert_eq!(payloads(&mut driver, reader), [""; 0]);
    driver.leave(reader);
    let again = driver.client();
    say(&mut driver, again, "SUB $mq9.AI.INBOX.m.normal 2\r\n");
    assert_eq!(payloads(&mut driver, again), ["d"]);
}

#[test]
fn what_a_connection_has_not_answered_for_is_unread_when_it_breaks() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    publish(&mut driver, sender, "INBOX.m.normal", "a");
    assert_eq!(payloads(&mut driver, reader), ["a"]);
    driver.settle();
    publish(&mut driver, sender, "INBOX.m.normal", "b");
    // It has read it, and breaks before it answers.
    assert!(driver.wire(reader).ends_with("b\r\nPING\r\n"));
    driver.leave(reader);
    let again = driver.client();
    say(&mut driver, again, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(payloads(&mut driver, again), ["b"]);
}

#[test]
fn two_readers_of_an_inbox_share_it() {
    let mut driver = Driver::new();
    let (sender, a, b) = (driver.client(), driver.client(), driver.client());
    for reader in [a, b] {
        say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    }
    for nth in 0..10 {
        publish(&mut driver, sender, "INBOX.m.normal", &nth.to_string());
    }
    let (mut of_a, of_b) = (payloads(&mut driver, a), payloads(&mut driver, b));
    assert_eq!((of_a.len(), of_b.len()), (5, 5));
    of_a.extend(of_b);
    of_a.sort();
    assert_eq!(of_a, (0..10).map(|nth| nth.to_string()).collect::<Vec<_>>());
}

#[test]
fn what_was_read_of_an_inbox_is_known_after_a_restart() {
    let disk = SimDisk::new();
    let open = || Driver::with(Arc::new(disk.clone()), Options::default(), START).unwrap();
    let mut driver = open();
    driver.create("m", Policy::default());
    let (sender, reader) = (driver.client(), driver.client());
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    publish(&mut driver, sender, "INBOX.m.normal", "a");
    assert_eq!(payloads(&mut driver, reader), ["a"]);
    driver.settle();
    publish(&mut driver, sender, "INBOX.m.normal", "b");
    publish(&mut driver, sender, "INBOX.m.notify", "gone");
    drop(driver);
    let mut driver = open();
    let reader = driver.client();
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(payloads(&mut driver, reader), ["b"]);
    let sender = driver.client();
    publish(&mut driver, sender, "INBOX.m.normal", "c");
    assert_eq!(payloads(&mut driver, reader), ["c"]);
}

#[test]
fn members_of_a_queue_group_share_and_what_one_leaves_behind_goes_to_others() {
    let mut driver = Driver::new();
    let (sender, a, b) = (driver.client(), driver.client(), driver.client());
    for reader in [a, b] {
        say(&mut driver, reader, "SUB $mq9.AI.MAILBOX.MSG.m.* workers 2\r\n");
    }
    for nth in 0..6 {
        publish(&mut driver, sender, "MAILBOX.MSG.m", &nth.to_string());
    }
    let of_a = payloads(&mut driver, a);
    assert_eq!(payloads(&mut driver, b).len(), 3);
    assert_eq!(of_a.len(), 3);
    let deleted: u64 = of_a[0].parse().unwrap();
    let now = driver.now;
    driver.store().delete("m", deleted, now).unwrap();
    driver.leave(a);
    driver.settle();
    assert_eq!(payloads(&mut driver, b), of_a[1..]);
    // Another group has its own; when the last member has left, a group starts over.
    let c = driver.client();
    say(&mut driver, c, "SUB $mq9.AI.MAILBOX.MSG.m others 2\r\n");
    assert_eq!(payloads(&mut driver, c).len(), 5);
    say(&mut driver, b, "UNSUB 2\r\n");
    say(&mut driver, c, "SUB $mq9.AI.MAILBOX.MSG.m workers 3\r\n");
    assert_eq!(payloads(&mut driver, c).len(), 5);
}

#[test]
fn max_of_unsub_counts_and_what_was_not_written_was_not_pushed() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    for nth in 0..5 {
        publish(&mut driver, sender, "INBOX.m.normal", &nth.to_string());
    }
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\nUNSUB 2 2\r\n");
    assert_eq!(payloads(&mut driver, reader), ["0", "1"]);
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 3\r\n");
    assert_eq!(payloads(&mut driver, reader), ["2", "3", "4"]);
}

#[test]
fn a_mailbox_that_is_missing_is_an_error_and_one_that_goes_is_a_status() {
    let mut driver = Driver::new();
    let reader = driver.client();
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.none.* 2\r\n");
    let error = concat!(
        "-ERR 'Permissions Violation for Subscription to \"$mq9.AI.INBOX.none.*\": ",
        "mailbox none does not exist'"
    );
    assert_eq!(given(&mut driver, reader), [error]);
    let new = NewMailbox { address: "short", ttl_ms: 1000, ..NewMailbox::default() };
    let now = driver.now;
    driver.store().create_mailbox(&new, now).unwrap();
    say(&mut driver, reader, "SUB $mq9.AI.MAILBOX.MSG.short.* 2\r\n");
    driver.pass_ms(999);
    assert_eq!(given(&mut driver, reader), [""; 0]);
    driver.pass_ms(2);
    assert_eq!(
        given(&mut driver, reader),
        ["2 MAILBOX.MSG.short  404 mailbox short does not exist"]
    );
    assert_eq!(driver.engine.front().subscriptions_of(reader).count(), 1);
}

#[test]
fn wildcards_do_not_reach_mailboxes() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    for subject in [
        "INBOX.*.normal",
        "INBOX.>",
        "INBOX.m.>",
        "MAILBOX.MSG.>",
        "MAILBOX.MSG.*",
        "MAILBOX.*.m",
        "*.m.normal",
        ">",
        "MSG.SEND.m",
        "INBOX.m.*.*",
    ] {
        say(&mut driver, reader, &format!("SUB $mq9.AI.{subject} 2\r\n"));
        let text =
            format!("-ERR 'Permissions Violation for Subscription to \"$mq9.AI.{subject}\"'");
        assert_eq!(given(&mut driver, reader), [text]);
    }
    say(&mut driver, reader, "SUB > 3\r\nSUB *.*.> 4\r\nSUB $mq9.> 5\r\n");
    let _ = driver.wire(reader);
    publish(&mut driver, sender, "INBOX.m.normal", "a");
    publish(&mut driver, sender, "MAILBOX.MSG.m", "a");
    publish(&mut driver, sender, "BROADCAST.system.a", "a");
    assert_eq!(given(&mut driver, reader), [""; 0]);
}

#[test]
fn a_long_history_waits_in_the_store() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    let payload = "x".repeat(1000);
    let text = format!("PUB $mq9.AI.MAILBOX.MSG.m 1000\r\n{payload}\r\n").repeat(100);
    for _ in 0..50 {
        driver.feed(sender, text.as_bytes());
        driver.settle();
    }
    say(&mut driver, reader, "SUB $mq9.AI.MAILBOX.MSG.m 2\r\n");
    let mut seen = 0;
    loop {
        let waiting = driver.engine.front().unwritten(reader).len();
        assert!(waiting < 400 << 10, "{waiting} bytes wait for a client that reads slowly");
        let some = payloads(&mut driver, reader).len();
        if some == 0 {
            break;
        }
        seen += some;
        driver.settle();
        while driver.engine.wants_to_settle(driver.moment()) {
            driver.settle();
        }
    }
    assert_eq!(seen, 5000);
}

#[test]
fn a_push_ends_with_its_permission() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    say(&mut driver, reader, "SUB $mq9.AI.MAILBOX.MSG.m.* 2\r\nSUB $mq9.AI.INBOX.m.* 3\r\n");
    let deny = |subject: &str| PermissionsBuilder {
        subscribe_deny: vec![subject.to_owned()],
        ..Default::default()
    };
    driver.permit(reader, deny("$mq9.AI.MAILBOX.MSG.m.critical"));
    publish(&mut driver, sender, "MAILBOX.MSG.m.critical", "a");
    assert_eq!(payloads(&mut driver, reader), ["a"], "the inbox alone");
    driver.permit(reader, deny("$mq9.AI.INBOX.m.*"));
    driver.settle();
    let told = given(&mut driver, reader);
    assert!(told[0].contains("Subscription to \"$mq9.AI.INBOX.m.*\""), "{told:?}");
    assert_eq!(told[1..], ["2 MAILBOX.MSG.m.critical a"], "what it may have again");
    publish(&mut driver, sender, "MAILBOX.MSG.m", "b");
    assert_eq!(given(&mut driver, reader), ["2 MAILBOX.MSG.m b"]);
    let publish_deny = vec!["$mq9.AI.MSG.FETCH.>".to_owned()];
    driver.permit(reader, PermissionsBuilder { publish_deny, ..Default::default() });
    driver.settle();
    assert_eq!(given(&mut driver, reader).len(), 1);
    publish(&mut driver, sender, "MAILBOX.MSG.m", "c");
    assert_eq!(given(&mut driver, reader), [""; 0]);
    say(&mut driver, reader, "SUB $mq9.AI.MAILBOX.MSG.m workers 4\r\n");
    let told = given(&mut driver, reader);
    assert!(told[0].contains("Subscription to \"$mq9.AI.MAILBOX.MSG.m\""), "{told:?}");
}

#[test]
fn rules_that_name_a_queue_count_for_queue_groups() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    let subscribe = |driver: &mut Driver, subject: &str, queue: &str, sid: usize| {
        say(driver, reader, &format!("SUB $mq9.AI.{subject} {queue} {sid}\r\n"));
        given(driver, reader).concat()
    };
    let only = vec!["$mq9.AI.MAILBOX.MSG.m.* workers.*".to_owned()];
    let rules = PermissionsBuilder { subscribe_allow: Some(only), ..Default::default() };
    driver.permit(reader, rules);
    driver.settle();
    let _ = driver.wire(reader);
    publish(&mut driver, sender, "MAILBOX.MSG.m", "a");
    let refused = "Permissions Violation for Subscription to \"$mq9.AI.MAILBOX.MSG.m.*\"";
    assert!(subscribe(&mut driver, "MAILBOX.MSG.m.*", "", 2).contains(refused));
    let other = subscribe(&mut driver, "MAILBOX.MSG.m.*", "others", 3);
    assert!(other.contains(&format!("{refused} using queue \"others\"")), "{other}");
    assert!(subscribe(&mut driver, "INBOX.m.*", "workers.a", 4).contains("Violation"));
    let own = subscribe(&mut driver, "MAILBOX.MSG.m.*", "workers.a", 5);
    assert_eq!(own, "5 MAILBOX.MSG.m a");
    // Denied later: the push ends, for that group alone.
    let denied = vec!["$mq9.AI.MAILBOX.MSG.m.* workers.*".to_owned()];
    driver.permit(reader, PermissionsBuilder { subscribe_deny: denied, ..Default::default() });
    driver.settle();
    let told = given(&mut driver, reader).concat();
    assert!(told.contains("using queue \"workers.a\"") && told.contains("sid \"5\""), "{told}");
    assert_eq!(subscribe(&mut driver, "MAILBOX.MSG.m.*", "others", 6), "6 MAILBOX.MSG.m a");
    assert_eq!(subscribe(&mut driver, "MAILBOX.MSG.m.*", "", 7), "7 MAILBOX.MSG.m a");
    publish(&mut driver, sender, "MAILBOX.MSG.m", "b");
    assert_eq!(given(&mut driver, reader).len(), 2);
}

#[test]
fn whoever_may_not_send_or_delete_may_not_by_another_name() {
    let mut driver = Driver::new();
    let client = driver.client();
    let publish_deny = vec!["$mq9.AI.MSG.SEND.m".to_owned(), "$mq9.AI.MSG.DELETE.>".to_owned()];
    driver.permit(client, PermissionsBuilder { publish_deny, ..Default::default() });
    for subject in
        ["INBOX.m.normal", "INBOX.m", "MAILBOX.MSG.m", "MAILBOX.MSG.m.urgent", "MAILBOX.DELETE.m.0"]
    {
        publish(&mut driver, client, subject, "x");
        let text = format!("-ERR 'Permissions Violation for Publish to \"$mq9.AI.{subject}\"'");
        assert_eq!(given(&mut driver, client), [text]);
    }
    let publish_allow = Some(vec!["$mq9.AI.INBOX.m.*".to_owned()]);
    driver.permit(client, PermissionsBuilder { publish_allow, ..Default::default() });
    publish(&mut driver, client, "INBOX.m.normal", "x");
    assert_eq!(given(&mut driver, client), [""; 0]);
}

#[test]
fn an_answer_stands_though_its_client_leaves_at_once() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    publish(&mut driver, sender, "INBOX.m", "read");
    say(&mut driver, reader, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(parse(&driver.wire(reader)), (vec!["2 INBOX.m.normal read".to_owned()], 1));
    publish(&mut driver, sender, "INBOX.m", "unread");
    assert_eq!(parse(&driver.wire(reader)), (vec!["2 INBOX.m.normal unread".to_owned()], 0));
    // It has answered for the first message, and nothing is settled until it is gone.
    driver.feed(reader, b"PONG\r\n");
    driver.leave(reader);
    let other = driver.client();
    say(&mut driver, other, "SUB $mq9.AI.INBOX.m.* 2\r\n");
    assert_eq!(payloads(&mut driver, other), ["unread"]);
}
