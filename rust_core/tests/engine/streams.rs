//! JetStream's clients on the wire: what they are answered, and what no client can do to others.

use mq9_core::front::ConnId;

use crate::driver::Driver;
use crate::push::say;

/// A message as a client sees it: subject, reply, status or payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub subject: String,
    pub reply: String,
    pub headers: String,
    pub payload: String,
}

impl Heard {
    /// The status line without the version.
    pub fn status(&self) -> &str {
        let line = self.headers.lines().next().unwrap_or_default();
        line.strip_prefix("NATS/1.0").unwrap_or_default().trim()
    }
}

/// Everything that has come for a client.
pub fn heard(driver: &mut Driver, id: ConnId) -> Vec<Heard> {
    let text = driver.wire(id);
    let mut rest = text.as_str();
    let mut all = Vec::new();
    while let Some((line, more)) = rest.split_once("\r\n") {
        rest = more;
        let words: Vec<&str> = line.split(' ').collect();
        let fixed = match words[0] {
            "MSG" => 4,
            "HMSG" => 5,
            _ => continue,
        };
        let total: usize = words[words.len() - 1].parse().unwrap();
        let head = if fixed == 5 { words[words.len() - 2].parse().unwrap() } else { 0 };
        all.push(Heard {
            subject: words[1].to_owned(),
            reply: if words.len() > fixed { words[3].to_owned() } else { String::new() },
            headers: more[..head].to_owned(),
            payload: more[head..total].to_owned(),
        });
        rest = &more[total + 2..];
    }
    all
}

pub fn publish(driver: &mut Driver, id: ConnId, subject: &str, reply: &str, payload: &str) {
    say(driver, id, &format!("PUB {subject} {reply} {}\r\n{payload}\r\n", payload.len()));
}

/// The answer to a request to the API.
pub fn ask(driver: &mut Driver, id: ConnId, request: &str, body: &str) -> String {
    publish(driver, id, &format!("$JS.API.{request}"), &format!("in{id}.api"), body);
    let answers: Vec<String> = heard(driver, id)
        .into_iter()
        .filter(|heard| heard.subject == format!("in{id}.api"))
        .map(|heard| heard.payload)
        .collect();
    answers.join("|")
}

pub fn stream(driver: &mut Driver, id: ConnId, name: &str, more: &str) {
    let body = format!("{{\"name\":\"{name}\"{more}}}");
    let answer = ask(driver, id, &format!("STREAM.CREATE.{name}"), &body);
    assert!(answer.contains("\"did_create\":true"), "{answer}");
}

pub fn consumer(driver: &mut Driver, id: ConnId, stream: &str, name: &str, more: &str) {
    let config = format!("{{\"durable_name\":\"{name}\",\"ack_policy\":\"explicit\"{more}}}");
    let body = format!("{{\"stream_name\":\"{stream}\",\"config\":{config}}}");
    let answer = ask(driver, id, &format!("CONSUMER.CREATE.{stream}.{name}"), &body);
    assert!(answer.contains("\"created\":"), "{answer}");
}

/// Asks a consumer for messages, at the client's inbox `pull`.
pub fn pull(driver: &mut Driver, id: ConnId, consumer: &str, body: &str) -> Vec<Heard> {
    let inbox = format!("in{id}.pull");
    publish(driver, id, &format!("$JS.API.CONSUMER.MSG.NEXT.{consumer}"), &inbox, body);
    heard(driver, id)
}

/// How many messages a stream holds.
pub fn messages(driver: &mut Driver, id: ConnId, stream: &str) -> String {
    let answer = ask(driver, id, &format!("STREAM.INFO.{stream}"), "");
    let at = answer.find("\"messages\":").unwrap() + 11;
    answer[at..].chars().take_while(char::is_ascii_digit).collect()
}

