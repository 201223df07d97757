//! Requests and replies. Each requester has a connection and an inbox of its own and asks again
//! when its reply has come; responders in the same process send back what they are sent, or the
//! server itself answers. As with real clients the inbox is one wildcard subscription and every
//! request has its own reply subject.

use std::time::Instant;

use crate::arguments::Arguments;
use crate::connection::{Chunk, Connection, Received};
use crate::failure::Failure;
use crate::frame::Message;
use crate::latency::Latencies;
use crate::load::{Limit, Load};
use crate::poller::Poller;

/// Hexadecimal digits that name a request: four for its slot, eight for its number there.
pub const TOKEN: usize = 12;

/// One request at a time.
#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u32,
    asked: Instant,
    waiting: bool,
}

#[derive(Debug)]
struct Requester {
    connection: Connection,
    frame: Frame,
    slots: Vec<Slot>,
}

/// A request, of which only two tokens change: that in the reply subject names it, that in the
/// payload is the same, or its number among all requests where the server itself answers.
#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    in_reply: usize,
    in_payload: usize,
}

impl Frame {
    fn new(subject: &str, inbox: &str, size: usize) -> Self {
        let start = format!("PUB {subject} {inbox}.");
        let line = format!("{start}{} {size}\r\n", "0".repeat(TOKEN));
        let mut bytes = line.clone().into_bytes();
        bytes.resize(bytes.len() + size, b'x');
        bytes.extend_from_slice(b"\r\n");
        Self { bytes, in_reply: start.len(), in_payload: line.len() }
    }

    fn with(&mut self, name: [u8; TOKEN], content: [u8; TOKEN]) -> &[u8] {
        self.bytes[self.in_reply..][..TOKEN].copy_from_slice(&name);
        self.bytes[self.in_payload..][..TOKEN].copy_from_slice(&content);
        &self.bytes
    }
}

/// What is asked, and which answer is right.
#[derive(Debug)]
struct Question {
    subject: String,
    /// How the answer of the server itself begins; a responder sends back what it got.
    expected: Option<Vec<u8>>,
}

fn token(slot: usize, number: u32) -> [u8; TOKEN] {
    hexadecimal((slot as u64) << 32 | u64::from(number))
}

/// A number in as many digits as a token has.
pub fn hexadecimal(value: u64) -> [u8; TOKEN] {
    std::array::from_fn(|at| b"0123456789abcdef"[(value >> (4 * (TOKEN - 1 - at)) & 15) as usize])
}

fn slot_of(token: &[u8]) -> Option<usize> {
    usize::from_str_radix(std::str::from_utf8(token.get(..4)?).ok()?, 16).ok()
}

/// What a phase has done so far.
#[derive(Debug, Default)]
struct Progress {
    asked: u64,
    replies: u64,
    latencies: Latencies,
}

impl Requester {
    fn open(
        load: &Load,
        question: &Question,
        number: usize,
        window: usize,
    ) -> Result<Self, Failure> {
        let inbox = format!("_INBOX.load{number:018}");
        let connection = Connection::open(&load.server, format!("SUB {inbox}.* 1\r\n").as_bytes())?;
        let slot = Slot { number: 0, asked: Instant::now(), waiting: false };
        let frame = Frame::new(&question.subject, &inbox, load.size);
        Ok(Self { connection, frame, slots: vec![slot; window] })
    }

    fn start(
        &mut self,
        question: &Question,
        limit: Limit,
        progress: &mut Progress,
    ) -> Result<bool, Failure> {
        let Self { connection, frame, slots } = self;
        for (number, slot) in slots.iter_mut().enumerate() {
            if let Some(name) = slot.ask(number, limit, progress) {
                connection
                    .queue()
                    .extend_from_slice(frame.with(name, content(question, name, progress)));
            }
        }
        connection.flush()
    }

    fn receive(
        &mut self,
        chunk: &mut Chunk,
        question: &Question,
        limit: Limit,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let Self { connection, frame, slots } = self;
        connection.receive(chunk, |out, received| {
            let Received::Message(Message { subject, headers, payload, .. }) = received else {
                return Err(Failure::Server("sent PONG to a requester".to_owned()));
            };
            let wrong = || {
                let subject = String::from_utf8_lossy(subject);
                let shown = [headers, &payload[..payload.len().min(200)]].concat();
                let shown = String::from_utf8_lossy(&shown);
                Failure::Server(format!(
                    "delivered a reply that nobody waits for to {subject}: {shown:?}"
                ))
            };
            let name = subject.last_chunk::<TOKEN>().ok_or_else(wrong)?;
            let number = slot_of(name).ok_or_else(wrong)?;
            let slot = slots.get_mut(number).ok_or_else(wrong)?;
            let expected = question.expected.as_deref().unwrap_or(name);
            if !slot.waiting
                || token(number, slot.number) != *name
                || !payload.starts_with(expected)
            {
                return Err(wrong());
            }
            slot.waiting = false;
            progress.replies += 1;
            progress.latencies.since(slot.asked);
            if let Some(name) = slot.ask(number, limit, progress) {
                out.extend_from_slice(frame.with(name, content(question, name, progress)));
            }
            Ok(())
        })
    }
}

