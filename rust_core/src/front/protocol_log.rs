//! The log of the protocol: what clients say and are told, line by line, while somebody wants it.
//!
//! Payloads and headers are not logged, nor is `CONNECT`, which holds secrets: whoever decides on it may.

use super::{ConnId, Event, Front};
use crate::nats::Command;

/// A line of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct ProtocolLine {
    /// The connection.
    pub cid: u64,
    /// `<<- [PUB a 5]` for what a client says, `->> [MSG a 1 5]` for what it is told.
    pub text: Box<[u8]>,
}

impl ProtocolLine {
    /// What a client is told; the line may have its end.
    pub(super) fn told(cid: u64, line: &[u8]) -> Self {
        Self { cid, text: [b"->> [", line.trim_ascii_end(), b"]"].concat().into() }
    }
}

impl Front {
    /// Whether lines of the protocol become events.
    pub fn log_protocol(&mut self, wanted: bool) {
        self.logging = wanted;
    }

    #[cold]
    pub(super) fn log_said(&mut self, id: ConnId, command: &Command<'_>, line: &[u8]) {
        let line = line.trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (name, arguments) = line.split_at(end);
        let mut text = [b"<<- [", &*name.to_ascii_uppercase()].concat();
        match command {
            Command::Publish(_) | Command::Subscribe { .. } | Command::Unsubscribe { .. } => {
                text.push(b' ');
                text.extend_from_slice(arguments.trim_ascii_start());
            }
            Command::Ping | Command::Pong => {}
            Command::Connect(_) | Command::Info(_) | Command::Ok | Command::Err => return,
        }
        text.push(b']');
        if let Some(cid) = self.cid(id) {
            self.log_line(ProtocolLine { cid, text: text.into() });
        }
    }

    #[cold]
    pub(super) fn log_told(&mut self, id: ConnId, line: &[u8]) {
        if let Some(cid) = self.cid(id)
            && !line.starts_with(b"INFO ")
        {
            self.log_line(ProtocolLine::told(cid, line));
        }
    }

    pub(super) fn log_line(&mut self, line: ProtocolLine) {
        self.events.push_back(Event::Line(Box::new(line)));
    }
}
