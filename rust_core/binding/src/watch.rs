//! Which sockets have something to read. Knows numbers, not connections.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::sockets::Socket;

/// How many sockets are named at once.
const MOST: usize = 256;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The sockets that Rust reads by itself. Its own descriptor is readable when one of them is.
pub struct Watch(OwnedFd);

impl Watch {
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// From now on `name` is among the ready when `socket` is readable, at its end, or broken.
    pub fn add(&self, socket: Socket, name: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, socket, EventData::new_u64(name), EventFlags::IN)?)
    }

    pub fn remove(&self, socket: Socket) {
        // It fails only for a socket that is not watched.
        let _ = epoll::delete(&self.0, socket);
    }

    /// Fills `ready` with who can be read from now, or some of them; the others come next.
    pub fn look(&self, ready: &mut Vec<u64>) {
        ready.clear();
        let mut events = [const { MaybeUninit::uninit() }; MOST];
        // It fails only when a signal comes, and then nothing is ready yet.
        if let Ok((events, _)) = epoll::wait(&self.0, &mut events, Some(&NOW)) {
            ready.extend(events.iter().map(|event| event.data.u64()));
        }
    }
}
