//! The store of mq9: a crash-safe commit log, priority mailboxes, consumer groups and timers.
//!
//! Pure library: no Python, no async runtime, no clock, no global state. Time and randomness come in
//! as arguments, files through [`disk::Disk`], so that every behaviour can be replayed and every
//! crash simulated. Dependencies point one way: disk, wire -> log -> mailbox -> group -> store.

pub mod disk;
pub mod error;
pub mod group;
pub mod log;
pub mod mailbox;
pub mod store;
pub mod time;
pub mod timer;
pub mod wire;
