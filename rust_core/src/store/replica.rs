//! A store as one of several that hold the same: what ties its log to their stream, and who decides.
//!
//! A record of kind 32, a *tie*, says that everything before it in the own log is what the stream holds up to a place.
//! What lies behind the last tie never happened for the cluster: opening cuts it off. A follower's state changes by
//! [`Store::apply`] alone, through the functions of recovery. A leader's changes by commands; what they wrote lies in
//! the outbox until it is proposed, and is tied when it is. Must not know how the stream is reached.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::damage::DamageKind;
use super::replay::{Known, Replay};
use super::{Fetched, Options, Store};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::log::{Call, FIRST_RECORD, Log, Lsn, Outbox, Outgoing, Segment, Space, names};
use crate::time::Now;
use crate::wire::op::{Op, kind};
use crate::wire::record::{FLAG_MORE, Record};
use crate::wire::tie::{StreamPosition, Tie, TieRecord};

/// Records that wait for the stream at most; a message of the stream takes 4 MiB.
const OUTBOX_BYTES: usize = 3 << 20;

/// A record that counts once a tie follows.
struct Untied {
    at: Lsn,
    kind: u8,
    flags: u8,
    mailbox: u64,
    body: Vec<u8>,
}

/// Which records of the own log count while it is read: those with a tie behind them.
pub(super) struct Ties {
    /// Ties of later messages of the stream do not count.
    keep: u64,
    last: Option<Tie>,
    /// Behind the last tie that counts.
    end: Lsn,
    /// Bytes of records since then.
    bytes: u64,
    /// Those of them that a checkpoint holds, which are not cut off.
    captured: u64,
    /// Up to here the checkpoint holds what was written.
    captured_to: Lsn,
    untied: Vec<Untied>,
    /// Records of a single node were found, which no stream has.
    is_alone: bool,
    /// A later tie than may be kept was found, or bytes that are no record: nothing behind the last one counts.
    is_over: bool,
    /// Where such bytes begin.
    damaged_at: Option<Lsn>,
}

impl Ties {
    fn up_to(keep: u64) -> Ties {
        let (end, captured_to) = (Lsn::NONE, Lsn::NONE);
        Ties {
            keep,
            last: None,
            end,
            bytes: 0,
            captured: 0,
            captured_to,
            untied: Vec::new(),
            is_alone: false,
            is_over: false,
            damaged_at: None,
        }
    }

    /// Reading begins with what a checkpoint knows: the tie before it, as one behind it would name it.
    pub(super) fn begin(&mut self, next: Option<TieRecord>, captured_to: Lsn) {
        self.captured_to = captured_to;
        if let Some(TieRecord { tie, behind, bytes }) = next {
            (self.last, self.end) = (Some(tie), Lsn::from_number(behind));
            (self.bytes, self.captured) = (bytes, bytes);
        } else if captured_to != Lsn::NONE {
            // Only a single node makes a checkpoint without a tie.
            self.is_alone = true;
        }
    }

    /// Takes the next record, and hands those on that count by now.
    pub(super) fn record(
        &mut self,
        at: Lsn,
        record: &Record<'_>,
        replay: &mut Replay<'_>,
    ) -> Result<()> {
        let &Record { kind, flags, mailbox, body } = record;
        // What every opening writes is no loss. Whatever else comes before the first tie is a single node's, and may be
        // more than memory holds.
        self.is_alone |= self.last.is_none() && ![kind::OPENED, kind::TIED].contains(&kind);
        if self.is_alone && kind != kind::TIED {
            return replay.record(at, record);
        }
        self.untied.push(Untied { at, kind, flags, mailbox, body: body.to_vec() });
        let Ok(Some(Op::Tied(TieRecord { tie, behind, bytes }))) = Op::decode(kind, body) else {
            self.bytes += record.len() as u64;
            return Ok(());
        };
        if behind == TieRecord::ALONE {
            (self.last, self.is_alone) = (None, true);
            self.untied.clear();
            return Ok(());
        }
        self.is_alone &= behind != TieRecord::SEED;
        let is_next = (behind, bytes) == (self.end.number(), self.bytes);
        self.is_over |=
            self.is_alone || tie.at.sequence > self.keep || !(is_next || behind == TieRecord::SEED);
        if self.is_over {
            return Ok(());
        }
        for held in self.untied.drain(..) {
            let Untied { at, kind, flags, mailbox, ref body } = held;
            replay.record(at, &Record { kind, flags, mailbox, body })?;
        }
        self.last = Some(tie);
        self.end = Lsn::new(at.segment(), at.offset() + record.len() as u32);
        (self.bytes, self.captured) = (0, 0);
        Ok(())
    }

