//! A consumer of a group of a Redis stream. It has to name every entry that it acknowledges.

use super::{Order, Source, Step};
use crate::connection::{Chunk, Connection};
use crate::failure::Failure;
use crate::resp::{self, Token};

/// A consumer of a group.
#[derive(Debug)]
pub struct Group {
    read: Vec<u8>,
    /// The words of `XACK` before the entries.
    ack: Vec<u8>,
    /// The entries of the batch, as words of a command.
    entries: Vec<u8>,
    taken: usize,
    acknowledging: bool,
}

impl Group {
    /// The group exists.
    pub fn new(stream: &str, group: &str, batch: usize) -> Self {
        let (stream, group) = (stream.as_bytes(), group.as_bytes());
        let count = batch.to_string();
        let read: [&[u8]; 9] = [
            b"XREADGROUP",
            b"GROUP",
            group,
            b"load",
            b"COUNT",
            count.as_bytes(),
            b"STREAMS",
            stream,
            b">",
        ];
        let mut ack = Vec::new();
        for word in [b"XACK", stream, group] {
            resp::bulk(&mut ack, word);
        }
        let read = resp::command(&read);
        Self { read, ack, entries: Vec::new(), taken: 0, acknowledging: false }
    }

    /// `[[stream, [[entry, [field, payload]], ...]]]`
    fn entries(&mut self, reply: &[u8], order: &mut Order) -> Result<(), Failure> {
        let mut rest = reply;
        let mut token = || -> Result<Token<'_>, Failure> {
            let incomplete = || Failure::Server("answered XREADGROUP with less".to_owned());
            let (token, used) = resp::first(rest)?.ok_or_else(incomplete)?;
            rest = &rest[used..];
            Ok(token)
        };
        let wrong = |token: &Token<'_>| {
            Failure::Server(format!("answered XREADGROUP with {token:?} in the wrong place"))
        };
        let start = [token()?, token()?, token()?, token()?];
        let [Token::Array(1), Token::Array(2), Token::Bulk(_), Token::Array(count @ 1..)] = start
        else {
            return Err(wrong(&start[0]));
        };
        for _ in 0..count {
            match [token()?, token()?, token()?, token()?, token()?] {
                [
                    Token::Array(2),
                    Token::Bulk(entry),
                    Token::Array(2),
                    Token::Bulk(_),
                    Token::Bulk(payload),
                ] => {
                    order.take(payload)?;
                    resp::bulk(&mut self.entries, entry);
                }
                [first, ..] => return Err(wrong(&first)),
            }
        }
        self.taken = count;
        Ok(())
    }
}

impl Source for Group {
    fn fetch(&mut self, out: &mut Vec<u8>) {
        self.acknowledging = false;
        self.entries.clear();
        out.extend_from_slice(&self.read);
    }

    fn acknowledge(&mut self, out: &mut Vec<u8>) {
        self.acknowledging = true;
        out.extend_from_slice(format!("*{}\r\n", self.taken + 3).as_bytes());
        out.extend_from_slice(&self.ack);
        out.extend_from_slice(&self.entries);
    }

    fn receive(
        &mut self,
        connection: &mut Connection,
        chunk: &mut Chunk,
        order: &mut Order,
    ) -> Result<Step, Failure> {
        let mut step = Step::Waiting;
        connection.receive_bytes(chunk, |_, input| {
            let Some(used) = resp::whole(input)? else { return Ok(None) };
            if self.acknowledging {
                let reply = resp::first(input)?.map(|(token, _)| token);
                if reply != Some(Token::Number(self.taken as i64)) {
                    return Err(Failure::Server(format!("answered XACK with {reply:?}")));
                }
                step = Step::Acknowledged;
            } else {
                self.entries(&input[..used], order)?;
                step = Step::Batch;
            }
            Ok(Some(used))
        })?;
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_a_batch_is_acknowledged() {
        let (mut group, mut order) =
            (Group::new("s", "g", 2), Order { next: 0, stored: 2, priorities: 1 });
        let reply = b"*1\r\n*2\r\n$1\r\ns\r\n*2\r\n\
            *2\r\n$3\r\n5-0\r\n*2\r\n$1\r\nd\r\n$12\r\n000000000000\r\n\
            *2\r\n$3\r\n5-1\r\n*2\r\n$1\r\nd\r\n$12\r\n000000000001\r\n";
        group.entries(reply, &mut order).unwrap();
        assert_eq!(order.next, 2);
        let mut out = Vec::new();
        group.acknowledge(&mut out);
        assert_eq!(out, resp::command(&[b"XACK", b"s", b"g", b"5-0", b"5-1"]));
        assert!(group.entries(b"*-1\r\n", &mut order).is_err());
    }
}
