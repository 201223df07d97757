//! From the bytes of a part of a segment to rows. Pure: knows neither files nor the past.

use mq9_core::error::Error as LogError;
use mq9_core::group::ranges::{DeliveryRanges, IdRanges};
use mq9_core::log::{Found, Lsn, Scan, Units, names};
use mq9_core::wire::op::{Op, kind};
use mq9_core::wire::record::{FLAG_MOVED, FLAGS, Record};
use mq9_core::wire::stamp::{Stamp, cause};

use crate::error::Result;
use crate::events::{More, Run};
use crate::messages::Row;

/// Mailboxes of the broker's own begin with this.
const OWN: char = '$';
/// Cards of agents, by address.
const AGENTS: &str = "$agents";
/// Reports of agents, by address.
const REPORTS: &str = "$reports";

/// More messages than this are in no record that a store wrote.
const MOST_IDS: u64 = 1 << 31;

/// A part of a segment.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The segment.
    pub segment: u32,
    /// Its salt.
    pub salt: u64,
    /// Where the part begins: behind a record that counts, or where the first one begins.
    pub from: u32,
    /// The part.
    pub bytes: &'a [u8],
    /// Nothing follows in the segment.
    pub is_end: bool,
    /// Nothing will be written to the segment any more.
    pub is_sealed: bool,
}

/// What a part of the log holds.
#[derive(Debug, Default)]
pub struct Piece<'a> {
    /// Messages that entered a mailbox.
    pub messages: Vec<Row<'a>>,
    /// What happened.
    pub events: Vec<Run<'a>>,
    /// Where it ends, which may be before the part does.
    pub to: u32,
    /// Nothing is left of the segment.
    pub is_last: bool,
    /// Records that tell no time.
    pub untimed: u64,
    /// Bytes that are no records.
    pub damaged_bytes: u64,
}

