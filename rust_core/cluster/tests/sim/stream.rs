//! The stream, modelled: messages in order, ids remembered, and an expectation that must be met.

use std::collections::HashMap;

use mq9_cluster::{Answer, Found};

/// What three servers keep together, seen from outside.
pub struct Stream {
    messages: Vec<Vec<u8>>,
    /// The oldest message that is there.
    first: u64,
    /// Where and when a message came under each id.
    ids: HashMap<String, (u64, u64)>,
    /// How long ids are remembered.
    memory_ms: u64,
}

impl Stream {
    pub fn new(memory_ms: u64) -> Stream {
        Stream { messages: Vec::new(), first: 1, ids: HashMap::new(), memory_ms }
    }

    pub fn last(&self) -> u64 {
        self.messages.len() as u64
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    pub fn message(&self, sequence: u64) -> Option<&[u8]> {
        if sequence < self.first {
            return None;
        }
        let index = usize::try_from(sequence.checked_sub(1)?).ok()?;
        self.messages.get(index).map(Vec::as_slice)
    }

    pub fn append(&mut self, id: &str, expected: Option<u64>, message: &[u8], now: u64) -> Answer {
        if let Some(&(sequence, at)) = self.ids.get(id)
            && now < at + self.memory_ms
        {
            return Answer::Stored { sequence };
        }
        if expected.is_some_and(|expected| expected != self.last()) {
            return Answer::WrongLast;
        }
        self.messages.push(message.to_vec());
        self.ids.insert(id.to_owned(), (self.last(), now));
        Answer::Stored { sequence: self.last() }
    }

    pub fn look_up(&self, sequence: u64) -> Found {
        match self.message(sequence) {
            Some(message) => Found::Message(message.to_vec()),
            None => Found::Nothing { first: self.first, last: self.last() },
        }
    }

    /// Removes what lies before `sequence`; how many messages that were.
    pub fn purge(&mut self, sequence: u64) -> u64 {
        let first = self.first.max(sequence.min(self.last() + 1));
        first - std::mem::replace(&mut self.first, first)
    }

    /// Loses the newest messages, which must never happen.
    pub fn forget(&mut self, count: usize) {
        self.messages.truncate(self.messages.len().saturating_sub(count));
        let last = self.last();
        self.ids.retain(|_, (sequence, _)| *sequence <= last);
    }
}