impl Slot {
    /// The next request of the slot, unless no more may be sent.
    fn ask(&mut self, number: usize, limit: Limit, progress: &mut Progress) -> Option<[u8; TOKEN]> {
        if limit.reached(progress.asked) {
            return None;
        }
        progress.asked += 1;
        *self = Slot { number: self.number.wrapping_add(1), asked: Instant::now(), waiting: true };
        Some(token(number, self.number))
    }
}

/// What the payload of the latest request begins with. Whoever reads what the server has kept can
/// tell by it whether all of it is there.
fn content(question: &Question, name: [u8; TOKEN], progress: &Progress) -> [u8; TOKEN] {
    if question.expected.is_some() { hexadecimal(progress.asked - 1) } else { name }
}

/// Sends every payload back.
fn respond(responder: &mut Connection, chunk: &mut Chunk, tail: &str) -> Result<(), Failure> {
    responder.receive(chunk, |out, received| {
        let Received::Message(Message { reply, payload, .. }) = received else {
            return Err(Failure::Server("sent PONG to a responder".to_owned()));
        };
        for part in [b"PUB ", reply, tail.as_bytes(), payload, b"\r\n"] {
            out.extend_from_slice(part);
        }
        Ok(())
    })
}

struct Requests {
    question: Question,
    /// What stands between the reply subject and the payload.
    tail: String,
    requesters: Vec<Requester>,
    responders: Vec<Connection>,
    poller: Poller,
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, TOKEN)?;
    let connections = arguments.number("connections", 1, 1, 10_000)?;
    let window = arguments.number("window", 1, 1, 65_536)?;
    let responders = arguments.number("responders", 1, 0, 1000)?;
    let question = Question {
        subject: arguments.optional("subject")?.unwrap_or_else(|| "bench.service".to_owned()),
        expected: arguments.optional::<String>("expect")?.map(String::into_bytes),
    };
    arguments.finish()?;
    if (responders == 0) != question.expected.is_some() {
        let problem = "--expect belongs to --responders 0: only what the server itself answers";
        return Err(Failure::Usage(problem.to_owned()));
    }
    let service = format!("SUB {} load 1\r\n", question.subject);
    let mut requests = Requests {
        question,
        tail: format!(" {}\r\n", load.size),
        requesters: Vec::with_capacity(connections),
        responders: Vec::with_capacity(responders),
        poller: load.poller(connections + responders)?,
    };
    for number in 0..responders {
        let connection = Connection::open(&load.server, service.as_bytes())?;
        requests.poller.add(&connection, connections + number, false)?;
        requests.responders.push(connection);
    }
    for number in 0..connections {
        let requester = Requester::open(&load, &requests.question, number, window)?;
        requests.poller.add(&requester.connection, number, false)?;
        requests.requesters.push(requester);
    }
    let mut latencies = Latencies::default();
    let measured = load.measure(|limit, counts| {
        let progress = requests.phase(limit)?;
        if counts {
            latencies = progress.latencies;
        }
        Ok(progress.replies)
    })?;
    let more = [
        ("connections", connections.to_string()),
        ("window", window.to_string()),
        ("responders", responders.to_string()),
        ("latency_us", latencies.json()),
    ];
    Ok(measured.json("request", &load, &more))
}

impl Requests {
    fn phase(&mut self, limit: Limit) -> Result<Progress, Failure> {
        let (mut chunk, mut ready) = (Chunk::new(), Vec::new());
        let mut progress = Progress::default();
        for (number, requester) in self.requesters.iter_mut().enumerate() {
            if !requester.start(&self.question, limit, &mut progress)? {
                self.poller.change(&requester.connection, number, true)?;
            }
        }
        while progress.replies < progress.asked {
            let state = || format!("{} of {} requests", progress.replies, progress.asked);
            self.poller.wait(&mut ready, || format!("replies to {}", state()))?;
            for event in &ready {
                let connection = match self.requesters.get_mut(event.number) {
                    Some(requester) => {
                        if event.readable {
                            requester.receive(&mut chunk, &self.question, limit, &mut progress)?;
                        }
                        &mut requester.connection
                    }
                    None => {
                        let responder = &mut self.responders[event.number - self.requesters.len()];
                        if event.readable {
                            respond(responder, &mut chunk, &self.tail)?;
                        }
                        responder
                    }
                };
                // Watching for room costs a call, so only where there was none.
                if !connection.flush()? || event.writable {
                    let write = !connection.is_flushed();
                    self.poller.change(&*connection, event.number, write)?;
                }
            }
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_slot_and_number() {
        assert_eq!(&token(0x1f, 0xdead_beef), b"001fdeadbeef");
        assert_eq!(slot_of(b"001fdeadbeef"), Some(0x1f));
        assert_eq!(slot_of(b"0x"), None);
    }

    #[test]
    fn a_request_carries_its_token_and_its_content() {
        let mut frame = Frame::new("bench.service", "_INBOX.a", 12);
        let expected = b"PUB bench.service _INBOX.a.001200000003 12\r\n0000000000ff\r\n";
        assert_eq!(frame.with(token(0x12, 3), hexadecimal(255)), expected);
    }
}
