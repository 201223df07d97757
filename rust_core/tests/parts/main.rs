//! The parts that the store and the broker are made of, mostly against naive models of them.

// Tests of what only the inside shows.
#[path = "../../src/store/addresses.rs"]
#[expect(dead_code, reason = "the store uses all of it")]
mod addresses;
#[path = "../../src/mailbox/blocks.rs"]
mod blocks;
#[path = "../../src/store/indexes.rs"]
#[expect(dead_code, reason = "the store uses all of it")]
mod indexes;
#[path = "../../src/timer/slab.rs"]
#[expect(dead_code, reason = "the wheel uses all of it")]
mod slab;

mod by_id;
mod envelope;
mod group;
mod group_held;
mod group_model;
mod group_ranges;
mod json;
mod lane;
mod latency;
mod position;
mod router_model;
mod timer_wheel;
