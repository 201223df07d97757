//! The store: mailboxes, groups and their log, behind one set of commands.
//!
//! A command plans against the state, reserves log space, appends its records, applies them, in
//! that order: an error before the append leaves nothing changed. What a command promises may be
//! told to the client once [`Store::acknowledged`] has reached the [`Store::end`] seen after it.
//! The store is not shared: callers put it behind a lock, and background work holds that lock only
//! for short steps.

mod ack;
mod activity;
mod addresses;
mod broadcasts;
mod checkpoint;
mod compact;
mod consume;
mod consumer_acks;
mod consumers;
mod create;
mod damage;
mod dead_counts;
mod dead_letter;
mod delayed;
mod fair_lock;
mod fetch;
mod fetched;
mod group;
mod ids;
mod indexes;
mod info;
mod invariants;
mod live;
mod lost;
mod maintain;
mod noted;
mod open;
mod position;
mod prefetch;
mod publish;
mod purge;
mod push;
mod query;
mod quota;
mod read_only;
mod readers;
mod removed;
mod replay;
mod replica;
mod retention;
mod send;
mod send_once;
mod slot;
mod slots;
mod state;
mod state_digest;
mod state_groups;
mod stream;
mod stream_dead_letters;
mod stream_delays;
mod stream_info;
mod stream_page;
mod stream_purge;
mod stream_state;
mod tick;
mod timers;
mod unwanted;
mod update;
mod usage;
mod waiters;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use ack::{Ack, AckKind};
pub use activity::{Activity, GroupActivity, GroupCounts, Watched};
pub use broadcasts::{BROADCASTS, Broadcast, BroadcastLimits, StoredBroadcast};
pub use checkpoint::{Checkpointer, Superseded};
pub use compact::{Candidate, Compactor, Removal};
pub use consume::{MOST_GIVEN, NewConsumer, Offer};
pub use consumer_acks::{Acked, ConsumerAck, Delivery};
pub use consumers::ConsumerKey;
pub use create::NewMailbox;
pub use damage::{Damage, DamageKind};
pub use dead_counts::DeadCounts;
pub use fair_lock::{FairLock, StoreGuard};
pub use fetch::{Fetch, FetchOutcome, GroupFetch, MemberId, Start};
pub use fetched::{Fetched, Meta};
pub use indexes::SlotIx;
pub use info::{GroupInfo, MailboxInfo, StoreInfo};
pub use lost::{Lost, LostIn};
pub use maintain::{Shared, maintain};
pub use noted::Note;
pub use position::{Held, Position, Run};
pub use publish::{MAX_SUBJECT, NotPublished, Publish, Published};
pub use push::{Ahead, INBOX_GROUP, LevelSet, PushLimits, Reading};
pub use query::Query;
pub use quota::{Quotas, Waits};
pub use read_only::ReadOnlyDisk;
pub use readers::{MailboxRef, News};
pub use retention::Retention;
pub use send::{MAX_TAGS, Send};
pub use send_once::{MAX_SEND_ID, Once};
pub use stream::{MAX_CONFIG, NewStream, StreamKey};
pub use stream_dead_letters::{Fate, Grave};
pub use stream_info::{ConsumerInfo, StreamInfo};
pub use stream_page::{StreamPage, StreamQuery};
pub use stream_purge::{Purging, StreamPurge};
pub use stream_state::{AboutMessage, StreamEvent};
pub use update::Changes;
pub use usage::Amount;
pub use waiters::Completion;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::log::{Call, Log, LogOptions, Lsn, Placed, SyncMode, Syncer};
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::record::{FLAG_MORE, FLAG_REST};
use checkpoint::Checkpoints;
use readers::Readers;
use replica::Replica;
use state::{Place, State};
use waiters::Waiters;

/// Smallest and largest size of a segment: offsets must fit 32 bits with room to spare.
const MIN_SEGMENT: u32 = 4 << 10;
const MAX_SEGMENT: u32 = 1 << 30;

/// Settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Size at which a segment is closed.
    pub segment_bytes: u32,
    /// Steps in which disk space is reserved.
    pub allocate_bytes: u32,
    /// When acknowledgements may leave.
    pub sync: SyncMode,
    /// How long a member may hold a message where neither request nor mailbox says.
    pub ack_wait_ms: u64,
    /// Most groups of one mailbox.
    pub max_groups: usize,
    /// How long a group lives that nobody uses, where the mailbox does not say; 0 is for ever.
    pub group_ttl_ms: u64,
    /// What clients may have at most.
    pub quotas: Quotas,
    /// A checkpoint is due when this much log has been written since the last, and at least as
    /// much as the last checkpoint's own size.
    pub checkpoint_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            allocate_bytes: 4 << 20,
            sync: SyncMode::Always,
            ack_wait_ms: 30_000,
            max_groups: 1024,
            group_ttl_ms: 0,
            quotas: Quotas::default(),
            checkpoint_bytes: 256 << 20,
        }
    }
}

impl Options {
    fn log(&self) -> LogOptions {
        LogOptions {
            segment_bytes: self.segment_bytes.clamp(MIN_SEGMENT, MAX_SEGMENT),
            allocate_bytes: self.allocate_bytes,
            sync: self.sync,
        }
    }
}

