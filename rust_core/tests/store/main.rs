//! Promises of the store, on real and simulated disks. One file a promise.

mod acks_together;
mod activity;
mod basics;
mod captured;
mod consumers;
mod given_up;
mod groups;
mod large_checkpoint;
mod message_ttls;
mod panics;
mod purge;
mod quotas;
mod refusals;
mod regressions;
mod send_once;
mod space;
mod streams;
mod sync_thread;
mod told;
mod update;
mod upkeep;
mod upkeep_holds;
mod waits;
mod watching;
