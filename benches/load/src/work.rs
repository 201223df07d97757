//! Workers that take tasks as clients of JetStream do: each asks a pull consumer for a batch, acknowledges every message
//! without waiting for that, and asks for the next. They share one consumer, or take one consumer after the other,
//! each of which sees one subject. Every message must come once, and to each worker in order.

use std::time::Instant;

use crate::arguments::Arguments;
use crate::connection::{Chunk, Connection, Received};
use crate::failure::Failure;
use crate::frame::Message;
use crate::latency::Latencies;
use crate::load::{Limit, Load};
use crate::poller::Poller;
use crate::template::{TOKEN, hexadecimal};

/// A consumer, and the messages that it has.
#[derive(Debug)]
struct Consumer {
    /// Where it is asked for messages.
    next: String,
    /// So many nobody has asked for yet.
    left: u64,
    /// Its messages have this number, or one that is larger by a multiple of the number of subjects.
    subject: u64,
}

/// All that is to be taken.
#[derive(Debug)]
struct Tasks {
    consumers: Vec<Consumer>,
    subjects: u64,
    batch: u64,
    /// How many were asked for, may be asked for, and have come.
    asked: u64,
    most: u64,
    taken: u64,
    /// A bit for each number that has come.
    seen: Vec<u64>,
}

struct Worker {
    connection: Connection,
    inbox: String,
    consumer: usize,
    /// So many of the batch have not come.
    missing: u64,
    /// The next message has at least this number.
    least: u64,
    asked: Instant,
    busy: bool,
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, TOKEN)?;
    let count = arguments.number("workers", 1, 1, 1000)?;
    let batch = arguments.number("batch", 1, 1, 1000)?;
    let stored = arguments.number("stored", 0, 1, usize::MAX)? as u64;
    let first = arguments.number("first", 0, 0, usize::MAX)? as u64;
    let subjects = arguments.number("subjects", 0, 0, 1_000_000)? as u64;
    let consumers = arguments.number("consumers", 1, 1, 1_000_000)? as u64;
    let first_subject = arguments.number("first-subject", 0, 0, 1_000_000)? as u64;
    let most = arguments.number("most", usize::MAX, 1, usize::MAX)? as u64;
    let name: String = arguments.optional("name")?.unwrap_or_else(|| "bench".to_owned());
    let group: String = arguments.optional("group")?.unwrap_or_else(|| "workers".to_owned());
    arguments.finish()?;
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{name}.{group}");
    let consumers = match subjects {
        0 => vec![Consumer { next, left: stored.saturating_sub(first), subject: 0 }],
        _ => (first_subject..first_subject + consumers)
            .map(|subject| Consumer {
                next: format!("{next}-{}", String::from_utf8_lossy(&hexadecimal(subject))),
                left: stored / subjects + u64::from(subject < stored % subjects),
                subject,
            })
            .collect(),
    };
    let mut tasks = Tasks {
        consumers,
        subjects: subjects.max(1),
        batch: batch as u64,
        asked: 0,
        most: 0,
        taken: 0,
        seen: vec![0; stored.div_ceil(64) as usize],
    };
    let mut poller = load.poller(count)?;
    let mut workers = Vec::with_capacity(count);
    for number in 0..count {
        let inbox = format!("_INBOX.load{number}");
        let connection = Connection::open(&load.server, format!("SUB {inbox}.* 1\r\n").as_bytes())?;
        poller.add(&connection, number, false)?;
        let consumer = number % tasks.consumers.len();
        let asked = Instant::now();
        let least = 0;
        workers.push(Worker { connection, inbox, consumer, missing: 0, least, asked, busy: false });
    }
    let mut latencies = Latencies::default();
    let measured = load.measure(|limit, counts| {
        let mut phase = Latencies::default();
        // The warm-up leaves nearly everything.
        let most = if counts { most } else { tasks.left().div_ceil(10) };
        tasks.most = tasks.asked.saturating_add(most);
        let taken = take(&mut workers, &mut poller, &mut tasks, limit, &mut phase)?;
        if counts {
            latencies = phase;
        }
        Ok(taken)
    })?;
    let more = [
        ("workers", count.to_string()),
        ("batch", batch.to_string()),
        ("stored", stored.to_string()),
        // Where those go on that come after these workers.
        ("next", (first + tasks.taken).to_string()),
        ("latency_us", latencies.json()),
    ];
    Ok(measured.json("work", &load, &more))
}

