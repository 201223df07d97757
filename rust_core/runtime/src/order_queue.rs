//! Orders for the thread of the broker: a queue, and the way to wait for an answer.
//!
//! Whoever asks here never holds what the thread needs. The system may take the processor away from the asker at any
//! moment; the thread goes on all the same.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mq9_core::time::Moment;

use crate::pump::Pump;
use crate::waker::Waker;

/// Something to be done by the thread of the broker.
pub(crate) type Order = Box<dyn FnOnce(&mut Pump, Moment) + Send>;

/// Orders that the thread has not taken yet. Each one that is taken in is carried out.
pub(crate) struct OrderQueue {
    waker: Arc<Waker>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    orders: Vec<Order>,
    closed: bool,
}

impl OrderQueue {
    /// No orders. The waker's thread takes them.
    pub(crate) fn new(waker: Arc<Waker>) -> OrderQueue {
        OrderQueue { waker, queue: Mutex::default() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Orders are whole, whatever has happened.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread do something, soon. Orders are carried out one after the other; after the end of the thread not
    /// at all.
    pub(crate) fn give(&self, order: impl FnOnce(&mut Pump, Moment) + Send + 'static) {
        let mut queue = self.queue();
        if !queue.closed {
            queue.orders.push(Box::new(order));
            drop(queue);
            self.waker.order();
        }
    }

    /// Has the thread `run` something with `input`, and waits for what comes of it; gives the input back after the end
    /// of the thread.
    pub(crate) fn ask<T, I>(
        &self,
        input: I,
        run: impl FnOnce(I, &mut Pump, Moment) -> T + Send + 'static,
    ) -> Result<T, I>
    where
        T: Send + 'static,
        I: Send + 'static,
    {
        let mut queue = self.queue();
        if queue.closed {
            return Err(input);
        }
        let (answer, answered) = sync_channel(1);
        queue.orders.push(Box::new(move |pump, now| {
            // Whoever has asked waits for it.
            let _ = answer.send(run(input, pump, now));
        }));
        drop(queue);
        self.waker.order();
        Ok(answered.recv().unwrap_or_else(|_| panic!("the broker's thread ended in an order")))
    }

    /// Takes all of them.
    pub(crate) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut self.queue().orders)
    }

    /// No more orders are taken in; those that were are for the caller to carry out.
    pub(crate) fn close(&self) -> Vec<Order> {
        let mut queue = self.queue();
        queue.closed = true;
        std::mem::take(&mut queue.orders)
    }
}
