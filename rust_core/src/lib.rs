//! The core of mq9: a crash-safe store of priority mailboxes, and a NATS broker without sockets.
//!
//! Pure library: no Python, no async runtime, no clock, no global state. Time and randomness come in
//! as arguments, files through [`disk::Disk`], so that every behaviour can be replayed and every
//! crash simulated. Dependencies point one way: disk, wire -> log -> mailbox -> group -> store -> protocol ->
//! partition, nats -> router -> front, and both -> engine.

pub mod commands;
pub mod consumer;
pub mod disk;
pub mod engine;
pub mod error;
pub mod front;
pub mod group;
pub mod jetstream;
pub mod json;
pub mod latency;
pub mod log;
pub mod mailbox;
pub mod nats;
pub mod partition;
pub mod protocol;
pub mod router;
pub mod store;
pub mod time;
pub mod timer;
pub mod wire;
