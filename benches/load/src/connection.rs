//! A client's connection: the handshake, and whole frames in and out of a nonblocking socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::failure::{Doing as _, Failure};
use crate::frame::{self, Frame, Message};
use crate::target::{Stream, Target};

/// Read at once: fits a core's second cache, and one call empties a busy socket.
const CHUNK: usize = 128 * 1024;

const CONNECT: &[u8] = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"tls_required\":false,\
\"name\":\"mq9-load\",\"lang\":\"rust\",\"version\":\"0.1.0\",\"protocol\":1,\"echo\":true,\
\"headers\":true,\"no_responders\":true}\r\n";

/// What all connections read into, one after the other, so that it stays in the cache.
#[derive(Debug)]
pub struct Chunk(Box<[u8]>);

impl Chunk {
    /// An empty one.
    pub fn new() -> Self {
        Self(vec![0; CHUNK].into_boxed_slice())
    }
}

/// A connection to the server that is measured.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// The beginning of a frame whose end has not arrived.
    partial: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
}

impl Connection {
    /// Connects and says nothing: for servers that speak another protocol.
    pub fn open_bare(target: &Target) -> Result<Self, Failure> {
        let stream = target.connect_bare()?;
        stream.socket.set_nonblocking(true).doing("make a connection nonblocking")?;
        Ok(Self { stream, partial: Vec::new(), out: Vec::new(), sent: 0 })
    }

    /// Connects, sends `setup` (subscriptions) and returns when all of it was done.
    pub fn open(target: &Target, setup: &[u8]) -> Result<Self, Failure> {
        let stream = target.connect_nats()?;
        let mut connection = Self { stream, partial: Vec::new(), out: Vec::new(), sent: 0 };
        connection.out = [CONNECT, setup, b"PING\r\n"].concat();
        while !connection.flush()? {}
        let (mut chunk, mut ponged) = (Chunk::new(), false);
        while !ponged {
            connection.receive(&mut chunk, |_, event| {
                ponged |= matches!(event, Received::Pong);
                Ok(())
            })?;
        }
        connection.stream.socket.set_nonblocking(true).doing("make a connection nonblocking")?;
        Ok(connection)
    }

    /// Appends to what the next flush sends.
    pub fn queue(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether all that was queued has been sent.
    pub fn is_flushed(&self) -> bool {
        self.out.is_empty() && self.stream.is_flushed()
    }

    /// Sends what is queued as far as there is room; whether all of it went.
    pub fn flush(&mut self) -> Result<bool, Failure> {
        loop {
            let outcome = match &self.out[self.sent..] {
                [] => self.stream.flush(),
                rest => self.stream.write(rest).map(|written| self.sent += written),
            };
            match outcome {
                Ok(()) if self.sent < self.out.len() => {}
                Ok(()) if self.stream.is_flushed() => break,
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).doing("send to the server"),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Reads once and hands over every complete frame; `PING` is answered at the next flush.
    pub fn receive(
        &mut self,
        chunk: &mut Chunk,
        mut on: impl FnMut(&mut Vec<u8>, Received<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.receive_bytes(chunk, |out, input| {
            let Some((frame, used)) = frame::first(input)? else { return Ok(None) };
            match frame {
                Frame::Message(message) => on(out, Received::Message(message))?,
                Frame::Pong => on(out, Received::Pong)?,
                Frame::Ping => out.extend_from_slice(b"PONG\r\n"),
                Frame::Other => {}
            }
            Ok(Some(used))
        })
    }

    /// Reads once and lets `take` have what arrived, in whatever protocol, until it says that the
    /// rest is incomplete; otherwise it says how much it has taken.
    pub fn receive_bytes(
        &mut self,
        chunk: &mut Chunk,
        mut take: impl FnMut(&mut Vec<u8>, &[u8]) -> Result<Option<usize>, Failure>,
    ) -> Result<(), Failure> {
        let Some(length) = self.read(chunk)? else { return Ok(()) };
        let mut rest = &chunk.0[..length];
        while let Some(used) = take(&mut self.out, rest)? {
            rest = &rest[used..];
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    /// The same where nearly all frames are messages that start with the line `expected`: those
    /// cost one comparison each.
    pub fn receive_expected(
        &mut self,
        chunk: &mut Chunk,
        expected: &[u8],
        size: usize,
        mut on: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(length) = self.read(chunk)? else { return Ok(()) };
        let mut rest = &chunk.0[..length];
        let whole = expected.len() + size + 2;
        loop {
            while rest.len() >= whole && rest.starts_with(expected) {
                on(&rest[expected.len()..expected.len() + size])?;
                rest = &rest[whole..];
            }
            match frame::first(rest)? {
                None => break,
                Some((Frame::Ping, used)) => {
                    self.out.extend_from_slice(b"PONG\r\n");
                    rest = &rest[used..];
                }
                Some((Frame::Other, used)) => rest = &rest[used..],
                Some((frame, _)) => {
                    return Err(Failure::Server(format!("sent what was not asked for: {frame:?}")));
                }
            }
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    /// Puts what was left over and what has arrived into `chunk`; nothing if nothing has arrived.
    fn read(&mut self, chunk: &mut Chunk) -> Result<Option<usize>, Failure> {
        let kept = self.partial.len();
        if kept >= chunk.0.len() {
            return Err(Failure::Server(format!("sent a frame longer than {CHUNK} bytes")));
        }
        let length = loop {
            match self.stream.read(&mut chunk.0[kept..]) {
                Ok(0) => return Err(Failure::Server("closed a connection".to_owned())),
                Ok(length) => break length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).doing("receive from the server"),
            }
        };
        chunk.0[..kept].copy_from_slice(&self.partial);
        self.partial.clear();
        Ok(Some(kept + length))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.socket.as_fd()
    }
}

/// What a scenario is told of.
#[derive(Debug)]
pub enum Received<'a> {
    /// A delivery.
    Message(Message<'a>),
    /// The answer to a `PING` of the scenario.
    Pong,
}
