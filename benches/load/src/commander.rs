//! A client that gives a Redis server the same command over and over, with another number each time.

use std::collections::VecDeque;
use std::time::Instant;

use crate::asking::{Client, Progress};
use crate::connection::{Chunk, Connection};
use crate::failure::Failure;
use crate::resp::{self, Token};
use crate::target::Target;
use crate::template::{TOKEN, hexadecimal, places};

/// Which answers are right.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// Names of entries of a stream, each above the one before.
    Entry,
    /// `OK`.
    Ok,
}

/// A connection with a window of commands under way.
#[derive(Debug)]
pub struct Commander {
    connection: Connection,
    command: Command,
    window: usize,
    /// When each command that is not answered was due; answers come in this order.
    due: VecDeque<Instant>,
    answer: Answer,
    /// The entry that was answered last: milliseconds and number.
    last: (u64, u64),
}

#[derive(Debug)]
struct Command {
    bytes: Vec<u8>,
    numbers: Vec<usize>,
}

impl Command {
    fn new(words: &[&str]) -> Self {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let bytes = resp::command(&words);
        Self { numbers: places(&bytes), bytes }
    }

    fn with(&mut self, number: u64) -> &[u8] {
        for &at in &self.numbers {
            self.bytes[at..][..TOKEN].copy_from_slice(&hexadecimal(number));
        }
        &self.bytes
    }
}

impl Commander {
    /// Gives the command of these words, in which its number may stand.
    pub fn open(
        server: &Target,
        words: &[&str],
        answer: Answer,
        window: usize,
    ) -> Result<Self, Failure> {
        let connection = Connection::open_bare(server)?;
        let due = VecDeque::with_capacity(window);
        Ok(Self { connection, command: Command::new(words), window, due, answer, last: (0, 0) })
    }
}

impl Client for Commander {
    fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    fn has_room(&self) -> bool {
        self.due.len() < self.window
    }

    fn ask(&mut self, number: u64, due: Instant) {
        self.due.push_back(due);
        self.connection.queue().extend_from_slice(self.command.with(number));
    }

    fn receive(&mut self, chunk: &mut Chunk, progress: &mut Progress) -> Result<(), Failure> {
        let Self { connection, due, answer, last, .. } = self;
        connection.receive_bytes(chunk, |_, input| {
            let Some((token, used)) = resp::first(input)? else { return Ok(None) };
            let wrong = || Failure::Server(format!("answered with {token:?}"));
            match (*answer, &token) {
                (Answer::Ok, Token::Simple(b"OK")) => {}
                (Answer::Entry, Token::Bulk(id)) => {
                    let id = entry(id).filter(|id| id > last).ok_or_else(wrong)?;
                    *last = id;
                }
                _ => return Err(wrong()),
            }
            progress.answered(due.pop_front().ok_or_else(wrong)?);
            Ok(Some(used))
        })
    }
}

/// The two numbers of an entry's name, by which entries ascend.
fn entry(id: &[u8]) -> Option<(u64, u64)> {
    let (time, number) = std::str::from_utf8(id).ok()?.split_once('-')?;
    Some((time.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{NUMBER, body};

    #[test]
    fn the_number_stands_wherever_it_belongs() {
        let mut command = Command::new(&["XADD", "s", "*", "d", &body(13)]);
        assert!(command.with(10).ends_with(b"$1\r\nd\r\n$13\r\n00000000000ax\r\n"));
        let mut command = Command::new(&["XGROUP", &format!("m{NUMBER}")]);
        assert_eq!(command.with(255), b"*2\r\n$6\r\nXGROUP\r\n$13\r\nm0000000000ff\r\n");
    }

    #[test]
    fn entries_ascend_by_time_and_number() {
        assert!(entry(b"10-2") > entry(b"9-11") && entry(b"9-11") > entry(b"9-2"));
        assert_eq!(entry(b"9"), None);
    }
}