#[test]
fn a_message_is_stored_in_the_stream_of_its_own_subject() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "Y", ",\"subjects\":[\"y\"]");
    publish(&mut driver, id, "y", "", "one");
    // Refused for its reply subject; and only traced.
    publish(&mut driver, id, "x", "$JS.ACK.Y.c.1.1.1.1.0", "two");
    publish(&mut driver, id, "x", "", "three");
    assert_eq!(messages(&mut driver, id, "Y"), "1");
    publish(&mut driver, id, "y", "", "four");
    let headers = "NATS/1.0\r\nNats-Trace-Dest: t\r\nNats-Trace-Only: true\r\n\r\n";
    say(&mut driver, id, &format!("HPUB x {0} {0}\r\n{headers}\r\n", headers.len()));
    publish(&mut driver, id, "x", "", "five");
    assert_eq!(messages(&mut driver, id, "Y"), "2");
}

#[test]
fn an_id_that_is_too_long_is_refused_with_a_reason() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    let headers = format!("NATS/1.0\r\nNats-Msg-Id: {}\r\n\r\n", "x".repeat(256));
    say(&mut driver, id, &format!("HPUB S in{id}.ack {0} {0}\r\n{headers}\r\n", headers.len()));
    let answer = heard(&mut driver, id).remove(0).payload;
    assert!(answer.contains("Nats-Msg-Id is longer than 255 bytes"), "{answer}");
    let body = format!(
        "{{\"stream_name\":\"S\",\"config\":{{\"durable_name\":\"c\",\"filter_subject\":\"{}\"}}}}",
        "y".repeat(256)
    );
    let answer = ask(&mut driver, id, "CONSUMER.DURABLE.CREATE.S.c", &body);
    assert!(answer.contains("filter subject is longer than 255 bytes"), "{answer}");
}

#[test]
fn who_no_longer_holds_a_message_is_told_so_and_changes_nothing() {
    let mut driver = Driver::with_streams();
    let (first, second) = (driver.client(), driver.client());
    stream(&mut driver, first, "S", "");
    consumer(&mut driver, first, "S", "c", ",\"ack_wait\":1000000000");
    publish(&mut driver, first, "S", "", "work");
    let given = pull(&mut driver, first, "S.c", "").remove(0);
    driver.pass_ms(1_000);
    let again = pull(&mut driver, second, "S.c", "").remove(0);
    assert_eq!((given.payload.as_str(), again.payload.as_str()), ("work", "work"));
    // It neither keeps it, nor returns it, nor has it done with.
    let inbox = format!("in{first}.ack");
    for said in ["+ACK", "-NAK", "+WPI", "+TERM", ""] {
        publish(&mut driver, first, &given.reply, &inbox, said);
        let told = heard(&mut driver, first);
        assert_eq!(told.len(), 1, "{said}: {told:?}");
        assert_eq!(told[0].status(), "503 Delivered Again", "{said}");
    }
    publish(&mut driver, first, &given.reply, "", "-NAK");
    publish(&mut driver, first, &given.reply, "", "+WPI");
    assert_eq!(
        pull(&mut driver, second, "S.c", "{\"no_wait\":true}")[0].status(),
        "404 No Messages"
    );
    driver.pass_ms(500);
    publish(&mut driver, first, &given.reply, "", "+WPI");
    driver.pass_ms(500);
    // The lease of the second ended when it was due.
    let third = pull(&mut driver, second, "S.c", "{\"no_wait\":true}").remove(0);
    assert_eq!(third.payload, "work");
    // On the connection that holds it now, any of its reply subjects will do.
    publish(&mut driver, second, &again.reply, &format!("in{second}.ack"), "");
    let told = heard(&mut driver, second);
    assert_eq!((told[0].status(), told[0].payload.as_str()), ("", ""));
    let info = ask(&mut driver, first, "CONSUMER.INFO.S.c", "");
    assert!(info.contains("\"num_ack_pending\":0"), "{info}");
}

/// What a client is told of an acknowledgement with a reply.
pub fn acknowledged(driver: &mut Driver, id: ConnId, subject: &str, said: &str) -> String {
    publish(driver, id, subject, &format!("in{id}.ack"), said);
    let told = heard(driver, id);
    assert_eq!(told.len(), 1, "{said}: {told:?}");
    told[0].status().to_owned()
}

