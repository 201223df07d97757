//! A client that makes requests over NATS. As with real clients its inbox is one wildcard
//! subscription, and every request has its own reply subject.

use std::time::Instant;

use crate::asking::{Client, Progress};
use crate::connection::{Chunk, Connection, Received};
use crate::failure::Failure;
use crate::frame::Message;
use crate::target::Target;
use crate::template::{TOKEN, Template, hexadecimal};

/// What is asked, and which answer is right.
#[derive(Debug)]
pub struct Question<'a> {
    /// Where to.
    pub subject: &'a str,
    /// The payload.
    pub body: &'a str,
    /// One digit for each priority.
    pub priorities: &'a [u8],
    /// How many subjects there are, where the number stands in the subject.
    pub subjects: Option<u64>,
    /// How the answer of the server itself begins; a responder sends back what it got.
    pub expected: Option<&'a str>,
}

/// One request at a time.
#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u32,
    due: Instant,
    waiting: bool,
}

/// A connection with some slots.
#[derive(Debug)]
pub struct Requester {
    connection: Connection,
    template: Template,
    slots: Vec<Slot>,
    free: Vec<usize>,
    expected: Option<Vec<u8>>,
    spread: u64,
}

impl Requester {
    /// The connection with this number, for `window` requests under way.
    pub fn open(
        server: &Target,
        question: &Question<'_>,
        number: usize,
        window: usize,
    ) -> Result<Self, Failure> {
        let inbox = format!("_INBOX.load{number:018}");
        let connection = Connection::open(server, format!("SUB {inbox}.* 1\r\n").as_bytes())?;
        let Question { subject, body, priorities, subjects, expected } = question;
        let template = Template::new(subject, &inbox, body, priorities);
        Ok(Self {
            connection,
            template: template.with_subjects(subjects.unwrap_or(u64::MAX)),
            slots: vec![Slot { number: 0, due: Instant::now(), waiting: false }; window],
            free: (0..window).rev().collect(),
            expected: expected.map(|text| text.as_bytes().to_vec()),
            spread: u64::MAX,
        })
    }

    /// The number that a request carries goes round: it stays below `count`.
    pub fn spread_over(self, count: u64) -> Self {
        Self { spread: count, ..self }
    }
}

impl Client for Requester {
    fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    fn ask(&mut self, number: u64, due: Instant) {
        let Some(at) = self.free.pop() else { return };
        let slot = &mut self.slots[at];
        *slot = Slot { number: slot.number.wrapping_add(1), due, waiting: true };
        let name = token(at, slot.number);
        // Whoever reads what the server has kept can tell by the number whether all of it is there;
        // a responder sends the name back.
        let content =
            if self.expected.is_some() { hexadecimal(number % self.spread) } else { name };
        self.connection.queue().extend_from_slice(self.template.with(name, number, content));
    }

    fn receive(&mut self, chunk: &mut Chunk, progress: &mut Progress) -> Result<(), Failure> {
        let Self { connection, slots, free, expected, .. } = self;
        connection.receive(chunk, |_, received| {
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
            let at = slot_of(name).ok_or_else(wrong)?;
            let slot = slots.get_mut(at).ok_or_else(wrong)?;
            let expected = expected.as_deref().unwrap_or(name);
            if !slot.waiting || token(at, slot.number) != *name || !payload.starts_with(expected) {
                return Err(wrong());
            }
            slot.waiting = false;
            free.push(at);
            progress.answered(slot.due);
            Ok(())
        })
    }
}

fn token(slot: usize, number: u32) -> [u8; TOKEN] {
    hexadecimal((slot as u64) << 32 | u64::from(number))
}

fn slot_of(token: &[u8]) -> Option<usize> {
    usize::from_str_radix(std::str::from_utf8(token.get(..4)?).ok()?, 16).ok()
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
}
