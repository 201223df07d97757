//! When the event loop calls the broker: at the end of a round, and when something is due.

use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;

use crate::clock;
use crate::panics::left_in_the_middle;

/// The loop's appointments with the broker.
#[derive(Default)]
pub struct Alarm(Mutex<Appointments>);

#[derive(Default)]
struct Appointments {
    event_loop: Option<Py<PyAny>>,
    round: Option<Py<PyAny>>,
    ring: Option<Py<PyAny>>,
    /// The loop's handle for the next ring, which is still to come, and when something is due.
    next: Option<(Py<PyAny>, u64)>,
    /// The end of this round is asked for.
    round_asked: bool,
    /// At its end the store has commands to write.
    store_used: bool,
}

impl Alarm {
    /// From now on `round` and `ring` are called by this loop.
    pub fn start(&self, event_loop: Py<PyAny>, round: Py<PyAny>, ring: Py<PyAny>) {
        let mut appointments = self.lock();
        appointments.event_loop = Some(event_loop);
        appointments.round = Some(round);
        appointments.ring = Some(ring);
    }

    /// No more calls; the loop they came from.
    pub fn stop(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Appointments { event_loop, next, .. } = std::mem::take(&mut *self.lock());
        if let Some((handle, _)) = next {
            handle.call_method0(py, pyo3::intern!(py, "cancel"))?;
        }
        Ok(event_loop)
    }

    /// Asks for the end of this round: everything that is readable now is read before it. False if
    /// there is no loop to ask.
    pub fn round_soon(&self, py: Python<'_>, store_used: bool) -> PyResult<bool> {
        let (event_loop, round) = {
            let mut appointments = self.lock();
            appointments.store_used |= store_used;
            if appointments.round_asked {
                return Ok(true);
            }
            match (&appointments.event_loop, &appointments.round) {
                (Some(event_loop), Some(round)) => {
                    let both = (event_loop.clone_ref(py), round.clone_ref(py));
                    appointments.round_asked = true;
                    both
                }
                _ => return Ok(false),
            }
        };
        event_loop.call_method1(py, pyo3::intern!(py, "call_soon"), (round,))?;
        Ok(true)
    }

    /// The round has ended; whether the store has commands to write.
    pub fn round_over(&self) -> bool {
        let mut appointments = self.lock();
        appointments.round_asked = false;
        std::mem::take(&mut appointments.store_used)
    }

    /// The loop has rung; whoever it calls finds out when it has to ring next.
    pub fn rung(&self) {
        self.lock().next = None;
    }

    /// Sees to it that the loop rings within this time. One that is to come earlier stays, also if it is late: it is
    /// for something else.
    pub fn wake_in(&self, py: Python<'_>, sleep_ms: u64) -> PyResult<()> {
        let due_ms = clock::now().mono_ms + sleep_ms;
        let (event_loop, ring, later) = {
            let mut appointments = self.lock();
            if appointments.next.as_ref().is_some_and(|(_, next_ms)| *next_ms <= due_ms) {
                return Ok(());
            }
            let (Some(event_loop), Some(ring)) = (&appointments.event_loop, &appointments.ring)
            else {
                return Ok(());
            };
            let both = (event_loop.clone_ref(py), ring.clone_ref(py));
            (both.0, both.1, appointments.next.take())
        };
        if let Some((later, _)) = later {
            later.call_method0(py, pyo3::intern!(py, "cancel"))?;
        }
        // One more, so that the loop's coarser clock rarely rings before the deadline.
        let seconds = (sleep_ms + 1) as f64 / 1000.0;
        let call_later = pyo3::intern!(py, "call_later");
        let handle = event_loop.call_method1(py, call_later, (seconds, ring))?;
        self.lock().next = Some((handle, due_ms));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Appointments> {
        self.0.lock().unwrap_or_else(left_in_the_middle)
    }
}
