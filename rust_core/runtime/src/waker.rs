//! Wakes the thread of the broker from others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that becomes readable when something has happened, however often.
pub struct Bell(OwnedFd);

impl Bell {
    /// A silent one.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn ring(&self) {
        // It fails only when it has been rung more often than 64 bits can count.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it silent.
    pub fn reset(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What others tell the thread of the broker, asleep or not.
pub struct Waker {
    bell: Bell,
    /// The thread waits for sockets: only the bell can be heard.
    asleep: AtomicBool,
    /// There are orders.
    ordered: AtomicBool,
    /// More is durable, or the store was changed.
    unsettled: AtomicBool,
}

impl Waker {
    /// Nothing to tell.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker {
            bell: Bell::new()?,
            asleep: AtomicBool::new(false),
            ordered: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
        })
    }

    /// There are orders.
    pub fn order(&self) {
        self.tell(&self.ordered);
    }

    /// The engine should settle.
    pub fn settle(&self) {
        self.tell(&self.unsettled);
    }

    // The news first, then a look at the sleeper, who does it the other way round: one of both sees the other.
    fn tell(&self, news: &AtomicBool) {
        news.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// The thread is about to wait; false if there is news and it must not.
    pub fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let news = self.ordered.load(Ordering::SeqCst) || self.unsettled.load(Ordering::SeqCst);
        if news {
            self.wake_up();
        }
        !news
    }

    /// The thread has waited.
    pub fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Whether there are orders, asked once.
    pub fn takes_order(&self) -> bool {
        self.ordered.swap(false, Ordering::SeqCst)
    }

    /// Whether the engine should settle, asked once.
    pub fn takes_settling(&self) -> bool {
        self.unsettled.swap(false, Ordering::SeqCst)
    }

    /// What makes the thread's wait end.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }
}
