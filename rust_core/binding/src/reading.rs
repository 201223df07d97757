//! Reading: one call of the event loop reads every socket that has something, and goes on reading
//! as long as clients keep answering.
//!
//! A connection gets one read per round, so none can keep the others waiting. The loop gets a turn
//! after every call into Python, and after the round in which [`TURN_US`] are over.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use mq9_core::broker::ConnId;
use pyo3::prelude::*;

use crate::broker::{Broker, READ_BYTES, State};
use crate::clock;
use crate::mail::Counter;
use crate::panics::left_in_the_middle;
use crate::peer::Peer;
use crate::running::Running;
use crate::sockets::Received;

/// How long the broker looks for input again and again after some has come. To be woken takes
/// longer than most clients take to answer.
pub const LINGER_US: u64 = 50;

/// How long others on the loop may have to wait for their turn: timers, clients with TLS.
const TURN_US: u64 = 250;

/// The name of the store's descriptor among the sockets.
pub const STORE: u64 = u64::MAX;

/// What reading needs and keeps.
pub struct Reading(Mutex<Tools>);

struct Tools {
    ready: Vec<u64>,
    buffer: Vec<u8>,
}

/// What a round has read.
#[derive(Default)]
struct Harvest {
    any: bool,
    store_used: bool,
    /// Clients that have gone, and whether by breaking the connection.
    ended: Vec<(Arc<Peer>, bool)>,
}

impl Reading {
    pub fn new() -> Self {
        Self(Mutex::new(Tools { ready: Vec::new(), buffer: vec![0; READ_BYTES] }))
    }

    fn lock(&self) -> MutexGuard<'_, Tools> {
        self.0.lock().unwrap_or_else(left_in_the_middle)
    }
}

/// A connection's name among the sockets: its place, and which of those who had it.
pub fn name_of(id: ConnId, cid: u64) -> u64 {
    (cid << 32) | u64::from(id)
}

impl Broker {
    /// Reads what there is, round by round, until clients are silent or it is the loop's turn.
    pub fn read_on(&self, py: Python<'_>) -> PyResult<()> {
        let began_us = clock::mono_us();
        loop {
            let harvest = self.harvest();
            if harvest.any {
                for (peer, broken) in harvest.ended {
                    self.driving.called.store(true, Ordering::Relaxed);
                    peer.hang_up(py, broken)?;
                }
                if harvest.store_used { self.tick(py) } else { self.drive(py) }?;
            }
            let now_us = clock::mono_us();
            if now_us.saturating_sub(self.active_us.load(Ordering::Relaxed)) >= LINGER_US {
                return Ok(());
            }
            let called = self.driving.called.swap(false, Ordering::Relaxed);
            if called || now_us - began_us >= TURN_US {
                self.alarm.round_soon(py, false)?;
                return Ok(());
            }
        }
    }

    /// Reads once from every socket that has something.
    fn harvest(&self) -> Harvest {
        let mut harvest = Harvest::default();
        let mut tools = self.reading.lock();
        let Tools { ready, buffer } = &mut *tools;
        self.watch.look(ready);
        if ready.is_empty() {
            return harvest;
        }
        harvest.any = true;
        let now_us = clock::mono_us();
        self.active_us.store(now_us, Ordering::Relaxed);
        let mut state = self.lock();
        let State { core, post, peers, .. } = &mut *state;
        self.with_running(|running| {
            for &name in ready.iter() {
                if name == STORE {
                    if let Some(running) = running {
                        running.durability().reset();
                    }
                    harvest.store_used = true;
                    continue;
                }
                let id = name as ConnId;
                let Some(Some(peer)) = peers.get(id as usize) else { continue };
                let Some(socket) = peer.watched(name) else { continue };
                match socket.receive(buffer) {
                    Received::Bytes(bytes) => {
                        let mut counter = Counter::new(post, running.map(Running::store));
                        core.feed(id, &buffer[..bytes], &mut counter, now_us);
                        harvest.store_used |= counter.was_used();
                    }
                    Received::Nothing => {}
                    Received::End => harvest.ended.push((Arc::clone(peer), false)),
                    Received::Broken => harvest.ended.push((Arc::clone(peer), true)),
                }
            }
        });
        harvest
    }
}
