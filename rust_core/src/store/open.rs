//! Opening a data directory: newest sound checkpoint, log tail, then a new segment.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::checkpoint::{Checkpoints, Ends, Loaded, load};
use super::damage::{Damage, DamageKind, set_aside, write_down};
use super::dead_counts::DeadCounts;
use super::lost::Lost;
use super::replay::Replay;
use super::replica::{Replica, Ties};
use super::waiters::Waiters;
use super::{Options, Store};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::log::{FIRST_RECORD, Found, Header, Log, Lsn, Scan, Segment, names};
use crate::time::Now;
use crate::wire::op::{Op, kind};
use crate::wire::tie::TieRecord;

/// The segments found on disk.
struct OnDisk {
    segments: BTreeMap<u32, Segment>,
    /// The segment each one says it follows.
    previous: BTreeMap<u32, u32>,
    /// The highest number of a segment, whatever became of it.
    last_number: u32,
    /// Bytes of log that were replayed.
    replayed: u64,
}

impl OnDisk {
    /// What segments have lost at their ends. None is shorter than its header: it got its name only when
    /// that was durable. One that is missing was dead, or is reported where it is missed.
    fn cut_short(&self, ends: &Ends) -> Vec<Damage> {
        let known: BTreeMap<u32, u32> = ends.0.iter().copied().collect();
        let cut = self.segments.iter().filter_map(|(&number, segment)| {
            let wanted = known.get(&number).copied().unwrap_or(0).max(FIRST_RECORD);
            let missing = wanted.checked_sub(segment.end).filter(|missing| *missing > 0)?;
            let at = Lsn::new(number, segment.end);
            Some(Damage::at(at, u64::from(missing), DamageKind::CutShort))
        });
        cut.collect()
    }

    /// Tells of the messages that lay in a segment, or in its end, together with the segment.
    fn report_lost(&self, disk: &dyn Disk, number: u32, lost: Lost, damage: &mut Vec<Damage>) {
        let file = names::segment(number);
        let of_segment = |d: &Damage| {
            d.file == file && matches!(d.kind, DamageKind::Segment | DamageKind::CutShort)
        };
        let at = damage.iter().position(of_segment).unwrap_or_else(|| {
            let segment = self.segments.get(&number);
            let kind = segment.map_or(DamageKind::Segment, |_| DamageKind::CutShort);
            damage.push(Damage::at(Lsn::new(number, segment.map_or(0, |s| s.end)), 0, kind));
            damage.len() - 1
        });
        damage[at].lost = lost;
        if damage[at].set_aside.is_none() {
            write_down(disk, &damage[at]);
        }
    }

    /// Removes a last segment without records: it was made ahead of need. Where a checkpoint begins it stays.
    fn remove_unused(&mut self, disk: &dyn Disk, start: Lsn) {
        if let Some(last) = self.segments.last_entry()
            && *last.key() > start.segment()
            && last.get().end == FIRST_RECORD
        {
            let (number, _) = last.remove_entry();
            // If it stays it is an empty segment, which means nothing.
            let _ = disk.remove(&names::segment(number));
        }
    }
}

impl Store {
    /// Opens the store in `disk`, or makes a new one. `entropy` must be random: it keeps payloads
    /// from being mistaken for records.
    pub fn open(disk: Arc<dyn Disk>, options: Options, entropy: u64, now: Now) -> Result<Store> {
        Store::open_as(disk, options, entropy, now, None, true)
    }

    /// The same, to look at whatever is there: also what belongs to a cluster.
    pub fn look(disk: Arc<dyn Disk>, options: Options, entropy: u64, now: Now) -> Result<Store> {
        Store::open_as(disk, options, entropy, now, None, false)
    }

