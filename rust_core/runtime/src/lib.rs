//! The runtime of the broker: threads, sockets, TLS and clocks, without Python.
//!
//! [`Runtime`] is a thread that owns an engine and the sockets of its clients. Others give it orders through a queue
//! and hear of it through another one; it waits for nobody. [`OpenStore`] is a store with the threads that sync it and
//! keep it in shape.

pub mod clock;
mod durability;
mod error;
mod link;
mod notices;
mod open_store;
mod order_queue;
mod poll;
mod pump;
mod runtime;
pub mod tls;
mod upkeep;
mod waker;

pub use durability::Durability;
pub use error::{Failure, Result};
pub use link::{Greeting, TlsTerms};
pub use notices::{Notice, Notices};
pub use open_store::OpenStore;
pub use pump::Pump;
pub use runtime::Runtime;
pub use upkeep::Upkeep;
pub use waker::{Bell, Waker};