    /// Bytes that are no record begin at `at`. What lies behind them may be without what came before: power that fails
    /// during a write leaves such gaps. The stream has it again.
    pub(super) fn damaged(&mut self, at: Lsn) {
        self.is_over = true;
        self.damaged_at.get_or_insert(at);
    }

    /// Where what does not count begins.
    fn cut_at(&self) -> Option<Lsn> {
        let first = self.untied.first().map(|untied| untied.at);
        first.into_iter().chain(self.damaged_at).min()
    }

    /// Fails if what must be cut off cannot be.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_alone {
            let cause = "it was written by a single node; `mq9 cluster seed` makes it the first of a cluster";
            return Err(Error::NotTied(cause.to_owned()));
        }
        let is_captured = self.cut_at().is_some_and(|at| at < self.captured_to);
        let is_ahead = self.last.is_some_and(|tie| tie.at.sequence > self.keep);
        if is_captured || is_ahead {
            let cause = "a checkpoint holds what the stream has lost; compare the nodes' logs";
            return Err(Error::NotTied(cause.to_owned()));
        }
        Ok(())
    }

    /// Cuts off what lies behind the last tie.
    pub(super) fn cut(&self, disk: &dyn Disk, segments: &mut BTreeMap<u32, Segment>) -> Result<()> {
        let Some(first) = self.cut_at() else { return Ok(()) };
        // The last file first: whatever a crash leaves has no gap, and is cut the next time.
        while let Some(last) = segments.last_entry()
            && *last.key() > first.segment()
        {
            let name = names::segment(*last.key());
            last.remove();
            disk.remove(&name).map_err(|e| Error::io("remove", name, e))?;
        }
        if let Some(segment) = segments.get_mut(&first.segment()) {
            segment.end = first.offset();
            let name = || names::segment(first.segment());
            let len = u64::from(segment.end);
            segment.file.set_len(len).map_err(|e| Error::io("cut", name(), e))?;
            segment.file.sync().map_err(|e| Error::io("sync", name(), e))?;
        }
        disk.sync_dir().map_err(|e| Error::io("sync", "the data directory", e))
    }
}

/// What a store keeps as one of several.
pub(super) struct Replica {
    last: Option<Tie>,
    /// Where it ends, as a number.
    behind: u64,
    /// Bytes of records behind it that were there when the log was opened.
    found: u64,
    /// Bytes that were appended by then.
    appended: u64,
    /// The mailboxes that another node's records may name; none for a leader.
    known: Option<Known>,
    /// Batches of a leader that the stream may not have yet: sequence, and where they end in the own log.
    tied: VecDeque<(u64, Lsn)>,
    /// Where the last batch stands, if there was no room for its tie.
    owed: Option<StreamPosition>,
}

impl Replica {
    pub(super) fn new(ties: Ties) -> Replica {
        let (last, behind, found) = (ties.last, ties.end.number(), ties.captured);
        let tied = VecDeque::new();
        Replica { last, behind, found, appended: 0, known: None, tied, owed: None }
    }

    /// Bytes of records behind the last tie, of a log to which so much was appended since it was opened.
    fn bytes(&self, appended: u64) -> u64 {
        self.found + appended - self.appended
    }
}