/// An open store. Dropping it without [`Store::close`] is like a crash: nothing acknowledged is
/// lost, but the next open reads the log's tail.
pub struct Store {
    disk: Arc<dyn Disk>,
    options: Options,
    state: State,
    log: Log,
    checkpoints: Checkpoints,
    waiters: Waiters,
    readers: Readers,
    /// Dead segments, and how far the log must be durable before they go.
    dying: Vec<(u32, Lsn)>,
    /// Segments that compaction cannot empty.
    stuck: BTreeSet<u32>,
    /// What a reader of the log has not read yet.
    kept: Option<Retention>,
    /// Its part in a cluster; none on a single node.
    replica: Option<Replica>,
    damage: Vec<Damage>,
    dead: DeadCounts,
    _lock: Box<dyn std::marker::Send + Sync>,
}

impl Store {
    /// The settings it was opened with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How many messages were given up since it was opened, by where they came from.
    pub fn dead_counts(&self) -> &DeadCounts {
        &self.dead
    }

    /// The end of the log. What a command just did is promised once acknowledged this far.
    pub fn end(&self) -> Lsn {
        self.log.end()
    }

    /// How far replies may leave.
    pub fn acknowledged(&self) -> Lsn {
        self.log.syncer().acknowledged()
    }

    /// The shared state of group commit, for a [`crate::log::SyncThread`].
    pub fn syncer(&self) -> Arc<Syncer> {
        Arc::clone(self.log.syncer())
    }

    /// Writes appended records to the operating system: once per batch of commands.
    pub fn flush(&mut self) -> Result<()> {
        self.log.flush()
    }

    /// The same, and the sync thread hears of it now or later.
    pub fn flush_and(&mut self, call: Call) -> Result<()> {
        self.log.flush_and(call)
    }

    /// Writes and syncs: everything done so far is durable after this.
    pub fn sync(&mut self) -> Result<()> {
        self.log.sync()
    }

    /// Closes the segment being written and goes on in a new one.
    pub fn rotate(&mut self, now: Now) -> Result<()> {
        self.log.rotate(now.wall_ms)
    }

    /// Why new messages are refused at the moment, if they are: the disk is full, say. Ends by itself, other than
    /// [`Error::WritesStopped`].
    pub fn refusing(&self) -> Option<&str> {
        self.log.refusals().cause()
    }

    /// The last such reason, be it over or not.
    pub fn last_refusal(&self) -> Option<&str> {
        self.log.refusals().last_cause()
    }

    /// How many times something was refused for such a reason since the store was opened.
    pub fn refused(&self) -> u64 {
        self.log.refusals().count()
    }

    /// True once, when there is upkeep that had better not wait: see [`maintain`].
    pub fn asks_for_upkeep(&mut self) -> bool {
        self.log.asks_for_next()
    }

    /// What was found damaged since the store was opened, opening included.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Writes a checkpoint, so that the next open is quick and notices if anything is cut off, and closes
    /// the store.
    pub fn close(mut self) -> Result<()> {
        self.sync()?;
        self.log.trim();
        self.checkpoint()
    }

    /// The slot of a mailbox that exists now.
    fn lookup(&self, address: &str, now: Now) -> Result<SlotIx> {
        self.lookup_from(None, address, now)
    }

    /// The same, where `likely` may be the slot, and may be another's.
    fn lookup_from(&self, likely: Option<SlotIx>, address: &str, now: Now) -> Result<SlotIx> {
        likely
            .filter(|&at| self.state.has(at, address))
            .or_else(|| self.state.find(address))
            .filter(|&at| self.state.slot(at).is_some_and(|s| !s.mailbox.is_expired(now.wall_ms)))
            .ok_or_else(|| Error::MailboxNotFound(address.to_owned()))
    }

    /// Appends records, each about the mailbox in a slot, of which all count or none. Returns where
    /// the first lies. Their space must have been reserved at once: a unit lies in one segment.
    fn append_unit(&mut self, records: &[(SlotIx, &Op<'_>)]) -> Option<Placed> {
        let mut first = None;
        for (at, (index, op)) in records.iter().enumerate() {
            let rest = if at > 0 { FLAG_REST } else { 0 };
            let more = if at + 1 < records.len() { FLAG_MORE } else { 0 };
            let placed = self.append(*index, rest | more, op);
            first.get_or_insert(placed);
        }
        first
    }

    /// Appends a record about the mailbox in slot `index`.
    fn append(&mut self, index: SlotIx, flags: u8, op: &Op<'_>) -> Placed {
        let number = self.state.slot(index).map_or(0, |slot| slot.mailbox.number);
        self.log.append(op.kind(), flags, number, |out| op.encode(out))
    }
}

/// Bytes the records of a unit may take.
fn space_for_unit(records: &[(SlotIx, &Op<'_>)]) -> usize {
    records.iter().map(|(_, op)| Log::record_len(op.max_len())).sum()
}

/// Bytes the records of `ops` may take.
fn space_for(ops: &[&Op<'_>]) -> usize {
    ops.iter().map(|op| Log::record_len(op.max_len())).sum()
}

impl From<Placed> for Place {
    fn from(placed: Placed) -> Place {
        Place { at: placed.at, len: placed.len }
    }
}
