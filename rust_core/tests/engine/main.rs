//! SEND, FETCH and ACK as NATS text goes in and comes out.
#![allow(clippy::unwrap_used)]

mod agreement;
mod broadcast_cuts;
mod broadcasts;
mod commands;
mod declared;
mod driver;
mod durability;
mod lone;
mod power_cuts;
mod push;
mod push_model;
mod push_scale;
mod push_slow;
mod push_trouble;
mod push_unread;
mod refusals;
mod room;
mod script;
mod splits;
mod stream_acks;
mod stream_consumers;
mod stream_dead_letters;
mod stream_delays;
mod stream_expectations;
mod stream_priorities;
mod stream_pulls;
mod streams;
mod streams_room;
mod wire;
mod worker;

// The model of the store, which is the model of what clients are told.
#[path = "../store_model/acks.rs"]
mod acks;
#[path = "../store_model/groups.rs"]
#[allow(dead_code)]
mod groups;
#[path = "../store_model/mailbox.rs"]
#[allow(dead_code)]
mod mailbox;
#[path = "../store_model/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../store_model/waiters.rs"]
#[allow(dead_code)]
mod waiters;