    /// With `ties`, only what is tied to the stream of a cluster counts: what lies behind it is cut off. Without, what
    /// belongs to a cluster is refused if the store `writes`: the next node that leads would not know of it.
    pub(super) fn open_as(
        disk: Arc<dyn Disk>,
        options: Options,
        entropy: u64,
        now: Now,
        mut ties: Option<Ties>,
        writes: bool,
    ) -> Result<Store> {
        let lock = disk.lock().map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => Error::Locked,
            _ => Error::io("lock", "the data directory", e),
        })?;
        let names = disk.list().map_err(|e| Error::io("list", "the data directory", e))?;
        for name in names.iter().filter(|name| name.ends_with(names::UNFINISHED)) {
            let _ = disk.remove(name);
        }
        let mut damage = Vec::new();
        let mut on_disk = find_segments(&*disk, &names, &mut damage)?;
        let (loaded, mut checkpoints) = newest_checkpoint(&*disk, &names, now, &mut damage)?;
        let Loaded { mut state, known, last_position, ends, tie, .. } = loaded;
        let start = checkpoints.newest.map_or(Lsn::NONE, |c| c.start);
        on_disk.last_number = on_disk.last_number.max(last_position.segment());

        let replay = Replay::new(&mut state, known, now);
        if let Some(ties) = &mut ties {
            ties.begin(tie, last_position);
        }
        let mut is_tied = tie.is_some();
        damage.extend(replay_tail(
            &*disk,
            &mut on_disk,
            start,
            replay,
            ties.as_mut(),
            &mut is_tied,
        )?);
        if is_tied && ties.is_none() && writes {
            let cause = "it belongs to a cluster: start it with its replication block, or take it out with \
                         `mq9 cluster leave`";
            return Err(Error::NotTied(cause.to_owned()));
        }
        if let Some(ties) = &ties {
            ties.check()?;
            ties.cut(&*disk, &mut on_disk.segments)?;
        }
        damage.extend(on_disk.cut_short(&ends));
        on_disk.remove_unused(&*disk, start);
        state.count_out_all_removed();
        state.skip_reserved_ids();
        for (number, lost) in state.recount(&on_disk.segments, now) {
            on_disk.report_lost(&*disk, number, lost, &mut damage);
        }
        state.recover_streams(now);

        let OnDisk { segments, last_number, replayed, .. } = on_disk;
        checkpoints.replayed = replayed;
        let log = Log::start(
            Arc::clone(&disk),
            options.log(),
            entropy,
            segments,
            last_number,
            now.wall_ms,
        )?;
        state.epoch = state.epoch.saturating_add(1);
        let epoch = state.epoch;
        let mut store = Store {
            disk,
            options,
            state,
            log,
            checkpoints,
            waiters: Waiters::default(),
            readers: Default::default(),
            dying: Vec::new(),
            stuck: Default::default(),
            kept: None,
            replica: ties.map(Replica::new),
            damage,
            dead: DeadCounts::default(),
            _lock: lock,
        };
        let opened = Op::Opened { epoch, wall_ms: now.wall_ms };
        store.log.append(opened.kind(), 0, 0, |out| opened.encode(out));
        store.log.flush()?;
        store.note_use_of_all(now);
        store.note_surplus_of_all(now);
        Ok(store)
    }
}

fn find_segments(disk: &dyn Disk, names: &[String], damage: &mut Vec<Damage>) -> Result<OnDisk> {
    let mut found = OnDisk {
        segments: BTreeMap::new(),
        previous: BTreeMap::new(),
        last_number: 0,
        replayed: 0,
    };
    for name in names {
        let Some(number) = names::segment_number(name) else { continue };
        let failed = |action, e| Error::io(action, name.clone(), e);
        found.last_number = found.last_number.max(number);
        let file = disk.open(name).map_err(|e| failed("open", e))?;
        let mut bytes = [0; FIRST_RECORD as usize];
        let got = file.read_at(&mut bytes, 0).map_err(|e| failed("read", e))?;
        let len = file.size().map_err(|e| failed("read", e))?;
        match Header::decode(name, &bytes[..got])?.filter(|header| header.number == number) {
            Some(header) => {
                let end = u32::try_from(len).unwrap_or(u32::MAX);
                found.segments.insert(number, Segment { file, salt: header.salt, end });
                found.previous.insert(number, header.previous);
            }
            None => {
                let mut bytes = vec![0; len.min(1 << 32) as usize];
                let got = file.read_at(&mut bytes, 0).map_err(|e| failed("read", e))?;
                let records = bytes.get(FIRST_RECORD as usize..got).unwrap_or_default();
                if records.iter().all(|&byte| byte == 0) {
                    damage.push(Damage::at(Lsn::new(number, 0), len, DamageKind::Segment));
                    let _ = disk.remove(name);
                } else {
                    damage.push(rename_aside(disk, name, len, DamageKind::Segment));
                }
            }
        }
    }
    Ok(found)
}

/// Keeps an unreadable file under another name.
fn rename_aside(disk: &dyn Disk, name: &str, bytes: u64, kind: DamageKind) -> Damage {
    let kept = names::set_aside(name, 0);
    let set_aside = disk.rename(name, &kept).is_ok().then_some(kept);
    Damage { file: name.to_owned(), offset: 0, bytes, kind, set_aside, lost: Lost::default() }
}

