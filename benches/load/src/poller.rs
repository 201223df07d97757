//! Waits for sockets. Connections are known by their number.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::failure::{Doing as _, Failure};

/// A connection that can go on.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Its number.
    pub number: usize,
    /// There is something to read, or the connection has ended.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
}

/// The set of connections that are waited for.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
    patience: Duration,
}

impl Poller {
    /// A server that does nothing at all for as long as `patience` has lost something.
    pub fn new(connections: usize, patience: Duration) -> Result<Self, Failure> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).doing("create an epoll instance")?;
        let events = Vec::with_capacity(connections.clamp(1, 1024));
        Ok(Self { epoll, events, patience })
    }

    /// Waits for `socket` too, from now on.
    pub fn add(&self, socket: impl AsFd, number: usize, write: bool) -> Result<(), Failure> {
        epoll::add(&self.epoll, socket, EventData::new_u64(number as u64), flags(write))
            .doing("watch a connection")
    }

    /// Changes whether room to write is of interest.
    pub fn change(&self, socket: impl AsFd, number: usize, write: bool) -> Result<(), Failure> {
        epoll::modify(&self.epoll, socket, EventData::new_u64(number as u64), flags(write))
            .doing("watch a connection")
    }

    /// Fills `ready` with the connections that can go on; `state` explains a long silence.
    pub fn wait(
        &mut self,
        ready: &mut Vec<Ready>,
        state: impl Fn() -> String,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        while !self.wait_until(started + self.patience, ready)? {
            self.check_silence(started.elapsed(), &state)?;
        }
        Ok(())
    }

    /// The same until a moment; whether any can go on.
    pub fn wait_until(&mut self, until: Instant, ready: &mut Vec<Ready>) -> Result<bool, Failure> {
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        ready.clear();
        self.events.clear();
        let buffer = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, buffer, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => return Ok(false),
            other => other.doing("wait for connections")?,
        };
        ready.extend(self.events.iter().map(|&Event { flags, data, .. }| Ready {
            number: data.u64() as usize,
            readable: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
            writable: flags.contains(EventFlags::OUT),
        }));
        Ok(!ready.is_empty())
    }

    /// Whether the server has been silent for too long.
    pub fn check_silence(
        &self,
        silence: Duration,
        state: impl Fn() -> String,
    ) -> Result<(), Failure> {
        if silence < self.patience {
            return Ok(());
        }
        Err(Failure::Silent { time: self.patience, state: state() })
    }
}

fn flags(write: bool) -> EventFlags {
    if write { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
}
