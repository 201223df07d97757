//! The broker without sockets: what goes in on one connection comes out on the others.
#![allow(clippy::unwrap_used)]

mod delivery;
mod driver;
mod limits;
mod own;
mod permissions;
mod splits;
mod timers;
mod tracing;
