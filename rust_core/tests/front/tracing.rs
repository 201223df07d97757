//! Messages that are traced, and the log of the protocol.

use super::driver::Driver;

fn hpub(subject: &str, headers: &str) -> String {
    let block = format!("NATS/1.0\r\n{headers}\r\n");
    format!("HPUB {subject} {} {}\r\n{block}hi\r\n", block.len(), block.len() + 2)
}

#[test]
fn a_traced_message_is_delivered_and_told_of() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    driver.say(reader, "SUB a.* 1\r\nSUB t 2\r\n");
    driver.say(sender, hpub("a.b", "Nats-Trace-Dest: t\r\n"));
    let heard = driver.hear(reader);
    assert!(heard.starts_with("HMSG a.b 1 32 34\r\n"), "{heard}");
    let trace = heard.rsplit_once("MSG t 2 ").unwrap().1;
    let events = trace.split_once("\"events\":").unwrap().1;
    assert_eq!(
        events,
        "[{\"type\":\"in\",\"ts\":\"T\",\"kind\":0,\"cid\":1,\"name\":\"client\",\"acc\":\"$G\",\"subj\":\"a.b\"},\
         {\"type\":\"eg\",\"ts\":\"T\",\"kind\":0,\"cid\":2,\"name\":\"client\",\"sub\":\"a.*\"}]}\r\n"
    );
}

#[test]
fn a_message_that_is_only_traced_is_not_counted() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    driver.say(reader, "SUB a 1\r\nUNSUB 1 1\r\n");
    driver.say(sender, hpub("a", "Nats-Trace-Dest: t\r\nNats-Trace-Only: true\r\n"));
    assert_eq!(driver.hear(reader), "");
    assert_eq!(driver.front.totals().out_msgs, 0);
    driver.say(sender, "PUB a 1\r\nx\r\nPUB a 1\r\ny\r\n");
    assert_eq!(driver.hear(reader), "MSG a 1 1\r\nx\r\n");
    assert_eq!(driver.front.totals().out_msgs, 1);
}

#[test]
fn the_protocol_is_logged_while_that_is_wanted_and_without_payloads() {
    let mut driver = Driver::new();
    let client = driver.client();
    driver.say(client, "SUB quiet 1\r\n");
    driver.front.log_protocol(true);
    driver.say(client, "sub  a   g 2\r\nPUB a r");
    driver.say(client, " 6\r\nsec");
    driver.say(client, "ret\r\nPING junk\r\nSUB b..c 3\r\n");
    driver.front.log_protocol(false);
    driver.say(client, "PING\r\n");
    let lines: Vec<_> = driver.lines.iter().map(|(cid, text)| (*cid, text.as_str())).collect();
    assert_eq!(
        lines,
        [
            (1, "<<- [SUB a   g 2]"),
            (1, "<<- [PUB a r 6]"),
            (1, "->> [MSG a 2 r 6]"),
            (1, "<<- [PING]"),
            (1, "->> [PONG]"),
            (1, "<<- [SUB b..c 3]"),
            (1, "->> [-ERR Invalid Subject]"),
        ]
    );
}