fn newest_checkpoint(
    disk: &dyn Disk,
    names: &[String],
    now: Now,
    damage: &mut Vec<Damage>,
) -> Result<(Loaded, Checkpoints)> {
    let mut numbers: Vec<u32> = names.iter().filter_map(|n| names::checkpoint_number(n)).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let last_number = numbers.first().copied().unwrap_or(0);
    let mut checkpoints = Checkpoints { last_number, ..Checkpoints::default() };
    let mut sound: Option<Loaded> = None;
    for number in numbers {
        match &sound {
            Some(_) if checkpoints.previous.is_none() => {
                checkpoints.previous = super::checkpoint::peek(disk, number)?;
                if checkpoints.previous.is_none() {
                    let name = names::checkpoint(number);
                    damage.push(rename_aside(disk, &name, 0, DamageKind::Checkpoint));
                }
            }
            Some(_) => {
                let _ = disk.remove(&names::checkpoint(number));
            }
            None => {
                sound = load(disk, number, now)?;
                checkpoints.newest = sound.as_ref().and_then(|loaded| loaded.on_disk);
                if sound.is_none() {
                    let name = names::checkpoint(number);
                    damage.push(rename_aside(disk, &name, 0, DamageKind::Checkpoint));
                }
            }
        }
    }
    Ok((sound.unwrap_or_else(|| Loaded::nothing(now)), checkpoints))
}

fn replay_tail(
    disk: &dyn Disk,
    on_disk: &mut OnDisk,
    start: Lsn,
    mut replay: Replay<'_>,
    mut ties: Option<&mut Ties>,
    is_tied: &mut bool,
) -> Result<Vec<Damage>> {
    let mut before = start.segment();
    if start != Lsn::NONE && !on_disk.segments.contains_key(&before) {
        replay.damaged(Damage::at(Lsn::new(before, 0), 0, DamageKind::Segment));
    }
    let numbers: Vec<u32> = on_disk.segments.range(start.segment()..).map(|(&n, _)| n).collect();
    for number in numbers {
        let follows = on_disk.previous.get(&number).copied().unwrap_or(0);
        if number != start.segment() && follows > before {
            replay.damaged(Damage::at(Lsn::new(follows, 0), 0, DamageKind::Segment));
        }
        before = number;
        let Some(segment) = on_disk.segments.get_mut(&number) else { continue };
        let failed = |e| Error::io("read", names::segment(number), e);
        let from = if number == start.segment() { start.offset() } else { FIRST_RECORD };
        // What the checkpoint has need not be read.
        let unread = from.min(segment.end) as usize;
        let mut bytes = vec![0; segment.end as usize];
        let got = segment.file.read_at(&mut bytes[unread..], unread as u64).map_err(failed)?;
        bytes.truncate(unread + got);
        let mut scan = Scan::new(&bytes, number, segment.salt, from);
        for found in scan.by_ref() {
            match found {
                Found::Record { at, record } => match &mut ties {
                    None => {
                        if record.kind == kind::TIED
                            && let Ok(Some(Op::Tied(tie))) = Op::decode(record.kind, record.body)
                        {
                            *is_tied = tie.behind != TieRecord::ALONE;
                        }
                        replay.record(at, &record)?;
                    }
                    Some(ties) => ties.record(at, &record, &mut replay)?,
                },
                Found::Damage { at, bytes } => {
                    let mut damage = Damage::at(at, bytes.len() as u64, DamageKind::Record);
                    damage.set_aside = set_aside(disk, &damage.file, damage.offset, bytes);
                    replay.damaged(damage);
                    ties.iter_mut().for_each(|ties| ties.damaged(at));
                }
                Found::Torn { at, bytes } => {
                    let mut damage = Damage::at(at, bytes.len() as u64, DamageKind::TornTail);
                    damage.set_aside = set_aside(disk, &damage.file, damage.offset, bytes);
                    replay.torn(damage);
                    ties.iter_mut().for_each(|ties| ties.damaged(at));
                }
            }
        }
        segment.end = scan.offset();
        on_disk.replayed += u64::from(segment.end.saturating_sub(from));
        // What follows the records is unused space or set aside.
        let _ = segment.file.set_len(u64::from(segment.end));
        // A killed process may have left records that are written and not durable. From here on
        // they are built upon as if they were. A checkpoint has synced everything before it.
        segment.file.sync().map_err(|e| Error::io("sync", names::segment(number), e))?;
    }
    Ok(replay.finish())
}
