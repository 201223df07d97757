//! Permissions to publish and to subscribe.

use mq9_core::front::{InvalidSubject, PermissionsBuilder};

use crate::driver::Driver;

fn list(subjects: &[&str]) -> Vec<String> {
    subjects.iter().map(|&subject| subject.to_owned()).collect()
}

#[test]
fn publishing_needs_an_allowing_rule_and_no_denying_one() {
    let mut server = Driver::new();
    server.permitting(PermissionsBuilder {
        publish_allow: Some(list(&["x.*", "y.>"])),
        publish_deny: list(&["x.no", "y.*.no"]),
        ..PermissionsBuilder::default()
    });
    let client = server.client();
    for (subject, allowed) in [
        ("x.a", true),
        ("x.no", false),
        ("x.a", true),
        ("x.a.b", false),
        ("y.a.b", true),
        ("y.a.no", false),
        ("z", false),
    ] {
        let heard = server.say(client, format!("PUB {subject} 0\r\n\r\nPUB {subject} 0\r\n\r\n"));
        let refusal = format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n");
        assert_eq!(heard, if allowed { String::new() } else { refusal.repeat(2) });
    }
    assert!(server.closed.is_empty());
}

#[test]
fn a_subscription_is_allowed_as_a_whole_or_not_at_all() {
    let mut server = Driver::new();
    server.permitting(PermissionsBuilder {
        subscribe_allow: Some(list(&["a.*", "b.>", "q workers.*"])),
        subscribe_deny: list(&["b.secret"]),
        ..PermissionsBuilder::default()
    });
    let client = server.client();
    for (arguments, allowed) in [
        ("a.b", true),
        ("a.*", true),
        ("a.>", false),
        (">", false),
        ("*.b", false),
        ("b.>", true),
        ("b.secret", false),
        ("q", false),
        ("q workers.1", true),
        ("q others", false),
        ("a.b anybody", true),
    ] {
        let heard = server.say(client, format!("SUB {arguments} 9\r\nUNSUB 9\r\n"));
        assert_eq!(heard.is_empty(), allowed, "{arguments}: {heard}");
    }
    let refused = server.say(client, "SUB q others 9\r\n");
    let text = "Permissions Violation for Subscription to \"q\" using queue \"others\"";
    assert_eq!(refused, format!("-ERR '{text}'\r\n"));
}

#[test]
fn a_wildcard_does_not_bring_what_is_denied() {
    let mut server = Driver::new();
    let publisher = server.client();
    server.permitting(PermissionsBuilder {
        subscribe_deny: list(&["b.secret", "b.*.secret"]),
        ..PermissionsBuilder::default()
    });
    let reader = server.client();
    server.say(reader, "SUB b.> 1\r\n");
    for (subject, seen) in [("b.x", true), ("b.secret", false), ("b.x.secret", false)] {
        server.say(publisher, format!("PUB {subject} 0\r\n\r\n"));
        assert_eq!(!server.hear(reader).is_empty(), seen, "{subject}");
    }
}

#[test]
fn who_may_only_answer_answers_once_and_in_time() {
    let mut server = Driver::new();
    let asker = server.client();
    server.permitting(PermissionsBuilder {
        responses: Some((1, 1_000)),
        ..PermissionsBuilder::default()
    });
    let worker = server.client();
    server.say(worker, "SUB work 1\r\n");
    server.say(asker, "SUB in.* 1\r\nPUB work in.1 0\r\n\r\nPUB work in.2 0\r\n\r\n");
    let refused =
        |subject: &str| format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n");
    server.hear(worker);
    assert_eq!(server.say(worker, "PUB elsewhere 0\r\n\r\n"), refused("elsewhere"));
    assert_eq!(server.say(worker, "PUB in.1 0\r\n\r\n"), "");
    assert_eq!(server.hear(asker), "MSG in.1 1 0\r\n\r\n");
    assert_eq!(server.say(worker, "PUB in.1 0\r\n\r\n"), refused("in.1"));
    server.pass_ms(1_001);
    server.hear(worker);
    assert_eq!(server.say(worker, "PUB in.2 0\r\n\r\n"), refused("in.2"));
}

