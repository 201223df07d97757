//! Waits for sockets that can be read or written. Knows numbers, not connections.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// How many sockets are named at once.
const MOST: usize = 256;

/// What a socket is watched for, or is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interest {
    /// Input, or the end of it.
    pub read: bool,
    /// Room for output.
    pub write: bool,
}

impl Interest {
    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }

    fn is_none(self) -> bool {
        self == Interest::default()
    }
}

/// The sockets of a broker.
pub struct Poll(OwnedFd);

impl Poll {
    pub fn new() -> io::Result<Poll> {
        Ok(Poll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// From now on `token` is named when the socket is ready for `wanted` instead of `before`. A socket that nothing
    /// is wanted of is not watched at all: a broken one would be named for ever.
    pub fn change(
        &self,
        socket: impl AsFd,
        token: u64,
        before: Interest,
        wanted: Interest,
    ) -> io::Result<()> {
        let data = EventData::new_u64(token);
        if before == wanted {
            return Ok(());
        }
        if wanted.is_none() {
            epoll::delete(&self.0, socket)?;
        } else if before.is_none() {
            epoll::add(&self.0, socket, data, wanted.flags())?;
        } else {
            epoll::modify(&self.0, socket, data, wanted.flags())?;
        }
        Ok(())
    }

    /// Waits so long, or for ever, until sockets are ready, and says which: some of them, the others come next.
    pub fn wait(&self, most: Option<Duration>, ready: &mut Vec<(u64, Interest)>) {
        ready.clear();
        let timeout = most.map(|most| Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(most.subsec_nanos()),
        });
        let mut events = [const { MaybeUninit::uninit() }; MOST];
        // It fails only when a signal comes, and then nothing is ready yet.
        if let Ok((events, _)) = epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            ready.extend(events.iter().map(|event| (event.data.u64(), readiness(event.flags))));
        }
    }
}

/// A broken socket is ready for everything: whoever tries finds out.
fn readiness(flags: EventFlags) -> Interest {
    let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
    Interest {
        read: broken || flags.contains(EventFlags::IN),
        write: broken || flags.contains(EventFlags::OUT),
    }
}
