//! SEND, FETCH and ACK as NATS text goes in and comes out.
#![allow(clippy::unwrap_used)]

mod commands;
mod driver;
mod durability;
mod refusals;
mod room;
mod worker;