#[test]
fn open_answers_are_bounded_and_the_oldest_gives_way() {
    let mut server = Driver::new();
    let asker = server.client();
    server.permitting(PermissionsBuilder {
        responses: Some((1, 0)),
        ..PermissionsBuilder::default()
    });
    let worker = server.client();
    server.say(worker, "SUB work 1\r\n");
    for number in 0..70_000 {
        server.say(asker, format!("PUB work in.{number} 0\r\n\r\n"));
        server.hear(worker);
    }
    assert!(server.say(worker, "PUB in.0 0\r\n\r\n").contains("Violation"));
    assert_eq!(server.say(worker, "PUB in.69999 0\r\n\r\nPUB in.6000 0\r\n\r\n"), "");
}

#[test]
fn an_acknowledgement_by_reply_subject_needs_the_permission_to_acknowledge() {
    let deny = |subject: &str| PermissionsBuilder {
        publish_deny: list(&[subject]),
        ..PermissionsBuilder::default()
    };
    let allow = |subject: &str| PermissionsBuilder {
        publish_allow: Some(list(&[subject])),
        ..PermissionsBuilder::default()
    };
    let answer = PermissionsBuilder { responses: Some((0, 0)), ..PermissionsBuilder::default() };
    for (rules, allowed) in [
        (deny("$mq9.AI.MSG.ACK.a.b"), false),
        (deny("$mq9.AI.MSG.ACK.>"), false),
        (deny("$mq9.AI.MSG.RACK.>"), false),
        (deny("$mq9.AI.MSG.ACK.a"), true),
        (allow("$mq9.AI.MSG.ACK.a.b"), true),
        (allow("$mq9.AI.MSG.ACK.*"), false),
        (allow("$mq9.AI.MSG.RACK.>"), false),
        (answer, false),
    ] {
        let shown = format!("{rules:?}");
        let mut server = Driver::new();
        let asker = server.client();
        server.permitting(rules);
        let client = server.client();
        let subject = "$mq9.AI.MSG.RACK.Zw.7.a.b";
        // Somebody has asked it to answer there.
        server.say(client, "SUB work 1\r\n");
        server.say(asker, format!("PUB work {subject} 0\r\n\r\n"));
        server.hear(client);
        let heard = server.say(client, format!("PUB {subject} 4\r\n+ACK\r\n"));
        assert!(heard.contains(subject), "nobody carries it out here");
        assert_eq!(server.front.totals().refused, u64::from(allowed), "{shown}: {heard}");
    }
}

#[test]
fn reserved_replies_are_not_for_clients() {
    let mut server = Driver::new();
    let client = server.client();
    for reply in ["_R_.x", "_GR_.x", "$JS.ACK.x"] {
        let text = format!("Permissions Violation for Publish with Reply of \"{reply}\"");
        let heard = server.say(client, format!("PUB a {reply} 0\r\n\r\n"));
        assert_eq!(heard, format!("-ERR '{text}'\r\n"));
    }
}

#[test]
fn a_command_is_a_reply_subject_only_for_who_may_give_it() {
    let mut server = Driver::new();
    let responder = server.client();
    server.say(responder, "SUB work 1\r\n");
    let anybody = server.client();
    server.permitting(PermissionsBuilder {
        publish_allow: Some(list(&["work", "$mq9.AI.MSG.SEND.mine", "$mq9.AI.MSG.ACK.mine"])),
        ..PermissionsBuilder::default()
    });
    let asker = server.client();
    for (client, reply, allowed) in [
        (asker, "_INBOX.a", true),
        (asker, "anything", true),
        (asker, "$mq9.AI.MSG.SEND.mine", true),
        (asker, "$mq9.AI.MSG.RACK.Zw.1.mine", true),
        (asker, "$mq9.AI.MSG.RACK.Zw.1.victim", false),
        (asker, "$mq9.AI.MSG.DELETE.victim.1", false),
        (asker, "$JS.API.STREAM.DELETE.s", false),
        (asker, "$SYS.REQ.SERVER.PING", false),
        (anybody, "$mq9.AI.MSG.DELETE.victim.1", true),
        (anybody, "$JS.API.STREAM.DELETE.s", true),
        (anybody, "$JS.ACK.s", false),
        (anybody, "$mq9.AI.ADMIN.MAILBOX.LIST", false),
        (anybody, "$mq9.AI.MAILBOX.PURGE.victim", false),
        (anybody, "$mq9.AI.MAILBOX.QUERY.victim", false),
    ] {
        let heard = server.say(client, format!("PUB work {reply} 0\r\n\r\n"));
        let text = format!("Permissions Violation for Publish with Reply of \"{reply}\"");
        assert_eq!(heard, if allowed { String::new() } else { format!("-ERR '{text}'\r\n") });
        assert_eq!(server.hear(responder).is_empty(), !allowed, "{reply}");
    }
    // Also where the message is too large to be read.
    let large = format!("PUB $mq9.AI.MSG.SEND.mine $SYS.X {}\r\n", 2 << 20);
    assert!(server.say(asker, large).contains("Publish with Reply of"));
}