impl Store {
    /// Opens the store of a node of a cluster, as a follower. Only what is tied to the stream up to message `keep`
    /// counts; what lies behind it is cut off. `u64::MAX` keeps everything that is tied.
    pub fn open_member(
        disk: Arc<dyn Disk>,
        options: Options,
        entropy: u64,
        now: Now,
        keep: u64,
    ) -> Result<Store> {
        let mut store = Store::open_as(disk, options, entropy, now, Some(Ties::up_to(keep)), true)?;
        // What is missing at the end comes again from the stream, what is missing before it does not.
        let is_lost =
            |kind: &DamageKind| matches!(kind, DamageKind::Segment | DamageKind::CutShort);
        if let Some(damage) = store.damage.iter().find(|damage| is_lost(&damage.kind)) {
            let cause = format!("{} is not whole; copy the log of another node", damage.file);
            return Err(Error::NotTied(cause));
        }
        if store.last_tie().is_none() {
            // An empty log begins where the stream does, and never again seems to be a single node's.
            store.append_tie(&Tie::default());
            store.log.sync()?;
        }
        store.follow();
        Ok(store)
    }

    /// Makes the store of a single node the first of a cluster, or that of any node the first of a new one: others copy
    /// its files. It follows from now on. `digest` must be random: it tells the new stream from any other.
    pub fn seed(&mut self, digest: u128, now: Now) -> Result<()> {
        if self.replica.is_none() {
            self.tick(now);
        }
        let (behind, appended) = (TieRecord::SEED, self.log.appended());
        let tied = VecDeque::new();
        self.replica =
            Some(Replica { last: None, behind, found: 0, appended, known: None, tied, owed: None });
        self.log.try_reserve(Log::record_len(TieRecord::MAX_LEN), Space::Reclaim, now.wall_ms)?;
        self.append_tie(&Tie {
            at: StreamPosition { digest, ..StreamPosition::default() },
            before: None,
        });
        self.log.sync()?;
        self.follow();
        Ok(())
    }

    /// Takes a follower out of its cluster: from the next opening on it is a single node's.
    pub fn leave(mut self, now: Now) -> Result<()> {
        self.log.try_reserve(Log::record_len(TieRecord::MAX_LEN), Space::Reclaim, now.wall_ms)?;
        if let Some(replica) = &mut self.replica {
            replica.behind = TieRecord::ALONE;
        }
        self.append_tie(&Tie::default());
        self.log.sync().map(drop)
    }

    fn follow(&mut self) {
        let known = Known::all(&self.state);
        if let Some(replica) = &mut self.replica {
            replica.known = Some(known);
        }
        self.log.follow();
        self.log.syncer().commit(self.log.end());
    }

