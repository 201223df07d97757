//! The thread of the broker, and the way to it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use mq9_core::engine::Engine;
use mq9_core::time::Moment;

use crate::notices::Notices;
use crate::open_store::OpenStore;
use crate::order_queue::OrderQueue;
use crate::pump::Pump;
use crate::waker::Waker;

/// The thread of the broker. Ends when dropped.
pub struct Runtime {
    orders: Arc<OrderQueue>,
    notices: Arc<Notices>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Runtime {
    /// Starts the thread with an engine, whose store is `store` if it has one. From now on the commands of others to
    /// that store are orders.
    pub fn start(engine: Engine, store: Option<&OpenStore>) -> io::Result<Runtime> {
        let waker = Arc::new(Waker::new()?);
        let orders = Arc::new(OrderQueue::new(Arc::clone(&waker)));
        let notices = Arc::new(Notices::new()?);
        if let Some(store) = store {
            store.durability().tell(&waker);
        }
        let upkeep = store.map(|store| Arc::clone(store.upkeep()));
        let pump = Pump::new(engine, upkeep, Arc::clone(&orders), waker, Arc::clone(&notices))?;
        let thread =
            std::thread::Builder::new().name("mq9-broker".to_owned()).spawn(|| pump.run())?;
        if let Some(store) = store {
            store.serve(&orders);
        }
        Ok(Runtime { orders, notices, thread: Mutex::new(Some(thread)) })
    }

    /// Has the thread do something, soon. Orders are carried out one after the other; after [`Runtime::stop`] not at
    /// all.
    pub fn order(&self, order: impl FnOnce(&mut Pump, Moment) + Send + 'static) {
        self.orders.give(order);
    }

    /// Has the thread answer a question, and waits for it; nothing after [`Runtime::stop`].
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Pump, Moment) -> T + Send + 'static,
    ) -> Option<T> {
        self.orders.ask(question, |question, pump, now| question(pump, now)).ok()
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
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}
