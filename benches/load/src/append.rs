//! Appends to a Redis stream: what `request` is for a mailbox. Each connection keeps a window of
//! `XADD`s under way and sends the next one when an answer has come.

use std::collections::VecDeque;
use std::time::Instant;

use crate::arguments::Arguments;
use crate::connection::{Chunk, Connection};
use crate::failure::Failure;
use crate::latency::Latencies;
use crate::load::{Limit, Load};
use crate::poller::Poller;
use crate::request::{TOKEN, hexadecimal};
use crate::resp::{self, Token};

#[derive(Debug)]
struct Appender {
    connection: Connection,
    command: Command,
    /// When each `XADD` that is not answered was sent; answers come in this order.
    asked: VecDeque<Instant>,
    /// The entry that was answered last: milliseconds and number.
    last: (u64, u64),
}

/// An `XADD`, of which only the beginning of the payload changes.
#[derive(Debug)]
struct Command {
    bytes: Vec<u8>,
    in_payload: usize,
}

#[derive(Debug, Default)]
struct Progress {
    asked: u64,
    replies: u64,
    latencies: Latencies,
}

impl Command {
    fn new(stream: &str, size: usize) -> Self {
        let payload = vec![b'x'; size];
        let bytes = resp::command(&[b"XADD", stream.as_bytes(), b"*", b"d", &payload]);
        Self { in_payload: bytes.len() - size - 2, bytes }
    }

    /// Appends the next command, unless no more may be sent.
    fn send(
        &mut self,
        asked: &mut VecDeque<Instant>,
        out: &mut Vec<u8>,
        limit: Limit,
        progress: &mut Progress,
    ) {
        if limit.reached(progress.asked) {
            return;
        }
        self.bytes[self.in_payload..][..TOKEN].copy_from_slice(&hexadecimal(progress.asked));
        progress.asked += 1;
        asked.push_back(Instant::now());
        out.extend_from_slice(&self.bytes);
    }
}

impl Appender {
    fn start(
        &mut self,
        window: usize,
        limit: Limit,
        progress: &mut Progress,
    ) -> Result<bool, Failure> {
        let Self { connection, command, asked, .. } = self;
        for _ in 0..window {
            command.send(asked, connection.queue(), limit, progress);
        }
        connection.flush()
    }

    fn receive(
        &mut self,
        chunk: &mut Chunk,
        limit: Limit,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let Self { connection, command, asked, last } = self;
        connection.receive_bytes(chunk, |out, input| {
            let Some((token, used)) = resp::first(input)? else { return Ok(None) };
            let wrong = || Failure::Server(format!("answered XADD with {token:?}"));
            let Token::Bulk(id) = token else { return Err(wrong()) };
            let id = entry(id).ok_or_else(wrong)?;
            if id <= *last {
                return Err(wrong());
            }
            *last = id;
            progress.latencies.since(asked.pop_front().ok_or_else(wrong)?);
            progress.replies += 1;
            command.send(asked, out, limit, progress);
            Ok(Some(used))
        })
    }
}

/// The two numbers of an entry's name, by which entries ascend.
fn entry(id: &[u8]) -> Option<(u64, u64)> {
    let (time, number) = std::str::from_utf8(id).ok()?.split_once('-')?;
    Some((time.parse().ok()?, number.parse().ok()?))
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, TOKEN)?;
    let connections = arguments.number("connections", 1, 1, 10_000)?;
    let window = arguments.number("window", 1, 1, 65_536)?;
    let stream: String = arguments.optional("stream")?.unwrap_or_else(|| "bench".to_owned());
    arguments.finish()?;
    let mut poller = load.poller(connections)?;
    let mut appenders = Vec::with_capacity(connections);
    for number in 0..connections {
        let connection = Connection::open_bare(&load.server)?;
        poller.add(&connection, number, false)?;
        let command = Command::new(&stream, load.size);
        let asked = VecDeque::with_capacity(window);
        appenders.push(Appender { connection, command, asked, last: (0, 0) });
    }
    let mut latencies = Latencies::default();
    let measured = load.measure(|limit, counts| {
        let progress = phase(&mut appenders, &mut poller, window, limit)?;
        if counts {
            latencies = progress.latencies;
        }
        Ok(progress.replies)
    })?;
    let more = [
        ("connections", connections.to_string()),
        ("window", window.to_string()),
        ("latency_us", latencies.json()),
    ];
    Ok(measured.json("append", &load, &more))
}

fn phase(
    appenders: &mut [Appender],
    poller: &mut Poller,
    window: usize,
    limit: Limit,
) -> Result<Progress, Failure> {
    let (mut chunk, mut ready) = (Chunk::new(), Vec::new());
    let mut progress = Progress::default();
    for (number, appender) in appenders.iter_mut().enumerate() {
        if !appender.start(window, limit, &mut progress)? {
            poller.change(&appender.connection, number, true)?;
        }
    }
    while progress.replies < progress.asked {
        let state = || format!("{} of {} answers", progress.replies, progress.asked);
        poller.wait(&mut ready, state)?;
        for event in &ready {
            let appender = &mut appenders[event.number];
            if event.readable {
                appender.receive(&mut chunk, limit, &mut progress)?;
            }
            let connection = &mut appender.connection;
            if !connection.flush()? || event.writable {
                poller.change(&*connection, event.number, !connection.is_flushed())?;
            }
        }
    }
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_begins_with_its_number() {
        let (mut command, mut out) = (Command::new("s", 13), Vec::new());
        let mut progress = Progress { asked: 10, ..Progress::default() };
        let unlimited = Limit::count(100);
        command.send(&mut VecDeque::new(), &mut out, unlimited, &mut progress);
        assert!(out.ends_with(b"$1\r\nd\r\n$13\r\n00000000000ax\r\n"), "{out:?}");
    }

    #[test]
    fn entries_ascend_by_time_and_number() {
        assert!(entry(b"10-2") > entry(b"9-11") && entry(b"9-11") > entry(b"9-2"));
        assert_eq!(entry(b"9"), None);
    }
}