    /// Whether another node decides.
    pub fn is_follower(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.known.is_some())
    }

    /// A batch may be shown once the log is acknowledged up to here. In a cluster its delivery is part of that: whoever
    /// leads next must know of it.
    pub fn shown_when(&self, batch: &Fetched) -> Lsn {
        if self.replica.is_some() { self.log.end() } else { batch.known() }
    }

    /// Where the own log stands in the stream; none on a single node.
    pub fn last_tie(&self) -> Option<Tie> {
        self.replica.as_ref()?.last
    }

    /// The last tie as one written now would name it, for a checkpoint.
    pub(super) fn next_tie(&self) -> Option<TieRecord> {
        let replica = self.replica.as_ref()?;
        let (behind, bytes) = (replica.behind, replica.bytes(self.log.appended()));
        replica.last.map(|tie| TieRecord { tie, behind, bytes })
    }

    /// A follower takes a batch of the leader: writes it into its own log, with the place in the stream behind it, and
    /// applies it. Nothing is changed after an error.
    pub fn apply(&mut self, records: &[Outgoing], tie: &Tie, now: Now) -> Result<()> {
        let lens = records.iter().map(|record| Log::record_len(record.body.len()));
        let bytes = lens.sum::<usize>() + Log::record_len(TieRecord::MAX_LEN);
        self.log.try_reserve(bytes, Space::Reclaim, now.wall_ms)?;
        debug_assert!(records.last().is_none_or(|last| last.flags & FLAG_MORE == 0), "half a unit");
        let Some(known) = self.replica.as_mut().and_then(|replica| replica.known.take()) else {
            return Err(Error::NotTied("a leader takes no batches".to_owned()));
        };
        let mut replay = Replay::new(&mut self.state, known, now);
        let mut outcome = Ok(());
        for Outgoing { kind, flags, mailbox, body } in records {
            let placed = self.log.append(*kind, *flags, *mailbox, |out| out.extend(body));
            let record = Record { kind: *kind, flags: *flags, mailbox: *mailbox, body };
            outcome = outcome.and_then(|()| replay.record(placed.at, &record));
        }
        let (damage, known) = replay.end();
        self.damage.extend(damage);
        self.forget_sent_ids(records, &known);
        if let Some(replica) = &mut self.replica {
            replica.known = Some(known);
        }
        // A kind that this version does not know: its node must not go on.
        outcome?;
        self.append_tie(tie);
        // Synced now and then: what a power cut takes, the stream still has.
        self.log.flush_and(Call::Later)?;
        self.log.syncer().commit(self.log.end());
        Ok(())
    }

    /// Ids of sends go as time passes, by the leader's clock: a follower's own rests.
    fn forget_sent_ids(&mut self, records: &[Outgoing], known: &Known) {
        for record in records.iter().filter(|record| record.kind == kind::SENT_ONCE) {
            if let Ok(Some(Op::SentOnce(sent))) = Op::decode(record.kind, &record.body)
                && let Some(index) = known.slot(record.mailbox)
            {
                self.state.forget_sent_ids_now(index, Now { wall_ms: sent.sent_ms, mono_ms: 0 });
            }
        }
    }

    /// This node leads from now on, behind `tie`: commands are carried out here, and written for the others.
    /// Who held messages of a group holds them no longer, as after a restart; a consumer's come back in their time.
    pub fn promote(&mut self, tie: &Tie, now: Now) -> Result<()> {
        if !self.is_follower() {
            return Err(Error::NotTied("only a follower becomes the leader".to_owned()));
        }
        self.log.try_reserve(LEAD_SPACE, Space::Reclaim, now.wall_ms)?;
        self.append_tie(tie);
        self.log.flush()?;
        self.log.syncer().commit(self.log.end());
        if let Some(replica) = &mut self.replica {
            replica.known = None;
        }
        self.log.lead(Outbox::new(OUTBOX_BYTES));
        // Connections of this term are told from those of any other.
        self.state.epoch = self.state.epoch.saturating_add(1);
        // As after a restart: ids of messages in memory are not given out again, and what consumers hold comes back.
        self.state.skip_reserved_ids();
        self.state.recover_streams(now);
        let opened = Op::Opened { epoch: self.state.epoch, wall_ms: now.wall_ms };
        self.log.append(opened.kind(), 0, 0, |out| opened.encode(out));
        self.note_use_of_all(now);
        self.note_surplus_of_all(now);
        self.log.flush()
    }

    /// What commands of a leader wrote since the last time, in order: the next batch.
    pub fn take_outbox(&mut self) -> Result<Vec<Outgoing>> {
        self.log.flush()?;
        Ok(self.log.outbox().map_or_else(Vec::new, Outbox::take))
    }

    /// From now on `told` is called when something waits to be proposed after nothing did.
    pub fn on_outgoing(&mut self, told: impl Fn() + Send + 'static) {
        if let Some(outbox) = self.log.outbox() {
            outbox.listen(told);
        }
    }

    /// Whether something that was written waits to be proposed.
    pub fn has_outgoing(&mut self) -> bool {
        self.log.outbox().is_some_and(|outbox| !outbox.is_empty())
    }

    /// A leader has proposed what [`Store::take_outbox`] just gave, and knows where it will stand. Without room for the
    /// tie the batch counts all the same: a restart takes it from the stream again.
    pub fn tie(&mut self, tie: &Tie, now: Now) -> Result<()> {
        let len = Log::record_len(TieRecord::MAX_LEN);
        let reserved = self.log.try_reserve(len, Space::Reclaim, now.wall_ms);
        // Whatever comes between would belong to this batch, and is not in it.
        debug_assert!(self.log.buffered() == 0 && !self.has_outgoing(), "records without a batch");
        let before = self.log.end();
        let written = reserved.and_then(|()| {
            self.append_tie(tie);
            // No reply waits for the tie itself to be durable.
            self.log.flush_and(Call::Later)
        });
        let end = if written.is_ok() { self.log.end() } else { before };
        if let Some(replica) = &mut self.replica {
            replica.owed = written.is_err().then_some(tie.at);
            replica.tied.push_back((tie.at.sequence, end));
        }
        written
    }

    /// The stream has the leader's batches up to `sequence`: replies that waited for that may leave.
    pub fn committed(&mut self, sequence: u64) {
        let Some(replica) = &mut self.replica else { return };
        let mut end = None;
        while let Some(&(tied, at)) = replica.tied.front()
            && tied <= sequence
        {
            end = Some(at);
            replica.tied.pop_front();
        }
        match end {
            Some(end) => self.log.syncer().commit(end),
            // The lease goes on: who waited for that alone hears of it.
            None => self.log.syncer().tell(),
        }
    }

    /// Ties what concerns this node alone, such as moved messages, once everything before it is in the stream. Upkeep
    /// does: a segment whose messages were moved goes only when the copies cannot be cut off any more.
    pub(super) fn tie_own_records(&mut self, now: Now) -> Result<()> {
        let Some(Replica { last: Some(last), owed, .. }) = &self.replica else { return Ok(()) };
        if self.log.syncer().is_committed(self.log.end()) {
            return Ok(());
        }
        // A batch without a tie of its own is in the stream by now.
        self.tie_end(owed.unwrap_or(last.at), now)
    }

    /// A leader that had nothing to say notes that the stream is at `at` by now: until then a restart would need all
    /// of it again. Does nothing while a batch is under way.
    pub fn tie_heartbeats(&mut self, at: StreamPosition, now: Now) -> Result<()> {
        let is_behind = |tie: Tie| tie.at.sequence < at.sequence;
        if self.is_follower() || !self.last_tie().is_some_and(is_behind) {
            return Ok(());
        }
        self.tie_end(at, now)
    }

    /// Ties the end of the own log to `at`, if nothing of it is still on its way into the stream.
    fn tie_end(&mut self, at: StreamPosition, now: Now) -> Result<()> {
        if self.replica.as_ref().is_none_or(|replica| !replica.tied.is_empty()) {
            return Ok(());
        }
        self.log.flush()?;
        if self.has_outgoing() {
            return Ok(());
        }
        let len = Log::record_len(TieRecord::MAX_LEN);
        self.log.try_reserve(len, Space::Reclaim, now.wall_ms)?;
        self.append_tie(&Tie { at, before: None });
        if let Some(replica) = &mut self.replica {
            // Tied again it would lead back to what may be purged.
            replica.owed = None;
        }
        self.log.flush()?;
        self.log.syncer().commit(self.log.end());
        Ok(())
    }

    /// Whether a follower's disk would take what a leader writes.
    pub fn has_room(&mut self, now: Now) -> bool {
        self.log.try_reserve(ROOM, Space::Store, now.wall_ms).is_ok()
    }

    fn append_tie(&mut self, tie: &Tie) {
        let Some(replica) = &mut self.replica else { return };
        let bytes = replica.bytes(self.log.appended());
        let op = Op::Tied(TieRecord { tie: *tie, behind: replica.behind, bytes });
        self.log.append(op.kind(), 0, 0, |out| op.encode(out));
        replica.last = Some(*tie);
        (replica.behind, replica.found) = (self.log.end().number(), 0);
        replica.appended = self.log.appended();
    }
}

/// A disk with less room than this is full for a leader.
const ROOM: usize = 4 << 20;

/// Space for the records with which a lead begins.
const LEAD_SPACE: usize = 4 * (FIRST_RECORD as usize + TieRecord::MAX_LEN);
