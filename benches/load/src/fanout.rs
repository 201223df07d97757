//! One publisher, many subscribers of the same subject, each on its own connection. Every delivery
//! is counted and must be the next in order. A message is sent only while fewer than a window of
//! them are on their way to the slowest subscriber, so nobody becomes a slow consumer.

use std::collections::VecDeque;

use crate::arguments::Arguments;
use crate::connection::{Chunk, Connection};
use crate::failure::Failure;
use crate::load::{Limit, Load};
use crate::poller::Poller;

/// The window is refilled in this many parts, so that a message is not sent alone.
const PARTS: usize = 4;

/// Bytes of a payload that hold the message's number.
const NUMBER: usize = 8;

/// Messages that are published together.
#[derive(Debug)]
struct Batch {
    /// The number of the first message behind it.
    end: u64,
    /// How many subscribers have all of it.
    complete: usize,
}

/// The batches on their way, oldest first.
#[derive(Debug, Default)]
struct Window {
    batches: VecDeque<Batch>,
    /// How many batches have left at the front.
    left: u64,
    published: u64,
}

impl Window {
    fn publish(&mut self, messages: u64) {
        self.published += messages;
        self.batches.push_back(Batch { end: self.published, complete: 0 });
    }

    /// A subscriber that had `batches` complete has now received all below `next`; how many it
    /// has complete now.
    fn received(&mut self, mut batches: u64, next: u64, subscribers: usize) -> u64 {
        while let Some(batch) = self.batches.get_mut((batches - self.left) as usize) {
            if batch.end > next {
                break;
            }
            batch.complete += 1;
            batches += 1;
        }
        while self.batches.front().is_some_and(|batch| batch.complete == subscribers) {
            self.batches.pop_front();
            self.left += 1;
        }
        batches
    }
}

#[derive(Debug)]
struct Subscriber {
    connection: Connection,
    /// The number of the message that must come next.
    next: u64,
    batches: u64,
}

impl Subscriber {
    fn receive(&mut self, chunk: &mut Chunk, line: &[u8], size: usize) -> Result<(), Failure> {
        let next = &mut self.next;
        self.connection.receive_expected(chunk, line, size, |payload| {
            let number = payload.first_chunk::<NUMBER>().map(|bytes| u64::from_le_bytes(*bytes));
            if number != Some(*next) {
                let got = number.unwrap_or_default();
                return Err(Failure::Server(format!("delivered message {got} instead of {next}")));
            }
            *next += 1;
            Ok(())
        })
    }
}

/// The publisher's frames, of which only the numbers change.
#[derive(Debug)]
struct Frames {
    bytes: Vec<u8>,
    frame: usize,
    number_at: usize,
}

impl Frames {
    fn new(size: usize, most: usize) -> Self {
        let line = format!("PUB bench.fanout {size}\r\n");
        let mut frame = line.clone().into_bytes();
        frame.resize(frame.len() + size, b'x');
        frame.extend_from_slice(b"\r\n");
        Self { bytes: frame.repeat(most), frame: frame.len(), number_at: line.len() }
    }

