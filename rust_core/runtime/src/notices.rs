//! Notices of the broker's thread to whoever decides: a queue that it never waits for.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mq9_core::front::{ConnStats, ProtocolLine, Request};

use crate::tls::TlsFacts;
use crate::waker::Bell;

/// So many lines of the protocol wait to be logged; of the others only their number is kept.
const MAX_LINES: usize = 10_000;

/// Something to decide, to do or to know.
#[derive(Debug)]
pub enum Notice {
    /// A client has sent `CONNECT`: it waits to be accepted or closed.
    Connect {
        /// Who.
        cid: u64,
        /// The JSON text.
        options: Box<[u8]>,
    },
    /// The first command of a client that has to authenticate is not `CONNECT`: it waits as well.
    FirstCommand {
        /// Who.
        cid: u64,
    },
    /// A message for one of the server's own subjects.
    Request(Box<Request>),
    /// A line of the protocol, for the log.
    Line(Box<ProtocolLine>),
    /// So many lines came too fast to be logged.
    LinesMissed(u64),
    /// A client speaks TLS from now on.
    Secured {
        /// Who.
        cid: u64,
        /// What was agreed.
        facts: Box<TlsFacts>,
    },
    /// A connection has ended.
    Closed {
        /// Whose.
        cid: u64,
        /// Why.
        reason: String,
        /// What the system or the TLS library said, if it was their fault.
        detail: Option<String>,
        /// Its last figures.
        stats: Option<ConnStats>,
    },
}

/// Notices that nobody has taken yet.
pub struct Notices {
    queue: Mutex<Queue>,
    bell: Bell,
}

#[derive(Default)]
struct Queue {
    notices: VecDeque<Notice>,
    lines: usize,
    missed: u64,
}

impl Notices {
    /// None.
    pub fn new() -> io::Result<Notices> {
        Ok(Notices { queue: Mutex::default(), bell: Bell::new()? })
    }

    /// Adds these, in order, and rings if there were none.
    pub fn add(&self, news: &mut Vec<Notice>) {
        if news.is_empty() {
            return;
        }
        let mut queue = self.queue();
        let was_empty = queue.notices.is_empty();
        for notice in news.drain(..) {
            if matches!(notice, Notice::Line(_)) {
                if queue.lines >= MAX_LINES {
                    queue.missed += 1;
                    continue;
                }
                queue.lines += 1;
            }
            queue.notices.push_back(notice);
        }
        drop(queue);
        if was_empty {
            self.bell.ring();
        }
    }

    /// Takes so many of them, and makes the descriptor silent when none is left.
    pub fn take(&self, most: usize) -> Vec<Notice> {
        let mut queue = self.queue();
        let count = most.min(queue.notices.len());
        let mut taken: Vec<Notice> = queue.notices.drain(..count).collect();
        let lines = taken.iter().filter(|notice| matches!(notice, Notice::Line(_))).count();
        queue.lines -= lines;
        if queue.lines == 0 && queue.missed > 0 {
            taken.push(Notice::LinesMissed(std::mem::take(&mut queue.missed)));
        }
        if queue.notices.is_empty() {
            self.bell.reset();
        }
        taken
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing in here can be left half changed: notices are whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Notices {
    /// Readable while there are notices.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
