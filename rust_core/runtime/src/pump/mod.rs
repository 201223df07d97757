//! The loop of the broker's thread: what sockets bring goes to the engine, what the engine says goes to sockets.
//!
//! Owns sockets and when things are done. A connection gets one read per round, so none keeps the others waiting, and
//! what a round brought about leaves after a bounded amount of input. It never waits for whoever takes its notices.

mod meeting;
mod orders;
mod output;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use mq9_core::engine::Engine;
use mq9_core::front::{ConnId, Event};
use mq9_core::time::Moment;

use crate::clock;
use crate::link::{self, HANDSHAKE, Layer, Link, Pause, Received};
use crate::notices::{Notice, Notices};
use crate::order_queue::OrderQueue;
use crate::poll::{Interest, Poll};
use crate::upkeep::Upkeep;
use crate::waker::Waker;

/// What one read can bring.
const READ_BYTES: usize = 256 << 10;

/// After so much input its replies leave, though there is more to be read.
const ROUND_BYTES: usize = 256 << 10;

/// How long the thread looks for input again and again after some has come. To be woken takes longer than most clients
/// take to answer.
const LINGER_US: u64 = 50;

/// How long a client that overruns others is not read from.
const STALL_US: u64 = 5_000;

/// The name of the waker among the sockets.
const WAKER: u64 = u64::MAX;

/// The engine with the sockets of its clients. Orders are given to it.
pub struct Pump {
    engine: Engine,
    upkeep: Option<Arc<Upkeep>>,
    orders: Arc<OrderQueue>,
    waker: Arc<Waker>,
    notices: Arc<Notices>,
    poll: Poll,
    /// By their place in the engine.
    links: Vec<Option<Link>>,
    /// Who overran others, and when they are read from again.
    stalled: VecDeque<(u64, u64)>,
    /// What will be told at the end of the round.
    news: Vec<Notice>,
    buffer: Vec<u8>,
    plain: Vec<u8>,
    encrypted: Vec<u8>,
    active_us: u64,
    /// The store was used elsewhere, or more is durable.
    unsettled: bool,
    stopped: bool,
}

impl Pump {
    pub(crate) fn new(
        engine: Engine,
        upkeep: Option<Arc<Upkeep>>,
        orders: Arc<OrderQueue>,
        waker: Arc<Waker>,
        notices: Arc<Notices>,
    ) -> io::Result<Pump> {
        let poll = Poll::new()?;
        let wanted = Interest { read: true, write: false };
        poll.change(waker.bell(), WAKER, Interest::default(), wanted)?;
        Ok(Pump {
            engine,
            upkeep,
            orders,
            waker,
            notices,
            poll,
            links: Vec::new(),
            stalled: VecDeque::new(),
            news: Vec::new(),
            buffer: vec![0; READ_BYTES],
            plain: Vec::new(),
            encrypted: Vec::new(),
            active_us: 0,
            unsettled: true,
            stopped: false,
        })
    }

