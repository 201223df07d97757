//! How each server is subscribed to, what it pushes, and what it wants to hear of it.

use memchr::memmem;

use crate::connection::{Chunk, Connection, Received};
use crate::failure::Failure;
use crate::resp::{self, Token};
use crate::target::Target;
use crate::template::{TOKEN, hexadecimal};

/// Entries of Redis at once: as many as fit into what connections read.
const ENTRIES: &str = "500";

/// A way to be pushed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `MAILBOX.MSG`: everything, from the beginning.
    Mailbox,
    /// `INBOX`: what was not read, once.
    Inbox,
    /// An ordered consumer of JetStream: no acknowledgements, flow control, heartbeats.
    Ordered,
    /// A push consumer of JetStream, each message acknowledged.
    Push,
    /// `XREAD BLOCK`.
    Redis,
    /// `XREADGROUP BLOCK`, each entry acknowledged; a group for each subscriber.
    RedisGroup,
}

/// One subscription.
#[derive(Debug)]
pub struct Source {
    kind: Kind,
    name: String,
    number: usize,
    next: u64,
    /// Of Redis: what was read last.
    last: Vec<u8>,
    /// Of a group: what it has not acknowledged.
    unacknowledged: Vec<Vec<u8>>,
}

impl Kind {
    /// The option `--from`.
    pub fn parse(from: &str) -> Result<Self, Failure> {
        Ok(match from {
            "mailbox" => Self::Mailbox,
            "inbox" => Self::Inbox,
            "jetstream-ordered" => Self::Ordered,
            "jetstream-push" => Self::Push,
            "redis" => Self::Redis,
            "redis-group" => Self::RedisGroup,
            _ => return Err(Failure::Usage(format!("--from {from:?}: no such source"))),
        })
    }

    fn is_redis(self) -> bool {
        matches!(self, Self::Redis | Self::RedisGroup)
    }

    /// The connection that sends.
    pub fn sender(self, server: &Target) -> Result<Connection, Failure> {
        match self {
            Self::Redis | Self::RedisGroup => Connection::open_bare(server),
            _ => Connection::open(server, b""),
        }
    }

    /// Appends a message with its number; nothing is answered where that can be.
    pub fn message(self, out: &mut Vec<u8>, name: &str, number: u64, size: usize) {
        let mut payload = hexadecimal(number).to_vec();
        payload.resize(size, b'x');
        let subject = match self {
            Self::Mailbox => format!("$mq9.AI.MAILBOX.MSG.{name}"),
            Self::Inbox => format!("$mq9.AI.INBOX.{name}.normal"),
            Self::Ordered | Self::Push => format!("{name}.in"),
            Self::Redis | Self::RedisGroup => {
                let words: [&[u8]; 5] = [b"XADD", name.as_bytes(), b"*", b"d", &payload];
                out.extend_from_slice(&resp::command(&words));
                return;
            }
        };
        out.extend_from_slice(format!("PUB {subject} {size}\r\n").as_bytes());
        out.extend_from_slice(&payload);
        out.extend_from_slice(b"\r\n");
    }

    /// What the sender hears: pings, and answers of Redis.
    pub fn receive_answer(self, sender: &mut Connection, chunk: &mut Chunk) -> Result<(), Failure> {
        match self {
            Self::Redis | Self::RedisGroup => {
                sender.receive_bytes(chunk, |_, input| resp::whole(input))?
            }
            _ => sender.receive(chunk, |_, received| {
                Err(Failure::Server(format!("sent the sender {received:?}")))
            })?,
        }
        sender.flush().map(|_| ())
    }
}

impl Source {
    /// A subscription to a mailbox or stream; the number tells it from others.
    pub fn new(kind: Kind, name: &str, number: usize) -> Self {
        let (name, last) = (name.to_owned(), b"0".to_vec());
        Self { kind, name, number, next: 0, last, unacknowledged: Vec::new() }
    }

    /// The number of the message that comes next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Its connection, not subscribed yet.
    pub fn open(&self, server: &Target) -> Result<Connection, Failure> {
        match self.kind {
            Kind::Redis | Kind::RedisGroup => Connection::open_bare(server),
            Kind::Mailbox | Kind::Inbox => Connection::open(server, b""),
            Kind::Ordered | Kind::Push => {
                let number = self.number;
                let setup = format!("SUB _D.{number} 1\r\nSUB _INBOX.{number} 2\r\n");
                Connection::open(server, setup.as_bytes())
            }
        }
    }

