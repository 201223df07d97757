//! A store whose files are damaged keeps all but the damaged record, and reports it.
//!
//! Every bit of every file is flipped and every file is cut at every length. What must be left is
//! predicted by a model that knows records but not the store.

#![allow(clippy::unwrap_used)]

mod flips;
mod foreign;
mod house;
mod journal;
mod layout;
mod lost_records;
mod model;
mod read_only;
mod truncation;
mod view;
mod whole_files;
