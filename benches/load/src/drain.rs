//! A worker that takes what is stored: a batch, one acknowledgement of all of it, the next batch.
//! The messages were stored before, each with its number; every one must come once and in order.

mod jetstream;
mod mailbox;
mod redis;

use std::time::Instant;

use jetstream::Pull;
use mailbox::Mailbox;
use redis::Group;

use crate::arguments::Arguments;
use crate::connection::{Chunk, Connection};
use crate::failure::Failure;
use crate::latency::Latencies;
use crate::load::{Limit, Load};
use crate::poller::Poller;
use crate::template::{TOKEN, hexadecimal};

/// Where the answers of NATS servers come to.
const INBOX: &str = "_INBOX.load";

/// How a server hands out messages.
trait Source {
    /// Appends the request for the next batch.
    fn fetch(&mut self, out: &mut Vec<u8>);

    /// Appends what acknowledges the batch, the last of it with a reply.
    fn acknowledge(&mut self, out: &mut Vec<u8>);

    /// Reads what has arrived; each message goes through `order`.
    fn receive(
        &mut self,
        connection: &mut Connection,
        chunk: &mut Chunk,
        order: &mut Order,
    ) -> Result<Step, Failure>;
}

/// How far the server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Something is still missing.
    Waiting,
    /// The batch is complete.
    Batch,
    /// The acknowledgement is.
    Acknowledged,
}

/// The messages so far.
#[derive(Debug)]
struct Order {
    next: u64,
    /// How many messages there are.
    stored: u64,
    /// They were stored with so many priorities in turn; all of the first come first.
    priorities: u64,
}

impl Order {
    /// A message with this payload has come.
    fn take(&mut self, payload: &[u8]) -> Result<(), Failure> {
        let expected = hexadecimal(self.number());
        if !payload.starts_with(&expected) {
            let shown = String::from_utf8_lossy(&payload[..payload.len().min(TOKEN)]);
            let expected = String::from_utf8_lossy(&expected);
            let problem = format!("delivered message {shown:?} where {expected:?} is next");
            return Err(Failure::Server(problem));
        }
        self.next += 1;
        Ok(())
    }

    /// The number that the next message was sent with.
    fn number(&self) -> u64 {
        let Self { mut next, stored, priorities } = *self;
        for priority in 0..priorities {
            let alike = stored / priorities + u64::from(priority < stored % priorities);
            if next < alike {
                return priority + priorities * next;
            }
            next -= alike;
        }
        stored
    }
}

struct Worker {
    source: Box<dyn Source>,
    connection: Connection,
    poller: Poller,
    order: Order,
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, TOKEN)?;
    let batch = arguments.number("batch", 1, 1, 1000)?;
    let stored = arguments.number("stored", 0, 1, usize::MAX)? as u64;
    let priorities = arguments.number("priorities", 1, 1, 10)? as u64;
    let kind: String = arguments.optional("from")?.unwrap_or_default();
    let name: String = arguments.optional("name")?.unwrap_or_else(|| "bench".to_owned());
    let group: String = arguments.optional("group")?.unwrap_or_else(|| "workers".to_owned());
    arguments.finish()?;
    let source: Box<dyn Source> = match &kind[..] {
        "mailbox-json" => Box::new(Mailbox::new(&name, &group, batch, false)),
        "mailbox-raw" => Box::new(Mailbox::new(&name, &group, batch, true)),
        "jetstream-all" => Box::new(Pull::new(&name, &group, batch, false)),
        "jetstream-each" => Box::new(Pull::new(&name, &group, batch, true)),
        "redis" => Box::new(Group::new(&name, &group, batch)),
        _ => return Err(Failure::Usage(format!("--from {kind:?}: no such source"))),
    };
    let connection = match &kind[..] {
        "redis" => Connection::open_bare(&load.server)?,
        _ => Connection::open(&load.server, format!("SUB {INBOX}.* 1\r\n").as_bytes())?,
    };
    let poller = load.poller(1)?;
    poller.add(&connection, 0, false)?;
    let order = Order { next: 0, stored, priorities };
    let mut worker = Worker { source, connection, poller, order };
    let mut latencies = Latencies::default();
    let measured = load.measure(|limit, counts| {
        let mut phase = Latencies::default();
        let taken = worker.phase(limit, &mut phase)?;
        if counts {
            latencies = phase;
        }
        Ok(taken)
    })?;
    let more = [
        ("from", format!("{kind:?}")),
        ("batch", batch.to_string()),
        ("stored", stored.to_string()),
        ("latency_us", latencies.json()),
    ];
    Ok(measured.json("drain", &load, &more))
}

impl Worker {
    /// Takes batches until the limit, or until nothing is left.
    fn phase(&mut self, limit: Limit, latencies: &mut Latencies) -> Result<u64, Failure> {
        let Self { source, connection, poller, order } = self;
        let stored = order.stored;
        let (mut chunk, mut ready) = (Chunk::new(), Vec::new());
        let first = order.next;
        let left = |order: &Order| order.next < stored && !limit.reached(order.next - first);
        if order.next >= stored {
            let problem = format!("the warm-up has taken all {stored} messages: store more");
            return Err(Failure::Usage(problem));
        }
        let (mut done, mut asked) = (false, Instant::now());
        source.fetch(connection.queue());
        while !done {
            if !connection.flush()? {
                return Err(Failure::Server("takes no more requests".to_owned()));
            }
            poller.wait(&mut ready, || format!("a reply after message {}", order.next))?;
            match source.receive(connection, &mut chunk, order)? {
                Step::Waiting => {}
                Step::Batch => source.acknowledge(connection.queue()),
                Step::Acknowledged => {
                    latencies.since(asked);
                    done = !left(order);
                    if !done {
                        asked = Instant::now();
                        source.fetch(connection.queue());
                    }
                }
            }
        }
        Ok(order.next - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_once_and_in_order() {
        let mut order = Order { next: 0, stored: 9, priorities: 1 };
        order.take(b"000000000000xxx").unwrap();
        order.take(b"000000000001").unwrap();
        for wrong in [&b"000000000001"[..], b"000000000003", b"0"] {
            let error = order.take(wrong).unwrap_err().to_string();
            assert!(error.contains("\"000000000002\" is next"), "{error}");
        }
    }

    #[test]
    fn priorities_come_one_after_the_other() {
        let mut order = Order { next: 0, stored: 10, priorities: 4 };
        for number in [0, 4, 8, 1, 5, 9, 2, 6, 3, 7] {
            assert_eq!(order.number(), number);
            order.take(&hexadecimal(number)).unwrap();
        }
    }
}
