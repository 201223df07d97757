//! Streams and consumers of the configuration: made where missing, changed where they may be, refused with a reason.

use mq9_core::jetstream::{Checked, Declared, DeclaredConsumer, check};

use crate::driver::Driver;
use crate::streams::{ask, messages, publish};

const STREAM: &str = r#"{"name":"MQ","subjects":["mq.>"],"retention":"workqueue"}"#;

fn wanted(stream: &str, name: &str, more: &str) -> DeclaredConsumer {
    let config = format!(
        "{{\"name\":\"{name}\",\"durable_name\":\"{name}\",\"ack_policy\":\"explicit\"{more}}}"
    );
    DeclaredConsumer { stream: stream.to_owned(), name: name.to_owned(), config }
}

fn declare(driver: &mut Driver, config: &str) -> Result<Declared, String> {
    let now = driver.moment();
    let outcome = driver.engine.declare_stream(config, now).unwrap();
    driver.settle();
    outcome.map_err(|error| error.description.into_owned())
}

fn declare_consumer(driver: &mut Driver, consumer: &DeclaredConsumer) -> Result<Declared, String> {
    let now = driver.moment();
    let outcome = driver.engine.declare_consumer(consumer, now).unwrap();
    driver.settle();
    outcome.map_err(|error| error.description.into_owned())
}

#[test]
fn what_is_missing_is_made_and_what_differs_is_changed() {
    let mut driver = Driver::with_streams();
    let id = driver.client();
    assert_eq!(declare(&mut driver, STREAM), Ok(Declared::Created));
    publish(&mut driver, id, "mq.a", "", "one");
    assert_eq!(declare(&mut driver, STREAM), Ok(Declared::Unchanged));
    let smaller = STREAM.replace("\"mq.>\"]", "\"mq.>\"],\"max_msgs\":5");
    assert_eq!(declare(&mut driver, &smaller), Ok(Declared::Changed));
    assert!(ask(&mut driver, id, "STREAM.INFO.MQ", "").contains("\"max_msgs\":5"));
    let refused = declare(&mut driver, &STREAM.replace("workqueue", "limits")).unwrap_err();
    assert!(refused.contains("can not change retention policy"), "{refused}");
    assert_eq!(messages(&mut driver, id, "MQ"), "1");

    let consumer = wanted("MQ", "workers", ",\"filter_subject\":\"mq.a\"");
    assert_eq!(declare_consumer(&mut driver, &consumer), Ok(Declared::Created));
    assert_eq!(declare_consumer(&mut driver, &consumer), Ok(Declared::Unchanged));
    let longer = wanted("MQ", "workers", ",\"filter_subject\":\"mq.a\",\"ack_wait\":60000000000");
    assert_eq!(declare_consumer(&mut driver, &longer), Ok(Declared::Changed));
    let other = wanted("MQ", "workers", ",\"deliver_policy\":\"new\"");
    assert!(declare_consumer(&mut driver, &other).is_err());
    let nowhere = declare_consumer(&mut driver, &wanted("NO", "workers", ""));
    assert_eq!(nowhere, Err("stream not found".to_owned()));
    assert!(ask(&mut driver, id, "CONSUMER.INFO.MQ.workers", "").contains("60000000000"));
}

fn said(streams: &[&str], consumers: &[DeclaredConsumer]) -> Checked {
    let name = |config: &str| config.split('"').nth(3).unwrap().to_owned();
    let streams: Vec<_> =
        streams.iter().map(|config| (name(config), (*config).to_owned())).collect();
    check(&streams, consumers)
}

#[test]
fn a_consumer_finds_the_stream_that_has_its_subject() {
    let other = r#"{"name":"LOG","subjects":["log.*","audit"]}"#;
    let of = |subject: &str| wanted("", subject, &format!(",\"filter_subject\":\"{subject}\""));
    let asked = [of("mq.a"), of("audit"), wanted("MINE", "c", "")];
    let found = said(&[STREAM, other], &asked);
    assert_eq!(found.homes, ["MQ", "LOG", "MINE"]);
    assert_eq!(found.problems, []);
    let found = said(&[STREAM, other], &[of("nobody"), wanted("", "all", "")]);
    assert_eq!(found.problems[0].0, 2);
    assert!(found.problems[0].1.contains("no declared stream stores nobody"));
    assert!(found.problems[1].1.contains("several streams"), "{:?}", found.problems);
}

#[test]
fn what_does_not_go_together_is_said_without_a_store() {
    let on = |name: &str, subject: &str| {
        wanted("MQ", name, &format!(",\"filter_subject\":\"{subject}\""))
    };
    let cases: [(&[&str], Vec<DeclaredConsumer>, &str); 8] = [
        (&[STREAM, STREAM], vec![], "stream MQ: there is another stream of this name"),
        (
            &[STREAM, r#"{"name":"B","subjects":["mq.a"]}"#],
            vec![],
            "overlaps with mq.> of stream MQ",
        ),
        (&[r#"{"name":"B","subjects":["a b"]}"#], vec![], "stream B: invalid subject"),
        (&[r#"{"name":"B","metadata":{"mq9.envelope":"v2"}}"#], vec![], "must be hanzo.mq.v1"),
        (&[STREAM], vec![on("a", "mq.x"), on("a", "mq.y")], "another consumer of this name"),
        (&[STREAM], vec![on("a", "mq.x.>"), on("b", "mq.*.y")], "mq.*.y overlaps with mq.x.> of a"),
        (&[STREAM], vec![on("a", "mq.x"), wanted("MQ", "b", "")], "this one or a wants all"),
        (
            &[STREAM],
            vec![on("a", "mq.x").with(",\"max_deliver\":1,\"backoff\":[1,2]")],
            "max deliver",
        ),
    ];
    for (streams, consumers, why) in cases {
        let found = said(streams, &consumers).problems;
        assert!(found.last().is_some_and(|(_, said)| said.contains(why)), "{why}: {found:?}");
    }
    // Not on a work queue it is usual.
    let log = r#"{"name":"MQ","subjects":["mq.>"]}"#;
    assert_eq!(said(&[log], &[on("a", "mq.x"), wanted("MQ", "b", "")]).problems, []);
}

trait With {
    fn with(self, more: &str) -> Self;
}

impl With for DeclaredConsumer {
    fn with(mut self, more: &str) -> Self {
        self.config.insert_str(self.config.len() - 1, more);
        self
    }
}
