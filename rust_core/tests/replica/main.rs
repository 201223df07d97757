//! A leader's records on other nodes: equal state at equal places of the stream, at every point at which power can fail.
#![allow(clippy::unwrap_used)]

mod folders;
mod follower;
mod leader;
mod nodes;
#[allow(dead_code)]
#[path = "../crash/script.rs"]
mod script;
mod streams;
#[allow(dead_code)]
#[path = "../crash/world.rs"]
mod world;