#[test]
fn new_permissions_end_what_they_do_not_allow() {
    let mut server = Driver::new();
    let client = server.client();
    server.say(client, "SUB a 1\r\nSUB b.> 2\r\nPUB c 0\r\n\r\n");
    server.permitting(PermissionsBuilder {
        publish_deny: list(&["c"]),
        subscribe_deny: list(&["a", "b.no"]),
        ..PermissionsBuilder::default()
    });
    server.front.set_permissions(client, server.permissions.clone(), &mut ());
    let ended = "-ERR 'Permissions Violation for Subscription to \"a\" (sid \"1\")'\r\n";
    assert_eq!(server.hear(client), ended);
    assert!(server.say(client, "PUB c 0\r\n\r\n").contains("Violation"), "not the old verdict");
    assert_eq!(server.say(client, "PUB b.no 0\r\n\r\nPUB a 0\r\n\r\n"), "");
    assert_eq!(server.say(client, "PUB b.yes 0\r\n\r\n"), "MSG b.yes 2 0\r\n\r\n");
    server.front.set_permissions(client, None, &mut ());
    assert_eq!(server.say(client, "PUB b.no 0\r\n\r\n"), "MSG b.no 2 0\r\n\r\n");
}

#[test]
fn rules_are_checked_when_they_are_made() {
    for wrong in ["a..b", "", "a.>.b", "a b c"] {
        let rules = PermissionsBuilder {
            subscribe_allow: Some(list(&[wrong])),
            ..PermissionsBuilder::default()
        };
        assert_eq!(rules.build().unwrap_err(), InvalidSubject(wrong.to_owned()));
    }
    let rules =
        PermissionsBuilder { publish_deny: list(&["a..b"]), ..PermissionsBuilder::default() };
    assert!(rules.build().unwrap_err().to_string().contains("a..b"));
}

#[test]
fn broadcasts_to_all_by_another_sign_are_broadcasts_to_all() {
    let mut server = Driver::new();
    let publisher = server.client();
    let subscribe_deny = list(&["$mq9.AI.BROADCAST.system.>"]);
    server.permitting(PermissionsBuilder { subscribe_deny, ..PermissionsBuilder::default() });
    let reader = server.client();
    server.say(reader, "SUB $mq9.AI.BROADCAST.# 1\r\n");
    for (event, seen) in [("system.down", false), ("task.new", true), ("system.a.b", false)] {
        server.say(publisher, format!("PUB $mq9.AI.BROADCAST.{event} 0\r\n\r\n"));
        assert_eq!(!server.hear(reader).is_empty(), seen, "{event}");
    }
    let subscribe_allow = Some(list(&["$mq9.AI.BROADCAST.*"]));
    server.permitting(PermissionsBuilder { subscribe_allow, ..PermissionsBuilder::default() });
    let narrow = server.client();
    let error = "-ERR 'Permissions Violation for Subscription to \"$mq9.AI.BROADCAST.#\"'\r\n";
    assert_eq!(server.say(narrow, "SUB $mq9.AI.BROADCAST.# 1\r\n"), error);
}
