//! Ties a node's own log to the stream that all nodes share: the place up to which the log holds it.

use super::bytes::{Put, Reader};

/// A place in the stream, with a digest of everything up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamPosition {
    /// The last message; 0 before the first.
    pub sequence: u64,
    /// Of all messages up to it.
    pub digest: u128,
    /// The term of the last claim.
    pub term: u64,
    /// Node and incarnation of whoever made it.
    pub leader: Option<(u32, u64)>,
}

impl StreamPosition {
    fn encode(&self, out: &mut Vec<u8>) {
        let (node, incarnation) = self.leader.unwrap_or_default();
        out.put_u64(self.sequence);
        out.put_u64(self.digest as u64);
        out.put_u64((self.digest >> 64) as u64);
        out.put_u64(self.term);
        out.put_u8(u8::from(self.leader.is_some()));
        out.put_u32(node);
        out.put_u64(incarnation);
    }

    fn decode(from: &mut Reader<'_>) -> Option<StreamPosition> {
        let (sequence, low, high) = (from.u64()?, from.u64()?, from.u64()?);
        let digest = u128::from(high) << 64 | u128::from(low);
        let (term, has_leader) = (from.u64()?, from.u8()?);
        let leader = (from.u32()?, from.u64()?);
        let leader = match has_leader {
            0 => None,
            1 => Some(leader),
            _ => return None,
        };
        Some(StreamPosition { sequence, digest, term, leader })
    }
}

/// Everything before this record in the own log is what the stream holds up to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tie {
    /// Behind the batch that this record closes.
    pub at: StreamPosition,
    /// Before that batch, where this node wrote it as the leader, without having heard that the stream has it.
    pub before: Option<StreamPosition>,
}

/// A tie as a record. It names the one before it and counts what lies between: a gap between two segments, which power
/// that fails may leave, is no damage by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TieRecord {
    /// What it says.
    pub tie: Tie,
    /// Where the tie before it ends, as a number; 0 without one, [`TieRecord::SEED`] where there need not be one, and
    /// [`TieRecord::ALONE`] where the node left its cluster.
    pub behind: u64,
    /// Bytes of records between.
    pub bytes: u64,
}

impl TieRecord {
    /// Stands for whatever a single node wrote.
    pub const SEED: u64 = u64::MAX;

    /// From here on a single node writes, and no stream has it.
    pub const ALONE: u64 = u64::MAX - 1;

    /// An upper bound of the bytes that [`TieRecord::encode`] will append.
    pub const MAX_LEN: usize = 2 * 45 + 1 + 16;

    /// Appends the body of the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.behind);
        out.put_u64(self.bytes);
        self.tie.at.encode(out);
        out.put_u8(u8::from(self.tie.before.is_some()));
        if let Some(before) = &self.tie.before {
            before.encode(out);
        }
    }

    /// Reads what [`TieRecord::encode`] wrote.
    pub fn decode(from: &mut Reader<'_>) -> Option<TieRecord> {
        let (behind, bytes) = (from.u64()?, from.u64()?);
        let at = StreamPosition::decode(from)?;
        let before = match from.u8()? {
            0 => None,
            1 => Some(StreamPosition::decode(from)?),
            _ => return None,
        };
        let tie = Tie { at, before };
        from.is_empty().then_some(TieRecord { tie, behind, bytes })
    }
}
