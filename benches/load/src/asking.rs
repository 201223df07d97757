//! Clients that ask and are answered, each on a connection of its own. Either each asks again when
//! an answer has come (a closed loop), or requests are due at a pace, whatever the server does (an
//! open loop). Knows no protocol.

use std::num::NonZeroU64;
use std::time::Instant;

use crate::connection::{Chunk, Connection};
use crate::failure::{Doing as _, Failure};
use crate::latency::Latencies;
use crate::load::{Limit, Load, Measured};
use crate::pace::Pace;
use crate::poller::{Poller, Ready};

/// One connection, with room for so many requests under way.
pub trait Client {
    /// The connection.
    fn connection(&mut self) -> &mut Connection;

    /// Whether it may ask now.
    fn has_room(&self) -> bool;

    /// Queues the request with this number among all of the phase; its latency counts from `due`.
    fn ask(&mut self, number: u64, due: Instant);

    /// Reads what has arrived and notes each answer.
    fn receive(&mut self, chunk: &mut Chunk, progress: &mut Progress) -> Result<(), Failure>;
}

/// What a phase has done so far.
#[derive(Debug, Default)]
pub struct Progress {
    asked: u64,
    replies: u64,
    latencies: Latencies,
}

impl Progress {
    /// A request that was due at that moment has been answered.
    pub fn answered(&mut self, due: Instant) {
        self.replies += 1;
        self.latencies.since(due);
    }

    fn state(&self) -> String {
        format!("replies to {} of {} requests", self.replies, self.asked)
    }
}

/// All clients of a run.
pub struct Asking<C> {
    clients: Vec<C>,
    poller: Poller,
    per_second: Option<f64>,
    chunk: Chunk,
}

impl<C: Client> Asking<C> {
    /// Asks in a closed loop, or at a pace if there is one.
    pub fn new(load: &Load, mut clients: Vec<C>, per_second: Option<f64>) -> Result<Self, Failure> {
        let poller = load.poller(clients.len())?;
        for (number, client) in clients.iter_mut().enumerate() {
            poller.add(&*client.connection(), number, false)?;
        }
        if per_second.is_some() {
            // By default the kernel wakes a thread up to 50 microseconds late.
            rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
                .doing("set a timer slack")?;
        }
        Ok(Self { clients, poller, per_second, chunk: Chunk::new() })
    }

    /// The measurement, and every latency of it.
    pub fn measure(mut self, load: &Load) -> Result<(Measured, Latencies), Failure> {
        let mut latencies = Latencies::default();
        let measured = load.measure(|limit, counts| {
            let progress = match self.per_second {
                None => self.closed_loop(limit),
                Some(per_second) => self.open_loop(limit, per_second),
            }?;
            if counts {
                latencies = progress.latencies;
            }
            Ok(progress.replies)
        })?;
        Ok((measured, latencies))
    }

    fn closed_loop(&mut self, limit: Limit) -> Result<Progress, Failure> {
        let (mut progress, mut ready) = (Progress::default(), Vec::new());
        for (number, client) in self.clients.iter_mut().enumerate() {
            fill(client, limit, &mut progress);
            flush(&self.poller, client.connection(), number, false)?;
        }
        while progress.replies < progress.asked {
            self.poller.wait(&mut ready, || progress.state())?;
            for event in &ready {
                let client = &mut self.clients[event.number];
                if event.readable {
                    client.receive(&mut self.chunk, &mut progress)?;
                    fill(client, limit, &mut progress);
                }
                flush(&self.poller, client.connection(), event.number, event.writable)?;
            }
        }
        Ok(progress)
    }

    /// All that is due within the limit is asked, however late, and must be answered.
    fn open_loop(&mut self, limit: Limit, per_second: f64) -> Result<Progress, Failure> {
        let (mut progress, mut ready) = (Progress::default(), Vec::new());
        let pace = Pace::new(per_second, Instant::now());
        let total = limit.requests(per_second);
        let (mut turn, mut heard) = (0, Instant::now());
        while progress.replies < total {
            let full = !self.ask_what_is_due(pace, total, &mut turn, &mut progress)?;
            if full || progress.asked == total {
                self.poller.wait(&mut ready, || progress.state())?;
            } else {
                self.poller.wait_until(pace.due(progress.asked), &mut ready)?;
            }
            let now = Instant::now();
            if !ready.is_empty() || progress.replies == progress.asked {
                heard = now;
            }
            self.poller.check_silence(now - heard, || progress.state())?;
            for &Ready { number, readable, writable } in &ready {
                let client = &mut self.clients[number];
                if readable {
                    client.receive(&mut self.chunk, &mut progress)?;
                }
                flush(&self.poller, client.connection(), number, writable)?;
            }
        }
        Ok(progress)
    }

    /// Clients take turns; whether there was room for all that is due.
    fn ask_what_is_due(
        &mut self,
        pace: Pace,
        total: u64,
        turn: &mut usize,
        progress: &mut Progress,
    ) -> Result<bool, Failure> {
        let (all, now) = (self.clients.len(), Instant::now());
        let mut room = true;
        while room && progress.asked < total {
            let due = pace.due(progress.asked);
            if due > now {
                break;
            }
            let next = (0..all).map(|more| (*turn + more) % all);
            match next.into_iter().find(|&number| self.clients[number].has_room()) {
                None => room = false,
                Some(number) => {
                    self.clients[number].ask(progress.asked, due);
                    progress.asked += 1;
                    *turn = (number + 1) % all;
                }
            }
        }
        for (number, client) in self.clients.iter_mut().enumerate() {
            if !client.connection().is_flushed() {
                flush(&self.poller, client.connection(), number, false)?;
            }
        }
        Ok(room)
    }
}

/// Asks while there is room and the limit allows it.
fn fill(client: &mut impl Client, limit: Limit, progress: &mut Progress) {
    while client.has_room() {
        let now = Instant::now();
        if limit.reached_at(now, progress.asked) {
            break;
        }
        client.ask(progress.asked, now);
        progress.asked += 1;
    }
}

/// Watching for room costs a call, so only where there was none.
fn flush(
    poller: &Poller,
    connection: &mut Connection,
    number: usize,
    watched: bool,
) -> Result<(), Failure> {
    if !connection.flush()? || watched {
        let write = !connection.is_flushed();
        poller.change(&*connection, number, write)?;
    }
    Ok(())
}
