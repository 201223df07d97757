//! The core of mq9: a crash-safe store of priority mailboxes, and a NATS broker without sockets.
//!
//! Pure library: no Python, no async runtime, no clock, no global state. Time and randomness come in
//! as arguments, files through [`disk::Disk`], so that every behaviour can be replayed and every
//! crash simulated. Dependencies point one way: disk, wire -> log -> mailbox -> group -> store, and
//! nats -> router -> broker.

pub mod broker;
pub mod disk;
pub mod error;
pub mod group;
pub mod json;
pub mod log;
pub mod mailbox;
pub mod nats;
pub mod post;
pub mod router;
pub mod store;
pub mod time;
pub mod timer;
pub mod wire;
