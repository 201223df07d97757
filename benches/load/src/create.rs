//! Creates mailboxes, or what other servers have instead. They are called `m`, or as asked, and a number from 0 on.

use crate::arguments::Arguments;
use crate::asking::Asking;
use crate::commander::{Answer, Commander};
use crate::failure::Failure;
use crate::load::Load;
use crate::pace;
use crate::requester::{Question, Requester};
use crate::template::NUMBER;

/// How NATS servers are asked.
struct Creation {
    subject: String,
    body: String,
    /// How the answer begins if it was created.
    expected: &'static str,
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let mut load = Load::take(&mut arguments, 0)?;
    let connections = arguments.number("connections", 1, 1, 1000)?;
    let window = arguments.number("window", 64, 1, 65_536)?;
    let what: String = arguments.optional("what")?.unwrap_or_default();
    let group: String = arguments.optional("group")?.unwrap_or_else(|| "workers".to_owned());
    let stream: String = arguments.optional("stream")?.unwrap_or_else(|| "bench".to_owned());
    let prefix: String = arguments.optional("prefix")?.unwrap_or_else(|| "m".to_owned());
    let per_second = pace::take(&mut arguments)?;
    arguments.finish()?;
    // What the warm-up creates would be there already.
    load.skip_warmup();
    let (measured, latencies) = if what == "group" {
        let name = format!("{prefix}{NUMBER}");
        let words = ["XGROUP", "CREATE", &name, &group, "$", "MKSTREAM"];
        let clients = (0..connections)
            .map(|_| Commander::open(&load.server, &words, Answer::Ok, window))
            .collect::<Result<Vec<_>, Failure>>()?;
        Asking::new(&load, clients, per_second)?.measure(&load)?
    } else {
        let Creation { subject, body, expected } = creation(&what, &stream, &prefix)?;
        let question = Question {
            subject: &subject,
            body: &body,
            priorities: b"",
            subjects: None,
            expected: Some(expected),
        };
        let clients = (0..connections)
            .map(|number| Requester::open(&load.server, &question, number, window))
            .collect::<Result<Vec<_>, Failure>>()?;
        Asking::new(&load, clients, per_second)?.measure(&load)?
    };
    let more = [
        ("what", format!("{what:?}")),
        ("connections", connections.to_string()),
        ("window", window.to_string()),
        ("latency_us", latencies.json()),
    ];
    Ok(measured.json("create", &load, &more))
}

fn creation(what: &str, stream: &str, prefix: &str) -> Result<Creation, Failure> {
    Ok(match what {
        "mailbox" => Creation {
            subject: "$mq9.AI.MAILBOX.CREATE".to_owned(),
            body: format!("{{\"name\":\"{prefix}{NUMBER}\"}}"),
            expected: "{\"error\":\"\",",
        },
        "stream" => Creation {
            subject: format!("$JS.API.STREAM.CREATE.{prefix}{NUMBER}"),
            body: format!(
                "{{\"name\":\"{prefix}{NUMBER}\",\"subjects\":[\"bench.{prefix}{NUMBER}\"],\
                 \"storage\":\"file\",\"num_replicas\":1}}"
            ),
            expected: "{\"type\":\"io.nats.jetstream.api.v1.stream_create_response\",\"config\":",
        },
        "consumer" => Creation {
            subject: format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{prefix}{NUMBER}"),
            body: format!(
                "{{\"stream_name\":\"{stream}\",\"config\":{{\"durable_name\":\"{prefix}{NUMBER}\",\
                 \"ack_policy\":\"explicit\",\"filter_subject\":\"bench.{prefix}{NUMBER}\"}}}}"
            ),
            expected: "{\"type\":\"io.nats.jetstream.api.v1.consumer_create_response\",\
                       \"stream_name\":",
        },
        _ => return Err(Failure::Usage(format!("--what {what:?}: nothing is called so"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_created_carries_its_number() {
        for what in ["mailbox", "stream", "consumer"] {
            let creation = creation(what, "bench", "m").unwrap();
            assert!(creation.body.contains(&format!("\"m{NUMBER}\"")), "{what}");
        }
        assert!(creation("house", "bench", "m").is_err());
    }
}