/// Takes what counts out of a part; rows older than `since_ms` are left out.
pub fn collect(part: Part<'_>, since_ms: u64) -> Result<Piece<'_>> {
    let mut piece = Piece::default();
    let from = Lsn::new(part.segment, part.from);
    let mut units = Units::new(from);
    let mut damaged = 0;
    let mut is_whole = part.is_end;
    for found in Scan::part(part.bytes, part.segment, part.salt, part.from) {
        match found {
            Found::Record { at, record } => {
                check(at, &record)?;
                units.take(at, record, |at, record| {
                    piece.damaged_bytes += std::mem::take(&mut damaged);
                    piece.add(at, &record, since_ms);
                });
            }
            Found::Damage { bytes, .. } if part.is_sealed => {
                units.damaged();
                damaged += bytes.len() as u64;
            }
            Found::Torn { bytes, .. } if part.is_sealed && part.is_end => {
                units.damaged();
                damaged += bytes.len() as u64;
            }
            // Perhaps just being written, or cut by the end of the part.
            Found::Damage { .. } | Found::Torn { .. } => {
                is_whole = false;
                break;
            }
        }
    }
    piece.is_last = part.is_sealed && is_whole;
    piece.to = units.end().offset();
    if piece.is_last {
        piece.damaged_bytes += damaged;
        piece.to = part.from + part.bytes.len() as u32;
    }
    Ok(piece)
}

/// What is not understood is never passed over.
fn check(at: Lsn, record: &Record<'_>) -> Result<()> {
    let what = if !kind::is_known(record.kind) {
        format!("a record of kind {}", record.kind)
    } else if record.flags & !FLAGS != 0 {
        format!("a record with flags {:#04x}", record.flags)
    } else {
        return Ok(());
    };
    let (file, offset) = (names::segment(at.segment()), u64::from(at.offset()));
    Err(LogError::NewerFormat { file, offset, what }.into())
}

impl<'a> Piece<'a> {
    fn add(&mut self, at: Lsn, record: &Record<'a>, since_ms: u64) {
        let Ok(Some(op)) = Op::decode(record.kind, record.body) else {
            self.damaged_bytes += record.len() as u64;
            return;
        };
        let mut teller = Teller { piece: self, offset: at.offset(), seq: 0, since_ms };
        let told = match op {
            // A copy made by compaction is no new message.
            Op::Message(_) if record.flags & FLAG_MOVED != 0 => Some(()),
            Op::Message(message) => {
                teller.message(Row { message, offset: at.offset() });
                Some(())
            }
            Op::MailboxCreated { created_ms, address, .. } => {
                let stamp = Stamp { time_ms: created_ms, address };
                teller.mailbox("create", stamp, None);
                Some(())
            }
            Op::MailboxRemoved { stamp: Some(stamp), cause } => {
                let (kind, cause) = departure(cause);
                teller.mailbox(kind, stamp, cause);
                Some(())
            }
            // Acknowledged at the same time, which is told.
            Op::Removed { stamp: Some(_), cause: cause::CONSUMED, .. } => Some(()),
            Op::Removed { stamp: Some(stamp), cause, ranges } => {
                let (kind, cause) = departure(cause);
                teller.ids(kind, stamp, ranges, More { cause, ..More::default() })
            }
            Op::Delivered { stamp: Some(stamp), group, member, ranges, .. } => {
                let more = More { group: Some(group), member: Some(member), ..More::default() };
                teller.deliveries(stamp, ranges, more)
            }
            Op::Acked { stamp: Some(stamp), group, ranges } => {
                teller.ids("ack", stamp, ranges, More { group: Some(group), ..More::default() })
            }
            Op::Returned { stamp: Some(stamp), group, ranges } => {
                teller.ids("nak", stamp, ranges, More { group: Some(group), ..More::default() })
            }
            Op::DeadLettered(dead) => {
                let more = More {
                    level: Some(dead.level),
                    group: Some(dead.group),
                    count: Some(dead.count),
                    target: Some(dead.target).filter(|target| !target.is_empty()),
                    cause: cause::name(dead.cause),
                    ..More::default()
                };
                teller.run("dead_letter", dead.stamp, Some(dead.msg_id), 1, more);
                Some(())
            }
            Op::Purged(purged) => {
                teller.mailbox("purge", purged.stamp, None);
                Some(())
            }
            Op::MailboxRemoved { stamp: None, .. }
            | Op::Removed { stamp: None, .. }
            | Op::Delivered { stamp: None, .. }
            | Op::Acked { stamp: None, .. }
            | Op::Returned { stamp: None, .. } => {
                self.untimed += 1;
                Some(())
            }
            Op::Opened { .. }
            | Op::Delayed(_)
            | Op::DelayEnded { .. }
            | Op::IdsReserved { .. }
            | Op::SentOnce(_)
            | Op::Tied(_)
            | Op::ConsumerSet(_)
            | Op::ConsumerGiven(_)
            | Op::ConsumerDone(_)
            | Op::ConsumerRemoved(_)
            | Op::ConsumerReturned(_)
            | Op::Updated(_)
            | Op::GroupReset { .. }
            | Op::GroupRemoved { .. } => Some(()),
        };
        if told.is_none() {
            self.damaged_bytes += record.len() as u64;
        }
    }
}

/// What a removal is called, and its cause where the name does not say it.
fn departure(cause: u8) -> (&'static str, Option<&'static str>) {
    match cause {
        cause::EXPIRED => ("expire", None),
        _ => ("delete", cause::name(cause)),
    }
}

/// Adds the rows of one record.
struct Teller<'p, 'a> {
    piece: &'p mut Piece<'a>,
    offset: u32,
    seq: u32,
    since_ms: u64,
}

impl<'a> Teller<'_, 'a> {
    fn message(&mut self, row: Row<'a>) {
        let message = &row.message;
        let stamp = Stamp { time_ms: message.sent_ms, address: message.address };
        let more = More { size: Some(message.payload.len() as u64), ..More::default() };
        let by_key = Stamp { address: message.key, ..stamp };
        match message.address {
            AGENTS => self.push("register", by_key, None, 1, more),
            REPORTS => self.push("report", by_key, None, 1, more),
            address if address.starts_with(OWN) => {}
            _ => {
                let more = More { level: Some(message.level), ..more };
                self.push("send", stamp, Some(message.msg_id), 1, more);
                if message.sent_ms >= self.since_ms {
                    self.piece.messages.push(row);
                }
            }
        }
    }

    fn mailbox(&mut self, kind: &'static str, stamp: Stamp<'a>, cause: Option<&'static str>) {
        self.run(kind, stamp, None, 1, More { cause, ..More::default() });
    }

    /// `None` if the record is malformed.
    fn ids(
        &mut self,
        kind: &'static str,
        stamp: Stamp<'a>,
        ranges: &'a [u8],
        more: More<'a>,
    ) -> Option<()> {
        let ranges = IdRanges::decode(ranges).filter(|ranges| ranges.total() <= MOST_IDS)?;
        for ids in ranges.runs() {
            self.run(kind, stamp, Some(ids.start), (ids.end - ids.start) as u32, more);
        }
        Some(())
    }

    /// `None` if the record is malformed.
    fn deliveries(&mut self, stamp: Stamp<'a>, ranges: &'a [u8], more: More<'a>) -> Option<()> {
        let ranges = DeliveryRanges::decode(ranges).filter(|ranges| ranges.total() <= MOST_IDS)?;
        for (level, count, ids) in ranges.deliveries() {
            let kind = if count > 1 { "redeliver" } else { "deliver" };
            let more = More { level: Some(level.number()), count: Some(count), ..more };
            self.run(kind, stamp, Some(ids.start), (ids.end - ids.start) as u32, more);
        }
        Some(())
    }

    /// Adds a run, unless it is about a mailbox of the broker's own.
    fn run(
        &mut self,
        kind: &'static str,
        stamp: Stamp<'a>,
        first_id: Option<u64>,
        len: u32,
        more: More<'a>,
    ) {
        if !stamp.address.starts_with(OWN) {
            self.push(kind, stamp, first_id, len, more);
        }
    }

    fn push(
        &mut self,
        kind: &'static str,
        stamp: Stamp<'a>,
        first_id: Option<u64>,
        len: u32,
        more: More<'a>,
    ) {
        let Stamp { time_ms, address: mailbox } = stamp;
        if time_ms >= self.since_ms {
            let (offset, seq) = (self.offset, self.seq);
            let run = Run { kind, mailbox, first_id, len, time_ms, offset, seq, more };
            self.piece.events.push(run);
        }
        self.seq = self.seq.wrapping_add(len);
    }
}
