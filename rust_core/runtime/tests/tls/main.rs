//! TLS with real clients, in memory.

#![allow(clippy::unwrap_used, missing_docs)]

mod backpressure;
mod certificates;
mod handshakes;
mod hostile;
mod settings;
mod traffic;
mod world;