    /// Rounds until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::new();
        while !self.stopped {
            self.wait(&mut ready);
            self.take_orders();
            self.read_and_write(&ready);
            self.end_stalls(clock::moment());
            self.finish();
        }
        // Whoever asked a moment ago waits for the answer.
        for order in self.orders.close() {
            order(&mut self, clock::moment());
        }
        self.finish();
    }

    fn wait(&mut self, ready: &mut Vec<(u64, Interest)>) {
        let now = clock::moment();
        let due_ms = self.engine.due_in_ms(now);
        let lingers = now.mono_us.saturating_sub(self.active_us) < LINGER_US;
        if lingers || self.unsettled || self.engine.wants_to_settle(now) {
            return self.poll.wait(Some(Duration::ZERO), ready);
        }
        let mut most = due_ms.map(Duration::from_millis);
        if let Some((until_us, _)) = self.stalled.front() {
            let stall = Duration::from_micros(until_us.saturating_sub(now.mono_us));
            most = Some(most.map_or(stall, |most| most.min(stall)));
        }
        if self.waker.fall_asleep() {
            self.poll.wait(most, ready);
            self.waker.wake_up();
        } else {
            ready.clear();
        }
    }

    fn take_orders(&mut self) {
        self.unsettled |= self.waker.takes_settling();
        if self.waker.takes_order() {
            let now = clock::moment();
            self.active_us = now.mono_us;
            self.engine.heard_other(now);
            for order in self.orders.take() {
                order(self, clock::moment());
            }
        }
    }

    fn read_and_write(&mut self, ready: &[(u64, Interest)]) {
        let mut bytes = 0;
        for &(token, readiness) in ready {
            if token == WAKER {
                self.waker.bell().reset();
                continue;
            }
            let id = token as ConnId;
            if self.link(id).is_none_or(|link| token_of(id, link.cid) != token) {
                continue;
            }
            if readiness.write {
                self.writable(id, clock::moment());
                #[cfg(debug_assertions)]
                self.check_output(id);
            }
            if readiness.read {
                bytes += self.readable(id);
            }
            if bytes >= ROUND_BYTES {
                bytes = 0;
                self.finish();
            }
        }
    }

    /// Does what a round has left to do: replies, output, events.
    fn finish(&mut self) {
        let now = clock::moment();
        if std::mem::take(&mut self.unsettled) || self.engine.wants_to_settle(now) {
            self.engine.settle_or_sync(now, &clock::mono);
        }
        loop {
            while let Some(id) = self.engine.front_mut().next_dirty() {
                self.flush(id, now);
                #[cfg(debug_assertions)]
                self.check_output(id);
            }
            let Some(event) = self.engine.next_event(now) else { break };
            self.handle(event, now);
        }
        self.notices.add(&mut self.news);
        if self.engine.takes_upkeep()
            && let Some(upkeep) = &self.upkeep
        {
            upkeep.wake();
        }
    }

    fn end_stalls(&mut self, now: Moment) {
        while let Some(&(until_us, token)) = self.stalled.front()
            && until_us <= now.mono_us
        {
            self.stalled.pop_front();
            let id = token as ConnId;
            if self.link(id).is_some_and(|link| token_of(id, link.cid) == token) {
                self.set_reading(id, Pause::Stalled, true);
            }
        }
    }

    fn handle(&mut self, event: Event, now: Moment) {
        match event {
            Event::Connect { conn, options } => {
                self.set_reading(conn, Pause::Deciding, false);
                if let Some(cid) = self.engine.front().cid(conn) {
                    self.news.push(Notice::Connect { cid, options });
                }
            }
            Event::FirstCommand { conn } => {
                self.set_reading(conn, Pause::Deciding, false);
                if let Some(cid) = self.engine.front().cid(conn) {
                    self.news.push(Notice::FirstCommand { cid });
                }
            }
            Event::Request(request) => self.news.push(Notice::Request(request)),
            Event::Line(line) => self.news.push(Notice::Line(line)),
            Event::Close { conn, abort: true } => self.lost(conn, None, now),
            Event::Close { conn, abort: false } => self.close_politely(conn, now),
            Event::Stall { conn } => {
                if let Some(link) = self.link(conn) {
                    let token = token_of(conn, link.cid);
                    self.stalled.push_back((now.mono_us + STALL_US, token));
                    self.set_reading(conn, Pause::Stalled, false);
                }
            }
            Event::Hold { conn } => self.set_reading(conn, Pause::Held, false),
            Event::Release { conn } => self.set_reading(conn, Pause::Held, true),
            Event::Late { conn } => self.late(conn, now),
            // The engine publishes them itself.
            Event::Trace(_) => {}
        }
    }

    /// Reads once; how many bytes that were. The time is that after reading: a lease must not begin before its client
    /// has asked, and a round may have taken long until here.
    fn readable(&mut self, id: ConnId) -> usize {
        let Some(link) = self.links[id as usize].as_ref() else { return 0 };
        if !link.is_read() {
            return 0;
        }
        let received = link::receive(link.socket.as_fd(), &mut self.buffer);
        let now = clock::moment();
        self.active_us = now.mono_us;
        match received {
            Received::Bytes(bytes) => {
                self.received(id, bytes, now);
                bytes
            }
            Received::Nothing => 0,
            Received::End => {
                self.engine.close(id, None, "Client Closed".into());
                0
            }
            Received::Broken => {
                self.lost(id, None, now);
                0
            }
        }
    }

    /// So many bytes are in the buffer.
    fn received(&mut self, id: ConnId, bytes: usize, now: Moment) {
        let Some(link) = self.links[id as usize].as_mut() else { return };
        if let Layer::Unknown(terms) = &link.layer {
            let secure = self.buffer[0] == HANDSHAKE || !terms.plain_allowed;
            let terms = terms.clone();
            if secure {
                self.begin_tls(id, &terms, now);
            } else {
                self.begin_plain(id, now);
            }
        }
        let Some(link) = self.links[id as usize].as_mut() else { return };
        let Layer::Tls(tls) = &mut link.layer else {
            return self.engine.feed(id, &self.buffer[..bytes], now);
        };
        self.plain.clear();
        let progress = tls.receive(&self.buffer[..bytes], &mut self.plain);
        tls.take_pending(&mut link.out);
        let done = progress.as_ref().is_ok_and(|progress| progress.handshake_done);
        self.flush_raw(id, now);
        if done {
            self.established(id, now);
        }
        if !self.plain.is_empty() {
            self.engine.feed(id, &self.plain, now);
        }
        match progress {
            Ok(progress) if progress.client_closed => {
                self.engine.close(id, None, "Client Closed".into());
            }
            Ok(_) => {}
            Err(error) => self.tls_failed(id, &error, now),
        }
    }

    /// The connection is over: whoever decides is told.
    fn lost(&mut self, id: ConnId, detail: Option<String>, now: Moment) {
        let Some(link) = self.links.get_mut(id as usize).and_then(Option::take) else { return };
        // It fails only for a socket that is not watched.
        let _ = self.poll.change(
            &link.socket,
            token_of(id, link.cid),
            link.watched,
            Interest::default(),
        );
        let reason = self.engine.front().reason(id);
        let reason = reason.map_or_else(|| "Client Closed".to_owned(), ToString::to_string);
        let stats = self.engine.stats(id);
        self.engine.remove(id, now);
        self.news.push(Notice::Closed { cid: link.cid, reason, detail, stats });
    }

    fn set_blocked(&mut self, id: ConnId, blocked: bool) {
        if let Some(link) = self.links[id as usize].as_mut() {
            link.blocked = blocked;
            self.watch(id);
        }
    }

    fn set_reading(&mut self, id: ConnId, why: Pause, wanted: bool) {
        if let Some(link) = self.links.get_mut(id as usize).and_then(Option::as_mut) {
            if wanted {
                link.resume(why);
            } else {
                link.pause(why);
            }
            self.watch(id);
        }
    }

    /// Has the socket watched for what it is to be watched for.
    fn watch(&mut self, id: ConnId) {
        let Some(link) = self.links.get_mut(id as usize).and_then(Option::as_mut) else { return };
        let wanted = link.interest();
        let token = token_of(id, link.cid);
        match self.poll.change(&link.socket, token, link.watched, wanted) {
            Ok(()) => link.watched = wanted,
            // The system watches no more sockets.
            Err(error) => {
                self.engine.close(id, None, format!("cannot be watched: {error}").into());
            }
        }
    }

    fn link(&self, id: ConnId) -> Option<&Link> {
        self.links.get(id as usize)?.as_ref()
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // After a panic nobody may wait for an answer that does not come.
        drop(self.orders.close());
    }
}

/// A connection's name among the sockets: its place, and which of those who had it.
fn token_of(id: ConnId, cid: u64) -> u64 {
    (cid << 32) | u64::from(id)
}
