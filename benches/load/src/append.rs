//! Appends to a Redis stream: what `request` is for a mailbox.

use crate::arguments::Arguments;
use crate::asking::Asking;
use crate::commander::{Answer, Commander};
use crate::failure::Failure;
use crate::load::Load;
use crate::pace;
use crate::template::{self, TOKEN};

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, TOKEN)?;
    let connections = arguments.number("connections", 1, 1, 10_000)?;
    let window = arguments.number("window", 1, 1, 65_536)?;
    let stream: String = arguments.optional("stream")?.unwrap_or_else(|| "bench".to_owned());
    let per_second = pace::take(&mut arguments)?;
    arguments.finish()?;
    let body = template::body(load.size);
    let words = ["XADD", &stream, "*", "d", &body];
    let clients = (0..connections)
        .map(|_| Commander::open(&load.server, &words, Answer::Entry, window))
        .collect::<Result<Vec<_>, Failure>>()?;
    let (measured, latencies) = Asking::new(&load, clients, per_second)?.measure(&load)?;
    let more = [
        ("connections", connections.to_string()),
        ("window", window.to_string()),
        ("latency_us", latencies.json()),
    ];
    Ok(measured.json("append", &load, &more))
}
