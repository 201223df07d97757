//! Clients that wait: each has a connection of its own and one long poll under way, on a mailbox of
//! its own that `create` has made. First nothing happens, and what the server uses meanwhile is
//! measured; then one after the other is sent a message, and the time until it has it is taken.

use std::time::Instant;

use memchr::memmem;

use crate::arguments::Arguments;
use crate::connection::{Chunk, Connection, Received};
use crate::failure::Failure;
use crate::latency::Latencies;
use crate::load::Load;
use crate::poller::{Poller, Ready};
use crate::processor::Usage;
use crate::resp;
use crate::target::Target;
use crate::template::{TOKEN, hexadecimal};

/// Longer than any run: a poll that ends by itself would be an error.
const POLL_SECONDS: u64 = 3000;

/// What is waited for, and how a message is sent to it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Mailbox,
    JetStream,
    Redis,
}

struct Waiting {
    kind: Kind,
    clients: Vec<Connection>,
    sender: Connection,
    poller: Poller,
    chunk: Chunk,
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, TOKEN)?;
    let connections = arguments.number("connections", 1000, 1, 60_000)?;
    let wake = arguments.number("wake", connections, 1, connections)?;
    let from: String = arguments.optional("from")?.unwrap_or_default();
    let group: String = arguments.optional("group")?.unwrap_or_else(|| "workers".to_owned());
    let stream: String = arguments.optional("stream")?.unwrap_or_else(|| "bench".to_owned());
    arguments.finish()?;
    let kind = match &from[..] {
        "mailbox" => Kind::Mailbox,
        "jetstream" => Kind::JetStream,
        "redis" => Kind::Redis,
        _ => return Err(Failure::Usage(format!("--from {from:?}: no such source"))),
    };
    let mut waiting = Waiting {
        kind,
        clients: Vec::with_capacity(connections),
        sender: kind.open(&load.server, connections)?,
        poller: load.poller(connections + 1)?,
        chunk: Chunk::new(),
    };
    waiting.poller.add(&waiting.sender, connections, false)?;
    for number in 0..connections {
        let mut client = kind.open(&load.server, number)?;
        client.queue().extend_from_slice(&kind.poll(number, &group, &stream));
        if !client.flush()? {
            return Err(Failure::Server("takes no requests".to_owned()));
        }
        waiting.poller.add(&client, number, false)?;
        waiting.clients.push(client);
    }
    waiting.rest(Instant::now() + load.warmup())?;
    let meter = load.meter()?;
    waiting.rest(Instant::now() + load.duration())?;
    let idle = meter.stop()?;
    let mut latencies = Latencies::default();
    for number in 0..wake {
        waiting.wake(number, load.size, &mut latencies)?;
    }
    Ok(json(&load, &from, connections, wake, idle, latencies))
}

impl Kind {
    fn open(self, server: &Target, number: usize) -> Result<Connection, Failure> {
        match self {
            Self::Redis => Connection::open_bare(server),
            Self::Mailbox | Self::JetStream => {
                Connection::open(server, format!("SUB _INBOX.load.{number} 1\r\n").as_bytes())
            }
        }
    }

    fn poll(self, number: usize, group: &str, stream: &str) -> Vec<u8> {
        let (name, ms) = (name(number), POLL_SECONDS * 1000);
        let (subject, body) = match self {
            Self::Mailbox => (
                format!("$mq9.AI.MSG.FETCH.{name}"),
                format!(
                    "{{\"group_name\":\"{group}\",\"config\":\
                     {{\"num_msgs\":1,\"max_wait_ms\":{ms}}}}}"
                ),
            ),
            Self::JetStream => (
                format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"),
                format!("{{\"batch\":1,\"expires\":{ms}000000}}"),
            ),
            Self::Redis => {
                let words = ["XREADGROUP", "GROUP", group, "load", "BLOCK", &ms.to_string()];
                let words = [&words[..], &["COUNT", "1", "STREAMS", &name, ">"]].concat();
                return command(&words);
            }
        };
        format!("PUB {subject} _INBOX.load.{number} {}\r\n{body}\r\n", body.len()).into_bytes()
    }

