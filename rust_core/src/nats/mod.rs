//! The NATS client protocol as text: subjects, command lines, and what the server writes.
//!
//! Knows the grammar and its limits. Must not know connections, subscriptions or permissions.

mod command;
mod pattern_set;
mod subject;
mod write;

pub use command::{Command, Decoded, Fault, Publish, decode};
pub use pattern_set::{Overlap, PatternSet};
pub use subject::{covers, has_wildcard, is_literal, is_valid, matches, overlaps, tokens};
pub use write::{Number, err, msg_parts, no_responders};
