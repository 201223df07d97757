//! One message of the stream: the records of a flush, or a word about who leads.
//!
//! ```text
//! offset  size  field
//!      0     4  `mq9b`
//!      4     1  version
//!      5     1  content: 0 records, 1 claim, 2 yield
//!      6     8  cluster
//!     14     4  generation
//!     18     8  term
//!     26     4  node
//!     30     8  incarnation
//!     38     8  number
//!     46    16  digest of everything before
//!     62     4  how many records follow; for a yield, the node that shall lead
//!     66     -  records: kind 1, flags 1, mailbox 8, length 4, body
//!    end     4  CRC32C of all that stands before
//! ```
//!
//! Numbers are little-endian. A record has no position and no salt: each node frames it anew in its own log.

use thiserror::Error;

use crate::history::Digest;

const MAGIC: &[u8; 4] = b"mq9b";
const VERSION: u8 = 1;
const HEADER: usize = 66;
const RECORD_HEADER: usize = 14;
const CHECKSUM: usize = 4;

/// Who wrote a batch: `incarnation` is another one after each start of `node`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Writer {
    /// Its number in the cluster's layout.
    pub node: u32,
    /// Unique over all starts of all nodes.
    pub incarnation: u64,
}

/// One record of the log, without its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The kind's number.
    pub kind: u8,
    /// The frame's flags.
    pub flags: u8,
    /// Mailbox number.
    pub mailbox: u64,
    /// What the kind says it is.
    pub body: Vec<u8>,
}

impl Record {
    /// Its length in a batch.
    pub fn encoded_len(&self) -> usize {
        RECORD_HEADER + self.body.len()
    }
}

/// What a batch says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Records in their order; none is a sign of life.
    Records(Vec<Record>),
    /// The writer leads from here on.
    Claim,
    /// The writer leads no longer; this node shall claim at once.
    Yield(u32),
}

/// One message of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The cluster it belongs to.
    pub cluster: u64,
    /// Counts how often the stream was made anew.
    pub generation: u32,
    /// The term it was written in; a claim's own.
    pub term: u64,
    /// Who wrote it.
    pub writer: Writer,
    /// Counts the writer's batches.
    pub number: u64,
    /// Of all batches before it that count.
    pub before: Digest,
    /// What it says.
    pub content: Content,
}

/// Why bytes are no batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BatchError {
    /// They do not begin as a batch does.
    #[error("not a batch of mq9")]
    Foreign,
    /// A newer version of mq9 wrote it.
    #[error("a batch of version {0}; this mq9 reads version {VERSION}: upgrade this node first")]
    Version(u8),
    /// The checksum or a length is wrong.
    #[error("a damaged batch")]
    Damaged,
}

/// The id under which the stream remembers a batch (`Nats-Msg-Id`).
pub fn message_id(writer: Writer, number: u64) -> String {
    format!("{}-{number}", writer.incarnation)
}

impl Batch {
    /// The id under which the stream remembers it.
    pub fn id(&self) -> String {
        message_id(self.writer, self.number)
    }

    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        let (content, count) = match &self.content {
            Content::Records(records) => (0, records.len() as u32),
            Content::Claim => (1, 0),
            Content::Yield(node) => (2, *node),
        };
        let records: &[Record] = match &self.content {
            Content::Records(records) => records,
            Content::Claim | Content::Yield(_) => &[],
        };
        let size = records.iter().map(Record::encoded_len).sum::<usize>();
        let mut out = Vec::with_capacity(HEADER + size + CHECKSUM);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, content]);
        out.extend_from_slice(&self.cluster.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.term.to_le_bytes());
        out.extend_from_slice(&self.writer.node.to_le_bytes());
        out.extend_from_slice(&self.writer.incarnation.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.before.0.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        debug_assert_eq!(out.len(), HEADER);
        for record in records {
            out.extend_from_slice(&[record.kind, record.flags]);
            out.extend_from_slice(&record.mailbox.to_le_bytes());
            out.extend_from_slice(&(record.body.len() as u32).to_le_bytes());
            out.extend_from_slice(&record.body);
        }
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// The batch that a message holds.
    pub fn decode(message: &[u8]) -> Result<Batch, BatchError> {
        let mut reader = Reader(message);
        if reader.take::<4>() != Some(*MAGIC) {
            return Err(BatchError::Foreign);
        }
        let [version] = reader.take().ok_or(BatchError::Damaged)?;
        if version != VERSION {
            return Err(BatchError::Version(version));
        }
        let end = message.len() - CHECKSUM.min(message.len());
        let (body, checksum) = message.split_at(end);
        if checksum != crc32c::crc32c(body).to_le_bytes() {
            return Err(BatchError::Damaged);
        }
        Batch::decode_checked(Reader(&body[5..])).ok_or(BatchError::Damaged)
    }

    fn decode_checked(mut reader: Reader<'_>) -> Option<Batch> {
        let [content] = reader.take()?;
        let cluster = u64::from_le_bytes(reader.take()?);
        let generation = u32::from_le_bytes(reader.take()?);
        let term = u64::from_le_bytes(reader.take()?);
        let node = u32::from_le_bytes(reader.take()?);
        let incarnation = u64::from_le_bytes(reader.take()?);
        let number = u64::from_le_bytes(reader.take()?);
        let before = Digest(u128::from_le_bytes(reader.take()?));
        let count = u32::from_le_bytes(reader.take()?);
        let content = match content {
            0 => Content::Records(reader.records(count)?),
            1 if count == 0 => Content::Claim,
            2 => Content::Yield(count),
            _ => return None,
        };
        let writer = Writer { node, incarnation };
        let batch = Batch { cluster, generation, term, writer, number, before, content };
        reader.0.is_empty().then_some(batch)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn records(&mut self, count: u32) -> Option<Vec<Record>> {
        // No more memory than the message itself can fill.
        let count = count as usize;
        if count > self.0.len() / RECORD_HEADER {
            return None;
        }
        let mut records = Vec::with_capacity(count);
        for _ in 0..count {
            let [kind, flags] = self.take()?;
            let mailbox = u64::from_le_bytes(self.take()?);
            let length = u32::from_le_bytes(self.take()?) as usize;
            let (body, rest) = self.0.split_at_checked(length)?;
            self.0 = rest;
            records.push(Record { kind, flags, mailbox, body: body.to_vec() });
        }
        Some(records)
    }
}