    /// A message without reply where there can be none.
    fn message(self, number: usize, size: usize) -> Vec<u8> {
        let name = name(number);
        let payload = format!("{}{}", digits(number), "x".repeat(size - TOKEN));
        let subject = match self {
            Self::Mailbox => format!("$mq9.AI.MSG.SEND.{name}"),
            Self::JetStream => format!("bench.{name}"),
            Self::Redis => return command(&["XADD", &name, "*", "d", &payload]),
        };
        format!("PUB {subject} {size}\r\n{payload}\r\n").into_bytes()
    }
}

impl Waiting {
    /// Nothing may come until then but what keeps connections alive.
    fn rest(&mut self, until: Instant) -> Result<(), Failure> {
        let mut ready = Vec::new();
        while Instant::now() < until {
            self.poller.wait_until(until, &mut ready)?;
            for event in &ready {
                if self.receive(event)?.is_some() {
                    return Err(Failure::Server("answered a poll with nothing to give".to_owned()));
                }
            }
        }
        Ok(())
    }

    fn wake(
        &mut self,
        number: usize,
        size: usize,
        latencies: &mut Latencies,
    ) -> Result<(), Failure> {
        let (mut ready, mut woken) = (Vec::new(), false);
        let message = self.kind.message(number, size);
        self.sender.queue().extend_from_slice(&message);
        let sent = Instant::now();
        if !self.sender.flush()? {
            return Err(Failure::Server("takes no messages".to_owned()));
        }
        while !woken {
            self.poller.wait(&mut ready, || format!("message {number} was not delivered"))?;
            for event in &ready {
                let Some(delivery) = self.receive(event)? else { continue };
                if event.number != number
                    || memmem::find(&delivery, digits(number).as_bytes()).is_none()
                {
                    let shown = String::from_utf8_lossy(&delivery[..delivery.len().min(200)]);
                    let problem = format!("delivered {shown:?} for message {number}");
                    return Err(Failure::Server(problem));
                }
                latencies.since(sent);
                woken = true;
            }
        }
        Ok(())
    }

    /// What a client was delivered, if it was.
    fn receive(&mut self, event: &Ready) -> Result<Option<Vec<u8>>, Failure> {
        let Self { kind, clients, sender, chunk, .. } = self;
        let mut delivered = None;
        let client = clients.get_mut(event.number);
        let is_sender = client.is_none();
        let connection = client.unwrap_or(sender);
        match kind {
            Kind::Redis => connection.receive_bytes(chunk, |_, input| {
                let Some(used) = resp::whole(input)? else { return Ok(None) };
                delivered = (!is_sender).then(|| input[..used].to_vec());
                Ok(Some(used))
            })?,
            Kind::Mailbox | Kind::JetStream => connection.receive(chunk, |_, received| {
                if let Received::Message(message) = received {
                    delivered = Some([message.headers, message.payload].concat());
                }
                Ok(())
            })?,
        }
        connection.flush()?;
        Ok(delivered)
    }
}

fn name(number: usize) -> String {
    format!("m{}", digits(number))
}

fn digits(number: usize) -> String {
    String::from_utf8_lossy(&hexadecimal(number as u64)).into_owned()
}

fn command(words: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    resp::command(&words)
}

fn json(
    load: &Load,
    from: &str,
    connections: usize,
    wake: usize,
    idle: Usage,
    latencies: Latencies,
) -> String {
    let share = |time: std::time::Duration| time.as_secs_f64() / idle.elapsed.as_secs_f64();
    let server =
        idle.server.map_or_else(|| "null".to_owned(), |time| format!("{:.5}", share(time)));
    format!(
        "{{\"scenario\":\"wait\",\"size\":{},\"from\":{from:?},\"connections\":{connections},\
         \"messages\":{wake},\"seconds\":{:.6},\"generator_cores\":{:.5},\"server_cores\":{server},\
         \"latency_us\":{}}}",
        load.size,
        idle.elapsed.as_secs_f64(),
        share(idle.generator),
        latencies.json(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_and_its_message_name_the_same_mailbox() {
        for kind in [Kind::Mailbox, Kind::JetStream, Kind::Redis] {
            for bytes in [kind.poll(258, "g", "s"), kind.message(258, 16)] {
                let text = String::from_utf8(bytes).unwrap();
                assert!(text.contains("m000000000102"), "{text}");
            }
        }
        let message = Kind::JetStream.message(1, 14);
        assert_eq!(message, b"PUB bench.m000000000001 14\r\n000000000001xx\r\n");
    }
}
