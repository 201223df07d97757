//! The parts that the store and the broker are made of, mostly against naive models of them.

mod by_id;
mod group;
mod group_model;
mod group_ranges;
mod lane;
mod router_model;
mod timer_wheel;