#[test]
fn who_is_late_is_told_so_after_another_has_finished_the_message() {
    let mut driver = Driver::with_streams();
    let (first, second) = (driver.client(), driver.client());
    stream(&mut driver, first, "S", ",\"retention\":\"workqueue\"");
    consumer(&mut driver, first, "S", "c", ",\"ack_wait\":1000000000");
    for end in ["+ACK", "+TERM"] {
        publish(&mut driver, first, "S", "", "work");
        let given = pull(&mut driver, first, "S.c", "").remove(0);
        driver.pass_ms(1_000);
        let again = pull(&mut driver, second, "S.c", "").remove(0);
        assert_eq!(acknowledged(&mut driver, second, &again.reply, end), "");
        for said in ["+ACK", "+TERM", "-NAK", "+WPI", ""] {
            let told = acknowledged(&mut driver, first, &given.reply, said);
            assert_eq!(told, "503 Delivered Again", "{said}");
        }
        // Whoever finished it may say so again, from another connection as well: its answer may have been lost.
        let third = driver.client();
        assert_eq!(acknowledged(&mut driver, second, &again.reply, "+ACK"), "");
        assert_eq!(acknowledged(&mut driver, second, &given.reply, "+ACK"), "");
        assert_eq!(acknowledged(&mut driver, third, &again.reply, "+ACK"), "");
    }
}

#[test]
fn who_is_late_is_told_so_while_others_finish_many_messages() {
    let mut driver = Driver::with_streams();
    let (first, second) = (driver.client(), driver.client());
    stream(&mut driver, first, "S", "");
    consumer(&mut driver, first, "S", "c", ",\"ack_wait\":1000000000,\"max_ack_pending\":-1");
    for _ in 0..1_000 {
        publish(&mut driver, first, "S", "", "work");
    }
    let given = pull(&mut driver, first, "S.c", "{\"batch\":1000}");
    driver.pass_ms(1_000);
    let again = pull(&mut driver, second, "S.c", "{\"batch\":1000}");
    assert_eq!((given.len(), again.len()), (1_000, 1_000));
    for message in &again {
        publish(&mut driver, second, &message.reply, "", "+ACK");
    }
    for message in [&given[0], &given[999]] {
        let told = acknowledged(&mut driver, first, &message.reply, "+ACK");
        assert_eq!(told, "503 Delivered Again");
    }
}

#[test]
fn a_long_purge_is_answered_when_all_is_gone_and_holds_up_nobody() {
    let mut driver = Driver::with_streams();
    let (purger, other) = (driver.client(), driver.client());
    stream(&mut driver, purger, "S", ",\"subjects\":[\"s.*\"]");
    for nth in 0..1_500 {
        publish(&mut driver, purger, &format!("s.{}", nth % 2), "", "x");
    }
    let inbox = format!("in{purger}.api");
    publish(&mut driver, purger, "$JS.API.STREAM.PURGE.S", &inbox, "{\"filter\":\"s.1\"}");
    publish(&mut driver, other, "s.1", "", "x");
    let mut answers = heard(&mut driver, purger);
    for _ in 0..20 {
        driver.settle();
        answers.extend(heard(&mut driver, purger));
    }
    let answers: Vec<String> = answers.into_iter().map(|heard| heard.payload).collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(answers[0].contains("\"purged\":750"), "{answers:?}");
    assert_eq!(messages(&mut driver, other, "S"), "751");
}

#[test]
fn whoever_does_not_wait_is_told_that_there_is_nothing_but_what_is_given_up() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", "");
    consumer(&mut driver, id, "S", "c", ",\"max_deliver\":1");
    publish(&mut driver, id, "S", "", "one");
    let given = pull(&mut driver, id, "S.c", "").remove(0);
    publish(&mut driver, id, &given.reply, "", "-NAK");
    // The message has come back, and turns out to be given up.
    let told = pull(&mut driver, id, "S.c", "{\"batch\":2,\"no_wait\":true}");
    assert_eq!(told.iter().map(Heard::status).collect::<Vec<_>>(), ["404 No Messages"]);
    publish(&mut driver, id, "S", "", "two");
    assert_eq!(heard(&mut driver, id), [], "the request has ended");
}
