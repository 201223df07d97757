//! The thread of the broker, and the way to it.

use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use mq9_core::engine::Engine;
use mq9_core::time::Moment;

use crate::notices::Notices;
use crate::open_store::OpenStore;
use crate::pump::Pump;
use crate::waker::Waker;

/// Something to be done by the thread of the broker.
pub(crate) type Order = Box<dyn FnOnce(&mut Pump, Moment) + Send>;

/// Orders that the thread has not taken yet.
#[derive(Default)]
pub(crate) struct Orders(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    orders: Vec<Order>,
    closed: bool,
}

impl Orders {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Orders are whole, whatever has happened.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all of them.
    pub(crate) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut self.queue().orders)
    }

    /// No more orders are taken, and those that wait are dropped.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        queue.orders.clear();
    }
}

/// The thread of the broker. Ends when dropped.
pub struct Runtime {
    orders: Arc<Orders>,
    waker: Arc<Waker>,
    notices: Arc<Notices>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Runtime {
    /// Starts the thread with an engine, whose store is `store` if it has one.
    pub fn start(engine: Engine, store: Option<&OpenStore>) -> io::Result<Runtime> {
        let (orders, waker) = (Arc::new(Orders::default()), Arc::new(Waker::new()?));
        let notices = Arc::new(Notices::new()?);
        if let Some(store) = store {
            store.durability().tell(&waker);
        }
        let upkeep = store.map(|store| Arc::clone(store.upkeep()));
        let pump = Pump::new(
            engine,
            upkeep,
            Arc::clone(&orders),
            Arc::clone(&waker),
            Arc::clone(&notices),
        )?;
        let thread =
            std::thread::Builder::new().name("mq9-broker".to_owned()).spawn(|| pump.run())?;
        Ok(Runtime { orders, waker, notices, thread: Mutex::new(Some(thread)) })
    }

    /// Has the thread do something, soon. Orders are carried out one after the other; after [`Runtime::stop`] not at
    /// all.
    pub fn order(&self, order: impl FnOnce(&mut Pump, Moment) + Send + 'static) {
        let mut queue = self.orders.queue();
        if !queue.closed {
            queue.orders.push(Box::new(order));
            drop(queue);
            self.waker.order();
        }
    }

    /// Has the thread answer a question, and waits for it; nothing after [`Runtime::stop`].
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Pump, Moment) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        self.order(move |pump, now| {
            // Whoever has asked waits for it.
            let _ = answer.send(question(pump, now));
        });
        answered.recv().ok()
    }

    /// What the thread has to tell.
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Ends the thread and all connections. What it was told before is done before.
    pub fn stop(&self) {
        self.order(|pump, _| pump.stop());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there has said so itself.
            let _ = thread.join();
        }
        self.orders.close();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}