    /// Appends what begins it.
    pub fn subscribe(&self, out: &mut Vec<u8>) {
        let Self { name, number, .. } = self;
        let policy = match self.kind {
            Kind::Mailbox => {
                out.extend_from_slice(format!("SUB $mq9.AI.MAILBOX.MSG.{name}.* 1\r\n").as_bytes());
                return;
            }
            Kind::Inbox => {
                out.extend_from_slice(format!("SUB $mq9.AI.INBOX.{name}.* 1\r\n").as_bytes());
                return;
            }
            Kind::Redis => return self.read_on(out),
            Kind::RedisGroup => {
                let group = self.group();
                let words: [&[u8]; 6] =
                    [b"XGROUP", b"CREATE", name.as_bytes(), group.as_bytes(), b"0", b"MKSTREAM"];
                out.extend_from_slice(&resp::command(&words));
                return self.read_on(out);
            }
            // What clients ask for.
            Kind::Ordered => "\"ack_policy\":\"none\",\"max_deliver\":1,\"mem_storage\":true",
            Kind::Push => "\"ack_policy\":\"explicit\"",
        };
        let body = format!(
            "{{\"stream_name\":\"{name}\",\"config\":{{\"deliver_subject\":\"_D.{number}\",\
             \"deliver_policy\":\"all\",\"flow_control\":true,\"idle_heartbeat\":5000000000,\
             \"num_replicas\":1,{policy}}}}}"
        );
        let subject = format!("$JS.API.CONSUMER.CREATE.{name} _INBOX.{number}");
        out.extend_from_slice(format!("PUB {subject} {}\r\n{body}\r\n", body.len()).as_bytes());
    }

