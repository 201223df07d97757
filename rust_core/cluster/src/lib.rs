//! A partition's log in a stream that several machines keep: who may write, what counts, what is lost never.
//!
//! Every node of a cluster runs one [`Member`]. The member decides; others move bytes. It is given what the stream
//! delivers and answers, and the time. It returns [`Action`]s: append this, look that up, apply this batch, lead,
//! step down. It knows no socket, no clock and no store, so that a simulation can run it through every accident.
//!
//! Dependencies point one way: batch -> history -> member.

mod batch;
mod chance;
mod history;
mod member;

pub use batch::{Batch, BatchError, Content, Record, Writer, message_id};
pub use history::{Differs, Digest, History, Position};
pub use member::{
    Action, Alarm, Answer, Config, Found, Member, NotLeading, Proposed, Recovered, Role,
};
