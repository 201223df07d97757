//! Requests and replies. Responders in the same process send back what they are sent, or the server
//! itself answers.

use std::time::Instant;

use crate::arguments::Arguments;
use crate::asking::{Asking, Client, Progress};
use crate::connection::{Chunk, Connection, Received};
use crate::failure::Failure;
use crate::frame::Message;
use crate::load::Load;
use crate::pace;
use crate::requester::{Question, Requester};
use crate::template::{self, NUMBER, TOKEN};

enum Party {
    Requester(Requester),
    Responder(Responder),
}

struct Responder {
    connection: Connection,
    /// What stands between the reply subject and the payload.
    tail: String,
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, TOKEN)?;
    let connections = arguments.number("connections", 1, 1, 10_000)?;
    let window = arguments.number("window", 1, 1, 65_536)?;
    let responders = arguments.number("responders", 1, 0, 1000)?;
    let mut subject: String =
        arguments.optional("subject")?.unwrap_or_else(|| "bench.service".to_owned());
    let subjects = match arguments.number("subjects", 0, 0, 1_000_000)? as u64 {
        0 => None,
        subjects => Some(subjects),
    };
    let expected: Option<String> = arguments.optional("expect")?;
    let priorities: String = arguments.optional("priorities")?.unwrap_or_default();
    let spread = arguments.number("spread", usize::MAX, 1, usize::MAX)?;
    let per_second = pace::take(&mut arguments)?;
    arguments.finish()?;
    if (responders == 0) != expected.is_some() {
        let problem = "--expect belongs to --responders 0: only what the server itself answers";
        return Err(Failure::Usage(problem.to_owned()));
    }
    if subjects.is_some() {
        if responders > 0 {
            let problem = "--subjects: only what the server itself answers has more than one";
            return Err(Failure::Usage(problem.to_owned()));
        }
        subject = format!("{subject}.{NUMBER}");
    }
    if !priorities.bytes().all(|digit| (b'1'..=b'9').contains(&digit)) {
        return Err(Failure::Usage(format!("--priorities {priorities}: must be digits, 1 to 9")));
    }
    let service = format!("SUB {subject} load 1\r\n");
    let question = Question {
        subject: &subject,
        body: &template::body(load.size),
        priorities: priorities.as_bytes(),
        subjects,
        expected: expected.as_deref(),
    };
    let mut parties = Vec::with_capacity(connections + responders);
    for number in 0..connections {
        let requester = Requester::open(&load.server, &question, number, window)?;
        parties.push(Party::Requester(requester.spread_over(spread as u64)));
    }
    for _ in 0..responders {
        let connection = Connection::open(&load.server, service.as_bytes())?;
        let tail = format!(" {}\r\n", load.size);
        parties.push(Party::Responder(Responder { connection, tail }));
    }
    let (measured, latencies) = Asking::new(&load, parties, per_second)?.measure(&load)?;
    let more = [
        ("connections", connections.to_string()),
        ("window", window.to_string()),
        ("responders", responders.to_string()),
        ("latency_us", latencies.json()),
    ];
    Ok(measured.json("request", &load, &more))
}

impl Client for Party {
    fn connection(&mut self) -> &mut Connection {
        match self {
            Self::Requester(requester) => requester.connection(),
            Self::Responder(responder) => &mut responder.connection,
        }
    }

    fn has_room(&self) -> bool {
        match self {
            Self::Requester(requester) => requester.has_room(),
            Self::Responder(_) => false,
        }
    }

    fn ask(&mut self, number: u64, due: Instant) {
        if let Self::Requester(requester) = self {
            requester.ask(number, due);
        }
    }

    fn receive(&mut self, chunk: &mut Chunk, progress: &mut Progress) -> Result<(), Failure> {
        match self {
            Self::Requester(requester) => requester.receive(chunk, progress),
            Self::Responder(responder) => responder.respond(chunk),
        }
    }
}

impl Responder {
    /// Sends every payload back.
    fn respond(&mut self, chunk: &mut Chunk) -> Result<(), Failure> {
        let Self { connection, tail } = self;
        connection.receive(chunk, |out, received| {
            let Received::Message(Message { reply, payload, .. }) = received else {
                return Err(Failure::Server("sent PONG to a responder".to_owned()));
            };
            for part in [b"PUB ", reply, tail.as_bytes(), payload, b"\r\n"] {
                out.extend_from_slice(part);
            }
            Ok(())
        })
    }
}
