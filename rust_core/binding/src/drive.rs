//! Output to the sockets, events to Python.
//!
//! The broker's lock is never held while Python runs, and what Python does in turn is handled by
//! the loop that called it: there is one at a time.

use std::sync::atomic::{AtomicBool, Ordering};

use mq9_core::broker::{ConnId, Event, Request};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::broker::Broker;
use crate::clock;
use crate::peer::{EndStall, Pause, Peer};

/// How much a transport is given at once when the socket does not take it.
const HANDED_BYTES: usize = 256 << 10;

/// How long a client that overruns others is not read from.
const STALL_SECONDS: f64 = 0.005;

/// Whether somebody drives the broker.
#[derive(Default)]
pub struct Driving {
    busy: AtomicBool,
    /// Python was called: the loop may have something to do.
    pub called: AtomicBool,
}

/// The right to drive, until it is dropped.
struct Seat<'a>(&'a AtomicBool);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Broker {
    /// Writes all output and handles all events, until nothing is left of either.
    pub fn drive(&self, py: Python<'_>) -> PyResult<()> {
        if self.driving.busy.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let _seat = Seat(&self.driving.busy);
        loop {
            self.flush(py)?;
            let (event, deadline_ms) = {
                let mut state = self.lock();
                (state.core.next_event(), state.core.new_deadline())
            };
            if let Some(deadline_ms) = deadline_ms {
                let now_ms = clock::now().mono_ms;
                self.alarm.wake_in(py, deadline_ms.saturating_sub(now_ms))?;
            }
            match event {
                Some(event) => self.handle(py, event)?,
                None => return Ok(()),
            }
        }
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let mut sent_some = false;
        loop {
            let mut state = self.lock();
            let Some(id) = state.core.next_dirty() else {
                let holding = sent_some && state.core.is_holding();
                drop(state);
                if holding {
                    // Who has taken its answers may have room for more.
                    self.alarm.round_soon(py, true)?;
                }
                return Ok(());
            };
            let Some(peer) = state.peer(id) else { continue };
            let link = peer.lock();
            if link.full || link.closing {
                continue;
            }
            let Some(transport) = &link.transport else { continue };
            if let Some(socket) = link.socket {
                // A broken socket takes everything: the transport will find out, and say so.
                let sent = socket.send(state.core.output(id)).unwrap_or(usize::MAX);
                state.core.written(id, sent);
                sent_some |= sent > 0;
            }
            let output = state.core.output(id);
            let bytes = output.len().min(HANDED_BYTES);
            if bytes == 0 {
                continue;
            }
            let data = PyBytes::new(py, &output[..bytes]);
            let transport = transport.clone_ref(py);
            state.core.handed(id, bytes, clock::mono_us());
            drop(link);
            drop(state);
            self.driving.called.store(true, Ordering::Relaxed);
            transport.call_method1(py, pyo3::intern!(py, "write"), (data,))?;
            if !peer.lock().full {
                self.lock().core.drained(id);
                sent_some = true;
            }
        }
    }

    fn handle(&self, py: Python<'_>, event: Event) -> PyResult<()> {
        self.driving.called.store(true, Ordering::Relaxed);
        match event {
            Event::Connect { conn, options } => {
                let Some(peer) = self.lock().peer(conn) else { return Ok(()) };
                peer.pause(py, Pause::Deciding)?;
                if let Some(session) = peer.session(py) {
                    let options = PyBytes::new(py, &options);
                    session.call_method1(py, pyo3::intern!(py, "on_connect"), (options,))?;
                }
            }
            Event::FirstCommand { conn } => {
                let Some(peer) = self.lock().peer(conn) else { return Ok(()) };
                peer.pause(py, Pause::Deciding)?;
                if let Some(session) = peer.session(py) {
                    session.call_method0(py, pyo3::intern!(py, "on_first_command"))?;
                }
            }
            Event::Request(request) => self.request(py, &request)?,
            Event::Line(line) => {
                let handler = self.lock().protocol_log.clone();
                if let Some(handler) = handler {
                    handler.call1(py, (line.cid, PyBytes::new(py, &line.text)))?;
                }
            }
            Event::Trace(trace) => self.lock().core.publish_trace(&trace, &clock::timestamp()),
            Event::Close { conn, abort } => {
                let Some(peer) = self.lock().peer(conn) else { return Ok(()) };
                self.close_transport(py, conn, &peer, abort)?;
            }
            Event::Stall { conn } => {
                let Some(peer) = self.lock().peer(conn) else { return Ok(()) };
                peer.pause(py, Pause::Stalled)?;
                let end = Py::new(py, EndStall(peer))?;
                let running = py.import(pyo3::intern!(py, "asyncio"))?;
                let running = running.call_method0(pyo3::intern!(py, "get_running_loop"))?;
                running.call_method1(pyo3::intern!(py, "call_later"), (STALL_SECONDS, end))?;
            }
            Event::Hold { conn } => {
                let Some(peer) = self.lock().peer(conn) else { return Ok(()) };
                peer.pause(py, Pause::Held)?;
            }
            Event::Release { conn } => {
                let Some(peer) = self.lock().peer(conn) else { return Ok(()) };
                peer.resume(py, Pause::Held)?;
            }
        }
        Ok(())
    }

    /// Hands over what is left to write and closes, or just closes.
    fn close_transport(
        &self,
        py: Python<'_>,
        id: ConnId,
        peer: &Peer,
        abort: bool,
    ) -> PyResult<()> {
        let Some(transport) = peer.end_reading(py) else { return Ok(()) };
        if abort {
            transport.call_method0(py, pyo3::intern!(py, "abort"))?;
            return Ok(());
        }
        let rest = {
            let mut state = self.lock();
            let rest = PyBytes::new(py, state.core.unwritten(id)).unbind();
            state.core.written(id, usize::MAX);
            rest
        };
        if !rest.as_bytes(py).is_empty() {
            transport.call_method1(py, pyo3::intern!(py, "write"), (rest,))?;
        }
        transport.call_method0(py, pyo3::intern!(py, "close"))?;
        Ok(())
    }

    fn request(&self, py: Python<'_>, request: &Request) -> PyResult<()> {
        let handler = self.lock().services.get(request.service as usize).cloned();
        let Some(handler) = handler else { return Ok(()) };
        let text = |bytes: &[u8]| PyString::new(py, &String::from_utf8_lossy(bytes)).unbind();
        let (subject, reply) = (text(&request.subject), text(&request.reply));
        let (headers, payload) =
            (PyBytes::new(py, &request.headers), PyBytes::new(py, &request.payload));
        handler.call1(py, (request.cid, subject, reply, headers, payload))?;
        Ok(())
    }
}
