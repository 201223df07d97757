//! Inputs and outputs of a member.

use std::sync::Arc;

use thiserror::Error;

use crate::batch::{Batch, BatchError, Writer};
use crate::history::Position;

/// What a member is told at its start. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's number.
    pub cluster: u64,
    /// Counts how often the stream was made anew.
    pub generation: u32,
    /// Who this is.
    pub writer: Writer,
    /// How long followers hear nothing before they claim.
    pub lease_ms: u64,
    /// How much earlier a leader stops answering reads: more than clocks differ in a lease.
    pub margin_ms: u64,
    /// A leader with nothing to say writes this often.
    pub heartbeat_ms: u64,
    /// An append or a question without an answer is sent again after this.
    pub answer_ms: u64,
    /// Waits differ between nodes by up to this.
    pub spread_ms: u64,
    /// How many appends may be under way. More than one is not safe, as the simulation shows, and would gain little:
    /// batches grow with the load.
    pub window: usize,
    /// Whether batches must come from the leader of their term. The simulation shows what happens otherwise.
    pub checks_terms: bool,
    /// Makes waits differ.
    pub seed: u64,
}

impl Config {
    /// The settings of a node that is `writer`.
    pub fn new(cluster: u64, generation: u32, writer: Writer, seed: u64) -> Config {
        Config {
            cluster,
            generation,
            writer,
            lease_ms: 3_000,
            margin_ms: 500,
            heartbeat_ms: 1_000,
            answer_ms: 1_000,
            spread_ms: 1_000,
            window: 1,
            checks_terms: true,
            seed,
        }
    }
}

/// What the node's own log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// The last batch that is known to be in the stream.
    pub certain: Position,
    /// A batch behind it that this node wrote as a leader, without having heard that the stream has it.
    pub uncertain: Option<Position>,
}

/// What a member is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It compares its own log with the stream.
    Starting,
    /// It applies what another writes.
    Following,
    /// It writes.
    Leading,
    /// It stands still; the alarm said why.
    Stopped,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Publish `message` under `id`, expecting `expected` as the stream's last sequence.
    Append {
        /// The stream's memory knows it by this.
        id: String,
        /// The last sequence of the stream before it.
        expected: u64,
        /// The batch.
        message: Arc<[u8]>,
    },
    /// Ask the stream's leader for a message, and answer with [`crate::Member::looked_up`].
    LookUp {
        /// Which one.
        sequence: u64,
    },
    /// Deliver the stream from here on.
    Tail {
        /// The first message wanted.
        from: u64,
    },
    /// Write the batch into the own log, with the position behind it, and apply it.
    Apply {
        /// It counts.
        batch: Batch,
        /// Behind it.
        position: Position,
    },
    /// This node leads from `position` on.
    Lead {
        /// Behind the claim.
        position: Position,
    },
    /// Everything up to here has happened: answers may leave.
    Committed {
        /// The batch's place in the stream.
        sequence: u64,
    },
    /// This node leads no longer. All it wrote is in the stream.
    Follow,
    /// This node leads no longer, and what it wrote behind `keep` did not happen: cut the log there and open it again.
    /// The outcome for those who wait is not known.
    StepDown {
        /// The last batch that happened.
        keep: Position,
    },
    /// Stand still and say why.
    Stop(Alarm),
}

/// Why a partition stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Alarm {
    /// The stream holds something that is no batch.
    #[error("message {sequence} of the stream: {error}")]
    Unreadable {
        /// Where.
        sequence: u64,
        /// What is wrong with it.
        error: BatchError,
    },
    /// The stream belongs to another cluster, or to an older or newer generation of this one.
    #[error("message {sequence} of the stream was written by another cluster or generation")]
    OtherCluster {
        /// Where.
        sequence: u64,
    },
    /// The batch's writer had another log than this node.
    #[error(
        "message {sequence} of the stream does not continue what this node holds: compare the nodes' logs"
    )]
    Differs {
        /// Where.
        sequence: u64,
    },
    /// The stream has forgotten messages that it had acknowledged.
    #[error(
        "the stream ends at {last}, but {known} was acknowledged: reseed it from the longest log"
    )]
    Forgotten {
        /// Its last message.
        last: u64,
        /// The last one this node knows of.
        known: u64,
    },
    /// The stream begins behind what this node needs next.
    #[error("the stream begins at {first}, this node needs {needed}: copy the log of another node")]
    Missed {
        /// The next message.
        needed: u64,
        /// The oldest one there is.
        first: u64,
    },
}

/// What the stream said to an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is in the stream, now or from an earlier attempt.
    Stored {
        /// Its place.
        sequence: u64,
    },
    /// Another sequence than the expected one is the last.
    WrongLast,
    /// Nobody knows: no answer, no leader, still in process.
    Unknown,
}

/// What the stream's leader has at a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// This message.
    Message(Vec<u8>),
    /// Nothing: it holds `first` to `last`.
    Nothing {
        /// The oldest message.
        first: u64,
        /// The newest message.
        last: u64,
    },
    /// No answer.
    Unknown,
}

/// A batch on its way into the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposed {
    /// Before it: to be written into the own log in front of the batch's records, in one unit with them.
    pub before: Position,
    /// Behind it: to be written behind them.
    pub position: Position,
}

/// Why nothing can be proposed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotLeading {
    /// Another node may lead.
    #[error("this node does not lead")]
    Elsewhere,
    /// As much is under way as may be.
    #[error("an append is under way")]
    Full,
}