    /// Reads what has arrived; `on` is told the number of each message, and of the next.
    pub fn receive(
        &mut self,
        connection: &mut Connection,
        chunk: &mut Chunk,
        on: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Failure> {
        if self.kind.is_redis() {
            return connection.receive_bytes(chunk, |out, input| {
                let Some(used) = resp::whole(input)? else { return Ok(None) };
                // What else comes tells that the group is made, and how many it has acknowledged.
                if let Some((Token::Array(_), _)) = resp::first(input)? {
                    self.entries(&input[..used], on)?;
                    self.acknowledge(out);
                    self.read_on(out);
                }
                Ok(Some(used))
            });
        }
        connection.receive(chunk, |out, received| {
            let Received::Message(message) = received else { return Ok(()) };
            if message.headers.starts_with(b"NATS/1.0 100") {
                // Flow control, or a heartbeat that names where it stands still.
                let stalled = memmem::find(message.headers, b"Nats-Consumer-Stalled: ");
                let stalled = stalled.map(|at| &message.headers[at + 23..]);
                let named = stalled.and_then(|rest| rest.split(|&byte| byte == b'\r').next());
                for subject in [Some(message.reply), named].into_iter().flatten() {
                    publish(out, subject, b"");
                }
                return Ok(());
            }
            if message.subject.starts_with(b"_INBOX.") {
                if memmem::find(message.payload, b"\"error\"").is_some() {
                    let text = String::from_utf8_lossy(message.payload);
                    return Err(Failure::Server(format!("makes no consumer: {text}")));
                }
                return Ok(());
            }
            self.take(message.payload, on)?;
            if self.kind == Kind::Push {
                publish(out, message.reply, b"+ACK");
            }
            Ok(())
        })
    }

    fn take(&mut self, payload: &[u8], on: &mut dyn FnMut(u64, u64)) -> Result<(), Failure> {
        let expected = hexadecimal(self.next);
        if !payload.starts_with(&expected) {
            let shown = String::from_utf8_lossy(&payload[..payload.len().min(TOKEN)]);
            let expected = String::from_utf8_lossy(&expected);
            let problem = format!("pushed message {shown:?} where {expected:?} is next");
            return Err(Failure::Server(problem));
        }
        self.next += 1;
        on(self.next - 1, self.next);
        Ok(())
    }

    /// `[[stream, [[entry, [field, payload]], ...]]]`
    fn entries(&mut self, reply: &[u8], on: &mut dyn FnMut(u64, u64)) -> Result<(), Failure> {
        let (mut rest, mut bulks) = (reply, 0);
        // The name of the stream, then entry, field and payload of each.
        while let Some((token, used)) =
            (!rest.is_empty()).then(|| resp::first(rest)).transpose()?.flatten()
        {
            rest = &rest[used..];
            let Token::Bulk(text) = token else { continue };
            match bulks {
                0 => {}
                _ if bulks % 3 == 1 && self.kind == Kind::RedisGroup => {
                    self.unacknowledged.push(text.to_vec());
                }
                _ if bulks % 3 == 1 => text.clone_into(&mut self.last),
                _ if bulks % 3 == 0 => self.take(text, on)?,
                _ => {}
            }
            bulks += 1;
        }
        Ok(())
    }

    fn group(&self) -> String {
        format!("g{}", self.number)
    }

    fn acknowledge(&mut self, out: &mut Vec<u8>) {
        if self.unacknowledged.is_empty() {
            return;
        }
        let group = self.group();
        let mut words: Vec<&[u8]> = vec![b"XACK", self.name.as_bytes(), group.as_bytes()];
        words.extend(self.unacknowledged.iter().map(|entry| &entry[..]));
        out.extend_from_slice(&resp::command(&words));
        self.unacknowledged.clear();
    }

    fn read_on(&self, out: &mut Vec<u8>) {
        let name = self.name.as_bytes();
        if self.kind == Kind::RedisGroup {
            let (group, count) = (self.group(), ENTRIES.as_bytes());
            let of_group: [&[u8]; 4] = [b"XREADGROUP", b"GROUP", group.as_bytes(), b"c"];
            let rest: [&[u8]; 7] = [b"COUNT", count, b"BLOCK", b"0", b"STREAMS", name, b">"];
            let words: Vec<&[u8]> = of_group.into_iter().chain(rest).collect();
            out.extend_from_slice(&resp::command(&words));
            return;
        }
        let words: [&[u8]; 8] =
            [b"XREAD", b"COUNT", ENTRIES.as_bytes(), b"BLOCK", b"0", b"STREAMS", name, &self.last];
        out.extend_from_slice(&resp::command(&words));
    }
}

fn publish(out: &mut Vec<u8>, subject: &[u8], payload: &[u8]) {
    if !subject.is_empty() {
        out.extend_from_slice(b"PUB ");
        out.extend_from_slice(subject);
        out.extend_from_slice(format!(" {}\r\n", payload.len()).as_bytes());
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_once_and_in_order() {
        let mut source = Source::new(Kind::Mailbox, "bench", 0);
        let mut seen = Vec::new();
        let mut on = |number, next| seen.push((number, next));
        source.take(b"000000000000xxx", &mut on).unwrap();
        source.take(b"000000000001", &mut on).unwrap();
        for wrong in [&b"000000000001"[..], b"000000000003", b"0"] {
            let error = source.take(wrong, &mut on).unwrap_err().to_string();
            assert!(error.contains("\"000000000002\" is next"), "{error}");
        }
        assert_eq!(seen, [(0, 1), (1, 2)]);
    }

    #[test]
    fn a_group_of_redis_acknowledges_what_it_was_given() {
        let mut source = Source::new(Kind::RedisGroup, "bench", 7);
        let reply = b"*1\r\n*2\r\n$5\r\nbench\r\n*1\r\n\
            *2\r\n$3\r\n7-0\r\n*2\r\n$1\r\nd\r\n$12\r\n000000000000\r\n";
        source.entries(reply, &mut |_, _| ()).unwrap();
        let mut out = Vec::new();
        source.acknowledge(&mut out);
        assert!(out.ends_with(b"$5\r\nbench\r\n$2\r\ng7\r\n$3\r\n7-0\r\n"));
        out.clear();
        source.acknowledge(&mut out);
        assert_eq!(out, b"");
    }

    #[test]
    fn entries_of_redis_are_read_on_behind_the_last() {
        let mut source = Source::new(Kind::Redis, "bench", 0);
        let reply = b"*1\r\n*2\r\n$5\r\nbench\r\n*2\r\n\
            *2\r\n$3\r\n7-0\r\n*2\r\n$1\r\nd\r\n$12\r\n000000000000\r\n\
            *2\r\n$3\r\n7-1\r\n*2\r\n$1\r\nd\r\n$12\r\n000000000001\r\n";
        source.entries(reply, &mut |_, _| ()).unwrap();
        assert_eq!((source.next(), &source.last[..]), (2, &b"7-1"[..]));
        let mut out = Vec::new();
        source.read_on(&mut out);
        assert!(out.ends_with(b"$5\r\nbench\r\n$3\r\n7-1\r\n"));
    }
}
