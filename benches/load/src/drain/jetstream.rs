//! A pull consumer of a JetStream stream: it acknowledges a batch by its last message, or every
//! message of it. Only the last acknowledgement asks for a reply.

use super::{INBOX, Order, Source, Step};
use crate::connection::{Chunk, Connection, Received};
use crate::failure::Failure;

const ACKNOWLEDGED: &str = "_INBOX.load.acknowledged";

/// A consumer that takes batches.
#[derive(Debug)]
pub struct Pull {
    next: Vec<u8>,
    batch: usize,
    each: bool,
    taken: usize,
    /// Where the messages of the batch are acknowledged, of which the last one is kept as it is.
    acks: Vec<u8>,
    last: Vec<u8>,
}

impl Pull {
    /// With `ack_policy: explicit` each message has to be acknowledged, with `all` the last.
    pub fn new(stream: &str, consumer: &str, batch: usize, each: bool) -> Self {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        let body = format!("{{\"batch\":{batch},\"expires\":5000000000}}");
        let size = body.len();
        let next = format!("PUB {subject} {INBOX}.fetched {size}\r\n{body}\r\n").into_bytes();
        Self { next, batch, each, taken: 0, acks: Vec::new(), last: Vec::new() }
    }
}

impl Source for Pull {
    fn fetch(&mut self, out: &mut Vec<u8>) {
        self.taken = 0;
        self.acks.clear();
        out.extend_from_slice(&self.next);
    }

    fn acknowledge(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.acks);
        for part in [b"PUB ", &self.last[..], b" ", ACKNOWLEDGED.as_bytes(), b" 4\r\n+ACK\r\n"] {
            out.extend_from_slice(part);
        }
    }

    fn receive(
        &mut self,
        connection: &mut Connection,
        chunk: &mut Chunk,
        order: &mut Order,
    ) -> Result<Step, Failure> {
        let mut step = Step::Waiting;
        connection.receive(chunk, |_, received| {
            let Received::Message(message) = received else {
                return Err(Failure::Server("sent PONG to a worker".to_owned()));
            };
            if message.subject == ACKNOWLEDGED.as_bytes() {
                if !message.payload.is_empty() || !message.headers.is_empty() {
                    return Err(Failure::Server(format!("answered +ACK with {message:?}")));
                }
                step = Step::Acknowledged;
                return Ok(());
            }
            if message.reply.is_empty() {
                let status = String::from_utf8_lossy(message.headers);
                return Err(Failure::Server(format!("answered MSG.NEXT with {status:?}")));
            }
            order.take(message.payload)?;
            if self.each && self.taken > 0 {
                for part in [b"PUB ", &self.last[..], b" 4\r\n+ACK\r\n"] {
                    self.acks.extend_from_slice(part);
                }
            }
            self.last.clear();
            self.last.extend_from_slice(message.reply);
            self.taken += 1;
            if self.taken == self.batch {
                step = Step::Batch;
            }
            Ok(())
        })?;
        Ok(step)
    }
}