/// Takes batches until the limit, or until nothing is left; returns when all acknowledgements have arrived.
fn take(
    workers: &mut [Worker],
    poller: &mut Poller,
    tasks: &mut Tasks,
    limit: Limit,
    latencies: &mut Latencies,
) -> Result<u64, Failure> {
    let (mut chunk, mut ready) = (Chunk::new(), Vec::new());
    let (before, asked) = (tasks.taken, tasks.asked);
    let mut busy = 0;
    for worker in workers.iter_mut() {
        if let Some((consumer, size)) = tasks.next(worker.consumer, limit, asked) {
            worker.ask(tasks, consumer, size);
            busy += 1;
        }
        flush(worker)?;
    }
    if busy == 0 {
        return Err(Failure::Usage("the warm-up has taken all messages: store more".to_owned()));
    }
    while busy > 0 {
        let Tasks { taken, asked: all, .. } = *tasks;
        poller.wait(&mut ready, || format!("{taken} of {all} messages came"))?;
        for event in &ready {
            let worker = &mut workers[event.number];
            if worker.receive(&mut chunk, tasks, limit, asked, latencies)? {
                busy -= 1;
            }
            flush(worker)?;
        }
    }
    Ok(tasks.taken - before)
}

fn flush(worker: &mut Worker) -> Result<(), Failure> {
    if worker.connection.flush()? {
        return Ok(());
    }
    Err(Failure::Server("takes no more requests".to_owned()))
}

impl Tasks {
    /// How many nobody has asked for yet.
    fn left(&self) -> u64 {
        self.consumers.iter().map(|consumer| consumer.left).sum()
    }

    /// Which consumer a worker asks next, and for how many; nothing when the limit is reached or nothing is left.
    fn next(&mut self, at: usize, limit: Limit, before: u64) -> Option<(usize, u64)> {
        let sent = self.asked - before;
        if limit.reached(sent) || self.asked >= self.most {
            return None;
        }
        let all = self.consumers.len();
        let at = (0..all).map(|more| (at + more) % all).find(|&at| self.consumers[at].left > 0)?;
        let consumer = &mut self.consumers[at];
        let size = limit.allowed(sent, self.batch.min(consumer.left).min(self.most - self.asked));
        consumer.left -= size;
        self.asked += size;
        Some((at, size))
    }

    /// A message of a consumer has come; its number, which must be at least that.
    fn take(&mut self, at: usize, payload: &[u8], least: u64) -> Result<u64, Failure> {
        let wrong = |problem: &str| {
            let shown = String::from_utf8_lossy(&payload[..payload.len().min(TOKEN)]);
            Failure::Server(format!("delivered message {shown:?} {problem}"))
        };
        let digits = payload.get(..TOKEN).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| wrong("that nobody sent"))?;
        let bit = 1 << (number % 64);
        let seen = self.seen.get_mut((number / 64) as usize);
        let seen = seen.ok_or_else(|| wrong("that nobody sent"))?;
        if *seen & bit != 0 {
            return Err(wrong("twice"));
        }
        if number % self.subjects != self.consumers[at].subject {
            return Err(wrong("to a consumer of another subject"));
        }
        if number < least {
            return Err(wrong("after a later one"));
        }
        *seen |= bit;
        self.taken += 1;
        Ok(number)
    }
}

impl Worker {
    fn ask(&mut self, tasks: &Tasks, consumer: usize, size: u64) {
        let Self { connection, inbox, .. } = self;
        request(connection.queue(), &tasks.consumers[consumer].next, inbox, size);
        self.consumer = consumer;
        (self.missing, self.least, self.busy) = (size, 0, true);
        self.asked = Instant::now();
    }