    fn numbered(&mut self, first: u64, messages: usize) -> &[u8] {
        let bytes = &mut self.bytes[..messages * self.frame];
        for (frame, number) in bytes.chunks_exact_mut(self.frame).zip(first..) {
            frame[self.number_at..self.number_at + NUMBER].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

struct Fanout {
    size: usize,
    batch: usize,
    publisher: Connection,
    subscribers: Vec<Subscriber>,
    frames: Frames,
    window: Window,
    poller: Poller,
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, NUMBER)?;
    let subscribers = arguments.number("subscribers", 10, 1, 10_000)?;
    let window = arguments.number("window", 512, PARTS, 65_536)?;
    arguments.finish()?;
    let poller = load.poller(subscribers + 1)?;
    let publisher = Connection::open(&load.server, b"")?;
    poller.add(&publisher, subscribers, false)?;
    let mut fanout = Fanout {
        size: load.size,
        batch: window / PARTS,
        publisher,
        subscribers: Vec::with_capacity(subscribers),
        frames: Frames::new(load.size, window / PARTS),
        window: Window::default(),
        poller,
    };
    for number in 0..subscribers {
        let connection = Connection::open(&load.server, b"SUB bench.fanout 1\r\n")?;
        fanout.poller.add(&connection, number, false)?;
        fanout.subscribers.push(Subscriber { connection, next: 0, batches: 0 });
    }
    let measured = load.measure(|limit, _| fanout.phase(limit))?;
    let more = [("subscribers", subscribers.to_string()), ("window", window.to_string())];
    Ok(measured.json("fanout", &load, &more))
}

impl Fanout {
    fn phase(&mut self, limit: Limit) -> Result<u64, Failure> {
        let (mut chunk, mut ready) = (Chunk::new(), Vec::new());
        let line = format!("MSG bench.fanout 1 {}\r\n", self.size).into_bytes();
        let first = self.window.published;
        let all = self.subscribers.len();
        loop {
            self.refill(limit, first)?;
            if self.window.batches.is_empty() && self.publisher.is_flushed() {
                return Ok((self.window.published - first) * all as u64);
            }
            let Self { window, subscribers, poller, .. } = self;
            let state = || {
                let slowest = subscribers.iter().map(|subscriber| subscriber.next).min();
                let slowest = slowest.unwrap_or_default();
                format!("a subscriber has {slowest} of {} messages", window.published)
            };
            poller.wait(&mut ready, state)?;
            for event in &ready {
                let Some(subscriber) = self.subscribers.get_mut(event.number) else {
                    self.on_publisher(event.readable, &mut chunk)?;
                    continue;
                };
                subscriber.receive(&mut chunk, &line, self.size)?;
                subscriber.connection.flush()?;
                subscriber.batches = self.window.received(subscriber.batches, subscriber.next, all);
            }
        }
    }

    /// Publishes as many batches as the window has room for.
    fn refill(&mut self, limit: Limit, first: u64) -> Result<(), Failure> {
        while self.window.batches.len() < PARTS {
            let sent = self.window.published - first;
            if limit.reached(sent) {
                break;
            }
            let messages = limit.allowed(sent, self.batch as u64) as usize;
            let bytes = self.frames.numbered(self.window.published, messages);
            self.publisher.queue().extend_from_slice(bytes);
            self.window.publish(messages as u64);
            self.flush_publisher()?;
        }
        Ok(())
    }

    fn on_publisher(&mut self, readable: bool, chunk: &mut Chunk) -> Result<(), Failure> {
        if readable {
            self.publisher.receive(chunk, |_, received| {
                Err(Failure::Server(format!("sent the publisher {received:?}")))
            })?;
        }
        self.flush_publisher()
    }

    fn flush_publisher(&mut self) -> Result<(), Failure> {
        let flushed = self.publisher.flush()?;
        self.poller.change(&self.publisher, self.subscribers.len(), !flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_on_its_way_until_the_slowest_subscriber_has_it() {
        let mut window = Window::default();
        window.publish(10);
        window.publish(10);
        assert_eq!(window.received(0, 9, 2), 0);
        assert_eq!(window.received(0, 20, 2), 2);
        assert_eq!(window.batches.len(), 2);
        assert_eq!(window.received(0, 10, 2), 1);
        assert_eq!(window.batches.len(), 1);
        assert_eq!(window.received(1, 20, 2), 2);
        assert!(window.batches.is_empty());
        window.publish(5);
        assert_eq!(window.received(2, 25, 2), 3);
        assert_eq!(window.received(2, 25, 2), 3);
        assert!(window.batches.is_empty());
    }

    #[test]
    fn frames_carry_their_numbers() {
        let mut frames = Frames::new(8, 3);
        let line = b"PUB bench.fanout 8\r\n";
        let bytes = frames.numbered(258, 2).to_vec();
        assert_eq!(bytes.len(), 2 * (line.len() + 10));
        assert!(bytes.starts_with(line));
        assert_eq!(bytes[line.len()..][..10], [2, 1, 0, 0, 0, 0, 0, 0, b'\r', b'\n']);
        assert_eq!(bytes[2 * line.len() + 10], 3);
    }
}
