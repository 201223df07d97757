//! FETCH and ACK of an mq9 mailbox, in either format.

use memchr::memmem::Finder;

use super::{INBOX, Order, Source, Step};
use crate::connection::{Chunk, Connection, Received};
use crate::failure::Failure;
use crate::frame::Message;

const ACKNOWLEDGED: &str = "_INBOX.load.acknowledged";

/// A worker of a group.
#[derive(Debug)]
pub struct Mailbox {
    fetch: Vec<u8>,
    /// The ACK up to the payload's size.
    ack: String,
    /// The payload up to the `msg_id`.
    ack_body: String,
    raw: bool,
    /// The `msg_id` of the message that came last.
    last: Vec<u8>,
    payload: Finder<'static>,
}

impl Mailbox {
    /// A batch is one JSON document, or with `raw` many NATS messages.
    pub fn new(name: &str, group: &str, batch: usize, raw: bool) -> Self {
        let format = if raw { "raw" } else { "json" };
        let body = format!(
            "{{\"group_name\":\"{group}\",\"deliver\":\"earliest\",\"config\":{{\
             \"num_msgs\":{batch},\"max_wait_ms\":5000,\"format\":\"{format}\"}}}}"
        );
        let length = body.len();
        Self {
            fetch: format!("PUB $mq9.AI.MSG.FETCH.{name} {INBOX}.fetched {length}\r\n{body}\r\n")
                .into_bytes(),
            ack: format!("PUB $mq9.AI.MSG.ACK.{name} {ACKNOWLEDGED} "),
            ack_body: format!("{{\"group_name\":\"{group}\",\"msg_id\":"),
            raw,
            last: Vec::new(),
            payload: Finder::new(b"\"payload\":\""),
        }
    }
}

impl Source for Mailbox {
    fn fetch(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fetch);
    }

    fn acknowledge(&mut self, out: &mut Vec<u8>) {
        let size = self.ack_body.len() + self.last.len() + 1;
        out.extend_from_slice(self.ack.as_bytes());
        out.extend_from_slice(format!("{size}\r\n{}", self.ack_body).as_bytes());
        out.extend_from_slice(&self.last);
        out.extend_from_slice(b"}\r\n");
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
                if message.payload != b"{\"error\":\"\"}" {
                    return Err(wrong("ACK", &message));
                }
                step = Step::Acknowledged;
            } else if !self.raw {
                self.entries(&message, order)?;
                step = Step::Batch;
            } else if let Some(status) = message.headers.strip_prefix(b"NATS/1.0 ") {
                if !status.starts_with(b"204") {
                    return Err(wrong("FETCH", &message));
                }
                step = Step::Batch;
            } else {
                order.take(message.payload)?;
                let id = message.headers.strip_prefix(b"NATS/1.0\r\nmq9-msg-id: ");
                self.keep_digits(id).ok_or_else(|| wrong("FETCH", &message))?;
            }
            Ok(())
        })?;
        Ok(step)
    }
}

impl Mailbox {
    /// Goes through a document. Payloads are digits and letters, so nothing in them looks like JSON.
    fn entries(&mut self, message: &Message<'_>, order: &mut Order) -> Result<(), Failure> {
        let document = message.payload;
        let mut found = None;
        for at in self.payload.find_iter(document) {
            order.take(&document[at + self.payload.needle().len()..])?;
            found = Some(at);
        }
        // `{"msg_id":7,"payload":"..."`: the last entry's `msg_id` is before its payload.
        let id = found.and_then(|at| {
            let start = memchr::memrchr(b':', &document[..at])?;
            Some(&document[start + 1..])
        });
        let id = id.filter(|_| document.starts_with(b"{\"error\":\"\",\"messages\":[{\"msg_id\":"));
        self.keep_digits(id).ok_or_else(|| wrong("FETCH", message))
    }

    fn keep_digits(&mut self, text: Option<&[u8]>) -> Option<()> {
        let text = text?;
        let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
        self.last.clear();
        self.last.extend_from_slice(&text[..end]);
        (end > 0).then_some(())
    }
}

fn wrong(command: &str, message: &Message<'_>) -> Failure {
    let shown = [message.headers, &message.payload[..message.payload.len().min(200)]].concat();
    Failure::Server(format!("answered {command} with {:?}", String::from_utf8_lossy(&shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entry_of_a_document_is_acknowledged() {
        let mut mailbox = Mailbox::new("a", "g", 2, false);
        let payload = b"{\"error\":\"\",\"messages\":[{\"msg_id\":7,\"payload\":\"000000000000x\",\
            \"create_time\":9},{\"msg_id\":18,\"payload\":\"000000000001x\",\"create_time\":9}]}";
        let message = Message { subject: b"a", reply: b"", headers: b"", payload };
        let mut order = Order { next: 0, stored: 2, priorities: 1 };
        mailbox.entries(&message, &mut order).unwrap();
        assert_eq!(order.next, 2);
        let mut out = Vec::new();
        mailbox.acknowledge(&mut out);
        let ack = "PUB $mq9.AI.MSG.ACK.a _INBOX.load.acknowledged 30\r\n\
            {\"group_name\":\"g\",\"msg_id\":18}\r\n";
        assert_eq!(out, ack.as_bytes());

        let payload = b"{\"error\":\"no\",\"messages\":[]}";
        let message = Message { subject: b"a", reply: b"", headers: b"", payload };
        assert!(mailbox.entries(&message, &mut order).is_err());
    }
}