    /// Acknowledges what has arrived and asks for more; whether the worker is done.
    fn receive(
        &mut self,
        chunk: &mut Chunk,
        tasks: &mut Tasks,
        limit: Limit,
        before: u64,
        latencies: &mut Latencies,
    ) -> Result<bool, Failure> {
        let Self { connection, inbox, consumer, missing, least, asked, busy } = self;
        let was_busy = *busy;
        connection.receive(chunk, |out, received| {
            let Received::Message(Message { subject, reply, headers, payload }) = received else {
                return Err(Failure::Server("sent PONG to a worker".to_owned()));
            };
            if *missing == 0 && *busy && subject.ends_with(b".confirmed") {
                if !payload.is_empty() || !headers.is_empty() {
                    let shown = String::from_utf8_lossy(headers);
                    return Err(Failure::Server(format!("answered +ACK with {shown:?}")));
                }
                *busy = false;
                return Ok(());
            }
            if reply.is_empty() || *missing == 0 {
                let shown = [subject, &b" "[..], headers].concat();
                let shown = String::from_utf8_lossy(&shown);
                return Err(Failure::Server(format!("sent what was not asked for: {shown:?}")));
            }
            *least = 1 + tasks.take(*consumer, payload, *least)?;
            *missing -= 1;
            out.extend_from_slice(b"PUB ");
            out.extend_from_slice(reply);
            if *missing > 0 {
                out.extend_from_slice(b" 4\r\n+ACK\r\n");
                return Ok(());
            }
            latencies.since(*asked);
            let Some((next, size)) = tasks.next(*consumer, limit, before) else {
                out.extend_from_slice(format!(" {inbox}.confirmed 4\r\n+ACK\r\n").as_bytes());
                return Ok(());
            };
            out.extend_from_slice(b" 4\r\n+ACK\r\n");
            request(out, &tasks.consumers[next].next, inbox, size);
            if next != *consumer {
                (*consumer, *least) = (next, 0);
            }
            (*missing, *asked) = (size, Instant::now());
            Ok(())
        })?;
        Ok(was_busy && !*busy)
    }
}

/// Appends a request for messages.
fn request(out: &mut Vec<u8>, subject: &str, inbox: &str, size: u64) {
    let body = format!("{{\"batch\":{size},\"expires\":30000000000}}");
    let length = body.len();
    let line = format!("PUB {subject} {inbox}.fetched {length}\r\n{body}\r\n");
    out.extend_from_slice(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(left: &[u64], subjects: u64) -> Tasks {
        let consumer = |(subject, &left)| Consumer { next: String::new(), left, subject };
        let consumers = (0..).zip(left).map(consumer).collect();
        Tasks { consumers, subjects, batch: 4, asked: 0, most: u64::MAX, taken: 0, seen: vec![0] }
    }

    #[test]
    fn nothing_is_asked_for_that_is_not_there() {
        let mut tasks = tasks(&[5, 0, 3], 3);
        let limit = Limit::NONE;
        assert_eq!(tasks.next(0, limit, 0), None);
        let limit = Limit::of(11);
        let asked = [0, 0, 0, 2].map(|at| tasks.next(at, limit, 0));
        assert_eq!(asked, [Some((0, 4)), Some((0, 1)), Some((2, 3)), None]);
        (tasks.consumers[0].left, tasks.most) = (5, 10);
        assert_eq!([0, 0].map(|at| tasks.next(at, limit, 0)), [Some((0, 2)), None]);
    }

    #[test]
    fn messages_come_once_in_order_and_to_their_consumer() {
        let mut tasks = tasks(&[5, 5], 2);
        assert_eq!(tasks.take(0, b"000000000004xx", 0).unwrap(), 4);
        for (payload, problem) in [
            (&b"000000000004"[..], "twice"),
            (b"000000000003", "to a consumer of another subject"),
            (b"000000000002", "after a later one"),
            (b"000000000040", "that nobody sent"),
            (b"x", "that nobody sent"),
        ] {
            let error = tasks.take(0, payload, 5).unwrap_err().to_string();
            assert!(error.ends_with(problem), "{error}");
        }
    }
}
