//! Publishes to a subject nobody listens to. A message counts when the server has taken it: every
//! connection ends with a `PING`, and the time with the last `PONG`.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;

use crate::arguments::Arguments;
use crate::connection::{Chunk, Connection, Received};
use crate::failure::{Doing as _, Failure};
use crate::load::{Limit, Load};
use crate::poller::Poller;

/// About this much is prepared and sent over and over.
const BLOCK: usize = 256 * 1024;

/// Whole messages in a file in memory. It is sent from there without a copy, which leaves the
/// generator's core mostly to the network stack.
#[derive(Debug)]
struct Block {
    file: OwnedFd,
    length: u64,
    frame: u64,
}

impl Block {
    fn new(size: usize) -> Result<Self, Failure> {
        let mut frame = format!("PUB bench.publish {size}\r\n").into_bytes();
        frame.resize(frame.len() + size, b'x');
        frame.extend_from_slice(b"\r\n");
        let bytes = frame.repeat((BLOCK / frame.len()).max(1));
        let file = rustix::fs::memfd_create("mq9-load", MemfdFlags::CLOEXEC)
            .doing("create a file in memory")?;
        io::Write::write_all(
            &mut std::fs::File::from(file.try_clone().doing("share a file")?),
            &bytes,
        )
        .doing("fill a file in memory")?;
        Ok(Self { file, length: bytes.len() as u64, frame: frame.len() as u64 })
    }

    /// Sends the block's bytes from where `sent` bytes of the repeated block end, `most` at most;
    /// how many went, none if there is no room.
    fn send(&self, to: &Connection, sent: u64, most: u64) -> Result<u64, Failure> {
        let mut from = sent % self.length;
        let most = most.min(self.length - from) as usize;
        match rustix::fs::sendfile(to, &self.file, Some(&mut from), most) {
            Ok(went) => Ok(went as u64),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error).doing("send to the server"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Publishing,
    /// The limit is reached; the message that is half sent is still completed.
    Completing,
    Ponging,
    Done,
}

#[derive(Debug)]
struct Publisher {
    connection: Connection,
    sent: u64,
    state: State,
    limit: Limit,
}

impl Publisher {
    /// Goes on sending as far as there is room, but no more than a block: others wait.
    fn go_on(&mut self, block: &Block) -> Result<(), Failure> {
        let messages = self.sent / block.frame;
        if self.state == State::Publishing && self.limit.reached(messages) {
            self.state = State::Completing;
        }
        let begun = self.sent % block.frame;
        let most = match self.state {
            State::Publishing => {
                self.limit.allowed(messages, block.length / block.frame) * block.frame - begun
            }
            State::Completing if begun > 0 => block.frame - begun,
            State::Completing | State::Ponging | State::Done => 0,
        };
        if most > 0 {
            self.sent += block.send(&self.connection, self.sent, most)?;
        }
        if self.state == State::Completing && self.sent.is_multiple_of(block.frame) {
            self.connection.queue().extend_from_slice(b"PING\r\n");
            self.state = State::Ponging;
        }
        Ok(())
    }
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, 0)?;
    let connections = arguments.number("connections", 1, 1, 1000)?;
    arguments.finish()?;
    let block = Block::new(load.size)?;
    let mut publishers = (0..connections)
        .map(|_| {
            let connection = Connection::open(&load.server, b"")?;
            Ok(Publisher { connection, sent: 0, state: State::Done, limit: Limit::NONE })
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut poller = load.poller(connections)?;
    for (number, publisher) in publishers.iter().enumerate() {
        poller.add(&publisher.connection, number, false)?;
    }
    let measured = load.measure(|limit, _| phase(&mut publishers, &mut poller, &block, limit))?;
    Ok(measured.json("publish", &load, &[("connections", connections.to_string())]))
}

fn phase(
    publishers: &mut [Publisher],
    poller: &mut Poller,
    block: &Block,
    limit: Limit,
) -> Result<u64, Failure> {
    let (mut chunk, mut ready) = (Chunk::new(), Vec::new());
    let all = publishers.len();
    for (number, publisher) in publishers.iter_mut().enumerate() {
        (publisher.sent, publisher.state) = (0, State::Publishing);
        publisher.limit = limit.share(number as u64, all as u64);
        poller.change(&publisher.connection, number, true)?;
    }
    let mut left = all;
    while left > 0 {
        poller.wait(&mut ready, || format!("{left} connections still publish or wait for PONG"))?;
        for event in &ready {
            let publisher = &mut publishers[event.number];
            let state = publisher.state;
            if event.readable {
                publisher.connection.receive(&mut chunk, |_, received| match received {
                    Received::Pong => {
                        publisher.state = State::Done;
                        Ok(())
                    }
                    Received::Message(_) => {
                        Err(Failure::Server("delivered to a publisher".to_owned()))
                    }
                })?;
            }
            publisher.go_on(block)?;
            // What is queued must not cut a message in two.
            let between = publisher.sent.is_multiple_of(block.frame);
            let flushed = !between || publisher.connection.flush()?;
            match publisher.state {
                State::Done if state != State::Done => left -= 1,
                State::Ponging if flushed && event.writable => {
                    poller.change(&publisher.connection, event.number, false)?;
                }
                _ => {}
            }
        }
    }
    Ok(publishers.iter().map(|publisher| publisher.sent / block.frame).sum())
}
