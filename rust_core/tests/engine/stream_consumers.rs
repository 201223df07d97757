//! Requests that create consumers: when one that is there will do, and what is refused.

use crate::driver::Driver;
use crate::streams::{ask, stream};
use mq9_core::front::ConnId;

/// The code of the refusal of a request to create a consumer; `ok` if it was not refused.
fn create(driver: &mut Driver, id: ConnId, config: &str, more: &str) -> String {
    let name = config.split('"').nth(3).unwrap();
    let body = format!("{{\"stream_name\":\"S\",\"config\":{config}{more}}}");
    let answer = ask(driver, id, &format!("CONSUMER.CREATE.S.{name}"), &body);
    match answer.split_once("\"err_code\":") {
        Some((_, code)) => code.chars().take_while(char::is_ascii_digit).collect(),
        None if answer.contains("\"created\":") => "ok".to_owned(),
        None => answer,
    }
}

fn streams() -> (Driver, ConnId) {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    stream(&mut driver, id, "S", ",\"subjects\":[\"s.>\"]");
    (driver, id)
}

#[test]
fn creating_an_equal_consumer_again_succeeds() {
    let (mut driver, id) = streams();
    let twice = [
        (r#"{"name":"a","durable_name":"a","ack_policy":"explicit"}"#, ""),
        (
            r#"{"name":"b","durable_name":"b","ack_policy":"explicit"}"#,
            r#"{"name":"b","durable_name":"b","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1}"#,
        ),
        (r#"{"name":"c","durable_name":"c","metadata":{"a":"b"}}"#, ""),
        (r#"{"name":"d","inactive_threshold":5000000000}"#, ""),
        (r#"{"name":"e","inactive_threshold":300000000000}"#, ""),
        (r#"{"name":"f"}"#, r#"{"name":"f","inactive_threshold":5000000000}"#),
    ];
    for (first, second) in twice {
        let second = if second.is_empty() { first } else { second };
        for config in [first, second] {
            assert_eq!(create(&mut driver, id, config, ",\"action\":\"create\""), "ok", "{config}");
        }
    }
}

#[test]
fn creating_another_consumer_of_that_name_is_refused() {
    let (mut driver, id) = streams();
    let twice = [
        (
            r#"{"name":"a","durable_name":"a"}"#,
            r#"{"name":"a","durable_name":"a","description":"x"}"#,
        ),
        (
            r#"{"name":"b","durable_name":"b","filter_subjects":["s.1","s.2"]}"#,
            r#"{"name":"b","durable_name":"b","filter_subjects":["s.2","s.1"]}"#,
        ),
        (
            r#"{"name":"c","durable_name":"c","filter_subject":""}"#,
            r#"{"name":"c","durable_name":"c","filter_subjects":["s.1"]}"#,
        ),
        (r#"{"name":"d"}"#, r#"{"name":"d"}"#),
        (r#"{"name":"e","inactive_threshold":5000000000}"#, r#"{"name":"e"}"#),
    ];
    for (first, second) in twice {
        assert_eq!(create(&mut driver, id, first, ",\"action\":\"create\""), "ok", "{first}");
        assert_eq!(create(&mut driver, id, second, ",\"action\":\"create\""), "10148", "{second}");
        // Without an action it is changed, if it can be.
        assert_eq!(create(&mut driver, id, first, ""), "ok", "{first}");
    }
}

#[test]
fn a_pedantic_request_is_refused_where_something_would_be_changed() {
    let (mut driver, id) = streams();
    let refused = [
        r#"{"name":"a","max_deliver":-2}"#,
        r#"{"name":"a","max_waiting":-1}"#,
        r#"{"name":"a","max_ack_pending":-2}"#,
        r#"{"name":"a","max_batch":-1}"#,
        r#"{"name":"a","max_expires":-1}"#,
        r#"{"name":"a","max_bytes":-1}"#,
        r#"{"name":"a","idle_heartbeat":-1}"#,
        r#"{"name":"a","inactive_threshold":-1}"#,
        r#"{"name":"c","ack_policy":"explicit","ack_wait":2000000000,"backoff":[1000000000]}"#,
    ];
    for config in refused {
        assert_eq!(create(&mut driver, id, config, ",\"pedantic\":true"), "10157", "{config}");
        assert_eq!(create(&mut driver, id, config, ""), "ok", "{config}");
    }
    let config = r#"{"name":"b","max_deliver":-1}"#;
    assert_eq!(create(&mut driver, id, config, ",\"pedantic\":true"), "ok");
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let (mut driver, id) = streams();
    let body = r#"{"stream_name":"S","config":{"name":"a","ack_policy":"flow_control"}}"#;
    let answer = ask(&mut driver, id, "CONSUMER.CREATE.S.a", body);
    assert!(answer.contains("flow_control is not supported"), "{answer}");
    let body = r#"{"name":"S","subjects":["s.>"],"sealed":true}"#;
    let answer = ask(&mut driver, id, "STREAM.UPDATE.S", body);
    assert!(answer.contains("update can not seal a stream"), "{answer}");
}

#[test]
fn the_default_persist_mode_is_left_out() {
    let (mut driver, id) = streams();
    let body = r#"{"name":"P","persist_mode":"default"}"#;
    let answer = ask(&mut driver, id, "STREAM.CREATE.P", body);
    assert!(answer.contains("\"did_create\":true") && !answer.contains("persist_mode"), "{answer}");
}
