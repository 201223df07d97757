//! Expectations of a publisher: the last message of a subject or pattern, as its headers say it.

use mq9_core::front::ConnId;

use crate::driver::Driver;
use crate::push::say;
use crate::streams::{heard, messages, publish, stream};

/// The PubAck of a message that expects this.
fn publish_if(driver: &mut Driver, id: ConnId, subject: &str, expected: &[(&str, &str)]) -> String {
    let lines: String =
        expected.iter().map(|(name, value)| format!("{EXPECTED}-{name}: {value}\r\n")).collect();
    let headers = format!("NATS/1.0\r\n{lines}\r\n");
    let size = headers.len();
    say(driver, id, &format!("HPUB {subject} in{id}.ack {size} {size}\r\n{headers}\r\n"));
    heard(driver, id).remove(0).payload
}

const EXPECTED: &str = "Nats-Expected-Last";
const SEQ: &str = "Subject-Sequence";
const OF: &str = "Subject-Sequence-Subject";

#[test]
fn an_expectation_of_a_pattern_counts_the_last_message_that_matches() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "A", ",\"subjects\":[\"a.>\"]");
    for subject in ["a.1.x", "a.1.y", "a.2.x", "a.1.z", "a.3"] {
        publish(&mut driver, id, subject, "", "");
    }
    let steps = [
        ("a.1.x", "a.1.*", "0", "wrong last sequence: 4"),
        ("a.1.x", "a.1.*", "4", "\"seq\":6"),
        ("a.2.x", "a.1.*", "6", "\"seq\":7"),
        ("a.2.x", "a.*.x", "6", "wrong last sequence: 7"),
        ("a.2.x", ">", "7", "\"seq\":8"),
        ("a.9.x", "a.9.*", "0", "\"seq\":9"),
        ("a.9.x", "a.8.>", "1", "wrong last sequence: 0"),
        ("a.9.x", "a.9.x", "9", "\"seq\":10"),
    ];
    for (subject, pattern, expected, said) in steps {
        let answer = publish_if(&mut driver, id, subject, &[(SEQ, expected), (OF, pattern)]);
        assert!(answer.contains(said), "{pattern} at {expected}: {answer}");
    }
}

#[test]
fn a_subject_without_a_number_is_refused() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "A", ",\"subjects\":[\"a.>\"]");
    let answer = publish_if(&mut driver, id, "a.1", &[(OF, "a.*")]);
    assert!(answer.contains("\"err_code\":10193"), "{answer}");
    assert_eq!(messages(&mut driver, id, "A"), "0");
}

#[test]
fn the_subject_is_looked_at_before_the_stream() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "A", ",\"subjects\":[\"a.>\"]");
    publish(&mut driver, id, "a.1", "", "");
    publish(&mut driver, id, "a.2", "", "");
    let answer = publish_if(&mut driver, id, "a.1", &[("Sequence", "9"), (SEQ, "8")]);
    assert!(answer.contains("wrong last sequence: 1"), "{answer}");
}

#[test]
fn a_pattern_that_is_too_costly_to_look_up_is_refused() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "A", ",\"subjects\":[\"a.>\"]");
    publish(&mut driver, id, "a.0.rare", "", "");
    let mut many = String::new();
    for nth in 0..70_000 {
        many.push_str(&format!("PUB a.{nth}.x 0\r\n\r\n"));
    }
    say(&mut driver, id, &many);
    assert_eq!(messages(&mut driver, id, "A"), "70001");
    let answer = publish_if(&mut driver, id, "a.0.y", &[(SEQ, "1"), (OF, "a.*.rare")]);
    assert!(answer.contains("too many subjects"), "{answer}");
    // What the pattern begins with, or what came last, says enough.
    let answer = publish_if(&mut driver, id, "a.0.y", &[(SEQ, "2"), (OF, "a.0.*")]);
    assert!(answer.contains("\"seq\":70002"), "{answer}");
    let answer = publish_if(&mut driver, id, "a.0.y", &[(SEQ, "70001"), (OF, "a.*.x")]);
    assert!(answer.contains("\"seq\":70003"), "{answer}");
}
