//! One node of a cluster: its store, its part in the partition, and the way to the servers that keep the stream.
//!
//! [`Node`] is a thread. It feeds a [`mq9_cluster::Member`] with what the stream says and does what it decides: applies
//! batches to the store, promotes it, hands its outbox to the stream. Whoever started it waits for the role to change:
//! a leader is served by a broker, and a store that must be cut is opened again.
//!
//! Dependencies point one way: wire -> link -> stream -> driver -> node; status -> peers -> driver.

mod driver;
pub mod folder;
mod link;
mod node;
mod peers;
mod status;
mod stream;
mod wire;

pub use link::Server;
pub use node::{Node, Settings, batch_bytes};
pub use peers::Peers;
pub use status::{Peer, Role, Status};
pub use stream::{News, Stream};
pub use wire::{Malformed, Message, Reader, Said, publish};
